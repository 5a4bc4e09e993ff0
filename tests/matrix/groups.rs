//! The scenarios that use a cgroup, on cgroup v2 in a guest: whether they run, and where they create their group.

use std::fs;
use std::path::Path;

use super::asked::{self, Kernel};
use super::places::with_libraries;

/// The scenarios that run from a session's scope. systemd owns the parent slices.
const SCENARIOS: &[&str] = &[
    "bulk",
    "checkpoint",
    "dirty-bytes",
    "dirty-slow-device",
    "graphdb",
    "inode-churn",
    "journal-neighbours",
    "maildir",
];

/// Each step with the directory in which its group must be.
fn expected() -> impl Iterator<Item = (&'static str, &'static str)> {
    let others = [
        ("delegated", "/sys/fs/cgroup/system.slice/run-1.scope"),
        ("hybrid-memory", "/cg1"),
        ("hybrid-record", "/cg1"),
    ];
    SCENARIOS.iter().map(|name| (*name, "/sys/fs/cgroup")).chain(others)
}

/// Boots the kernel and returns the failures, one per step.
pub fn ask(kernel: &Kernel) -> Vec<String> {
    let text = fs::read_to_string(Path::new(asked::HERE).join("groups.sh")).expect("groups.sh");
    let place = Path::new(asked::ANSWERS).join(format!("groups-{}", kernel.name));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("a directory for the answers");
    let machine = fs::read_to_string(Path::new(asked::HERE).join("machine.toml")).expect("machine.toml");
    // More memory for the scenarios, and no write limit, so that they prepare quickly.
    let machine =
        machine.replace("\"288MiB\", \"160MiB\"", "\"512MiB\", \"256MiB\"").replace("write_bps", "# write_bps");
    fs::write(place.join("machine.toml"), machine).expect("write");
    // From util-linux, because busybox has no `mount -c`.
    let tools = ["/usr/sbin/losetup", "/usr/sbin/mkfs.ext4", "/usr/bin/mount", "/usr/bin/umount"];
    let boot = asked::Boot {
        machine: place.join("machine.toml"),
        modules: &["loop"],
        with: tools.iter().flat_map(|tool| with_libraries(tool)).collect(),
    };
    let (minutes, failed) = asked::boot(kernel, &place, &text, &boot);
    let both = place.join("both");
    fs::create_dir_all(&both).expect("a directory for the answers");
    let of_both = text.replacen('\n', "\nONLY=hybrid\n", 1);
    let (more, failed_with_both) = asked::boot(kernel, &both, &of_both, &boot);
    println!("== {}: groups: {:.1} minutes", kernel.name, minutes + more);
    let answers = [place.join("out"), both.join("out")];
    let read =
        |file: String| answers.iter().find_map(|out| fs::read_to_string(out.join(&file)).ok()).unwrap_or_default();
    let mut wrong: Vec<String> = failed.into_iter().chain(failed_with_both).collect();
    for (name, parent) in expected() {
        let groups = read(format!("{name}.groups"));
        let elsewhere = groups.lines().any(|group| Path::new(group).parent() != Some(Path::new(parent)));
        let reported: Option<serde_json::Value> = serde_json::from_str(&read(format!("{name}.json"))).ok();
        let slow =
            reported.as_ref().and_then(|reported| reported["findings"][0]["cause"].as_str()).unwrap_or("nothing");
        println!("   {name}: {slow}; groups: {}", groups.trim().replace('\n', " "));
        let log = read(format!("{name}.json.log"));
        // Before 6.2 a device has no dirty limit. The hybrid steps need the memory controller of v1.
        let lacking = log.contains("/sys/class/bdi") && log.contains("does not have it");
        if lacking || (name.starts_with("hybrid") && log.is_empty() && reported.is_none()) {
            println!(
                "   {name}: this kernel lacks what it needs: {} {}",
                log.trim(),
                read("hybrid.log".to_owned()).trim()
            );
        } else if reported.is_none() {
            wrong.push(format!("{name}: {}", log.trim()));
        } else if groups.is_empty() || elsewhere {
            wrong.push(format!("{name}: not in {parent} but in {groups:?}"));
        }
    }
    let left = read("left".to_owned());
    if !left.trim().is_empty() {
        wrong.push(format!("left behind: {left}"));
    }
    wrong
}
