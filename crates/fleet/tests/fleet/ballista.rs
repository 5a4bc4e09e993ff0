//! A Ballista cluster (a scheduler and two executors, each a process) answers like this process. If an executor is
//! killed or the scheduler is restarted during a query, the answer is right, or an error says what happened, in time.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use flatwater_fleet::Fleet;
use flatwater_fleet::ask::{self, Limits, Question, Session};
use flatwater_fleet::compact::{self, compact};
use flatwater_fleet::time::Range;
use flatwater_recording::units::Nanos;

use crate::s3::{self, Server};
use crate::{day, made, options};

/// An executor is lost after this many seconds without a heartbeat.
const LOST_AFTER_S: u64 = 6;
/// Time limit for each step, on a machine that others use too.
const BOUND: Duration = Duration::from_secs(240);
/// Long enough to be interrupted: joins each row of a host with each other row of the same host.
const LONG: &str = "SELECT a.cause AS cause, count(*) AS pairs, sum(a.calls + b.calls) AS calls \
                    FROM summary a JOIN summary b ON a.host = b.host GROUP BY a.cause ORDER BY cause";

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn start(environment: &[(String, String)], arguments: &[String], log: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater-fleet-ballista"));
    let log = std::fs::File::create(log).expect("a log");
    command.args(arguments).envs(environment.iter().cloned()).stdout(Stdio::null()).stderr(log);
    Process(command.spawn().expect("flatwater-fleet-ballista starts"))
}

struct Executor {
    process: Process,
    work: PathBuf,
}

struct Cluster {
    at: SocketAddr,
    scheduler: Option<Process>,
    executors: Vec<Executor>,
    started: usize,
    environment: Vec<(String, String)>,
    place: tempfile::TempDir,
}

fn free() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).expect("a port")
}

/// Waits until the process listens; fails with its output if it ends.
fn until_listening(at: SocketAddr, process: &mut Process, log: &Path) {
    let began = Instant::now();
    while TcpStream::connect(at).is_err() {
        let message = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(process.0.try_wait().expect("asked").is_none(), "ended: {}", message());
        assert!(began.elapsed() < BOUND, "does not listen at {at}: {}", message());
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Cluster {
    fn of(executors: usize, environment: &[(String, String)]) -> Cluster {
        let place = tempfile::tempdir().expect("a folder");
        let environment = environment.to_vec();
        let mut cluster =
            Cluster { at: free(), scheduler: None, executors: Vec::new(), started: 0, environment, place };
        cluster.start_scheduler();
        for _ in 0..executors {
            cluster.start_executor();
        }
        cluster
    }

    fn start_scheduler(&mut self) {
        let log = self.place.path().join("scheduler.log");
        let listen = ["scheduler", "--listen", &self.at.to_string(), "--executor-timeout-s", &LOST_AFTER_S.to_string()];
        let mut process = start(&self.environment, &listen.map(str::to_owned), &log);
        until_listening(self.at, &mut process, &log);
        self.scheduler = Some(process);
    }

    fn start_executor(&mut self) {
        self.started += 1;
        let work = self.place.path().join(format!("executor-{}", self.started));
        std::fs::create_dir(&work).expect("made");
        let (log, flight, grpc) = (work.with_extension("log"), free(), free());
        let work_dir = work.display().to_string();
        let arguments = ["executor", "--scheduler", &self.at.to_string(), "--port", &flight.port().to_string()];
        let more = ["--grpc-port", &grpc.port().to_string(), "--work-dir", &work_dir, "--heartbeat-s", "1"];
        let arguments: Vec<String> = [&arguments[..], &more[..]].concat().into_iter().map(str::to_owned).collect();
        let mut process = start(&self.environment, &arguments, &log);
        until_listening(flight, &mut process, &log);
        self.executors.push(Executor { process, work });
    }

    fn url(&self) -> String {
        format!("df://{}", self.at)
    }

    fn ask(&self) -> ask::Cluster {
        ask::Cluster::parse(&self.url(), Nanos(BOUND.as_nanos() as u64)).expect("a scheduler")
    }
}

/// The number of files of shuffled rows below a directory.
fn files(below: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(below) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

/// The name of each question, and its answer as CSV.
async fn answers(session: &mut Session, range: Range) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for question in Question::all(None).expect("well formed") {
        // In `new`, everything is new since the first hour.
        let given = match question.name.as_str() {
            "host" => vec![("host".to_owned(), "host-00003".to_owned())],
            "new" => vec![("since".to_owned(), "2026-11-20".to_owned())],
            _ => Vec::new(),
        };
        let sql = question.sql(&given, range).expect("SQL");
        let began = Instant::now();
        let answer = session.answer(question.about.clone(), &sql).await;
        let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", question.name));
        let csv = answer.render(ask::Format::Csv).expect("CSV");
        println!("{:<12} {:>6} rows {:.2} s", question.name, answer.count(), began.elapsed().as_secs_f64());
        all.push((question.name, String::from_utf8(csv).expect("text")));
    }
    all
}

/// Fractions are rounded sums in unspecified order: they may differ by one digit.
fn is_alike(one: &str, other: &str) -> bool {
    let fraction = |cell: &str| cell.contains('.').then(|| cell.parse::<f64>().ok()).flatten();
    let cells = |text: &str| text.split([',', '\n']).map(str::to_owned).collect::<Vec<_>>();
    let (one, other) = (cells(one), cells(other));
    one.len() == other.len()
        && one.iter().zip(&other).all(|(one, other)| {
            one == other || fraction(one).zip(fraction(other)).is_some_and(|(one, other)| (one - other).abs() < 0.11)
        })
}

async fn assert_alike(fleet: &Fleet, range: Range, cluster: &Cluster) {
    let mut here = Session::open(fleet, range, Limits::default()).await.expect("opened");
    let mut there = Session::open_on(fleet, range, Limits::default(), cluster.ask()).await.expect("opened");
    let (here, there) = (answers(&mut here, range).await, answers(&mut there, range).await);
    for ((name, here), (_, there)) in here.iter().zip(&there) {
        assert!(name == "twins" || here.lines().count() > 1, "{name} has no rows");
        assert!(is_alike(here, there), "{name}\nhere:\n{here}\nthere:\n{there}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-fleet-engines: wants the feature ballista-cluster"]
async fn a_cluster_answers_every_question_like_this_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(60, 49, true)).await;
    let cluster = Cluster::of(2, &[]);
    // First only hours; then days beside the hours of the last day; then a range without a whole day.
    assert_alike(&fleet, day(0, 49), &cluster).await;
    assert!(compact(&fleet, &compact::Options::default()).await.expect("compacted").days > 0);
    assert_alike(&fleet, day(0, 49), &cluster).await;
    assert_alike(&fleet, day(5, 40), &cluster).await;
    for executor in &cluster.executors {
        assert!(files(&executor.work) > 0, "{} had no work", executor.work.display());
    }
    let mut session = Session::open_on(&fleet, day(0, 49), Limits::default(), cluster.ask()).await.expect("opened");
    let refused = session.rows("SELECT no_such_column FROM stalls").await.expect_err("no such column");
    assert!(refused.is_usage() && refused.to_string().contains("no_such_column"), "{refused}");
    let refused = session.rows("CREATE TABLE mine AS SELECT 1").await.expect_err("a question reads");
    assert!(refused.is_usage(), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-fleet-engines: wants the feature ballista-cluster"]
async fn a_cluster_reports_damaged_parts_and_reads_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fleet, _) = made(folder.path(), &options(10, 3, true)).await;
    let parts = fleet.list("v=1/table=summary").await.expect("listed");
    // Its footer is valid; only reading the rows finds the damage.
    let damaged = folder.path().join(parts[0].location.as_ref());
    let mut bytes = std::fs::read(&damaged).expect("read");
    bytes[64..400].fill(0xff);
    std::fs::write(&damaged, bytes).expect("written");
    let cluster = Cluster::of(2, &[]);
    let count = "SELECT count(*) AS rows, sum(stall_ns) AS stall_ns, max(service) AS service FROM summary";
    let mut here = Session::open(&fleet, day(0, 3), Limits::default()).await.expect("opened");
    let mut there = Session::open_on(&fleet, day(0, 3), Limits::default(), cluster.ask()).await.expect("opened");
    let here = here.answer("count".to_owned(), count).await.expect("answered");
    let there = there.answer("count".to_owned(), count).await.expect("answered");
    assert_eq!(here.left_out.to_string(), there.left_out.to_string());
    assert!(!there.left_out.is_empty(), "nothing is left out");
    assert_eq!(here.render(ask::Format::Csv).expect("CSV"), there.render(ask::Format::Csv).expect("CSV"));
}

/// The command that queries the whole range.
fn asking(fleet: &Path, what: &[&str], on: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater-fleet"));
    command.arg(what[0]).arg(fleet).args(&what[1..]);
    command.args(["--from", "2026-11-20", "--to", "2026-11-22T01:00", "--format", "csv"]);
    if let Some(on) = on {
        command.args(["--on", on, "--wait", "200s"]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn answered(fleet: &Path, what: &[&str], on: Option<&str>) -> Output {
    asking(fleet, what, on).output().expect("flatwater-fleet starts")
}

/// Runs the query, calls `event` in the middle, and waits for the end.
fn in_the_middle_of(fleet: &Path, cluster: &mut Cluster, event: impl FnOnce(&mut Cluster)) -> Output {
    let works: Vec<PathBuf> = cluster.executors.iter().map(|executor| executor.work.clone()).collect();
    let before: Vec<usize> = works.iter().map(|work| files(work)).collect();
    let began = Instant::now();
    let mut asked = asking(fleet, &["sql", LONG], Some(&cluster.url())).spawn().expect("flatwater-fleet starts");
    // Each executor has rows for the next stage.
    while works.iter().zip(&before).any(|(work, before)| files(work) == *before) {
        assert!(asked.try_wait().expect("asked").is_none(), "it ended before its middle");
        assert!(began.elapsed() < BOUND, "the query does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(asked.try_wait().expect("asked").is_none(), "it was over before");
    event(cluster);
    let output = asked.wait_with_output().expect("ended");
    assert!(began.elapsed() < BOUND, "it took {:?}", began.elapsed());
    println!("{}: {:?} after {:.1} s", cluster.url(), output.status.code(), began.elapsed().as_secs_f64());
    output
}

/// The rows are right, or an error says where and what failed.
fn assert_right_or_refused(output: &Output, right: &[u8]) {
    let message = String::from_utf8_lossy(&output.stderr);
    println!("{message}");
    if output.status.success() {
        assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(right));
    } else {
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.starts_with("flatwater-fleet: ") && !message.contains("panicked"), "{message}");
        assert!(message.contains("df://127.0.0.1") || message.contains("could not be answered"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-fleet-engines: wants the feature ballista-cluster"]
async fn a_killed_executor_and_a_restarted_scheduler_spoil_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), &options(60, 49, true)).await;
    let fleet = folder.path();
    let right = answered(fleet, &["sql", LONG], None);
    assert!(right.status.success() && right.stdout.len() > 100, "{}", String::from_utf8_lossy(&right.stderr));
    let mut cluster = Cluster::of(2, &[]);
    let output = in_the_middle_of(fleet, &mut cluster, |cluster| {
        cluster.executors.pop().expect("an executor").process.end();
    });
    assert_right_or_refused(&output, &right.stdout);
    // With the remaining executor.
    let causes = answered(fleet, &["ask", "causes"], None).stdout;
    let output = answered(fleet, &["ask", "causes"], Some(&cluster.url()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&causes), "{output:?}");
    cluster.start_executor();
    let output = in_the_middle_of(fleet, &mut cluster, |cluster| {
        drop(cluster.scheduler.take());
        cluster.start_scheduler();
    });
    assert_right_or_refused(&output, &right.stdout);
    // Executors register with the next heartbeat; until then a query waits.
    let output = answered(fleet, &["ask", "causes"], Some(&cluster.url()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&causes), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-fleet-engines: wants the feature ballista-cluster"]
async fn a_missing_cluster_or_executor_is_an_error_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), &options(3, 3, true)).await;
    let began = Instant::now();
    let unreachable = answered(folder.path(), &["ask", "causes"], Some(&format!("df://{}", free())));
    let message = String::from_utf8_lossy(&unreachable.stderr);
    assert!(unreachable.status.code() == Some(1) && message.contains("cannot be reached"), "{message}");
    let cluster = Cluster::of(0, &[]);
    let mut command = asking(folder.path(), &["ask", "causes"], None);
    let empty = command.args(["--on", &cluster.url(), "--wait", "3s"]).output().expect("starts");
    let message = String::from_utf8_lossy(&empty.stderr);
    assert!(empty.status.code() == Some(1) && message.contains("no answer within 3"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-fleet-engines: wants the feature ballista-cluster"]
async fn executors_read_s3_by_themselves() {
    let Some(server) = Server::start("executors_read_s3_by_themselves") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), &options(20, 24, true)).await;
    let hours = ["--hosts", "20", "--hours", "24", "--from", "2026-11-20", "--seed", "7", "--compacted"];
    s3::run_until_done(server.at, &[&["generate", s3::PLACE][..], &hours[..]].concat());
    let cluster = Cluster::of(2, &s3::environment(server.at));
    let range = ["--from", "2026-11-20", "--to", "2026-11-21", "--format", "csv"];
    let (directory, url) = (folder.path().display().to_string(), cluster.url());
    for question in ["causes", "hosts", "settings", "coverage"] {
        let ask = |place: &str, on: &[&str]| {
            s3::run_until_done(server.at, &[&["ask", place, question][..], &range[..], on].concat())
        };
        let (here, there) = (ask(&directory, &[]), ask(s3::PLACE, &["--on", &url]));
        assert!(here.lines().count() > 1 && is_alike(&here, &there), "{question}\n{here}\n{there}");
    }
}
