//! CPU profiles in logs (perf top, perf report): the share of samples in reclaim, shrinkers and compaction, in spin
//! locks, in interrupt work, and in checksums, compression and encryption. A profile shows where CPUs spend time, not
//! how long one call took.

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::symbol::{base_name, meaning};
use flatwater_recording::{Cause, CauseBasis, DurationBasis, Recording, ReportedBy, SampledTask, Source};

use super::cause::CauseId;
use super::facts::Facts;
use super::precedence::{Candidate, Origin};
use super::{Evidence, Finding};

/// Causes that use CPU. Sleeps do not appear in a profile.
const COMPUTING: &[Cause] = &[
    Cause::DirectReclaim,
    Cause::MemcgReclaim,
    Cause::NodeReclaim,
    Cause::Shrinker,
    Cause::Compaction,
    Cause::SlabRefill,
    Cause::BlockAllocation,
];
/// Functions that spin for a lock. `_raw_spin_unlock_irqrestore` is not one: where the profile's interrupt is masked,
/// samples are taken in it when it enables interrupts.
const SPINS: &[&str] = &[
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "queued_write_lock_slowpath",
    "queued_read_lock_slowpath",
    "_raw_spin_lock*",
    "__raw_spin_lock*",
    "_raw_read_lock*",
    "_raw_write_lock*",
    "do_raw_spin_lock",
    "_spin_lock*",
    "__ticket_spin_lock",
    "ticket_spin_lock_wait",
    "osq_lock",
    "mutex_spin_on_owner",
    "mutex_optimistic_spin",
    "rwsem_spin_on_owner",
    "rwsem_optimistic_spin",
    "lockref_get_not_zero",
];
/// Functions that only soft interrupts call.
const SOFT_INTERRUPTS: &[&str] = &[
    "__do_softirq",
    "handle_softirqs",
    "do_softirq*",
    "run_ksoftirqd",
    "net_rx_action",
    "net_tx_action",
    "__napi_poll",
    "napi_complete_done",
    "napi_gro_receive",
    "__netif_receive_skb*",
    "process_backlog",
    "rcu_do_batch",
    "rcu_core",
    "blk_done_softirq",
    "blk_complete_reqs",
    "tasklet_action*",
    "run_timer_softirq",
    "run_rebalance_domains",
];
/// Functions that transform data: checksums, parity, compression and encryption.
const TRANSFORMS: &[&str] = &[
    "crc32*",
    "crc_*",
    "__crc32*",
    "__crc_*",
    "chksum_*",
    "sha1_*",
    "sha256_*",
    "sha512_*",
    "blake2*",
    "xxh32*",
    "xxh64*",
    "fletcher_*",
    "raid6_*",
    "xor_*",
    "async_xor*",
    "do_xor_*",
    "LZ4_*",
    "lz4_*",
    "lzo1x_*",
    "ZSTD_*",
    "zstd_*",
    "HUF_*",
    "deflate_*",
    "zlib_*",
    "inflate_fast",
    "aes_*",
    "aesni_*",
    "_aesni_*",
    "__aesni_*",
    "gcm_*",
    "chacha*",
    "twofish_*",
    "serpent_*",
];
/// From these shares of all samples, spinning and interrupt work, and the transformation of data, are findings. A
/// machine under load spends some per cent on each.
const SPINNING_MIN: f64 = 0.15;
const INTERRUPTS_MIN: f64 = 0.25;
const TRANSFORMING_MIN: f64 = 0.30;
/// From this share of all samples a cause is a finding; a machine with enough memory spends next to nothing on
/// these.
const SHARE_MIN: f64 = 0.10;
/// The `count` of a profile's sampled tasks is in units of 1/10,000 of all samples.
const ALL: f64 = 10_000.0;

fn is_sample(task: &SampledTask) -> bool {
    task.reported_by == ReportedBy::Traced && task.state == Some('R')
}

fn is_one_of(list: &[&str], name: &str) -> bool {
    list.iter().any(|known| known.strip_suffix('*').map_or(*known == name, |beginning| name.starts_with(beginning)))
}

/// The cause that a sample shows, and its innermost function. A spin lock belongs to the callers' cause if the callers
/// show one.
fn judge<'a>(frames: &[&'a str], task: &str) -> Option<(Cause, &'a str)> {
    let known = |frames: &[&str]| meaning(frames).map(|known| known.cause).filter(|cause| COMPUTING.contains(cause));
    let innermost: &'a str = base_name(frames.first().copied()?);
    let softirq = |frame: &&str| is_one_of(SOFT_INTERRUPTS, base_name(frame));
    let cause = match () {
        () if is_one_of(SPINS, innermost) => {
            let callers = frames.iter().skip_while(|frame| is_one_of(SPINS, base_name(frame))).copied();
            known(&callers.collect::<Vec<_>>()).or(Some(Cause::Lock))
        }
        () if task.starts_with("ksoftirqd") || frames.iter().any(softirq) => Some(Cause::Interrupt),
        () if is_one_of(TRANSFORMS, innermost) => known(frames).or(Some(Cause::Compute)),
        () => known(frames),
    };
    cause.map(|cause| (cause, innermost))
}

/// The smallest share of all samples that makes this cause a finding.
fn share_min(cause: Cause) -> f64 {
    match cause {
        Cause::Lock => SPINNING_MIN,
        Cause::Interrupt => INTERRUPTS_MIN,
        Cause::Compute => TRANSFORMING_MIN,
        _ => SHARE_MIN,
    }
}

/// The share of the samples of one cause, with the function that has most of them.
struct Share<'a> {
    cause: Cause,
    share: f64,
    functions: Vec<(&'a str, f64)>,
}

fn shares(recording: &Recording) -> Vec<Share<'_>> {
    let mut shares: Vec<Share<'_>> = Vec::new();
    // Kernel functions without a cause.
    let mut other = 0.0;
    for task in recording.header.sampled_tasks.iter().filter(|task| is_sample(task)) {
        let stack = task.stack.and_then(|id| recording.stack(id));
        let frames: Vec<&str> =
            stack.map(|stack| stack.frames.iter().map(String::as_str).collect()).unwrap_or_default();
        let part = f64::from(task.count) / ALL;
        let Some((cause, function)) = judge(&frames, &task.task) else {
            other += part;
            continue;
        };
        let sum = match shares.iter_mut().find(|known| known.cause == cause) {
            Some(known) => known,
            None => {
                shares.push(Share { cause, share: 0.0, functions: Vec::new() });
                let Some(new) = shares.last_mut() else { continue };
                new
            }
        };
        sum.share += part;
        match sum.functions.iter_mut().find(|(known, _)| *known == function) {
            Some((_, known)) => *known += part,
            None => sum.functions.push((function, part)),
        }
    }
    give_spinning_to_its_cause(&mut shares, other);
    shares.retain(|sum| sum.share >= share_min(sum.cause));
    for sum in &mut shares {
        sum.functions.sort_short_by(|a, b| b.1.total_cmp(&a.1));
    }
    // A spin lock without callers may belong to any of the other causes, so these precede it.
    shares.sort_short_by(|a, b| {
        (a.cause == Cause::Lock).cmp(&(b.cause == Cause::Lock)).then(b.share.total_cmp(&a.share))
    });
    shares
}

/// Charges spinning without callers to the cause that has most of the other kernel samples: its functions take the
/// lock.
fn give_spinning_to_its_cause(shares: &mut [Share<'_>], other: f64) {
    let Some(spinning) = shares.iter().find(|sum| sum.cause == Cause::Lock).map(|sum| sum.share) else { return };
    let rest = other + shares.iter().filter(|sum| sum.cause != Cause::Lock).map(|sum| sum.share).sum::<f64>();
    let owner = shares.iter_mut().find(|sum| COMPUTING.contains(&sum.cause) && sum.share * 2.0 > rest);
    if let Some(owner) = owner {
        owner.share += spinning;
        shares.iter_mut().filter(|sum| sum.cause == Cause::Lock).for_each(|sum| sum.share = 0.0);
    }
}

/// The largest functions outside of spin locks: what the CPUs did with the lock.
fn beside(recording: &Recording) -> Option<Evidence> {
    let mut functions: Vec<(&str, u32)> = Vec::new();
    for task in recording.header.sampled_tasks.iter().filter(|task| is_sample(task)) {
        let stack = task.stack.and_then(|id| recording.stack(id));
        let Some(first) = stack.and_then(|stack| stack.frames.first()) else { continue };
        if !is_one_of(SPINS, base_name(first)) {
            functions.push((first, task.count));
        }
    }
    functions.sort_short_by_key(|(_, count)| std::cmp::Reverse(*count));
    let listed: Vec<String> = (functions.iter().take(4))
        .map(|(name, count)| format!("{name} {:.1} %", f64::from(*count) * 100.0 / ALL))
        .collect();
    (!listed.is_empty()).then(|| Evidence::statement(format!("beside it: {}", listed.join(", "))))
}

/// Adds what the profile shows: evidence to candidates that name the same cause, otherwise candidates.
pub fn add(facts: &Facts<'_>, candidates: &mut Vec<Candidate>) {
    if facts.recording.header.source != Source::Import {
        return;
    }
    background_reclaim(facts, candidates);
    soft_interrupts(facts, candidates);
    for (place, Share { cause, share, functions }) in shares(facts.recording).into_iter().enumerate() {
        let named: Vec<String> =
            functions.iter().take(3).map(|(name, share)| format!("{name} {:.1} %", share * 100.0)).collect();
        let text = format!("{:.1} % of the profile's samples were taken in it: {}", share * 100.0, named.join(", "));
        let mut evidence = vec![Evidence::new(text, share * 100.0, "%")];
        evidence.extend((cause == Cause::Lock).then(|| beside(facts.recording)).flatten());
        if let Some(known) = candidates.iter_mut().find(|known| known.finding.cause == cause.into()) {
            known.finding.evidence.splice(0..0, evidence);
            continue;
        }
        let headline = match cause {
            Cause::Lock => "CPUs spin for a lock that other CPUs hold",
            Cause::Interrupt => "CPUs are busy with interrupt work, which runs before the threads that they interrupt",
            Cause::Compute => "CPUs are busy with checksums, parity, compression or encryption of the data",
            _ => CauseId::from(cause).entry().headline,
        };
        let mut finding = Finding::inferred(cause, (0.5 + share / 2.0).min(0.8), headline).with(evidence);
        (finding.cause_basis, finding.duration_basis) = (CauseBasis::Stack, DurationBasis::Sampled);
        if cause == Cause::Lock {
            finding = finding.settle("`perf record -g` while it is slow: the callers of the spin lock name the lock");
        }
        candidates.push(Candidate { finding, origin: Origin::Profile { place } });
    }
}

/// From this share of one CPU, kswapd cannot keep up. On a machine with enough memory it sleeps.
const KSWAPD_SHARE_MIN: f64 = 0.2;

/// From this share of one CPU, ksoftirqd takes over what interrupts do not finish, and delays all threads of that CPU.
const KSOFTIRQD_SHARE_MIN: f64 = 0.8;

/// Adds a finding if top shows that a CPU is full of soft interrupts.
fn soft_interrupts(facts: &Facts<'_>, candidates: &mut Vec<Candidate>) {
    let tasks = facts.recording.header.sampled_tasks.iter();
    let own = tasks.filter(|task| is_sample(task) && task.stack.is_none() && task.task.starts_with("ksoftirqd"));
    let Some(busiest) = own.max_by_key(|task| task.count) else { return };
    let share = f64::from(busiest.count) / ALL;
    if share < KSOFTIRQD_SHARE_MIN || !candidates.is_empty() {
        return;
    }
    let text = format!("{} uses {:.0} % of a CPU", busiest.task, share * 100.0);
    let headline = "one CPU is full of soft interrupts: the threads and completions that are bound to it wait";
    let finding = Finding::inferred(Cause::Interrupt, 0.6, headline).with([Evidence::new(text, share * 100.0, "%")]);
    let finding =
        finding.settle("/proc/softirqs and /proc/interrupts twice, a second apart: which of them this CPU serves");
    candidates.push(Candidate::figures(finding.fix(super::Fix::advice(
        "spread the device's interrupts over CPUs (/proc/irq/N/smp_affinity, more queues, rps_cpus)",
    ))));
}

/// Adds to direct reclaim that kswapd uses much of a CPU, if top shows it; it is a candidate by itself only without
/// other candidates.
fn background_reclaim(facts: &Facts<'_>, candidates: &mut Vec<Candidate>) {
    let tasks = facts.recording.header.sampled_tasks.iter();
    let kswapd = tasks.filter(|task| is_sample(task) && task.stack.is_none() && task.task.starts_with("kswapd"));
    let Some(busiest) = kswapd.max_by_key(|task| task.count) else { return };
    let share = f64::from(busiest.count) / ALL;
    if share < KSWAPD_SHARE_MIN {
        return;
    }
    let text = format!("{} uses {:.0} % of a CPU: background reclaim does not keep up", busiest.task, share * 100.0);
    let evidence = Evidence::new(text, share * 100.0, "%");
    if let Some(known) = candidates.iter_mut().find(|known| known.finding.cause == CauseId::DirectReclaim) {
        known.finding.evidence.push(evidence);
        return;
    }
    if !candidates.is_empty() {
        return;
    }
    let headline = "memory is short: kswapd reclaims all the time, and allocating tasks will soon reclaim themselves";
    let finding = Finding::inferred(CauseId::DirectReclaim, 0.5, headline).with([evidence]);
    let finding = finding.settle("`sar -B 1` while it is slow: pgscank/s, pgscand/s and %vmeff");
    candidates.push(Candidate::figures(finding));
}

#[cfg(test)]
mod tests {
    use crate::Explanation;
    use crate::cause::CauseId;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{ReportedBy, SampledTask, Source, Stack, StackId};

    fn profiled(rows: &[(&str, u32)]) -> Explanation {
        RecordingBuilder::new()
            .edit(|recording| {
                recording.header.source = Source::Import;
                for (at, (frame, count)) in rows.iter().enumerate() {
                    let id = StackId(at as u32);
                    recording.stacks.push(Stack { id, frames: vec![(*frame).to_owned()] });
                    let mut task = SampledTask::new(ReportedBy::Traced);
                    (task.state, task.count, task.stack) = (Some('R'), *count, Some(id));
                    recording.header.sampled_tasks.push(task);
                }
            })
            .explained()
    }

    #[test]
    fn a_profile_full_of_reclaim_names_it() {
        let explanation = profiled(&[("try_to_free_mem_cgroup_pages", 2400), ("copy_page", 900)]);
        assert_eq!(explanation.findings[0].cause, CauseId::MemcgReclaim);
    }

    #[test]
    fn a_profile_full_of_spinning_is_a_lock_and_names_what_is_beside_it() {
        let explanation = profiled(&[("native_queued_spin_lock_slowpath", 3741), ("__filemap_add_folio", 692)]);
        let finding = &explanation.findings[0];
        assert_eq!(finding.cause, CauseId::Lock);
        assert!(finding.evidence.iter().any(|one| one.text.contains("__filemap_add_folio 6.9 %")), "{finding:?}");
        let little = profiled(&[("native_queued_spin_lock_slowpath", 900), ("__filemap_add_folio", 692)]);
        assert_eq!(little.findings[0].cause, CauseId::NotEnough, "busy machines spin for some per cent");
        let unlock = profiled(&[("_raw_spin_unlock_irqrestore", 4000)]);
        assert_eq!(unlock.findings[0].cause, CauseId::NotEnough, "samples of masked interrupts");
    }

    #[test]
    fn spinning_belongs_to_the_cause_that_has_most_other_samples() {
        let explanation = profiled(&[("_spin_lock_irq", 9380), ("compaction_alloc", 140), ("compact_zone", 80)]);
        let causes: Vec<CauseId> = explanation.findings.iter().map(|finding| finding.cause).collect();
        assert_eq!(causes, [CauseId::Compaction]);
    }

    #[test]
    fn spinning_beside_reclaim_is_reclaim_first() {
        let explanation = profiled(&[("_raw_spin_lock_irq", 5000), ("compact_zone", 1500), ("copy_page", 2500)]);
        let causes: Vec<CauseId> = explanation.findings.iter().map(|finding| finding.cause).collect();
        assert_eq!(causes[..2], [CauseId::Compaction, CauseId::Lock]);
    }

    #[test]
    fn interrupt_work_and_transformed_data_are_findings_and_copies_are_not() {
        assert_eq!(profiled(&[("net_rx_action", 3000)]).findings[0].cause, CauseId::Interrupt);
        assert_eq!(profiled(&[("crc32c_pcl_intel_update", 4500)]).findings[0].cause, CauseId::Compute);
        assert_eq!(profiled(&[("copy_user_enhanced_fast_string", 6000)]).findings[0].cause, CauseId::NotEnough);
    }

    #[test]
    fn a_profile_of_anything_else_is_not_quiet() {
        let explanation = profiled(&[("copy_page", 4000)]);
        assert_eq!(explanation.findings[0].cause, CauseId::NotEnough);
    }
}
