//! Finds the parts of the machine's configuration that prevent tracing, each with its remedy.

use std::fs;
use std::path::Path;

use flatwater_recording::{Gap, HookState, HookStatus};

/// Numbers of capabilities (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Checks the files below `root` and the states of the hooks.
#[must_use]
pub fn obstacles(root: &Path, statuses: &[HookStatus]) -> Vec<Gap> {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let number = |path: &str| text(path)?.trim().parse::<i64>().ok();
    let status = text("proc/self/status").unwrap_or_default();
    let has = |capability: u32| has_capability(&status, capability);
    let privileged = has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON));
    let traced = statuses.iter().any(|status| status.state == HookState::Exact);
    let mut found = Vec::new();
    let mut add = |what: &str, why: &str, remedy: &str| found.push(Gap::new(what, why, remedy));
    if !privileged {
        let unprivileged = match number("proc/sys/kernel/unprivileged_bpf_disabled") {
            Some(value @ 1..) => {
                format!("; kernel.unprivileged_bpf_disabled is {value}, so only root may use BPF")
            }
            _ => String::new(),
        };
        let why = format!("this process has neither root's rights nor CAP_BPF and CAP_PERFMON{unprivileged}");
        add(
            "hooks",
            &why,
            "run as root, or: setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep flatwater",
        );
        if let Some(level @ 2..) = number("proc/sys/kernel/perf_event_paranoid") {
            let why = format!("kernel.perf_event_paranoid is {level}: only root may sample the kernel");
            add("samples", &why, "sysctl kernel.perf_event_paranoid=1, or CAP_PERFMON");
        }
    }
    if text("sys/kernel/security/lockdown").is_some_and(|modes| modes.contains("[confidentiality]")) {
        let why = "the kernel is locked down for confidentiality: BPF may not read its memory";
        add("hooks", why, "boot with lockdown=integrity (or lockdown=none) on the kernel's command line");
    }
    let seccomp = status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    if privileged && !traced && seccomp {
        let why = "a seccomp filter applies to this process, which may refuse bpf() and perf_event_open()";
        add(
            "hooks",
            why,
            "run outside of the container, or with a profile that allows both (docker: --security-opt seccomp=unconfined)",
        );
    }
    if !root.join("sys/kernel/btf/vmlinux").exists() {
        let why = "this kernel was built without type information (CONFIG_DEBUG_INFO_BTF)";
        add(
            "hooks",
            why,
            "give a file with --btf FILE, made from its vmlinux with debug information: `pahole -J --btf_encode_detached=FILE vmlinux`",
        );
    }
    if number("proc/sys/kernel/kptr_restrict").is_some_and(|level| level >= 2) {
        let why = "kernel.kptr_restrict is 2: addresses of kernel functions are hidden, also from root";
        add("what a sleep is for (stacks)", why, "sysctl kernel.kptr_restrict=1");
    }
    let is_missing =
        |end: &str| statuses.iter().any(|status| status.hook.ends_with(end) && status.state == HookState::Unavailable);
    let tracefs = ["sys/kernel/tracing/events", "sys/kernel/debug/tracing/events"];
    if is_missing("/balance_dirty_pages") && tracefs.iter().all(|path| !root.join(path).exists()) {
        add("dirty-throttle (its numbers)", "tracefs is not mounted", "mount -t tracefs nodev /sys/kernel/tracing");
    }
    if root.join("sys/kernel/debug").is_dir() && !root.join("sys/kernel/debug/bdi").exists() && privileged {
        add("dirty limits of each device", "debugfs is not mounted", "mount -t debugfs nodev /sys/kernel/debug");
    }
    found
}

fn has_capability(status: &str, capability: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> capability & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::obstacles;
    use flatwater_recording::{HookState, HookStatus};

    const ALL: &str = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";

    /// The obstacles on a machine with these files.
    fn policy_lines(files: &[(&str, &str)], hooks: &[(&str, HookState)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("not the root")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        let status = |&(hook, state): &(&str, HookState)| HookStatus::new(hook, Vec::new(), state, "");
        let statuses: Vec<HookStatus> = hooks.iter().map(status).collect();
        let gaps = obstacles(root.path(), &statuses);
        assert!(gaps.iter().all(|gap| !gap.why.is_empty() && !gap.remedy.is_empty()), "{gaps:?}");
        gaps.into_iter().map(|gap| format!("{} -> {}", gap.why, gap.remedy)).collect()
    }

    const BTF: (&str, &str) = ("sys/kernel/btf/vmlinux", "x");

    #[test]
    fn an_ordinary_machine_has_none() {
        let exact = [("tp_btf/sched_switch", HookState::Exact)];
        assert_eq!(
            policy_lines(&[("proc/self/status", ALL), BTF, ("proc/sys/kernel/kptr_restrict", "1\n")], &exact),
            [""; 0]
        );
    }

    #[test]
    fn each_obstacle_has_a_line_with_its_remedy() {
        let one = |file: (&str, &str), hooks: &[(&str, HookState)]| {
            let lines = policy_lines(&[("proc/self/status", ALL), BTF, file], hooks);
            assert_eq!(lines.len(), 1, "{lines:?}");
            lines[0].clone()
        };
        let lockdown = one(("sys/kernel/security/lockdown", "none integrity [confidentiality]\n"), &[]);
        assert!(lockdown.contains("locked down") && lockdown.contains("lockdown=integrity"), "{lockdown}");
        assert!(one(("proc/sys/kernel/kptr_restrict", "2\n"), &[]).contains("kptr_restrict=1"));
        let tracefs = one(("x", ""), &[("writeback/balance_dirty_pages", HookState::Unavailable)]);
        assert!(tracefs.contains("mount -t tracefs"), "{tracefs}");
        assert!(one(("sys/kernel/debug/x", ""), &[]).contains("mount -t debugfs"));
        let lines = policy_lines(&[("proc/self/status", ALL)], &[]);
        assert!(lines.len() == 1 && lines[0].contains("--btf"), "{lines:?}");
        let confined = "CapEff:\t000001ffffffffff\nSeccomp:\t2\n";
        let lines = policy_lines(&[("proc/self/status", confined), BTF], &[("bpf", HookState::Unavailable)]);
        assert!(lines.len() == 1 && lines[0].contains("seccomp"), "{lines:?}");
    }

    #[test]
    fn an_unprivileged_user_learns_what_each_of_the_two_limits_costs() {
        let files = [
            ("proc/self/status", "CapEff:\t0000000000000000\n"),
            BTF,
            ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
            ("proc/sys/kernel/perf_event_paranoid", "3\n"),
        ];
        let lines = policy_lines(&files, &[]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("unprivileged_bpf_disabled is 2") && lines[0].contains("setcap"), "{lines:?}");
        assert!(lines[1].contains("perf_event_paranoid is 3"), "{lines:?}");
    }
}
