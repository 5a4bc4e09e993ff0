//! Why the tracer, or a part of it, is missing on a machine.

use std::path::PathBuf;

/// What failed, and on what. A kernel's refusal is kept in the kernel's own words (`hooks::reason`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error(
        "this flatwater was built without its kernel tracer (no clang then): install clang and build again, or build with \
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
    #[error("the object has no map {name}")]
    NoMap { name: String },
    #[error("the map {name} is no array but {found}")]
    NotAnArray { name: &'static str, found: String },
    #[error("the object has no such program")]
    NoProgram,
    #[error("the object has another kind of program here: {found}")]
    OtherProgram { found: String },
    #[error("without the kernel's own types functions cannot be hooked (fentry, 5.5)")]
    NoFunctionHooks,
    #[error("threads of our own cannot be seen without arrays that user space maps (5.5)")]
    NoSharedArrays,
    #[error("tracefs is not mounted and cannot be: {why}")]
    NoTracefs { why: String },
    #[error("the online CPUs cannot be listed: {why}")]
    NoCpus { why: String },
    #[error("the thread that attaches panicked")]
    Panicked,
    #[error("no hook could be attached: {why}")]
    NoHook { why: String },
    #[error("cgroup {}: {why}", path.display())]
    Cgroup { path: PathBuf, why: String },
    #[error("{0} is not to be used")]
    SwitchedOff(&'static str),
    #[error(
        "the kernel's types do not say that memory for task storage is put aside (6.4): without that a hook may ask for memory \
         under a lock that the allocation waits for, and the machine would stand still"
    )]
    StorageAllocates,
    #[error("{}", joined(.0))]
    EveryVariant(Vec<Refusal>),
    #[error("nothing is traced here")]
    NotTracing,
}

/// What one variant of the tracer failed with.
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

/// Refusals in one line; a reason shared by all variants is printed once.
fn joined(refusals: &[Refusal]) -> String {
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
    fn what_all_variants_were_told_is_said_once() {
        let refused = |variant, why: &str| Refusal { variant, why: TraceError::Refused(why.to_owned()) };
        let same = TraceError::EveryVariant(vec![refused("a", "not permitted"), refused("b", "not permitted")]);
        assert_eq!(same.to_string(), "not permitted");
        let differ = TraceError::EveryVariant(vec![refused("a", "not permitted"), refused("b", "no memory")]);
        assert_eq!(differ.to_string(), "a: not permitted; b: no memory");
        assert!(TraceError::EveryVariant(Vec::new()).to_string().contains("switched off"));
    }
}
