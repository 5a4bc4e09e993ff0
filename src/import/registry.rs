//! Every format there is. Adding one is its file and its line here.

use super::{Importer, call_trace, free, kernel_files, numactl, sar, vmstat, writer_log};

pub const IMPORTERS: &[Importer] = &[
    vmstat::IMPORTER,
    sar::IMPORTER,
    free::IMPORTER,
    kernel_files::ZONEINFO,
    numactl::IMPORTER,
    call_trace::SYSTEMTAP,
    call_trace::FUNCTION_GRAPH,
    writer_log::IMPORTER,
];
