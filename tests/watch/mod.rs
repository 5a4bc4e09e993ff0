//! `flatwater watch` as a process: a stall of another process seals a recording that begins before it, a real
//! Prometheus gets the metrics, and neither a wrong configuration nor kill -9 loses data.

mod guard;
#[allow(dead_code)]
mod hard;
mod top;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::loopdisk::LoopDisk;
use crate::common::{Scratch, alone, is_root, tool};
use flatwater_recording::{OpKind, Recording, Table, read};
use needs::{Need, skip};

/// A daemon, killed on drop.
struct Daemon {
    child: Child,
    config: PathBuf,
    place: PathBuf,
}

impl Daemon {
    /// Starts a daemon with this configuration, its store and socket in `place`, and waits until it answers. Text after
    /// a line `---` goes into the section `[metrics]`.
    fn start(place: &Path, config: &str) -> Daemon {
        let path = place.join("watch.toml");
        let (store, socket) = (place.join("store"), place.join("watch.sock"));
        let head = format!("[store]\ndirectory = \"{}\"\nkeep_free = 0.0\ncooldown = \"0s\"\n", store.display());
        let text = format!(
            "{}\n{head}\n[metrics]\nsocket = \"{}\"\n{}",
            section(config, 0),
            socket.display(),
            section(config, 1)
        );
        fs::write(&path, text).expect("the configuration is written");
        let log = fs::File::create(place.join("watch.log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
        command.arg("watch").arg("-c").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut daemon =
            Daemon { child: command.spawn().expect("flatwater starts"), config: path, place: place.into() };
        let until = Instant::now() + Duration::from_secs(60);
        while !daemon.ask(&["status"]).status.success() {
            assert!(daemon.child.try_wait().expect("wait").is_none(), "the daemon ended: {}", daemon.log());
            assert!(Instant::now() < until, "no answer within 60 s: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        daemon
    }

    fn ask(&self, what: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
        command
            .args(["watch", "-c"])
            .arg(&self.config)
            .args(what)
            .stdin(Stdio::null())
            .output()
            .expect("flatwater starts")
    }

    fn metrics(&self) -> String {
        String::from_utf8(self.ask(&["metrics"]).stdout).expect("text")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.join("watch.log")).unwrap_or_default()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("kill");
    }

    /// The recordings that the daemon has sealed or is writing.
    fn recordings(&self) -> Vec<PathBuf> {
        // Hourly summaries are files in the same directory.
        let entries = fs::read_dir(self.place.join("store")).into_iter().flatten().flatten();
        let is_recording = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("flatwater-");
        let paths = entries.filter(is_recording).map(|entry| entry.path());
        let mut found: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
        found.sort();
        found
    }

    /// Names in the store that begin with a dot: recordings that are being made or removed.
    fn unfinished(&self) -> Vec<String> {
        let entries = fs::read_dir(self.place.join("store")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with('.')).collect()
    }

    fn stop(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let status = self.child.wait().expect("ends");
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }
}

/// The part of the configuration before or after the first `---`.
fn section(config: &str, which: usize) -> &str {
    config.split("---").nth(which).unwrap_or_default()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn can_trace(test: &str) -> bool {
    let able = is_root() && flatwater_host::tracer::measure_hook_cost().is_ok();
    if !able {
        skip(Need::Bpf, test, "no hook on system calls can be attached");
    }
    able
}

fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn complete(path: &Path) -> Option<Recording> {
    read(path).ok().filter(|recording| recording.header.complete)
}

/// An fsync of 2 MiB on a disk that writes 4 MiB/s.
fn stall(disk: &LoopDisk) {
    let file = format!("of={}", disk.path().join("victim").display());
    tool("dd", &["if=/dev/zero", &file, "bs=64k", "count=32", "conv=fsync"]).expect("dd starts");
}

/// The same fsync as the only call of this dd that can wait for the disk: another program creates and fills the file.
fn stall_in_fsync(dd: &str, disk: &LoopDisk) {
    let file = format!("of={}", disk.path().join("victim").display());
    tool("dd", &["if=/dev/zero", &file, "bs=64k", "count=32"]).expect("dd starts");
    tool(dd, &["if=/dev/null", &file, "conv=notrunc,fsync"]).expect("dd starts");
}

/// A copy of dd with its own name, since other tests run dd beside this one.
fn named_dd(place: &Path, name: &str) -> String {
    let copy = place.join(name);
    fs::copy("/bin/dd", &copy).expect("a copy of dd");
    copy.display().to_string()
}

#[test]
fn a_stall_seals_a_recording_that_begins_before_it() {
    if !can_trace("a stall that the daemon sees") {
        return;
    }
    let _alone = alone();
    let disk = LoopDisk::ext4("watch-disk", 64).expect("a disk");
    let place = Scratch::new("watch-stall");
    let dd = named_dd(place.path(), "fw-stalls");
    // Much longer than any call of dd waits for a CPU on a busy machine: such an open() would set off the recording
    // before the fsync() does.
    let triggers = "look_back = \"20s\"\nafter = \"5s\"\n---\n[[trigger]]\nstall = \"1s\"\nprogram = \"fw-stalls\"\n";
    let daemon = Daemon::start(place.path(), triggers);
    std::thread::sleep(Duration::from_secs(3));
    assert!(daemon.recordings().is_empty(), "recorded without a stall: {}", daemon.log());
    disk.slow_writes(1 << 20).expect("limit");
    stall_in_fsync(&dd, &disk);
    until("sealed", Duration::from_secs(90), || {
        daemon.recordings().first().is_some_and(|path| complete(path).is_some())
    });
    let path = daemon.recordings().remove(0);
    let recording = complete(&path).expect("complete");
    let fsync = |call: &&flatwater_recording::Call| call.op == OpKind::Fsync && call.thread == "fw-stalls";
    let slow = recording.calls.iter().find(fsync).expect("its fsync");
    assert!(slow.duration_ns > 1_000_000_000 && slow.tiles(), "{slow:?}");
    let slow_ns = slow.duration_ns;
    let before_ns = slow.start_ns - recording.header.clock.start_ns;
    assert!(before_ns > 2_000_000_000, "it begins {before_ns} ns before");
    assert!(recording.table(Table::Vmstat).is_some_and(|table| table.len() >= 4), "counters from before the stall");
    let asleep = recording.waits.iter().any(|wait| wait.call_tid == slow.tid && wait.call_start_ns == slow.start_ns);
    assert!(asleep && !recording.requests.is_empty(), "the waits of the call: {} waits", recording.waits.len());
    let first = recording.header.notes.first().expect("a note").to_string();
    assert!(first.starts_with("set off by stall: fsync() of fw-stalls"), "{first}");
    // The look-back was at level 0: the table of operations must not look like a count of all calls (T8).
    let partly = flatwater_explain::explain(&recording).partly_timed.expect("not every call was timed");
    assert!(partly.every_call_ns < partly.duration_ns, "{partly:?}");
    assert!(partly.slow_only.iter().any(|slow| slow.name == "fsync" && slow.max_ns >= slow_ns), "{partly:?}");
    let explained = tool(env!("CARGO_BIN_EXE_flatwater"), &["explain", &path.display().to_string()]).expect("explains");
    // Lines are wrapped. On a busy machine the hooks on system calls may come too late for this recording.
    let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    let partly_timed = if partly.every_call_ns > 0 { "Slow calls in the other" } else { "Only slow calls were found" };
    assert!(explained.contains(partly_timed), "{explained}");
    assert!(explained.contains("set off by stall"), "{explained}");
    let metrics = daemon.metrics();
    assert!(metrics.contains("operation=\"fsync\"") && metrics.contains("flatwater_calls_seen 1"), "{metrics}");
    assert!(metrics.contains("flatwater_captures_total{trigger=\"stall\"} 1"), "{metrics}");
    assert!(metrics.contains("flatwater_device_stall_seconds_total{device=\"loop"), "{metrics}");
    let level = recording.header.hooks.iter().any(|hook| hook.hook.ends_with("/sys_enter"));
    let sleeps = recording.header.hooks.iter().any(|hook| hook.hook.ends_with("/sched_waking"));
    assert!(sleeps && !level, "without hooks on system calls: {:?}", recording.header.hooks);
    daemon.stop();
}

#[test]
fn a_dump_records_the_last_seconds_without_a_trigger() {
    if !can_trace("a dump") {
        return;
    }
    let _alone = alone();
    let place = Scratch::new("watch-dump");
    // Long enough that the daemon is killed before the second recording is complete, also on a busy machine.
    let other = "[[trigger]]\nstall = \"1s\"\nprogram = \"no-such-program\"\n";
    let daemon = Daemon::start(place.path(), &format!("after = \"8s\"\n---\n{other}"));
    std::thread::sleep(Duration::from_secs(3));
    let answer = daemon.ask(&["dump"]);
    assert!(answer.status.success(), "{answer:?}");
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let path = PathBuf::from(answer["recording"].as_str().expect("a path"));
    until("sealed", Duration::from_secs(40), || complete(&path).is_some());
    let recording = complete(&path).expect("complete");
    assert!(recording.header.duration_ns > 2_000_000_000);
    // Kill the daemon during the next recording: the written part is readable, and the next daemon takes over the
    // socket.
    assert!(daemon.ask(&["dump"]).status.success());
    let cut = daemon.recordings().into_iter().find(|one| *one != path).expect("a second one");
    daemon.signal(rustix::process::Signal::KILL);
    drop(daemon);
    let torn = read(&cut).expect("readable");
    assert!(!torn.header.complete);
    assert!(torn.table(Table::Vmstat).is_some_and(|table| table.len() >= 2), "the look-back was written at once");
    let next = Daemon::start(place.path(), &format!("---\n{other}"));
    assert_eq!(next.recordings().len(), 2, "the old ones are kept");
    next.stop();
}

#[test]
fn a_wrong_configuration_is_reported_and_the_old_one_kept() {
    let _alone = alone();
    let place = Scratch::new("watch-wrong");
    let path = place.path().join("watch.toml");
    for (text, message) in [
        ("threshold = \"5ms\"\nlook_bak = \"60s\"\n", "line 2"),
        ("[store]\nsize = \"1MiB\"\n", "less than one recording"),
        ("[metrics]\nlisten = \"0.0.0.0:9177\"\n", "can be reached from other machines"),
    ] {
        fs::write(&path, text).expect("write");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
        let output = command.args(["watch", "--check", "-c"]).arg(&path).output().expect("runs");
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{reported}");
        assert!(reported.contains(message), "{reported}");
    }
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/watch.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    assert!(command.args(["watch", "--check", "-c", shipped]).output().expect("runs").status.success());
    if !can_trace("a daemon that reads its configuration again") {
        return;
    }
    let daemon = Daemon::start(place.path(), "---\n");
    let right = fs::read_to_string(&daemon.config).expect("readable");
    fs::write(&daemon.config, format!("nonsense = 1\n{right}")).expect("write");
    daemon.signal(rustix::process::Signal::HUP);
    until("refused", Duration::from_secs(10), || daemon.log().contains("the previous configuration stays"));
    fs::write(&daemon.config, format!("threshold = \"7ms\"\n{right}")).expect("write");
    daemon.signal(rustix::process::Signal::HUP);
    until("read again", Duration::from_secs(10), || daemon.log().contains("configuration read again"));
    until("in force", Duration::from_secs(10), || {
        String::from_utf8_lossy(&daemon.ask(&["status"]).stdout).contains("\"threshold_ns\":7000000")
    });
    // Send as many signals as possible in two seconds, while the file is alternately right and wrong.
    let mut sent = 0;
    let until_then = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until_then {
        let text = if sent % 2 == 0 { "nonsense = 1\n".to_owned() } else { right.clone() };
        fs::write(&daemon.config, text).expect("write");
        daemon.signal(rustix::process::Signal::HUP);
        sent += 1;
    }
    fs::write(&daemon.config, format!("threshold = \"9ms\"\n{right}")).expect("write");
    daemon.signal(rustix::process::Signal::HUP);
    until("in force after the storm", Duration::from_secs(20), || {
        String::from_utf8_lossy(&daemon.ask(&["status"]).stdout).contains("\"threshold_ns\":9000000")
    });
    let lines = daemon.log().lines().filter(|line| line.contains("configuration")).count();
    assert!(
        sent > 100 && lines < sent / 2,
        "{sent} signals, {lines} lines in the journal: signals are answered once a second"
    );
    daemon.stop();
}

/// A Prometheus server, killed on drop.
struct Prometheus(Child);

impl Prometheus {
    /// Listens on port `at`, and scrapes the daemon on port `from` once a second.
    fn scraping(place: &Path, from: u16, at: u16, keys: &Keys) -> Prometheus {
        let config = place.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: flatwater\n  scheme: https\n  \
             tls_config: {{ ca_file: '{}' }}\n  authorization: {{ credentials_file: '{}' }}\n  static_configs:\n  \
             - targets: ['127.0.0.1:{from}']\n",
            keys.certificate.display(),
            keys.token.display()
        );
        fs::write(&config, text).expect("write");
        let (config, data) = (config.display().to_string(), place.join("data").display().to_string());
        let mut command = Command::new(of_prometheus("prometheus"));
        command.arg(format!("--config.file={config}")).arg(format!("--storage.tsdb.path={data}"));
        command.arg(format!("--web.listen-address=127.0.0.1:{at}")).arg("--enable-feature=native-histograms");
        let log = fs::File::create(place.join("prometheus.log")).expect("a log");
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Prometheus(started.expect("prometheus starts"))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn get(port: u16, path: &str) -> Option<String> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The daemon's certificate and key, and the token that clients need.
struct Keys {
    certificate: PathBuf,
    key: PathBuf,
    token: PathBuf,
}

impl Keys {
    fn make(place: &Path) -> Keys {
        let [certificate, key, token] = ["tls.crt", "tls.key", "token"].map(|name| place.join(name));
        let shown = |path: &Path| path.display().to_string();
        let (out, keyout) = (shown(&certificate), shown(&key));
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=flatwater \
                     -addext subjectAltName=IP:127.0.0.1";
        let words: Vec<&str> = words.split_whitespace().chain(["-out", &out, "-keyout", &keyout]).collect();
        tool("openssl", &words).expect("a certificate");
        fs::write(&token, "a-token-of-the-tests-0123456789\n").expect("write");
        for path in [&key, &token] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("chmod");
        }
        Keys { certificate, key, token }
    }

    fn configuration(&self) -> String {
        let Keys { certificate, key, token } = self;
        format!("certificate = {certificate:?}\nkey = {key:?}\ntoken_file = {token:?}\n")
    }

    /// The answer with its header, from curl.
    fn get(&self, port: u16, with_token: bool) -> String {
        let token = fs::read_to_string(&self.token).expect("readable");
        let header = format!("Authorization: Bearer {}", if with_token { token.trim() } else { "guessed-wrong" });
        let url = format!("https://127.0.0.1:{port}/metrics");
        let certificate = self.certificate.display().to_string();
        let accept = "Accept: text/plain";
        let words = ["-s", "-i", "--http1.1", "--cacert", &certificate, "-H", &header, "-H", accept, &url];
        tool("curl", &words).expect("an answer")
    }
}

/// The program unpacked by `tools/prometheus.sh`, or else the one on the PATH.
fn of_prometheus(name: &str) -> String {
    let unpacked = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/prometheus/usr/bin/");
    let unpacked = format!("{unpacked}{name}");
    if Path::new(&unpacked).exists() { unpacked } else { name.to_owned() }
}

/// Percent-encodes the text for a query string.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn a_real_prometheus_scrapes_and_answers() {
    let promtool = of_prometheus("promtool");
    if tool(&promtool, &["--version"]).is_err() {
        return skip(Need::Prometheus, "metrics in Prometheus", "promtool is not installed");
    }
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus");
    tool(&promtool, &["check", "rules", &format!("{rules}/alerts.yml")]).expect("the alert rules are valid");
    tool(&promtool, &["test", "rules", &format!("{rules}/alerts_test.yml")]).expect("the alert rules fire");
    if !can_trace("metrics in Prometheus") {
        return;
    }
    let _alone = alone();
    let disk = LoopDisk::ext4("watch-prom", 64).expect("a disk");
    disk.slow_writes(4 << 20).expect("limit");
    let place = Scratch::new("watch-prometheus");
    let (ours, theirs) = (free_port(), free_port());
    // With a certificate and a token, as for clients on other machines.
    let keys = Keys::make(place.path());
    let daemon = Daemon::start(place.path(), &format!("---\nlisten = \"127.0.0.1:{ours}\"\n{}", keys.configuration()));
    stall(&disk);
    until("counted", Duration::from_secs(10), || daemon.metrics().contains("operation=\"fsync\""));
    let check = Command::new(&promtool).args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut check = check.expect("promtool starts");
    // The format for clients that do not ask for a specific one.
    let reported = keys.get(ours, true);
    let (head, body) = reported.split_once("\r\n\r\n").expect("a head");
    // tool() removed the last newline.
    let body = format!("{body}\n");
    assert!(head.contains(" 200 "), "{head}");
    assert!(keys.get(ours, false).contains(" 401 "), "without the token");
    assert!(get(ours, "/metrics").is_none_or(|answer| !answer.contains("flatwater_")), "metrics without TLS");
    std::io::Write::write_all(&mut check.stdin.take().expect("a pipe"), body.as_bytes()).expect("write");
    let output = check.wait_with_output().expect("promtool ends");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!message.contains("error"), "{message}");
    let _prometheus = Prometheus::scraping(place.path(), ours, theirs, &keys);
    let query = |expression: &str| get(theirs, &format!("/api/v1/query?query={expression}")).unwrap_or_default();
    until("scraped", Duration::from_secs(60), || {
        query("flatwater_stall_seconds_total").contains("\"operation\":\"fsync\"")
    });
    assert!(query("flatwater_calls_seen").contains("\"1\""), "{}", query("flatwater_calls_seen"));
    // Scraped as protobuf, the histogram is native: it has a count but no buckets.
    let count = query("histogram_count(flatwater_stall_duration_seconds)");
    assert!(count.contains("\"value\""), "{count}");
    let board = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/flatwater.json");
    let board: serde_json::Value = serde_json::from_str(&fs::read_to_string(board).expect("readable")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels").iter();
    let asked: Vec<&str> = panels
        .flat_map(|panel| panel["targets"].as_array().expect("targets"))
        .map(|target| target["expr"].as_str().expect("an expression"))
        .collect();
    assert!(asked.len() >= 9);
    for expression in asked {
        let expression = expression.replace("$instance", ".*").replace("$__rate_interval", "1m");
        let answer = query(&encoded(&expression));
        assert!(answer.contains("\"status\":\"success\""), "{expression}: {answer}");
    }
    daemon.stop();
}
