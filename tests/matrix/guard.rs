//! The guard in guests with cgroup v2: guard.sh with a real neighbour on another partition of the victim's disk.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::asked::{self, Kernel};
use super::places::with_libraries;

/// A limit must be gone this long after its daemon was killed.
const GONE_MAX_S: f64 = 10.0;

/// A partition table with partitions (first sector, sectors).
fn partition_table(partitions: &[(u32, u32)]) -> Vec<u8> {
    let mut table = vec![0_u8; 512];
    for (number, (first, sectors)) in partitions.iter().enumerate() {
        let at = 446 + 16 * number;
        table[at + 4] = 0x83;
        table[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
        table[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table
}

/// Boots the kernel, and returns what is wrong.
pub fn ask(kernel: &Kernel) -> Vec<String> {
    let text = fs::read_to_string(Path::new(asked::HERE).join("guard.sh")).expect("guard.sh");
    let place = Path::new(asked::ANSWERS).join(format!("guard-{}", kernel.name));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("a directory for the answers");
    let machine = fs::read_to_string(Path::new(asked::HERE).join("machine.toml")).expect("machine.toml");
    let machine = machine.replace("\"288MiB\", \"160MiB\"", "\"768MiB\"").replace("\"6MiB\"", "\"24MiB\"");
    fs::write(place.join("machine.toml"), machine.replace("distance = 40\n", "")).expect("write");
    fs::write(place.join("table"), partition_table(&[(2_048, 1 << 21), ((1 << 21) + 2_048, 1 << 21)])).expect("write");
    let tools = ["/usr/sbin/mkfs.ext4", "/usr/bin/fio"];
    let mut with: Vec<(PathBuf, String)> = tools.iter().flat_map(|tool| with_libraries(tool)).collect();
    with.push((place.join("table"), "/table".to_owned()));
    with.sort();
    with.dedup();
    let boot = asked::Boot { machine: place.join("machine.toml"), modules: &[], with };
    let (minutes, failed) = asked::boot(kernel, &place, &text, &boot);
    println!("== {}: guard: {minutes:.1} minutes", kernel.name);
    let mut wrong: Vec<String> = failed.into_iter().collect();
    let read = |file: &str| fs::read_to_string(place.join("out").join(file)).unwrap_or_default();
    wrong.extend(kills(&read("kills")));
    wrong.extend(values(&read("values")));
    wrong.extend(acted(&read));
    wrong.into_iter().map(|line| format!("{}: {line}", kernel.name)).collect()
}

/// Lines `HOW SECONDS`: how a daemon ended, and how long its limit then stayed; `-1` if it was never in force.
fn kills(text: &str) -> Vec<String> {
    let times: Vec<(&str, f64)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(how, s)| Some((how, s.parse().ok()?)))
        .collect();
    let longest = times.iter().map(|(_, s)| *s).fold(0.0, f64::max);
    println!("   {} kills, the longest time until the limit was gone: {longest} s", times.len());
    let mut wrong: Vec<String> = times
        .iter()
        .filter(|(_, s)| *s < 0.0 || *s > GONE_MAX_S)
        .map(|(how, s)| format!("{how}: the limit was gone after {s} s"))
        .collect();
    if times.len() < 60 {
        wrong.push(format!("only {} kills", times.len()));
    }
    wrong
}

/// Lines `NAME VALUE`, each as expected.
fn values(text: &str) -> Vec<String> {
    let expected = [
        ("foreign", "wbps=7340032"),
        ("foreign-before", "wbps=9437184"),
        ("removed-group", "ended"),
        ("restored", "none"),
        ("both-killed", "wbps=1048576"),
    ];
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let differ = expected.iter().filter(|(name, wanted)| value(name) != Some(*wanted));
    differ.map(|(name, wanted)| format!("{name}: {:?}, not {wanted}", value(name))).collect()
}

/// 99th percentile of fsync(), ns.
fn p99(text: &str) -> Option<u64> {
    let json: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    json["jobs"][0]["sync"]["lat_ns"]["percentile"]["99.000000"].as_u64()
}

fn acted(read: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut wrong = Vec::new();
    let state: Value = serde_json::from_str(&read("list.json")).unwrap_or(Value::Null);
    println!("   {}", read("list").trim());
    let acting = &state["acting"];
    if acting["proven"] != true || acting["group"] != "/jobs/backup" {
        wrong.push(format!("no proven limit on /jobs/backup: {acting}; log: {}", read("watch.log")));
    }
    let times = ["alone", "beside", "limited"].map(|name| p99(&read(&format!("{name}.json"))));
    println!("   p99 of fsync(): alone, beside, limited: {times:?} ns; proven after {} s", read("proven").trim());
    match times {
        [Some(alone), Some(beside), Some(limited)] => {
            // An emulated guest distorts time: the order of the three is what must hold.
            if limited >= beside || beside <= alone {
                wrong.push(format!("p99 alone {alone}, beside {beside}, limited {limited}"));
            }
        }
        other => wrong.push(format!("a percentile is missing: {other:?}")),
    }
    let shared: Value = serde_json::from_str(&read("shared.json")).unwrap_or(Value::Null);
    println!("   shared journal: {}", read("shared").trim());
    let episodes = shared["episodes"].as_array().map_or(usize::MAX, Vec::len);
    if episodes != 0 || !shared["acting"].is_null() {
        wrong.push(format!("it acted on a neighbour of the same journal: {shared}"));
    }
    wrong
}
