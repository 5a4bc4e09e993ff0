//! Damaged files, newer versions, wrong clocks and duplicate hostnames: each is reported and counted, and the others
//! answer.

use flatwater_fleet::compact::{self, compact};
use flatwater_fleet::judge::{Changed, findings, rollout};
use flatwater_fleet::left_out::Why;
use flatwater_fleet::{Fleet, store};
use flatwater_recording::summary::{self, HourStart, SummaryRow};
use object_store::{ObjectStoreExt, PutPayload};

use crate::{FROM, day, facts, made, options};

async fn put(fleet: &Fleet, below: &str, bytes: Vec<u8>) {
    fleet.store.put(&fleet.key(below), PutPayload::from(bytes)).await.expect("put");
}

fn row(host: &str, hour: i64) -> SummaryRow {
    SummaryRow {
        host: host.to_owned(),
        boot: Some("b".to_owned()),
        hour_start: Some(HourStart::of_hours(hour)),
        stall_ns: Some(0),
        calls: Some(0),
        observed_ms: Some(3_600_000),
        ..SummaryRow::default()
    }
}

async fn pushed(fleet: &Fleet, rows: &[SummaryRow]) {
    put(fleet, &store::input_key(&rows[0]), summary::to_parquet(rows).expect("encoded")).await;
}

/// In the file, the version is one digit after its key; replaces it by a later version.
fn newer(mut bytes: Vec<u8>) -> Vec<u8> {
    let key = summary::VERSION_KEY.as_bytes();
    let at = bytes.windows(key.len()).position(|window| window == key).expect("the key") + key.len();
    let digit = (at..at + 8).find(|at| bytes[*at] == b'1').expect("the version");
    bytes[digit] = b'9';
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_inputs_are_reported_and_stay_and_the_others_are_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), &options(5, 1, false)).await;
    let whole = summary::to_parquet(&[row("torn", FROM.hours())]).expect("encoded");
    put(&fleet, &store::input_key(&row("torn", FROM.hours())), whole[..whole.len() - 40].to_vec()).await;
    put(
        &fleet,
        &store::input_key(&row("new", FROM.hours())),
        newer(summary::to_parquet(&[row("new", FROM.hours())]).expect("encoded")),
    )
    .await;
    put(&fleet, &store::input_key(&row("empty", FROM.hours())), Vec::new()).await;
    // Its rows are another host's.
    put(
        &fleet,
        &store::input_key(&row("liar", FROM.hours())),
        summary::to_parquet(&[row("other", FROM.hours())]).expect("encoded"),
    )
    .await;
    // Numbers that would make every sum over the fleet wrong.
    for (host, stall_ns) in [("endless", i64::MAX), ("backwards", -1)] {
        pushed(&fleet, &[SummaryRow { stall_ns: Some(stall_ns), ..row(host, FROM.hours()) }]).await;
    }
    let ahead = SummaryRow { clock_error_s: Some(86_400), ..row("ahead", FROM.hours()) };
    pushed(&fleet, &[ahead]).await;
    let tomorrow = chrono::Utc::now().timestamp() / 3_600 + 24;
    pushed(&fleet, &[row("future", tomorrow)]).await;
    let done = compact(&fleet, &compact::Options::default()).await.expect("compacted");
    assert_eq!(done.rows, truth.rows, "all the others");
    let count = |why| done.left_out.count(why);
    assert_eq!((count(Why::Damaged), count(Why::Newer), count(Why::Clock)), (5, 1, 2), "{}", done.left_out);
    assert!(
        done.left_out.named(Why::Damaged).any(|(_, exactly)| exactly == "stall_ns -1 is impossible"),
        "{:?}",
        done.left_out
    );
    let named: Vec<&str> = done.left_out.named(Why::Clock).map(|(_, exactly)| exactly).collect();
    assert!(named.iter().any(|one| one.contains("ahead: 86400 s ahead")), "{named:?}");
    // None of these inputs was removed.
    assert_eq!(fleet.list("v=1/in").await.expect("listed").len(), 8);
    let facts = facts(&fleet, day(0, 1)).await;
    assert_eq!((facts.waiting, facts.hosts.len()), (8, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_is_reported_and_the_other_hours_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(20, 4, true)).await;
    let parts = fleet.list("v=1/table=summary").await.expect("listed");
    let read = |at: usize| std::fs::read(folder.path().join(parts[at].location.as_ref())).expect("a part");
    // One has no footer, one is newer, and one has damaged rows, which is found only by reading them.
    put(&fleet, parts[0].location.as_ref(), b"PAR1".to_vec()).await;
    put(&fleet, parts[1].location.as_ref(), newer(read(1))).await;
    let mut torn = read(2);
    let middle = torn.len() / 3;
    torn[4..middle].fill(0xa5);
    put(&fleet, parts[2].location.as_ref(), torn).await;
    let facts = facts(&fleet, day(0, 4)).await;
    assert_eq!((facts.left_out.count(Why::Damaged), facts.left_out.count(Why::Newer)), (2, 1), "{}", facts.left_out);
    let hours: std::collections::BTreeSet<i64> =
        facts.hosts.values().flat_map(|host| host.hours.keys().copied()).collect();
    assert_eq!(hours.into_iter().collect::<Vec<_>>(), [FROM.hours() + 3]);
    let text = findings(&facts).to_string();
    assert!(text.contains("not used: 2 cannot be read") && text.contains("written by a newer flatwater"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_machines_of_one_name_are_left_out_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(40, 6, false)).await;
    for hour in 0..6 {
        for boot in ["one", "two"] {
            let twin = SummaryRow { boot: Some(boot.to_owned()), sequence: hour, ..row("twin", FROM.hours() + hour) };
            pushed(&fleet, &[twin]).await;
        }
    }
    // A reboot is not a second machine.
    for (hour, boot) in [(0, "a"), (1, "a"), (1, "b"), (2, "b")] {
        let again = SummaryRow { boot: Some(boot.to_owned()), sequence: hour, ..row("rebooted", FROM.hours() + hour) };
        pushed(&fleet, &[again]).await;
    }
    compact(&fleet, &compact::Options::default()).await.expect("compacted");
    let facts = facts(&fleet, day(0, 6)).await;
    let found = findings(&facts);
    let named: Vec<&str> = found.left_out.named(Why::TwoOfOneName).map(|(host, _)| host).collect();
    assert_eq!(named, ["twin"]);
    let changed = Changed::parse("kernel").expect("known");
    let judged = rollout(&facts, &changed, HourStart::of_hours(FROM.hours() + 3));
    assert_eq!(judged.left_out.count(Why::TwoOfOneName), 1);
    assert!(judged.to_string().contains("two machines share this hostname"), "{judged}");
}
