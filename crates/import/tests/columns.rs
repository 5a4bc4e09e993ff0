//! Logs fill the same columns, with the same kinds, as a recording of the machine.

use flatwater_import::import_texts;
use flatwater_recording::schema::{cgroup, vmstat};
use flatwater_recording::{ColumnKind, Table};

#[test]
fn v1_limits_and_tlb_flushes_fill_the_hosts_columns() {
    let log = "==> /sys/fs/cgroup/memory/db/memory.limit_in_bytes <==\n536870912\n\n==> /sys/fs/cgroup/memory/db/memory.failcnt <==\n41\n";
    let imported = import_texts(&[("cgroup.txt".to_owned(), log.as_bytes().to_vec())]).expect("read");
    let groups = imported.recording.table(Table::Cgroup).expect("cgroups");
    let (_, rows) = groups.by_entity().next().expect("a cgroup");
    assert_eq!((rows.last(cgroup::EVENTS_MAX), rows.last(cgroup::LIMIT_BYTES)), (Some(41), Some(512 << 20)));
    let log = "nr_free_pages 5\nnr_tlb_remote_flush 7\npgfault 9\n";
    let imported = import_texts(&[("vmstat.txt".to_owned(), log.as_bytes().to_vec())]).expect("read");
    let table = imported.recording.table(Table::Vmstat).expect("vmstat");
    let kind = |column| table.column(column).map(|column| column.kind);
    assert_eq!(kind(vmstat::NR_TLB_REMOTE_FLUSH), Some(ColumnKind::Counter));
    assert_eq!(kind(vmstat::NR_FREE_PAGES), Some(ColumnKind::Gauge));
}
