//! What fixes changed where they were tried; `docs/recipes` says how. A figure is stated only for stalls of the kind that
//! it was measured for.

use flatwater_recording::{Cause, GroupRole, OpKind, OperationKind};
use serde::Serialize;

use crate::aggressor::Aggressor;
use crate::facts::Facts;

/// The effect of a fix on the latency of the program that waited.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// The neighbour, and the p99 of the waiting calls before and after.
    pub effect: &'static str,
    /// The page with the method and all figures.
    pub page: &'static str,
}

/// fio, 100 fdatasync() calls a second, beside three `dd conv=fsync` in another cgroup.
static WRITE_LIMIT: Measured = Measured {
    effect: "fdatasync() beside three dd conv=fsync, limited to 4 MiB/s: p99 27.7 -> 3.9 ms",
    page: "docs/recipes/fio.md",
};

static WRITE_LIMIT_OTHER_FILE_SYSTEM: Measured = Measured {
    effect: "fdatasync() beside three dd conv=fsync on another file system, limited to 4 MiB/s: p99 67.6 -> 3.0 ms",
    page: "docs/recipes/fio.md",
};

static BFQ: Measured = Measured {
    effect: "fdatasync() beside three dd conv=fsync: p99 27.7 -> 12.1 ms, the longest 53 -> 124 ms",
    page: "docs/recipes/fio.md",
};

pub(super) static OWN_MEMORY_CGROUP: Measured = Measured {
    effect: "write() beside a neighbour that left the full memory cgroup: the longest 136 -> 15 ms",
    page: "docs/recipes/fio.md",
};

/// The effect of a limit on what the aggressor writes.
pub(super) fn write_limit(aggressor: &Aggressor, facts: &Facts<'_>) -> Option<&'static Measured> {
    let effect = match aggressor.same_file_system? {
        true => &WRITE_LIMIT,
        false => &WRITE_LIMIT_OTHER_FILE_SYSTEM,
    };
    (waits_in_sync(facts) && syncs(&aggressor.program, facts)).then_some(effect)
}

/// The effect of bfq, if the calls and the aggressor's operations are of the measured kind.
pub(crate) fn bfq(aggressors: &[Aggressor], facts: &Facts<'_>) -> Option<&'static Measured> {
    let first = aggressors.first()?;
    (waits_in_sync(facts) && syncs(&first.program, facts)).then_some(&BFQ)
}

/// Whether the calls lost most of their time in fsync() or fdatasync().
fn waits_in_sync(facts: &Facts<'_>) -> bool {
    let sum_of = |keeps: &dyn Fn(OpKind) -> bool| {
        let sums = Cause::ALL.iter().flat_map(|cause| &facts.sum(*cause).by_op_ns);
        sums.filter(|(op, _)| keeps(**op)).fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns))
    };
    let in_sync = sum_of(&|op| matches!(op, OpKind::Fsync | OpKind::Fdatasync));
    in_sync > 0 && in_sync >= sum_of(&|_| true).div_ceil(2)
}

/// Whether the program was seen to sync its files.
fn syncs(program: &str, facts: &Facts<'_>) -> bool {
    facts.recording.operations.iter().any(|row| {
        row.role == GroupRole::Neighbour
            && row.thread == program
            && matches!(row.op, OperationKind::Fsync | OperationKind::Fdatasync)
            && row.count > 0
    })
}

#[cfg(test)]
mod tests {
    use super::{bfq, write_limit};
    use crate::aggressor::Means;
    use crate::facts::Facts;
    use crate::testing::RecordingBuilder;
    use crate::{Aggressor, Evidence};
    use flatwater_recording::{Cause, GroupRole, OpKind, OperationKind, Operations, Recording};

    fn beside_dd(waits_in: OpKind, dd_does: OperationKind) -> Recording {
        let made = RecordingBuilder::new().slow(waits_in, &[(Cause::PageWriteback, 40.0)]);
        let dd = Operations {
            role: GroupRole::Neighbour,
            thread: "dd".to_owned(),
            op: dd_does,
            count: 8,
            ..Operations::default()
        };
        made.edit(|recording| recording.operations.push(dd)).done()
    }

    /// docs/recipes/fio.md measured fdatasync() beside fsync() only.
    #[test]
    fn an_effect_is_stated_for_the_kind_that_was_measured_only() {
        let stated = |recording: &Recording, same: Option<bool>| {
            let facts = Facts::of(recording);
            let evidence = Evidence::new("requests", 1.0, "");
            let mut dd = Aggressor::by("dd", vec![812], (0.9, 90), Means::Queue, evidence);
            dd.same_file_system = same;
            let of_limit = write_limit(&dd, &facts).map(|measured| measured.effect);
            (of_limit, bfq(std::slice::from_ref(&dd), &facts).is_some())
        };
        let synced = beside_dd(OpKind::Fdatasync, OperationKind::Fsync);
        let (same, bfq) = stated(&synced, Some(true));
        assert!(same.is_some_and(|effect| effect.contains("27.7 -> 3.9 ms")) && bfq);
        assert!(stated(&synced, Some(false)).0.is_some_and(|effect| effect.contains("67.6 -> 3.0 ms")));
        assert_eq!(stated(&synced, None).0, None, "its file system is unknown");
        for other in [
            beside_dd(OpKind::Write, OperationKind::Fsync),
            beside_dd(OpKind::Fdatasync, OperationKind::Write),
            RecordingBuilder::new().slow(OpKind::Fsync, &[(Cause::PageWriteback, 40.0)]).done(),
        ] {
            assert_eq!(stated(&other, Some(true)), (None, false));
        }
    }
}
