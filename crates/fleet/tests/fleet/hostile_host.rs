//! A host of the fleet pushes false summaries under its own name. Reports, findings and rollouts of the honest hosts stay
//! the same, and the answers name the hostile host. The bucket's policy keeps it from other names (docs/fleet.md).

use std::collections::BTreeSet;

use flatwater_fleet::compact::{self, Done, compact};
use flatwater_fleet::judge::{Changed, Facts, Finding, findings, rollout};
use flatwater_fleet::left_out::Why;
use flatwater_fleet::{Fleet, report, store};
use flatwater_recording::summary::{self, HourStart, SummaryOrigin, SummaryRow};
use object_store::{ObjectStoreExt, PutPayload};

use crate::{FROM, day, facts};

const HOUR_MS: i64 = 3_600_000;
/// A host chooses its name, and this one tries to control the administrator's terminal.
const EVIL: &str = "evil\u{1b}]0;owned\u{7}\u{202e}";

/// The row of an hour itself; the change sets `vm_dirty_background_bytes` after a day.
fn hour_row(host: &str, hour: i64, kernel: &str, changes: bool) -> SummaryRow {
    SummaryRow {
        host: host.to_owned(),
        boot: Some(format!("boot-of-{}", store::encode_name(host))),
        sequence: hour,
        origin: SummaryOrigin::Watch,
        hour_start: Some(HourStart::of_hours(FROM.hours() + hour)),
        kernel: Some(kernel.to_owned()),
        shape: "16c-64g-1n-kvm".to_owned(),
        vm_dirty_background_bytes: Some(i64::from(changes && hour >= 24)),
        stall_ns: Some(0),
        calls: Some(0),
        observed_ms: Some(HOUR_MS),
        ..SummaryRow::default()
    }
}

fn cause_row(of_hour: &SummaryRow, cause: &str, stall_ns: i64, aggressor: Option<&str>) -> SummaryRow {
    SummaryRow {
        cause: Some(cause.to_owned()),
        calls: Some(1),
        stall_ns: Some(stall_ns),
        worst_ns: Some(stall_ns),
        observed_ms: None,
        aggressor_kind: aggressor.map(|_| "others".to_owned()),
        aggressor: aggressor.map(str::to_owned),
        aggressor_cgroup: aggressor.map(|_| "/system.slice/backup.service".to_owned()),
        ..of_hour.clone()
    }
}

async fn put(fleet: &Fleet, key: &str, rows: &[SummaryRow]) {
    let bytes = summary::to_parquet(rows).expect("encoded");
    fleet.store.put(&fleet.key(key), PutPayload::from(bytes)).await.expect("put");
}

async fn push(fleet: &Fleet, rows: &[SummaryRow]) {
    put(fleet, &store::input_key(&rows[0]), rows).await;
}

async fn compacted(fleet: &Fleet) -> Done {
    compact(fleet, &compact::Options::default()).await.expect("compacted")
}

fn empty(folder: &tempfile::TempDir) -> Fleet {
    Fleet::directory(folder.path().to_owned()).expect("a directory")
}

fn honest_name(number: i64) -> String {
    format!("host-{number:02}")
}

/// The rows of an honest hour. A third of the hosts have a kernel that doubles page-writeback. The first eight halve
/// dirty-throttle after a day. A backup makes all of them wait at 02:00.
fn honest_hour(number: i64, hour: i64) -> Vec<SummaryRow> {
    let (has_new_kernel, changes) = (number % 3 == 1, number < 8);
    let kernel = if has_new_kernel { "6.12.8" } else { "6.1.0" };
    let mut of_hour = hour_row(&honest_name(number), hour, kernel, changes);
    let noise = (0.2 * ((number * 7 + hour * 13) as f64).sin()).exp();
    let ns = |seconds: f64| (seconds * noise * 1e9) as i64;
    let mut rows = vec![
        cause_row(&of_hour, "dirty-throttle", ns(if changes && hour >= 24 { 20.0 } else { 40.0 }), None),
        cause_row(&of_hour, "page-writeback", ns(if has_new_kernel { 20.0 } else { 10.0 }), None),
        cause_row(&of_hour, "request-queue", ns(if hour % 24 == 2 { 90.0 } else { 1.0 }), Some("restic")),
    ];
    if hour == 5 {
        of_hour.recording = Some(recording_of(&of_hour));
        rows.iter_mut().for_each(|row| row.recording.clone_from(&of_hour.recording));
    }
    rows.insert(0, of_hour);
    rows
}

const HONEST: i64 = 15;

async fn honest(fleet: &Fleet) {
    for number in 0..HONEST {
        for hour in 0..48 {
            push(fleet, &honest_hour(number, hour)).await;
        }
    }
}

fn recording_of(row: &SummaryRow) -> String {
    format!("v=1/recordings/{}/{}", store::day(row.hour_start), store::name_of(row))
}

fn page_of(fleet: &Fleet, facts: &Facts) -> String {
    report::page(fleet, facts, None)
}

fn is_named(done: &Done, why: Why, text: &str) -> bool {
    done.left_out.named(why).any(|(what, exactly)| format!("{what} {exactly}").contains(text))
}

/// A host that claims more observed time than an hour would make all others too short.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_cannot_have_observed_more_than_an_hour_in_an_hour() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    honest(&fleet).await;
    let mut long = hour_row("evil", 3, "6.1.0", false);
    long.observed_ms = Some(HOUR_MS + 1);
    push(&fleet, &[long]).await;
    for sequence in 100..140 {
        push(&fleet, &[SummaryRow { sequence, ..hour_row("evil", 4, "6.1.0", false) }]).await;
    }
    let done = compacted(&fleet).await;
    assert!(is_named(&done, Why::Damaged, "observed_ms 3600001 is impossible"), "{}", done.left_out);
    let facts = facts(&fleet, day(0, 24)).await;
    assert_eq!(facts.hosts["evil"].hours[&(FROM.hours() + 4)].observed_ms, HOUR_MS);
    assert!(facts.left_out.to_string().contains("evil"), "{}", facts.left_out);
    let found = findings(&facts);
    assert_eq!(found.hosts, HONEST as usize, "{found}");
}

/// The longest observation of one host does not set the minimum for all hosts.
#[tokio::test(flavor = "multi_thread")]
async fn one_host_with_the_longest_observation_drops_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    for number in 0..HONEST {
        for hour in 0..12 {
            push(&fleet, &honest_hour(number, hour)).await;
        }
    }
    for hour in 0..24 {
        push(&fleet, &[hour_row("evil", hour, "6.1.0", false)]).await;
    }
    compacted(&fleet).await;
    let found = findings(&facts(&fleet, day(0, 24)).await);
    assert_eq!(found.hosts, HONEST as usize + 1, "{found}");
}

fn jobs(found: &flatwater_fleet::judge::Findings) -> Vec<String> {
    let job = |one: &Finding| match one {
        Finding::Job { aggressor, hour_of_day, .. } => Some(format!("{aggressor} at {hour_of_day}")),
        _ => None,
    };
    found.found.iter().filter_map(job).collect()
}

/// A program's share does not count every nanosecond that one host claims.
#[tokio::test(flavor = "multi_thread")]
async fn one_host_does_not_hide_the_aggressors_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    honest(&fleet).await;
    for hour in 0..24 {
        let of_hour = hour_row("evil", hour, "6.1.0", false);
        let claimed = cause_row(&of_hour, "request-queue", 200_000_000_000_000_000, Some("restic"));
        let other = cause_row(&of_hour, "request-queue", 30_000_000_000_000_000, Some("other"));
        push(&fleet, &[of_hour, if hour == 7 { claimed } else { other }]).await;
    }
    compacted(&fleet).await;
    let found = findings(&facts(&fleet, day(0, 24)).await);
    assert_eq!(jobs(&found), ["restic at 2"], "{found}");
}

/// Each compared cause widens all intervals, so invented causes count as one.
#[tokio::test(flavor = "multi_thread")]
async fn invented_causes_are_counted_together_and_widen_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    honest(&fleet).await;
    let changed = Changed::parse("vm_dirty_background_bytes").expect("known");
    let at = HourStart::of_hours(FROM.hours() + 24);
    let copy = tempfile::tempdir().expect("a folder");
    crate::crash::copy_tree(folder.path(), copy.path());
    let clean = empty(&copy);
    compacted(&clean).await;
    let clean = rollout(&facts(&clean, day(0, 48)).await, &changed, at);
    for hour in 0..48 {
        let of_hour = hour_row("evil", hour, "6.1.0", true);
        let mut rows = vec![of_hour.clone()];
        rows.extend((0..1_000).map(|number| cause_row(&of_hour, &format!("cause-{hour}-{number}"), 1_000_000, None)));
        push(&fleet, &rows).await;
    }
    compacted(&fleet).await;
    let facts = facts(&fleet, day(0, 48)).await;
    assert!(facts.causes.len() <= 4, "{} causes", facts.causes.len());
    assert!(facts.left_out.to_string().contains("evil"), "{}", facts.left_out);
    let judged = rollout(&facts, &changed, at);
    let causes = |of: &flatwater_fleet::judge::Rollout| -> Vec<_> {
        of.by_cause.iter().map(|line| (line.cause.clone(), line.verdict)).collect()
    };
    assert_eq!(causes(&judged), causes(&clean), "{judged}");
}

/// Without limits a host could fill the memory of the compactor and of the answers.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_pushes_in_an_hour_is_limited() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    push(&fleet, &[hour_row("good", 0, "6.1.0", false)]).await;
    // Too many rows, too long a name, and too many rows of the hour itself.
    let of_hour = hour_row("evil", 0, "6.1.0", false);
    let mut rows = vec![of_hour.clone(); 1];
    rows.extend((0..5_000).map(|number| cause_row(&of_hour, "lock", 1, Some(&format!("program-{number}")))));
    push(&fleet, &rows).await;
    push(&fleet, &[SummaryRow { sequence: 1, kernel: Some("k".repeat(100_000)), ..of_hour.clone() }]).await;
    let twice = SummaryRow { sequence: 1_000_000, ..of_hour.clone() };
    push(&fleet, &[twice.clone(), twice]).await;
    // Each of these is plausible.
    for sequence in 0..8 {
        let of_hour = SummaryRow { sequence: 10 + sequence, ..of_hour.clone() };
        let mut rows = vec![of_hour.clone()];
        rows.extend((0..1_000).map(|n| cause_row(&of_hour, "lock", 1, Some(&format!("program-{sequence}-{n}")))));
        push(&fleet, &rows).await;
    }
    for sequence in 1_000..1_300 {
        push(&fleet, &[SummaryRow { sequence, ..of_hour.clone() }]).await;
    }
    let done = compacted(&fleet).await;
    for text in ["5001 rows", "kernel", "2 rows for the hour itself"] {
        assert!(is_named(&done, Why::Damaged, text), "{text}: {:?}", done.left_out);
    }
    assert!(is_named(&done, Why::Excess, "evil"), "{}", done.left_out);
    let facts = facts(&fleet, day(0, 24)).await;
    assert!(facts.hosts.contains_key("good"));
    assert!(facts.aggressors.len() <= 1_024, "{} programs", facts.aggressors.len());
    assert!(facts.left_out.named(Why::Excess).any(|(host, exactly)| host == "evil" && exactly.contains("programs")));
    // The next compaction does not let more in.
    let again = compacted(&fleet).await;
    let third = compacted(&fleet).await;
    assert!(done.summaries + again.summaries <= 1 + 256, "{done:?} {again:?}");
    assert_eq!((third.summaries, third.parts), (0, 0), "{third:?}");
}

/// A summary of 7 MiB in memory that takes a few KiB in the store.
fn swelling(of_hour: &SummaryRow) -> Vec<u8> {
    let mut rows = vec![of_hour.clone()];
    rows.extend(
        (0..1_000).map(|_| SummaryRow { cgroup: Some("/x".repeat(3_500)), ..cause_row(of_hour, "lock", 1, None) }),
    );
    let version = parquet::file::metadata::KeyValue::new(summary::VERSION_KEY.to_owned(), summary::VERSION.to_string());
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::ZSTD(parquet::basic::ZstdLevel::default()))
        .set_key_value_metadata(Some(vec![version]))
        .build();
    let batch = SummaryRow::encode(&rows).expect("encoded");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("written");
    writer.into_inner().expect("closed")
}

/// A limit of 256 MiB for each file is not enough: 128 files are in memory at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_for_the_files_of_a_host_is_limited() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    push(&fleet, &[hour_row("good", 0, "6.1.0", false)]).await;
    for sequence in 0..20 {
        let of_hour = SummaryRow { sequence, ..hour_row("evil", 0, "6.1.0", false) };
        let bytes = swelling(&of_hour);
        assert!(bytes.len() < 100_000, "{} bytes", bytes.len());
        let key = fleet.key(&store::input_key(&of_hour));
        fleet.store.put(&key, PutPayload::from(bytes)).await.expect("put");
    }
    let done = compacted(&fleet).await;
    assert!(is_named(&done, Why::Excess, "evil: more than 64 MiB"), "{:?}", done.left_out);
    // Later compactions add nothing to what the part has already.
    let again = compacted(&fleet).await;
    assert!(is_named(&again, Why::Excess, "evil: more than 256 summaries or 64 MiB"), "{:?}", again.left_out);
    assert!((2..11).contains(&(done.summaries + again.summaries)), "{done:?} {again:?}");
    assert!(facts(&fleet, day(0, 24)).await.hosts.contains_key("good"));
}

/// The smallest number has no absolute value.
#[tokio::test(flavor = "multi_thread")]
async fn extreme_numbers_do_not_end_the_compactor() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    push(&fleet, &[hour_row("good", 0, "6.1.0", false)]).await;
    for (sequence, clock_error_s) in [(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)] {
        let of_hour = hour_row("evil", 0, "6.1.0", false);
        push(&fleet, &[SummaryRow { sequence, clock_error_s: Some(clock_error_s), ..of_hour }]).await;
    }
    // Hours that have no date.
    for hours in [i64::MIN, i64::MAX].map(|us| us / 3_600_000_000) {
        let of_hour =
            SummaryRow { hour_start: Some(HourStart::of_hours(hours)), ..hour_row("evil", 0, "6.1.0", false) };
        push(&fleet, &[of_hour]).await;
    }
    let done = compacted(&fleet).await;
    assert_eq!((done.summaries, done.left_out.count(Why::Clock)), (1, 4), "{:?}", done.left_out);
}

/// The last host that names a recording's place does not get it.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_belongs_to_its_host_and_fakes_hide_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    honest(&fleet).await;
    for hour in 0..24 {
        // Another host's recording.
        let theirs = recording_of(&honest_hour(hour % HONEST, 5)[0]);
        let mut of_hour = SummaryRow { sequence: 5_000, ..hour_row("zz-evil", hour, "6.1.0", false) };
        of_hour.recording = Some(theirs);
        push(&fleet, &[of_hour]).await;
        for number in 0..20 {
            let sequence = hour * 100 + number;
            let mut of_hour = SummaryRow { sequence, ..hour_row("zz-evil", hour, "6.1.0", false) };
            of_hour.recording = Some(recording_of(&of_hour));
            let fake = cause_row(&of_hour, "lock", 1_000_000_000_000_000, None);
            push(&fleet, &[of_hour, fake]).await;
        }
    }
    let done = compacted(&fleet).await;
    assert!(is_named(&done, Why::Damaged, "zz-evil"), "{}", done.left_out);
    assert_eq!(done.left_out.count(Why::Damaged), 24, "{}", done.left_out);
    let facts = facts(&fleet, day(0, 24)).await;
    let page = page_of(&fleet, &facts);
    for number in 0..HONEST {
        let row = &honest_hour(number, 5)[0];
        let cells = format!("<td>{}</td><td>2026-11-20 05:00:00</td>", row.host);
        assert!(page.contains(&cells) && page.contains(&recording_of(row)), "{}", row.host);
    }
    assert!(page.contains("more recordings are not listed"), "a limit that is reached is named");
}

/// Two summaries of one name with different rows are not one summary pushed twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_that_contradicts_one_of_the_same_name_is_named_and_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    let rows = honest_hour(1, 0);
    let mut forged = rows.clone();
    forged[1].stall_ns = Some(1);
    push(&fleet, &forged).await;
    compacted(&fleet).await;
    push(&fleet, &rows).await;
    let done = compacted(&fleet).await;
    assert!(is_named(&done, Why::Contradicts, "host-01"), "{:?}", done.left_out);
    assert_eq!((done.known, fleet.list("v=1/in").await.expect("listed").len()), (0, 1));
    // The same summary, pushed again with its recording by a host with another clock, contradicts nothing.
    let again: Vec<SummaryRow> = forged
        .iter()
        .map(|row| SummaryRow { recording: Some(recording_of(row)), clock_error_s: Some(1), ..row.clone() })
        .collect();
    push(&fleet, &again).await;
    let done = compacted(&fleet).await;
    assert_eq!((done.known, done.left_out.count(Why::Contradicts)), (1, 0), "{}", done.left_out);
}

/// The rows are compared with the whole key, not only with the file's name.
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_under_another_hour_or_shard_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    let rows = honest_hour(1, 0);
    push(&fleet, &rows).await;
    let key = store::input_key(&rows[0]);
    let shard = format!("/shard={:02}/", store::shard_of(&rows[0].host, store::SHARDS));
    put(&fleet, &key.replace("/hour=00/", "/hour=01/"), &rows).await;
    put(&fleet, &key.replace("dt=2026-11-20", "dt=2026-11-19"), &rows).await;
    put(&fleet, &key.replace(&shard, if shard == "/shard=07/" { "/shard=08/" } else { "/shard=07/" }), &rows).await;
    // The first row agrees with the key, and another one does not.
    let mut mixed = honest_hour(2, 0);
    mixed[2].hour_start = Some(HourStart::of_hours(FROM.hours() + 1));
    push(&fleet, &mixed).await;
    let done = compacted(&fleet).await;
    assert_eq!((done.summaries, done.left_out.count(Why::Damaged)), (1, 4), "{:?}", done.left_out);
}

/// A sum that stopped at the largest number would be silently wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_days_sum_beyond_64_bits_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    push(&fleet, &honest_hour(1, 0)).await;
    for hour in 0..24 {
        for sequence in 0..3 {
            let of_hour = SummaryRow { sequence, ..hour_row("evil", hour, "6.1.0", false) };
            let stalled = cause_row(&of_hour, "lock", 200_000_000_000_000_000, None);
            push(&fleet, &[of_hour, stalled]).await;
        }
    }
    // The sum of one summary is limited, too.
    let of_hour = SummaryRow { sequence: 9, ..hour_row("evil", 0, "6.1.0", false) };
    let stalled = cause_row(&of_hour, "lock", 200_000_000_000_000_000, None);
    push(&fleet, &[of_hour, stalled.clone(), stalled]).await;
    let done = compacted(&fleet).await;
    assert!(is_named(&done, Why::Damaged, "all its rows"), "{:?}", done.left_out);
    assert_eq!(done.days, 0, "{done:?}");
    assert!(is_named(&done, Why::Excess, "dt=2026-11-20"), "{:?}", done.left_out);
    // The hours still answer.
    assert_eq!(facts(&fleet, day(0, 24)).await.hosts.len(), 2);
}

/// Names of hosts, kernels, causes and programs come from the hosts.
#[tokio::test(flavor = "multi_thread")]
async fn names_do_not_control_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = empty(&folder);
    for number in 0..HONEST {
        for hour in 0..24 {
            let mut rows = honest_hour(number, hour);
            for row in &mut rows {
                row.host = format!("{}\u{9b}2J\n{EVIL}", row.host);
                row.kernel = row.kernel.as_ref().map(|kernel| format!("{kernel}\u{1b}[8m\n"));
                row.aggressor = row.aggressor.as_ref().map(|name| format!("{name}\u{202e}\r"));
                row.aggressor_cgroup = row.aggressor_cgroup.as_ref().map(|path| format!("{path}\u{7f}\n"));
                row.recording = None;
            }
            if number > 0 || hour < 12 {
                push(&fleet, &rows).await;
            }
        }
    }
    compacted(&fleet).await;
    let facts = facts(&fleet, day(0, 24)).await;
    let found = findings(&facts);
    assert!(found.found.len() >= 3, "{found:?}");
    let changed = Changed::parse("kernel").expect("known");
    let judged = rollout(&facts, &changed, HourStart::of_hours(FROM.hours() + 12));
    for text in [found.to_string(), judged.to_string()] {
        assert!(!text.contains(|c: char| c != '\n' && flatwater_recording::printable::is_hostile(c)), "{text:?}");
    }
    assert_eq!(found.found.iter().map(|one| one.to_string().lines().count()).max(), Some(1), "{found:?}");
    for json in [flatwater_fleet::cli::json(&found), flatwater_fleet::cli::json(&judged)] {
        let json = json.expect("JSON");
        assert!(!json.contains(|c: char| c != '\n' && flatwater_recording::printable::is_hostile(c)), "{json:?}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&flatwater_fleet::cli::json(&found).expect("JSON")).expect("JSON");
    let job = json["found"].as_array().expect("a list").iter().find(|one| one["kind"] == "job").expect("a job");
    assert_eq!(job["aggressor"], "restic\u{202e}\r", "a reader gets the name unchanged");
}

/// All these attacks together, by one host, beside fifteen honest ones.
async fn attack(fleet: &Fleet) {
    let mut keys = BTreeSet::new();
    for hour in 0..48 {
        let of_hour = hour_row(EVIL, hour, "6.12.8", hour % 2 == 0);
        let mut first = of_hour.clone();
        first.recording = Some(recording_of(&first));
        let mut rows = vec![first.clone()];
        rows.push(cause_row(&first, "dirty-throttle", 150_000_000_000_000_000, Some("restic")));
        rows.push(cause_row(&first, "lock", 50_000_000_000_000_000, Some("x\u{1b}[2J\n")));
        rows.extend((0..200).map(|number| cause_row(&first, &format!("<b>{hour}-{number}\u{9b}"), 1_000, None)));
        rows.extend((0..200).map(|n| cause_row(&first, "shrinker", 1_000, Some(&format!("p{hour}-{n}")))));
        let mut long = SummaryRow { sequence: 1_000, observed_ms: Some(i64::MAX), ..of_hour.clone() };
        let endless = SummaryRow { sequence: 1_001, stall_ns: Some(i64::MAX), ..of_hour.clone() };
        let mut stolen = SummaryRow { sequence: 1_002, ..of_hour.clone() };
        stolen.recording = Some(recording_of(&honest_hour(hour % HONEST, 5)[0]));
        for rows in [rows, vec![long.clone()], vec![endless], vec![stolen]] {
            keys.insert(store::input_key(&rows[0]));
            push(fleet, &rows).await;
        }
        for sequence in 0..6 {
            let again = SummaryRow { sequence: 2_000 + sequence, recording: None, ..of_hour.clone() };
            push(fleet, &[again]).await;
        }
        // The first summary once more, under the next hour.
        let moved = store::input_key(&hour_row(EVIL, hour, "6.12.8", false));
        let (from, to) = (format!("hour={:02}", hour % 24), format!("hour={:02}", (hour + 1) % 24));
        put(fleet, &moved.replace(&from, &to), std::slice::from_ref(&first)).await;
        let html = format!("{}/report.html", recording_of(&first));
        fleet.store.put(&fleet.key(&html), PutPayload::from_static(b"<script>alert(1)</script>")).await.expect("put");
        long.sequence = 3_000;
    }
    let own = format!("/{}+", store::encode_name(EVIL));
    assert!(keys.iter().all(|key| key.contains(&own)), "the policy of the bucket lets these through");
}

/// Findings and verdicts without figures.
async fn conclusions(fleet: &Fleet) -> (Vec<String>, Vec<String>) {
    let found = findings(&facts(fleet, day(0, 24)).await);
    let of_finding = |one: &Finding| match one {
        Finding::Differs { factor, level, cause, ratio, .. } => {
            format!("{factor} {level}: {cause} {}", if ratio.low > 1.0 { "more" } else { "less" })
        }
        Finding::Job { aggressor, hour_of_day, .. } => format!("{aggressor} at {hour_of_day}"),
        Finding::Dark { hosts, .. } => format!("dark: {hosts:?}"),
    };
    let changed = Changed::parse("vm_dirty_background_bytes").expect("known");
    let judged = rollout(&facts(fleet, day(0, 48)).await, &changed, HourStart::of_hours(FROM.hours() + 24));
    let lines = judged.total.iter().chain(&judged.by_cause);
    let verdicts = lines.map(|line| format!("{:?}: {:?}", line.cause, line.verdict)).collect();
    (found.found.iter().map(of_finding).collect(), verdicts)
}

/// 10: the administrator's answers are the same with and without the hostile host, and name it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_host_changes_no_answer_about_the_others_and_is_named() {
    let (folder, attacked) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let clean = empty(&folder);
    honest(&clean).await;
    crate::crash::copy_tree(folder.path(), attacked.path());
    let fleet = empty(&attacked);
    attack(&fleet).await;
    compacted(&clean).await;
    let done = compacted(&fleet).await;
    let (wanted, verdicts) = conclusions(&clean).await;
    assert!(wanted.iter().any(|one| one.contains("kernel 6.12.8: page-writeback more")), "{wanted:?}");
    assert!(wanted.iter().any(|one| one == "restic at 2"), "{wanted:?}");
    assert!(verdicts.iter().any(|one| one.contains("dirty-throttle") && one.contains("Better")), "{verdicts:?}");
    assert_eq!(conclusions(&fleet).await, (wanted, verdicts));
    for text in ["observed_ms", "stall_ns", "recording", "key"] {
        assert!(is_named(&done, Why::Damaged, text), "{text}: {:?}", done.left_out);
    }
    let facts = facts(&fleet, day(0, 24)).await;
    let text = format!("{}{}", facts.left_out, done.left_out);
    assert!(text.contains("evil") && !text.contains('\u{1b}'), "{text:?}");
    let page = page_of(&fleet, &facts);
    assert!(!page.contains("<a href") && !page.contains("<b>"), "no link, no tag");
    let clean_page = page_of(&clean, &crate::facts(&clean, day(0, 24)).await);
    for number in 0..HONEST {
        let place = recording_of(&honest_hour(number, 5)[0]);
        assert!(page.contains(&place) && clean_page.contains(&place), "{place}");
    }
    assert!(page.contains("drawn no higher than the other hosts"), "the chart names the host that it limits");
}
