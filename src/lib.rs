//! flatwater finds the slow buffered write(), says where its time went, names the cause and proves the fix.
//!
//! ```text
//! scenario --> host | vm | sim --> recording --> explain --> report
//!              import ----------------+             +--> compare, verify
//! ```
//!
//! A `scenario` says what happens; `host`, `vm` and `sim` perform it; a `recording` is all that later stages
//! see; `explain` turns it into findings; `report` prints. ARCHITECTURE.md has the invariants.

pub mod cli;
pub mod explain;
pub mod host;
pub mod import;
pub mod recording;
pub mod report;
pub mod scenario;
pub mod sim;
pub mod units;
pub mod vm;
pub mod workload;
