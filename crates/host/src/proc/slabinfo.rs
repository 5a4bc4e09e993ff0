//! /proc/slabinfo. Reading it takes each cache's list lock with interrupts off (mm/slab.c: s_show; mm/slub.c:
//! get_slabinfo), so it is read at the start, at the end and on request, never periodically.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::schema::slabs;

/// Puts each cache into a row. A line is `buffer_head 12 39 104 39 1 : tunables ... : slabdata 1 1 0`.
pub fn read(text: &[u8], at_ns: u64, sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        let name = scan.word();
        let objects: [Option<i64>; 5] = std::array::from_fn(|_| scan.number());
        if let ([Some(active), Some(all), Some(size), Some(per_slab), Some(pages)], false) = (objects, name.is_empty())
        {
            let line = scan.rest();
            let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
            let slabdata = memchr::memmem::find(line.get(..end).unwrap_or_default(), b"slabdata");
            let mut counts = Scan::new(slabdata.and_then(|at| line.get(at + b"slabdata".len()..)).unwrap_or_default());
            sheet.open(at_ns, None, name);
            for (column, value) in [
                (slabs::ACTIVE_OBJS, Some(active)),
                (slabs::NUM_OBJS, Some(all)),
                (slabs::OBJSIZE_BYTES, Some(size)),
                (slabs::OBJS_PER_SLAB, Some(per_slab)),
                (slabs::PAGES_PER_SLAB, Some(pages)),
                (slabs::ACTIVE_SLABS, counts.number()),
                (slabs::NUM_SLABS, counts.number()),
            ] {
                sheet.put_column("", column, value);
            }
        }
        scan.next_line();
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn caches_by_name() {
        let text = "slabinfo - version: 2.1\n# name            <active_objs> <num_objs>\n\
            buffer_head       447000 447330    104   39    1 : tunables    0    0    0 : slabdata  11470  11470      0\n\
            ext4_inode_cache      12     26   1192   26    8 : tunables    0    0    0 : slabdata      1      1      0\n";
        let mut sheet = Sheet::new(Table::Slabs);
        read(text.as_bytes(), 1, &mut sheet);
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        assert_eq!(series.len(), 2);
        let heads = series.rows_of(&Entity::named("buffer_head")).expect("rows");
        assert_eq!((heads.last("active_objs"), heads.last("objsize_bytes")), (Some(447_000), Some(104)));
        assert_eq!((heads.last("num_slabs"), heads.last("pages_per_slab")), (Some(11_470), Some(1)));
    }
}
