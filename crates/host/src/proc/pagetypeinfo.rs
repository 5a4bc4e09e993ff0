//! /proc/pagetypeinfo: the free pages in page blocks that kernel allocations have claimed. The kernel holds each zone's
//! lock while it counts (mm/vmstat.c: pagetypeinfo_showfree_print), so the file is read once, before the workload
//! starts.

use super::text::{Scan, name_of};
use super::zoneinfo::zone_header;
use flatwater_recording::ZoneBlocks;

/// One row per zone, in the order of the file.
#[must_use]
pub fn read(text: &[u8]) -> Vec<ZoneBlocks> {
    let mut zones: Vec<ZoneBlocks> = Vec::new();
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        if let Some((node, zone)) = zone_header(&mut scan) {
            let zone = name_of(zone.strip_suffix(b",").unwrap_or(zone));
            let place = zones.iter().position(|known| known.node == node && known.zone == zone).unwrap_or_else(|| {
                zones.push(ZoneBlocks { node, zone, ..ZoneBlocks::default() });
                zones.len() - 1
            });
            scan.blanks();
            if scan.take(b"type") {
                scan.blanks();
                match scan.word() {
                    b"Reclaimable" => zones[place].reclaimable = pieces(&mut scan),
                    b"Unmovable" => zones[place].unmovable = pieces(&mut scan),
                    _ => {}
                }
            }
        }
        scan.next_line();
    }
    zones
}

/// The numbers of a line, one per order.
fn pieces(scan: &mut Scan<'_>) -> Vec<u64> {
    let number = || {
        scan.blanks();
        // Since 5.4 the kernel stops counting at a maximum and prints `>`.
        scan.take(b">");
        scan.number().map(|pieces| u64::try_from(pieces).unwrap_or(0))
    };
    std::iter::from_fn(number).take(u64::BITS as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn free_pages_of_unmovable_and_reclaimable_blocks_are_read() {
        let text = b"Page block order: 9\nPages per block:  512\n\n\
            Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 \n\
            Node    0, zone    DMA32, type    Unmovable      3      1      0      0      0      0      0      0      1      1      0 \n\
            Node    0, zone    DMA32, type      Movable    900      1      0      0      0      0      0      0      0      0     90 \n\
            Node    0, zone    DMA32, type  Reclaimable      0      0      2      0      0      0      0      0      0      0      0 \n\
            Node    1, zone   Normal, type    Unmovable >100000      0      0      0      0      0      0      0      0      0      0 \n\n\
            Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate \n\
            Node 0, zone    DMA32           11           99            2            0            0 \n";
        let zones = read(text);
        let unmovable: Vec<_> = zones.iter().map(|zone| (zone.node, zone.zone.as_str(), &zone.unmovable[..])).collect();
        let normal = [100_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let both = [(0, "DMA32", &[3, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0][..]), (1, "Normal", &normal[..])];
        assert_eq!(unmovable, both, "includes whole blocks that keep their kind");
        assert_eq!(zones[0].reclaimable, [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(zones[1].reclaimable.is_empty() && read(b"").is_empty());
        assert!(read(b"Page block order: 9\nNode 0, zone DMA, type Unmovable x\n")[0].unmovable.is_empty());
    }
}
