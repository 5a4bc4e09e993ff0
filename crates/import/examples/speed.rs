//! Measures how fast logs of each kind are imported, compared to `wc -l` and `grep -c` on the same file. Measures CPU
//! time, since other processes may use the machine.
//!
//! `cargo run --release -p flatwater-import --example speed -- [MIB] [KIND...]`

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use flatwater_import::import_files;

/// splitmix64: the same kind gives the same log.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// Writes line number `at` of a log.
type Writes = fn(&mut String, u64, &mut Dice);

const KINDS: &[(&str, Writes)] = &[
    ("syslog", syslog),
    ("dmesg", dmesg),
    ("hung-tasks", hung_tasks),
    ("vmstat", vmstat),
    ("iostat", iostat),
    ("sar", sar),
    ("postgresql", postgresql),
    ("etcd", etcd),
    ("jvm-gc", collector),
    ("strace", strace),
    ("prose", prose),
    ("source-code", code),
];

fn clock(out: &mut String, at: u64) {
    let _ = write!(out, "{:02}:{:02}:{:02}", at / 3600 % 24, at / 60 % 60, at % 60);
}

fn syslog(out: &mut String, at: u64, dice: &mut Dice) {
    let _ = write!(out, "Nov {:2} ", 1 + at / 86_400 / 20 % 28);
    clock(out, at / 20);
    let n = dice.below(60_000);
    let _ = match dice.below(8) {
        0 => writeln!(out, " db1 mysqld[{n}]: InnoDB: page_cleaner: 1000ms intended loop took {n}ms."),
        1 => writeln!(out, " db1 kernel: [{at}.000001] usb 1-1: new high-speed USB device number {n} using xhci_hcd"),
        2 => writeln!(out, " db1 systemd[1]: Started Session {n} of user root."),
        3 => writeln!(out, " db1 CRON[{n}]: (root) CMD (command -v debian-sa1 > /dev/null)"),
        _ => writeln!(out, " db1 sshd[{n}]: Accepted publickey for deploy from 10.1.2.3 port {n} ssh2"),
    };
}

fn dmesg(out: &mut String, at: u64, dice: &mut Dice) {
    let n = dice.below(60_000);
    let _ = match dice.below(4) {
        0 => writeln!(out, "[{at:8}.{n:06}] audit: type=1400 audit(1.2:3): apparmor=\"ALLOWED\" pid={n}"),
        1 => writeln!(out, "[{at:8}.{n:06}] usb 1-1: new high-speed USB device number {n} using xhci_hcd"),
        2 => writeln!(out, "[{at:8}.{n:06}] docker0: port 1(veth{n:x}) entered forwarding state"),
        _ => writeln!(out, "[{at:8}.{n:06}] EXT4-fs (sda1): mounted filesystem with ordered data mode"),
    };
}

/// Consecutive reports of hung tasks: every frame is looked up.
fn hung_tasks(out: &mut String, at: u64, dice: &mut Dice) {
    const FRAMES: [&str; 12] = [
        "__schedule+0x2e3/0x740",
        "schedule+0x42/0xb0",
        "io_schedule+0x46/0x70",
        "rwsem_down_write_slowpath+0x2a1/0x5a0",
        "jbd2_log_wait_commit+0xb4/0x120 [jbd2]",
        "ext4_sync_file+0x21a/0x3c0 [ext4]",
        "do_fsync+0x38/0x70",
        "xlog_grant_head_wait+0xba/0x200 [xfs]",
        "nfs_wait_bit_killable+0x1e/0x90 [nfs]",
        "pipe_read+0x2f1/0x380",
        "do_syscall_64+0x5b/0x1a0",
        "entry_SYSCALL_64_after_hwframe+0x44/0xa9",
    ];
    let n = dice.below(60_000);
    let _ = match at % 16 {
        0 => writeln!(out, "[{at:8}.{n:06}] INFO: task mysqld:{n} blocked for more than 120 seconds."),
        1 => writeln!(out, "[{at:8}.{n:06}]       Not tainted 5.10.0-8-amd64 #1 Debian 5.10.46-4"),
        2 => writeln!(out, "[{at:8}.{n:06}] task:mysqld state:D stack:    0 pid:{n:5} ppid:     1 flags:0x00004000"),
        3 => writeln!(out, "[{at:8}.{n:06}] Call Trace:"),
        _ => writeln!(out, "[{at:8}.{n:06}]  {}", FRAMES[dice.below(12) as usize]),
    };
}

fn vmstat(out: &mut String, at: u64, dice: &mut Dice) {
    if at.is_multiple_of(22) {
        out.push_str("procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n");
        out.push_str(" r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n");
    }
    let (n, m) = (dice.below(9), dice.below(900_000));
    let _ = writeln!(
        out,
        "{n:2}  0      0 {m:6}  40000 {m:6}    0    0  {:4}  {:4}  200  100 {n:2}  1 90  2  0",
        n * 90,
        n * 30
    );
}

fn iostat(out: &mut String, _: u64, dice: &mut Dice) {
    out.push_str("\nDevice            r/s     w/s     rkB/s     wkB/s   rrqm/s   wrqm/s  %rrqm  %wrqm r_await w_await aqu-sz rareq-sz wareq-sz  svctm  %util\n");
    for device in ["sda", "sdb", "nvme0n1"] {
        let n = dice.below(90);
        let _ = writeln!(
            out,
            "{device:10} {n:8}.00 {n:8}.50 {n:9}.00 {n:9}.00    0.00    1.00   0.00   2.00    {n}.10    {n}.20   1.20    16.00    32.00   0.50  {n}.00"
        );
    }
}

fn sar(out: &mut String, at: u64, dice: &mut Dice) {
    if at.is_multiple_of(50) {
        out.push_str("\n00:00:01        CPU     %user     %nice   %system   %iowait    %steal     %idle\n");
    }
    clock(out, at);
    let n = dice.below(30);
    let _ = writeln!(out, "        all     {n:5}.00      0.00      3.00      2.00      0.00     {:5}.00", 95 - n);
}

fn postgresql(out: &mut String, at: u64, dice: &mut Dice) {
    out.push_str("2026-11-22 ");
    clock(out, at / 50);
    let n = dice.below(9000);
    let statement = if n.is_multiple_of(3) { "COMMIT" } else { "SELECT * FROM accounts WHERE id = 7" };
    let _ = writeln!(out, ".123 UTC [{n}] app@db LOG:  duration: {n}.123 ms  statement: {statement}");
}

fn etcd(out: &mut String, at: u64, dice: &mut Dice) {
    out.push_str("{\"level\":\"info\",\"ts\":\"2026-11-22T");
    clock(out, at / 50);
    let message = if dice.below(3) == 0 { "apply request took too long" } else { "compacted Raft logs" };
    let _ = writeln!(
        out,
        ".123456Z\",\"caller\":\"etcdserver/util.go:170\",\"msg\":\"{message}\",\"took\":\"{}ms\"}}",
        dice.below(900)
    );
}

fn collector(out: &mut String, at: u64, dice: &mut Dice) {
    let n = dice.below(90);
    let _ = writeln!(
        out,
        "[{at}.123s][info][gc] GC({at}) Pause Young (Normal) (G1 Evacuation Pause) 3000M->{n}M(4096M) {n}.123ms"
    );
}

fn strace(out: &mut String, at: u64, dice: &mut Dice) {
    let _ = write!(out, "{} ", 100 + dice.below(5));
    clock(out, at / 5000);
    let called =
        ["write(3, \"abc\", 220) = 220", "fsync(4) = 0", "read(5, \"x\", 4096) = 4096", "futex(0x7f, FUTEX_WAIT) = 0"];
    let called = called[dice.below(4) as usize];
    let _ = writeln!(out, ".{:06} {called} <0.{:06}>", at % 5000 * 200, 1 + dice.below(9999));
}

fn prose(out: &mut String, _: u64, dice: &mut Dice) {
    out.push_str(match dice.below(3) {
        0 => "The quick brown fox jumps over the lazy dog and runs away again.\n",
        1 => "It was the best of times, it was the worst of times, he wrote.\n",
        _ => "Nothing in this line is of any use to people who read logs.\n",
    });
}

fn code(out: &mut String, at: u64, dice: &mut Dice) {
    let _ = match dice.below(4) {
        0 => writeln!(out, "    let x = foo(bar, {at});"),
        1 => writeln!(out, "    if (a[i] == {at}) {{ return; }}"),
        2 => writeln!(out, "    // the next lines are not for everybody"),
        _ => writeln!(out, "}}"),
    };
}

/// User and system time in seconds, of this process and the children that it has reaped.
fn cpu_seconds() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(|word| word.parse().unwrap_or(0.0))
        .collect();
    // utime, stime, cutime, cstime: fields 14 to 17, in ticks of 10 ms.
    let sum = |at: usize| fields.iter().skip(at).take(2).sum::<f64>() / 100.0;
    (sum(11), sum(13))
}

fn write_log(path: &Path, mib: u64, line: Writes) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let (mut text, mut written, mut at, mut dice) = (String::new(), 0_u64, 0, Dice(7));
    while written < mib << 20 {
        text.clear();
        line(&mut text, at, &mut dice);
        file.write_all(text.as_bytes())?;
        (written, at) = (written + text.len() as u64, at + 1);
    }
    file.flush()
}

/// CPU seconds of a command on the file.
fn rival(command: &str, arguments: &[&str], path: &Path) -> f64 {
    let before = cpu_seconds().1;
    let _ = Command::new(command).args(arguments).arg(path).output();
    cpu_seconds().1 - before
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mib = arguments.first().and_then(|mib| mib.parse().ok()).unwrap_or(256);
    let wanted: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    println!(
        "| log of {mib} MiB | CPU s | MiB per CPU s | peak so far, MiB | wc -l, CPU s | grep -c, CPU s |\n|---|---:|---:|---:|---:|---:|"
    );
    let path = std::env::temp_dir().join(format!("flatwater-speed-{}.log", std::process::id()));
    for (name, line) in KINDS.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name)) {
        write_log(&path, mib, *line)?;
        let before = cpu_seconds().0;
        let read = import_files(std::slice::from_ref(&path));
        let cpu = cpu_seconds().0 - before;
        drop(read);
        let (count, search) = (rival("wc", &["-l"], &path), rival("grep", &["-c", "blocked for more than"], &path));
        println!(
            "| {name} | {cpu:.2} | {:.0} | {} | {count:.2} | {search:.2} |",
            mib as f64 / cpu.max(0.01),
            peak_mib()
        );
    }
    std::fs::remove_file(&path)
}
