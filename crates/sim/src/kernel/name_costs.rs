//! What operations on names take beside the lookup: for profiles in which it was measured.

use flatwater_workload::Op;

/// CPU time in ns that an operation takes on top of what the model gives it anyway.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameCosts {
    pub stat_ns: u64,
    pub open_ns: u64,
    pub close_ns: u64,
    pub create_ns: u64,
    pub rename_ns: u64,
    pub unlink_ns: u64,
    /// A directory of 50 names.
    pub list_ns: u64,
}

impl NameCosts {
    #[must_use]
    pub fn of(&self, op: &Op) -> u64 {
        match op {
            Op::Stat { .. } => self.stat_ns,
            Op::Open { .. } => self.open_ns,
            Op::Close { .. } => self.close_ns,
            Op::Create { .. } => self.create_ns,
            Op::Rename { .. } => self.rename_ns,
            Op::Unlink { .. } => self.unlink_ns,
            Op::List { .. } => self.list_ns,
            _ => 0,
        }
    }

    #[must_use]
    pub fn scaled(&self, scale: impl Fn(u64) -> u64) -> NameCosts {
        NameCosts {
            stat_ns: scale(self.stat_ns),
            open_ns: scale(self.open_ns),
            close_ns: scale(self.close_ns),
            create_ns: scale(self.create_ns),
            rename_ns: scale(self.rename_ns),
            unlink_ns: scale(self.unlink_ns),
            list_ns: scale(self.list_ns),
        }
    }
}
