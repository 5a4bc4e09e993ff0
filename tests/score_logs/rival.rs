//! The rival: the answer of a rule of thumb to the same text, one rule per format, the first that applies.
//!
//! These are the rules of runbooks: the top known frame, the highest `%util`, swap in use, the largest pressure. They
//! do not weigh evidence and never abstain, so the difference to flatwater is flatwater's judgement.

/// A rule: returns the cause if the text has the rule's format.
type Rule = fn(&str) -> Option<&'static str>;

const RULES: &[Rule] =
    &[out_of_memory, stack, allocation_failure, cgroup, pressure, slabtop, iostat, vmstat, sar, meminfo, free, latency];

pub fn answer(text: &str) -> &'static str {
    RULES.iter().find_map(|rule| rule(text)).unwrap_or("quiet")
}

/// The values of the named column in the rows below a header that contains it.
fn column(text: &str, name: &str) -> Vec<f64> {
    let (mut at, mut found) = (None, Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(position) = words.iter().position(|word| *word == name) {
            // Count from the right, because times and names at the left have any number of words.
            at = Some(words.len() - position);
        } else if let Some(from_right) = at
            && let Some(value) = words.len().checked_sub(from_right).and_then(|index| words.get(index))
            && let Ok(value) = value.replace(',', ".").parse()
        {
            found.push(value);
        }
    }
    found
}

fn largest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// The number after the first `key` (`MemTotal:`, `avg10=`).
fn after(text: &str, key: &str) -> Option<f64> {
    let rest = text[text.find(key)? + key.len()..].trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn out_of_memory(text: &str) -> Option<&'static str> {
    let killed = ["oom-killer", "Out of memory", "out of memory", "OOM kill"].iter().any(|sign| text.contains(sign));
    killed.then_some("out-of-memory")
}

/// The first frame from the top that runbooks name.
fn stack(text: &str) -> Option<&'static str> {
    const FRAMES: &[(&str, &str)] = &[
        ("balance_dirty_pages", "dirty-throttle"),
        ("mem_cgroup_handle_over_high", "memcg-over-high"),
        ("try_to_free_mem_cgroup_pages", "memcg-reclaim"),
        ("try_to_free_pages", "direct-reclaim"),
        ("shrink_slab", "shrinker"),
        ("compact_zone", "compaction"),
        ("jbd2_", "journal-commit"),
        ("xlog_", "journal-commit"),
        ("btrfs_commit_transaction", "journal-commit"),
        ("wait_on_page_writeback", "page-writeback"),
        ("folio_wait_writeback", "page-writeback"),
        ("rq_qos_wait", "request-queue"),
        ("blk_mq_get_tag", "request-queue"),
        ("mutex_lock", "lock"),
        ("rwsem_down", "lock"),
        ("down_read", "lock"),
        ("down_write", "lock"),
    ];
    let traced = ["+0x", "Call Trace", "Call trace", "[<0>]"].iter().any(|sign| text.contains(sign));
    let of = |line: &str| FRAMES.iter().find(|(frame, _)| line.contains(frame)).map(|(_, cause)| *cause);
    if !traced {
        return None;
    }
    text.lines().find_map(of).or(text.contains("io_schedule").then_some("device-slow"))
}

fn allocation_failure(text: &str) -> Option<&'static str> {
    (text.contains("page allocation failure") || text.contains("possible memory allocation deadlock"))
        .then_some("fragmentation")
}

fn cgroup(text: &str) -> Option<&'static str> {
    let events = text.contains("memory.events");
    if events && ["high ", "high:"].iter().any(|key| after(text, key).is_some_and(|count| count > 0.0)) {
        return Some("memcg-over-high");
    }
    (events || text.contains("memory.stat")).then_some("memcg-reclaim")
}

fn pressure(text: &str) -> Option<&'static str> {
    let mut kind = "";
    let mut worst = None;
    for line in text.lines() {
        for (name, cause) in [("memory", "direct-reclaim"), ("io", "device-slow"), ("cpu", "cpu-contention")] {
            if line.contains(&format!("{name}.pressure")) || line.contains(&format!("pressure/{name}")) {
                kind = cause;
            }
        }
        let tenth = if line.contains("avg10=") { after(line, "avg10=") } else { None };
        if let Some(share) = tenth
            && worst.is_none_or(|(most, _)| share > most)
        {
            worst = Some((share, kind));
        }
    }
    worst.map(|(share, kind)| if share < 10.0 || kind.is_empty() { "quiet" } else { kind })
}

fn slabtop(text: &str) -> Option<&'static str> {
    (text.contains("OBJ SIZE") || text.contains("OBJ/SLAB")).then_some("slab-leak")
}

fn iostat(text: &str) -> Option<&'static str> {
    let busiest = largest(&column(text, "%util"))?;
    Some(if busiest >= 80.0 { "device-slow" } else { "quiet" })
}

fn vmstat(text: &str) -> Option<&'static str> {
    let mean = |name: &str| {
        let values = column(text, name);
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    if !text.contains(" swpd ") {
        return None;
    }
    Some(match () {
        () if mean("si") > 10.0 && mean("so") > 10.0 => "swap-storm",
        () if mean("st") > 10.0 => "hypervisor-noise",
        () if mean("wa") > 20.0 => "device-slow",
        () if mean("r") > 20.0 => "cpu-contention",
        () => "quiet",
    })
}

fn sar(text: &str) -> Option<&'static str> {
    let direct = largest(&column(text, "pgscand/s"))?;
    Some(if direct > 0.0 { "direct-reclaim" } else { "quiet" })
}

fn meminfo(text: &str) -> Option<&'static str> {
    let total = after(text, "MemTotal:")?;
    let share = |key: &str| after(text, key).unwrap_or(0.0) / total;
    Some(match () {
        () if share("Dirty:") + share("Writeback:") > 0.1 => "dirty-throttle",
        () if share("SUnreclaim:") > 0.2 => "slab-leak",
        () if share("SwapTotal:") - share("SwapFree:") > share("SwapTotal:") / 2.0 => "swap-storm",
        () => "quiet",
    })
}

fn free(text: &str) -> Option<&'static str> {
    let line = text.lines().find(|line| line.trim_start().starts_with("Swap:"))?;
    let figures: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [total, used, ..] = figures[..] else { return Some("quiet") };
    Some(if used > total / 2.0 { "swap-storm" } else { "quiet" })
}

/// Applications that report slow syncs, and histograms with a bucket of 10 ms or more.
fn latency(text: &str) -> Option<&'static str> {
    let complaint = ["took too long", "taking too long", "sync duration", "fsync-ing", "slow fdatasync"];
    if complaint.iter().any(|words| text.contains(words)) {
        return Some("device-slow");
    }
    if let Some(longest) = text.lines().filter_map(|line| after(line, "longest=")).reduce(f64::max) {
        return Some(if longest >= 1.0 { "page-writeback" } else { "quiet" });
    }
    let slowest = largest(&column(text, "LAT(ms)"))?;
    Some(if slowest >= 10.0 { "device-slow" } else { "quiet" })
}

#[test]
fn columns_are_read_from_the_right() {
    let text = "Device r/s %util\nsda 1,50 99,5\n13:00:00 sdb 2 3";
    assert_eq!(column(text, "%util"), [99.5, 3.0]);
    assert_eq!(column(text, "r/s"), [1.5, 2.0]);
    assert_eq!(answer(text), "device-slow");
}

#[test]
fn a_stack_is_named_by_its_first_known_frame() {
    assert_eq!(answer("[<0>] do_get_write_access+0x1\n[<0>] jbd2_journal_get_write_access+0x2"), "journal-commit");
    assert_eq!(answer("some avg10=0.00 avg60=0.00"), "quiet");
}
