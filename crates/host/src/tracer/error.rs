//! Why tracing, or a part of the tracer, is not available.

use std::path::PathBuf;

/// Why tracing failed. Refusals by the kernel keep the kernel's message (`hooks::reason`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error(
        "this flatwater was built without its kernel tracer (clang was missing): install clang and build again, or build with \
         FLATWATER_BPF_OBJECTS=<folder of prebuilt objects>"
    )]
    NotBuilt,
    #[error(
        "no type information of the kernel in /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF): {why}; give a file with --btf"
    )]
    NoTypes { why: String },
    #[error("the kernel's types in {}: {why}", path.display())]
    TypesFile { path: PathBuf, why: String },
    #[error("{0}")]
    Refused(String),
    /// The refusal of another user than root.
    #[error("needs root, or CAP_BPF and CAP_PERFMON")]
    NotPrivileged,
    #[error("the object has no map {name}")]
    NoMap { name: String },
    #[error("the map {name} is not an array but {found}")]
    NotAnArray { name: &'static str, found: String },
    #[error("the object has no such program")]
    NoProgram,
    #[error("the BPF object has a program of another type: {found}")]
    OtherProgram { found: String },
    #[error("hooks on functions (fentry, 5.5) need the kernel's own type information")]
    NoFunctionHooks,
    #[error("tracing flatwater's own threads needs arrays that user space can map (5.5)")]
    NoSharedArrays,
    #[error("tracefs is not mounted, and mounting it failed: {why}")]
    NoTracefs { why: String },
    #[error("cannot list the online CPUs: {why}")]
    NoCpus { why: String },
    #[error("the thread that attaches hooks panicked")]
    Panicked,
    #[error("no hook could be attached: {why}")]
    NoHook { why: String },
    #[error("cgroup {}: {why}", path.display())]
    Cgroup { path: PathBuf, why: String },
    #[error("{0} is switched off")]
    SwitchedOff(&'static str),
    #[error(
        "this kernel's task storage has no preallocated memory (6.4): a hook could allocate under a lock that the \
         allocation waits for, which would hang the machine"
    )]
    StorageAllocates,
    #[error("{}", joined(.0))]
    EveryVariant(Vec<Refusal>),
    #[error("no hook is attached")]
    NotTracing,
}

/// The error of one variant of the tracer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub variant: &'static str,
    pub why: TraceError,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.variant, self.why)
    }
}

/// Refusals in one line; a reason shared by all variants is printed once. Without privileges the kernel refuses every
/// variant, so the other reasons do not matter.
fn joined(refusals: &[Refusal]) -> String {
    if refusals.iter().any(|refusal| refusal.why == TraceError::NotPrivileged) {
        return TraceError::NotPrivileged.to_string();
    }
    match refusals.split_first() {
        None => "every variant of the tracer was switched off".to_owned(),
        Some((first, others)) if others.iter().all(|other| other.why == first.why) => first.why.to_string(),
        Some(_) => refusals.iter().map(Refusal::to_string).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, TraceError};

    #[test]
    fn a_reason_shared_by_all_variants_is_printed_once() {
        let refused = |variant, why: &str| Refusal { variant, why: TraceError::Refused(why.to_owned()) };
        let same = TraceError::EveryVariant(vec![refused("a", "not permitted"), refused("b", "not permitted")]);
        assert_eq!(same.to_string(), "not permitted");
        let differ = TraceError::EveryVariant(vec![refused("a", "not permitted"), refused("b", "no memory")]);
        assert_eq!(differ.to_string(), "a: not permitted; b: no memory");
        let refusals = ["task_storage", "raw"].map(|variant| Refusal { variant, why: TraceError::NotPrivileged });
        let unshared = Refusal { variant: "raw_unshared", why: TraceError::NoSharedArrays };
        let mixed = TraceError::EveryVariant(refusals.into_iter().chain([unshared]).collect());
        assert_eq!(mixed.to_string(), "needs root, or CAP_BPF and CAP_PERFMON");
        assert!(TraceError::EveryVariant(Vec::new()).to_string().contains("switched off"));
    }
}
