//! Selects the variant of the BPF object. Kernels differ in the BPF features that they allow, so build.rs compiles
//! several variants (bpf/variant.h), and the first that the kernel accepts is used.
//!
//! | variant | needs | first kernel |
//! |---|---|---|
//! | `task_storage` | task storage, a ring buffer, typed tracepoints, arrays that can be mapped | 6.4 (`object::unsafe_storage`) |
//! | `hash` | a ring buffer, typed tracepoints, arrays that can be mapped | 5.8 |
//! | `raw` | arrays that can be mapped | 5.5, or no BTF of the kernel |
//! | `raw_unshared` | raw tracepoints, global data | 5.4 |
//!
//! Each variant is tried, since distribution kernels backport features and the version does not show them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::{Refusal, TraceError};
use crate::bpf_object::{BpfObject, bpf_object};

/// Environment variable for tests of older kernels' variants: a comma-separated list of means that count as refused.
pub const WITHOUT: &str = "FLATWATER_TRACER_WITHOUT";

/// A kernel feature that a variant needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    TaskStorage,
    RingBuffer,
    /// BPF programs with typed arguments from the kernel's BTF: tp_btf, fentry.
    TypedTracepoints,
    SharedArrays,
}

impl Means {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Means::TaskStorage => "task-storage",
            Means::RingBuffer => "ring-buffer",
            Means::TypedTracepoints => "typed-tracepoints",
            Means::SharedArrays => "shared-arrays",
        }
    }
}

#[derive(Debug)]
pub struct Variant {
    pub name: &'static str,
    pub(crate) object: BpfObject,
    needs: &'static [Means],
}

/// Newest first.
pub static ALL: [Variant; 4] = [
    Variant {
        name: "task_storage",
        object: bpf_object!("slow_calls.task_storage"),
        needs: &[Means::TaskStorage, Means::RingBuffer, Means::TypedTracepoints, Means::SharedArrays],
    },
    Variant {
        name: "hash",
        object: bpf_object!("slow_calls.hash"),
        needs: &[Means::RingBuffer, Means::TypedTracepoints, Means::SharedArrays],
    },
    Variant { name: "raw", object: bpf_object!("slow_calls.raw"), needs: &[Means::SharedArrays] },
    Variant { name: "raw_unshared", object: bpf_object!("slow_calls.raw_unshared"), needs: &[] },
];

/// Index of the variant that the kernel accepted last; the next attempt starts there.
static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

impl Variant {
    #[must_use]
    pub fn has(&self, means: Means) -> bool {
        self.needs.contains(&means)
    }

    /// The first needed means that is in `without`.
    fn refused(&self, without: &[Means]) -> Option<Means> {
        self.needs.iter().copied().find(|means| without.contains(means))
    }

    /// A description of the variant for users.
    #[must_use]
    pub fn describe(&self) -> String {
        let either = |means, has: &str, lacks: &str| if self.has(means) { has.to_owned() } else { lacks.to_owned() };
        let parts = [
            either(Means::TypedTracepoints, "tp_btf", "raw tracepoints"),
            either(Means::TaskStorage, "task storage", "a hash keyed by thread id"),
            either(Means::RingBuffer, "a ring buffer", "a perf buffer per CPU"),
            either(Means::SharedArrays, "arrays shared with user space", "arrays read by system calls"),
        ];
        parts.join(", ")
    }
}

/// Means that must not be used: those named in the environment variable `WITHOUT`, and typed tracepoints if the
/// kernel's types come from a file.
pub fn without(types_from_file: bool) -> Vec<Means> {
    let named = std::env::var(WITHOUT).unwrap_or_default();
    let all = [Means::TaskStorage, Means::RingBuffer, Means::TypedTracepoints, Means::SharedArrays];
    all.into_iter()
        .filter(|means| {
            named.split(',').any(|name| name.trim() == means.name())
                || (types_from_file && *means == Means::TypedTracepoints)
        })
        .collect()
}

/// Tries the variants, newest first, until one is accepted. Returns it with the refusals of the variants before it.
pub fn first_accepted<T>(
    without: &[Means],
    mut attempt: impl FnMut(&'static Variant) -> Result<T, TraceError>,
) -> Result<(T, &'static Variant, Vec<Refusal>), TraceError> {
    let begin = if without.is_empty() { ACCEPTED.load(Ordering::Relaxed) } else { 0 };
    let mut refusals = Vec::new();
    for (place, variant) in ALL.iter().enumerate().skip(begin) {
        if variant.refused(without).is_some() {
            continue;
        }
        match attempt(variant) {
            Ok(accepted) => {
                if without.is_empty() {
                    ACCEPTED.store(place, Ordering::Relaxed);
                }
                return Ok((accepted, variant, refusals));
            }
            Err(why) => refusals.push(Refusal { variant: variant.name, why }),
        }
    }
    Err(TraceError::EveryVariant(refusals))
}

#[cfg(test)]
mod tests {
    use super::{ALL, Means, first_accepted};
    use crate::tracer::{Refusal, TraceError};

    #[test]
    fn each_variant_needs_less_than_the_one_before_it() {
        for pair in ALL.windows(2) {
            assert!(pair[1].needs.len() < pair[0].needs.len(), "{} after {}", pair[1].name, pair[0].name);
            assert!(pair[1].needs.iter().all(|means| pair[0].has(*means)), "{}", pair[1].name);
        }
        assert!(ALL.iter().all(|variant| !variant.object.is_empty()), "built without clang");
    }

    #[test]
    fn the_first_accepted_variant_is_used_and_the_refusals_are_kept() {
        let without = [Means::TaskStorage];
        let (name, variant, refusals) = first_accepted(&without, |variant| match variant.name {
            "task_storage" => panic!("switched off"),
            "hash" => Err(TraceError::Refused("Invalid argument".to_owned())),
            name => Ok(name),
        })
        .expect("raw is accepted");
        assert_eq!((name, variant.name), ("raw", "raw"));
        assert_eq!(refusals.iter().map(Refusal::to_string).collect::<Vec<_>>(), ["hash: Invalid argument"]);
        assert!(variant.describe().contains("raw tracepoints"), "{}", variant.describe());
    }
}
