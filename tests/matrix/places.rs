//! File systems, devices and nested cgroups in guests: one typical stall for each, and its causes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::asked::{self, Kernel, Stalls};

/// The steps of places.sh for every file system, and the causes that may come first.
const EACH: Stalls = &[("fsync", "appends beside an fsync neighbour", BESIDE)];

/// The commit of the log, the writer's own pages, or the neighbour's requests ahead of both in the device's queue.
const BESIDE: &[&str] = &["journal-commit", "page-writeback", "device-queue-starved", "device-slow", "device-wait"];

/// The steps of the ext4 guest only.
const ONCE: Stalls = &[
    ("overlay", "the same on overlayfs", BESIDE),
    ("pod", "a container two levels down, past memory.high", &["memcg-over-high", "memcg-reclaim", "dirty-throttle"]),
    ("zram", "a group that swaps to zram", &["memcg-reclaim", "swap-in", "swap-storm", "memcg-over-high"]),
    ("scsi", "a SCSI disk of 60 ms", SLOW_DEVICE),
    ("delay", "a device of 60 ms", SLOW_DEVICE),
    ("crypt", "dm-crypt over a device of 60 ms", SLOW_DEVICE),
    ("raid", "MD RAID 1 with one leg of 60 ms", SLOW_DEVICE),
    ("nfs", "NFS on loopback, from a server whose disk takes 60 ms", &["device-wait", "page-writeback"]),
];

const SLOW_DEVICE: &[&str] = &["page-writeback", "device-wait", "device-slow", "request-queue"];

/// The files that a program of this machine needs in a guest: itself and the shared objects that `ldd` lists.
pub fn with_libraries(program: &str) -> Vec<(PathBuf, String)> {
    let Ok(output) = Command::new("ldd").arg(program).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    let own = (PathBuf::from(program), format!("/sbin/{}", program.rsplit('/').next().unwrap_or(program)));
    paths.map(|path| (PathBuf::from(path), path.to_owned())).chain([own]).collect()
}

const MODULES: &[&str] = &[
    "overlay",
    "zram",
    "loop",
    "dm-delay",
    "dm-crypt",
    "xts",
    "aesni-intel",
    // md_run() loads the personality's module through modprobe, which the guest does not have.
    "raid1",
    "dm-raid",
    "nfsd",
    "nfsv4",
    "sd_mod",
    "scsi_debug",
];

/// Writes the matrix's machine with another file system.
fn machine(place: &Path, file_system: &str) -> PathBuf {
    let text = fs::read_to_string(Path::new(asked::HERE).join("machine.toml")).expect("machine.toml");
    let path = place.join("machine.toml");
    let own = format!("file_system = \"{file_system}\"");
    fs::write(&path, text.replace("file_system = \"ext4\"", &own)).expect("write");
    path
}

/// Boots the kernel once per file system and returns the wrong answers. `steps` selects steps; all if empty.
pub fn ask(kernel: &Kernel, file_systems: &[&str], steps: &str) -> Vec<String> {
    let asked = |name: &str| steps.is_empty() || steps.split(' ').any(|step| step == name);
    let text = fs::read_to_string(Path::new(asked::HERE).join("places.sh")).expect("places.sh");
    let mut wrong = Vec::new();
    for file_system in file_systems {
        let place = Path::new(asked::ANSWERS).join(format!("places-{}-{file_system}", kernel.name));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).expect("a directory for the answers");
        let once = *file_system == "ext4";
        let modules: &[&str] = if once { MODULES } else { &[] };
        let boot =
            asked::Boot { machine: machine(&place, file_system), modules, with: with_libraries("/usr/sbin/dmsetup") };
        let wanted = EACH.iter().chain(if once { ONCE } else { &[] }).filter(|(name, ..)| asked(name));
        let names: Vec<&str> = wanted.clone().map(|(name, ..)| *name).collect();
        let text = text.replacen('\n', &format!("\nSTEPS='{}'\n", names.join(" ")), 1);
        let (minutes, failed) = asked::boot(kernel, &place, &text, &boot);
        println!("== {} on {file_system}: {minutes:.1} minutes", kernel.name);
        wrong.extend(failed);
        for (name, what, right) in wanted {
            let message = asked::first_named(&place, name);
            println!("   {what}: {message:?}");
            match message {
                Some((first, ..)) if right.contains(&first.as_str()) => {}
                message => wrong.push(format!("{} on {file_system}: {what}: {message:?}, not {right:?}", kernel.name)),
            }
        }
        if !names.contains(&"zram") {
            continue;
        }
        let swapped = fs::read_to_string(place.join("out/zram.pswp")).unwrap_or_default();
        if !swapped.lines().any(|line| line.starts_with("pswpout ") && !line.ends_with(" 0")) {
            wrong.push(format!("{} on {file_system}: nothing was swapped out: {swapped:?}", kernel.name));
        }
    }
    wrong
}
