//! Every named question has an answer, the same from hours and from days, and its sums are those of the rows.

use flatwater_fleet::ask::{Limits, Question, Session};
use flatwater_fleet::compact::{self, compact};
use flatwater_fleet::left_out::Why;
use flatwater_fleet::time::Range;
use flatwater_fleet::{Fleet, FleetError, store};
use flatwater_recording::summary::{self, HourStart, SummaryRow};
use object_store::{ObjectStoreExt, PutPayload};

use crate::{FROM, day, made, options};

async fn session(fleet: &Fleet, range: Range) -> Session {
    Session::open(fleet, range, Limits::default()).await.expect("opened")
}

/// The first value of the answer.
async fn one(session: &mut Session, sql: &str) -> String {
    let rows = session.rows(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batch = rows.iter().find(|batch| batch.num_rows() > 0).expect("a row");
    arrow::util::display::array_value_to_string(batch.column(0), 0).expect("a value")
}

/// The name of each question, and its answer as CSV over this range.
async fn answers(fleet: &Fleet, range: Range) -> Vec<(String, String)> {
    let mut session = session(fleet, range).await;
    let mut all = Vec::new();
    for question in Question::all(None).expect("well formed") {
        let host = [("host".to_owned(), "host-00003".to_owned())];
        let given = if question.name == "host" { &host[..] } else { &[] };
        let sql = question.sql(given, range).expect("SQL");
        let rows = session.rows(&sql).await.unwrap_or_else(|error| panic!("{}: {error}", question.name));
        let mut csv = arrow::csv::Writer::new(Vec::new());
        rows.iter().for_each(|batch| csv.write(batch).expect("CSV"));
        all.push((question.name, String::from_utf8(csv.into_inner()).expect("text")));
    }
    all
}

/// Compacts the days that are over, which are all of the fleet's. Returns their number.
async fn add_up(fleet: &Fleet) -> u64 {
    compact(fleet, &compact::Options::default()).await.expect("compacted").days
}

async fn push(fleet: &Fleet, rows: &[SummaryRow]) {
    let bytes = summary::to_parquet(rows).expect("encoded");
    fleet.store.put(&fleet.key(&store::input_key(&rows[0])), PutPayload::from(bytes)).await.expect("put");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_question_has_the_same_answer_from_days_and_from_hours() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(60, 49, true)).await;
    // One day; the same with the next hours; and a range without a whole day.
    let ranges = [day(0, 24), day(0, 49), day(5, 40)];
    let mut of_hours = Vec::new();
    for range in ranges {
        of_hours.push(answers(&fleet, range).await);
    }
    for (name, rows) in &of_hours[1] {
        let may_be_empty = matches!(name.as_str(), "new" | "dark" | "twins");
        assert!(may_be_empty || rows.lines().count() > 1, "{name} has no rows");
    }
    assert_eq!(add_up(&fleet).await, 2 + third_day_is_over());
    assert_eq!(session(&fleet, day(0, 49)).await.days(), 2);
    assert_eq!(session(&fleet, day(5, 40)).await.days(), 0);
    for (range, before) in ranges.into_iter().zip(of_hours) {
        assert_eq!(answers(&fleet, range).await, before);
    }
    assert_eq!(add_up(&fleet).await, 0, "nothing changed");
}

/// The 49th hour is in 2026-11-22.
fn third_day_is_over() -> u64 {
    u64::from(chrono::Utc::now().timestamp() / 3_600 >= FROM.hours() + 72)
}

#[tokio::test(flavor = "multi_thread")]
async fn late_input_is_in_the_next_answer_and_an_outdated_day_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(20, 24, true)).await;
    add_up(&fleet).await;
    assert_eq!(session(&fleet, day(0, 24)).await.days(), 1);
    let whole = "SELECT sum(stall_ns) FROM stall_sums";
    let before: i64 = one(&mut session(&fleet, day(0, 24)).await, whole).await.parse().expect("a number");
    let hours = "SELECT sum(stall_ns) FROM stalls";
    assert_eq!(one(&mut session(&fleet, day(0, 24)).await, hours).await, before.to_string());
    let old = fleet.store.get(&fleet.key("v=1/table=days/dt=2026-11-20/day.parquet")).await.expect("a day");
    let old = old.bytes().await.expect("bytes");
    let late = SummaryRow {
        host: "late".to_owned(),
        hour_start: Some(HourStart::of_hours(FROM.hours() + 7)),
        cause: Some("lock".to_owned()),
        stall_ns: Some(1_000),
        ..SummaryRow::default()
    };
    let of_hour = SummaryRow { cause: None, stall_ns: Some(0), observed_ms: Some(3_600_000), ..late.clone() };
    push(&fleet, &[of_hour, late]).await;
    assert_eq!(add_up(&fleet).await, 1);
    assert_eq!(one(&mut session(&fleet, day(0, 24)).await, whole).await, (before + 1_000).to_string());
    // As if the compactor had been killed before it wrote the day.
    fleet.store.put(&fleet.key("v=1/table=days/dt=2026-11-20/day.parquet"), PutPayload::from(old)).await.expect("put");
    let mut session = session(&fleet, day(0, 24)).await;
    assert_eq!((session.days(), one(&mut session, whole).await), (0, (before + 1_000).to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_without_observation_are_null_in_every_sum() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, truth) = made(folder.path(), &options(200, 24, true)).await;
    add_up(&fleet).await;
    let mut session = session(&fleet, day(0, 24)).await;
    let blind = one(&mut session, "SELECT count(*) FROM hours WHERE stall_ns IS NULL").await;
    assert_ne!(blind, "0", "the generator makes hours without observation");
    assert_eq!(one(&mut session, "SELECT sum(hours_not_observed) FROM host_sums").await, blind);
    let zero = "SELECT count(*) FROM hours WHERE stall_ns IS NULL AND (calls IS NOT NULL OR observed_ms > 0)";
    assert_eq!(one(&mut session, zero).await, "0");
    let host = one(&mut session, "SELECT host FROM hours WHERE stall_ns IS NULL ORDER BY host LIMIT 1").await;
    let history = Question::find("host", None).expect("known").sql(&[("host".to_owned(), host)], session.range);
    let history = history.expect("SQL");
    let nulls = format!("SELECT count(*) FROM ({history}) WHERE stall_ns IS NULL AND observed_s = 0");
    assert_ne!(one(&mut session, &nulls).await, "0");
    assert!(truth.hours_not_observed > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_cannot_change_anything() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(5, 1, true)).await;
    let mut session = session(&fleet, day(0, 1)).await;
    for sql in [
        "DROP VIEW hours",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "COPY summary TO '/tmp/x.parquet'",
        "SET datafusion.execution.batch_size = 1",
        "SELECT * FROM '/etc/passwd'",
    ] {
        assert!(session.rows(sql).await.is_err(), "{sql}");
    }
    assert_ne!(one(&mut session, "SELECT count(*) FROM hours").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_needs_too_much_memory_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(200, 24, true)).await;
    let limits = Limits { memory_bytes: 200_000, threads: Some(1) };
    // Opening runs a query about hostnames first, with the same limit.
    let asked = match Session::open(&fleet, day(0, 24), limits).await {
        Ok(mut session) => session.rows("SELECT * FROM summary ORDER BY stall_ns, host, hour_start").await.map(|_| ()),
        Err(error) => Err(error),
    };
    let error = asked.expect_err("200 kB");
    assert!(matches!(error, FleetError::Query(_)), "{error:?}");
    assert!(error.to_string().contains("--memory"), "{error}");
}

/// Several kinds of bad input at once: the answer is that of the others, and reports each.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_parts_and_duplicate_hostnames_are_reported_and_the_others_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(30, 6, true)).await;
    let plain = one(&mut session(&fleet, day(3, 3)).await, "SELECT sum(stall_ns) FROM stalls").await;
    for hour in 0..6 {
        for boot in ["one", "two"] {
            let row = SummaryRow {
                host: "twin".to_owned(),
                boot: Some(boot.to_owned()),
                sequence: hour,
                hour_start: Some(HourStart::of_hours(FROM.hours() + hour)),
                stall_ns: Some(0),
                observed_ms: Some(3_600_000),
                ..SummaryRow::default()
            };
            let stall =
                SummaryRow { cause: Some("lock".to_owned()), stall_ns: Some(5), observed_ms: None, ..row.clone() };
            push(&fleet, &[row, stall]).await;
        }
    }
    compact(&fleet, &compact::Options::default()).await.expect("compacted");
    let parts = fleet.list("v=1/table=summary").await.expect("listed");
    let path = |at: usize| folder.path().join(parts[at].location.as_ref());
    std::fs::write(path(0), b"PAR1").expect("written");
    // Damaged in the middle, which is found only by reading the rows.
    let mut torn = std::fs::read(path(1)).expect("a part");
    let middle = torn.len() / 3;
    torn[4..middle].fill(0xa5);
    std::fs::write(path(1), torn).expect("written");
    let ahead = SummaryRow {
        host: "ahead".to_owned(),
        clock_error_s: Some(86_400),
        hour_start: Some(HourStart::of_hours(FROM.hours() + 2)),
        ..SummaryRow::default()
    };
    push(&fleet, &[ahead]).await;
    let mut session = session(&fleet, day(0, 6)).await;
    let answer = session.answer("x".into(), "SELECT host, sum(stall_ns) AS s FROM stalls GROUP BY host").await;
    let answer = answer.expect("answered");
    let twins: Vec<(&str, &str)> = answer.left_out.named(Why::TwoOfOneName).collect();
    assert_eq!(twins, [("twin", "2 times since boot that overlap")]);
    // One of the 30 went dark before the third hour.
    assert_eq!((answer.left_out.count(Why::Damaged), answer.count()), (2, 29), "{}", answer.left_out);
    let whole = "SELECT sum(stall_ns) FROM stalls WHERE hour_start >= TIMESTAMP '2026-11-20 03:00:00'";
    assert_eq!(one(&mut session, whole).await, plain);
    assert_eq!(one(&mut session, "SELECT count(*) FROM boots WHERE host = 'twin'").await, "8", "four hours of two");
    let notes = answer.notes_text();
    assert!(notes.contains("1 summary is not compacted"), "{notes}");
}

/// Runs the program with these arguments: exit status, stdout and stderr.
fn program(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_flatwater-fleet")).args(arguments).output();
    let output = output.expect("flatwater-fleet starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_errors_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), &options(5, 2, true)).await;
    let at = folder.path().to_str().expect("text");
    let missing = folder.path().join("fleeet");
    let range = ["--from", "2026-11-20", "--to", "2026-11-21"];
    let refused = |arguments: &[&str], status: i32, message: &str| {
        let (code, printed, errors) = program(arguments);
        assert!(
            code == Some(status) && printed.is_empty() && errors.contains(message),
            "{arguments:?}: {code:?} {errors}"
        );
    };
    refused(&["ask", at, "cause"], 2, "did you mean 'causes'?");
    refused(&["ask", at, "host"], 2, "host=: must be given");
    refused(&["ask", at, "causes", "limit=many"], 2, "must be a whole number");
    refused(&["ask", at, "causes", "20"], 2, "name=value");
    refused(&["ask", missing.to_str().expect("text"), "causes"], 2, "does not exist");
    assert!(!missing.exists());
    refused(&["ask", at, "causes", "--from", "2020-01-01", "--to", "2020-01-02"], 1, "no hour between");
    let sql = |sql: &'static str| [&["sql", at, sql][..], &range[..]].concat();
    refused(&sql("SELEC 1"), 2, "SELEC");
    refused(&sql("SELECT sum(stal_ns) FROM stalls"), 2, "stall_ns");
    let (_, _, message) = program(&sql("SELECT sum(stal_ns) FROM stalls"));
    assert_eq!(message.matches("No field named").count(), 1, "{message}");
    refused(&sql("SELECT * FROM stall"), 2, "stall");
    refused(&sql("DROP TABLE summary"), 2, "not supported");
    refused(&sql("SELECT 1 / (calls - calls) FROM stalls"), 1, "ivide by zero");
    let on = ["ask", at, "causes", "--on", if cfg!(feature = "ballista") { "df:nowhere" } else { "df://127.0.0.1:1" }];
    refused(&on, 2, if cfg!(feature = "ballista") { "df://HOST:PORT" } else { "--features ballista" });
    let (code, printed, _) = program(&[&["ask", at, "causes", "--format", "csv"][..], &range[..]].concat());
    assert!(code == Some(0) && printed.starts_with("cause,stall_ns,share_percent,"), "{code:?} {printed}");
    let (code, printed, _) = program(&["ask", at]);
    assert!(code == Some(0) && printed.contains("aggressors") && printed.contains("[20]"), "{code:?} {printed}");
}

/// A host that changed its settings within the range counts for each value only with its hours under this value.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_counts_for_each_setting_with_its_time_under_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = Fleet::directory(folder.path().to_owned()).expect("a directory");
    // Two hosts change after two of four hours, from 8 ms per hour to 2. A third never changes; a fourth has another
    // shape.
    let stall = |host: &str, hour: i64| if host.starts_with("changes") && hour >= 2 { 2_000_000 } else { 8_000_000 };
    for host in ["changes-1", "changes-2", "stays", "alone"] {
        for hour in 0..4 {
            let common = SummaryRow {
                host: host.to_owned(),
                boot: Some("b".to_owned()),
                sequence: hour,
                hour_start: Some(HourStart::of_hours(FROM.hours() + hour)),
                kernel: Some("6.12.8".to_owned()),
                shape: if host == "alone" { "4c" } else { "16c" }.to_owned(),
                vm_dirty_bytes: Some(if host.starts_with("changes") && hour >= 2 { 1 } else { 0 }),
                ..SummaryRow::default()
            };
            let of_hour = SummaryRow { stall_ns: Some(0), observed_ms: Some(3_600_000), ..common.clone() };
            let cause = Some("dirty-throttle".to_owned());
            push(&fleet, &[of_hour, SummaryRow { cause, stall_ns: Some(stall(host, hour)), ..common }]).await;
        }
    }
    compact(&fleet, &compact::Options::default()).await.expect("compacted");
    let mut session = session(&fleet, day(0, 4)).await;
    let sql = Question::find("settings", None).expect("known").sql(&[], session.range).expect("SQL");
    let only = format!("SELECT * FROM ({sql}) WHERE setting = 'vm_dirty_bytes' ORDER BY value");
    let rows = session.rows(&only).await.expect("answered");
    let mut csv = arrow::csv::WriterBuilder::new().with_header(false).build(Vec::new());
    rows.iter().for_each(|batch| csv.write(batch).expect("CSV"));
    let csv = String::from_utf8(csv.into_inner()).expect("text");
    // The value 0 has 12 hours, 8 of them on hosts comparable with those that had 1.
    assert_eq!(csv, "vm_dirty_bytes,0,4,8.0,3,8.0,2.0,1\nvm_dirty_bytes,1,2,2.0,2,2.0,8.0,0\n");
}

/// Each value is possible for a host of 65,536 threads, but their sum does not fit into 64 bits. DataFusion's sum
/// wrapped around, and the cause looked harmless.
#[tokio::test(flavor = "multi_thread")]
async fn a_sum_that_is_too_large_is_an_error_and_not_a_small_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let fleet = Fleet::directory(folder.path().to_owned()).expect("a directory");
    // The hour and its cause together claim no more than a host may.
    let most = flatwater_fleet::input::STALL_NS_MAX / 2;
    for sequence in 0..100 {
        let of_hour = SummaryRow {
            host: "evil".to_owned(),
            sequence,
            hour_start: Some(FROM),
            shape: "16c-64g-1n-kvm".to_owned(),
            stall_ns: Some(most),
            calls: Some(1),
            observed_ms: Some(3_600_000),
            ..SummaryRow::default()
        };
        let cause = SummaryRow { cause: Some("page-writeback".to_owned()), observed_ms: None, ..of_hour.clone() };
        push(&fleet, &[of_hour, cause]).await;
    }
    let honest =
        SummaryRow { host: "honest".to_owned(), hour_start: Some(FROM), calls: Some(7), ..SummaryRow::default() };
    push(&fleet, &[SummaryRow { stall_ns: Some(5), observed_ms: Some(3_600_000), ..honest.clone() }]).await;
    compact(&fleet, &compact::Options::default()).await.expect("compacted");
    let mut session = session(&fleet, day(0, 1)).await;
    for sql in [
        "SELECT sum(stall_ns) FROM stalls",
        "SELECT host, sum(stall_ns) FROM hours GROUP BY host",
        "SELECT sum(stall_ns) OVER (PARTITION BY host) FROM hours",
        "SELECT sum(stall_ns) OVER (ORDER BY sequence ROWS BETWEEN 90 PRECEDING AND CURRENT ROW) FROM hours",
        "SELECT sum(stall_ns) FILTER (WHERE host = 'evil') FROM hours",
        &Question::find("causes", None).expect("known").sql(&[], day(0, 1)).expect("SQL"),
    ] {
        let error = session.rows(sql).await.map(|rows| panic!("{sql}: {rows:?}")).unwrap_err().to_string();
        assert!(error.contains("names it") && error.contains("shorter"), "{sql}: {error}");
    }
    // Other sums are as before.
    let shown = one(&mut session, "SELECT sum(stall_ns) FILTER (WHERE host = 'honest') FROM hours").await;
    assert_eq!(shown, "5");
    assert_eq!(one(&mut session, "SELECT sum(stall_ns) FROM hours WHERE host = 'none'").await, "");
    assert_eq!(one(&mut session, "SELECT sum(calls) FROM hours").await, "107");
    assert_eq!(one(&mut session, "SELECT sum(CAST(calls AS DOUBLE)) FROM hours").await, "107.0");
    let host = one(&mut session, "SELECT host FROM summary GROUP BY host ORDER BY max(stall_ns) DESC").await;
    assert_eq!(host, "evil");
    assert_eq!(one(&mut session, "SELECT sum(DISTINCT calls) FROM hours").await, "8");
}
