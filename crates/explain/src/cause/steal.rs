//! steal: the hypervisor ran something else on the guest's CPU.

use super::CauseEntry;
use crate::facts::Facts;
use crate::{Finding, Fix, finding};
use flatwater_recording::Cause;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "steal",
    span: Some(Cause::Steal),
    headline: "the hypervisor took the CPU away: the guest did not run",
    mechanism: "A virtual CPU that the host does not run makes no progress, wherever it is, while the guest's clock \
        continues. Steal time (paravirtual clock, /proc/stat) shows how much. Overcommitted hosts, a CPU quota on the \
        virtual machine and live migration cause it.",
    kernels: "All guests with paravirtual steal clocks (KVM since 3.1, Xen).",
    in_spans: "Apportioned from steal over the call's time, or a gap of the spinning noise probe.",
    in_counters: "steal in /proc/stat (st in vmstat, %steal in sar).",
    against: "The noise probe shows no gap of this length and steal does not rise.",
    fix: "Nothing inside the guest fixes it: pinned or dedicated CPUs on the host, a larger instance, another host.",
    prove: "flatwater's noise probe (a spin without system calls) shows the same gaps.",
    sources: &["kernel/sched/cputime.c: account_steal_time", "Documentation/virt/kvm: steal time MSR"],
    find,
};

fn find(facts: &Facts<'_>) -> Option<Finding> {
    let fixes = [Fix::advice("ask for dedicated or pinned CPUs, or move the guest: nothing inside it can fix this")];
    finding::from_spans(facts, Cause::Steal, ENTRY.headline, fixes)
}
