//! /proc/zoneinfo: watermarks and page counts of each zone and, since 4.8, statistics of each node.

use super::sheet::Sheet;
use super::text::Scan;

/// Puts each populated zone into a row of `zones`, and the statistics of a node into a row of `nodes`.
pub fn read(text: &[u8], at_ns: u64, zones: &mut Sheet, nodes: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        match zone_header(&mut scan) {
            Some((node, name)) => read_zone(&mut scan, at_ns, node, name, zones, nodes),
            None => scan.next_line(),
        }
    }
}

/// Parses `Node 0, zone   Normal`.
pub(super) fn zone_header<'a>(scan: &mut Scan<'a>) -> Option<(u32, &'a [u8])> {
    if !scan.take(b"Node ") {
        return None;
    }
    let node = u32::try_from(scan.number()?).ok()?;
    if !scan.take(b", zone") {
        return None;
    }
    scan.blanks();
    let name = scan.word();
    (!name.is_empty()).then_some((node, name))
}

fn read_zone(scan: &mut Scan<'_>, at_ns: u64, node: u32, name: &[u8], zones: &mut Sheet, nodes: &mut Sheet) {
    scan.next_line();
    let mut of_node = false;
    let mut populated = false;
    zones.open(at_ns, Some(node), name);
    while !scan.is_empty() && !scan.rest().starts_with(b"Node ") {
        scan.blanks();
        if scan.take(b"per-node stats") {
            of_node = true;
            nodes.open(at_ns, Some(node), b"");
        } else if scan.take(b"pages ") {
            of_node = false;
            populated |= line(scan, zones);
        } else if scan.take(b"pagesets") {
            // The rest of the zone: three to six lines of allocator caches per CPU, and some last lines.
            scan.next_line_with(b"\nNode ");
            break;
        } else if of_node {
            line(scan, nodes);
        } else {
            populated |= line(scan, zones);
        }
        scan.next_line();
    }
    // A zone without pages (usually Movable) is printed with watermarks that have no effect.
    if !populated {
        zones.withdraw();
    }
}

/// Stores one `name value` line; returns whether it shows that the zone has pages.
fn line(scan: &mut Scan<'_>, sheet: &mut Sheet) -> bool {
    let expected = sheet.expected("").and_then(|key| Some((key, scan.rest().strip_prefix(key)?)));
    if let Some((key, after @ [b' ', ..])) = expected {
        let pages = key == b"present";
        *scan = Scan::new(after);
        let value = scan.number();
        sheet.put_expected(value);
        return pages && value.is_some_and(|value| value > 0);
    }
    let key = scan.word();
    let value = scan.number();
    // Skips `protection: (0, 3019)`, and per-zone copies of numastat, which is read from the nodes' own files.
    if key.is_empty() || key.ends_with(b":") || key.starts_with(b"numa_") || value.is_none() {
        return false;
    }
    sheet.put("", key, value);
    key == b"present" && value.is_some_and(|value| value > 0)
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::{Entity, Series, Table};

    fn parsed(text: &str) -> (Series, Series) {
        let (mut zones, mut nodes) = (Sheet::new(Table::Zones), Sheet::new(Table::Nodes));
        for at_ns in [1, 2] {
            read(text.as_bytes(), at_ns, &mut zones, &mut nodes);
        }
        let series = |sheet: &mut Sheet| {
            let mut filled = Filled::default();
            sheet.swap(&mut filled);
            sheet.series(&filled)
        };
        (series(&mut zones), series(&mut nodes))
    }

    fn last(series: &Series, entity: &Entity, column: &str) -> Option<i64> {
        series.rows_of(entity)?.last(column)
    }

    /// The format of 2.6.32, with the watermarks of a 64 GiB node.
    const OLD: &str = "\
Node 0, zone      DMA
  pages free     3926
        min      31
        low      38
        high     46
        scanned  0
        spanned  4095
        present  3840
    nr_free_pages 3926
    nr_inactive_anon 0
    nr_dirty     0
        protection: (0, 2991, 64601, 64601)
  pagesets
    cpu: 0
              count: 0
              high:  0
              batch: 1
  vm stats threshold: 10
  all_unreclaimable: 1
  prev_priority:     12
  start_pfn:         1
  inactive_ratio:    1
Node 1, zone   Normal
  pages free     174188
        min      131132
        low      163915
        high     196698
        scanned  7
        spanned  16777216
        present  16547840
    nr_free_pages 174188
    nr_inactive_anon 12
    nr_dirty     345
        protection: (0, 0, 0, 0)
  pagesets
    cpu: 0
              count: 143
              high:  186
              batch: 31
  vm stats threshold: 100
  all_unreclaimable: 0
";

    #[test]
    fn zones_of_2_6_32() {
        let (zones, nodes) = parsed(OLD);
        assert!(nodes.is_empty());
        assert_eq!(zones.len(), 4);
        let normal = Entity::on_node(1, "Normal");
        let expected = [
            ("free", 174_188),
            ("min", 131_132),
            ("low", 163_915),
            ("high", 196_698),
            ("scanned", 7),
            ("nr_dirty", 345),
        ];
        for (column, value) in expected {
            assert_eq!(last(&zones, &normal, column), Some(value), "{column}");
        }
        assert_eq!(last(&zones, &Entity::on_node(0, "DMA"), "high"), Some(46), "not a pageset's high");
        assert!(zones.column("count:").is_none() && zones.column("protection:").is_none());
    }

    /// The format of 4.14 to 6.x: the node's statistics first, zones without pages, and `boost` and `promo` in newer
    /// ones.
    const NEW: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 2863
      nr_dirtied   1294889
      nr_dirty     39
  pages free     3840
        boost    0
        min      27
        low      33
        high     39
        promo    45
        spanned  4095
        present  3998
        managed  3840
        protection: (0, 3019, 9163, 9163, 9163)
      nr_free_pages 3840
      numa_hit     5
  pagesets
    cpu: 0
              count:    0
              high:     0
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone  Movable
  pages free     0
        boost    0
        min      32
        low      32
        high     32
        promo    32
        spanned  0
        present  0
        managed  0
        protection: (0, 0, 0, 0, 0)
Node 1, zone   Normal
  per-node stats
      nr_inactive_anon 11
      nr_dirtied   22
      nr_dirty     33
  pages free     900
        boost    64
        min      100
        low      125
        high     150
        promo    175
        spanned  4096
        present  4096
        managed  4000
        protection: (0, 0, 0, 0, 0)
      nr_free_pages 900
      numa_hit     6
  pagesets
";

    #[test]
    fn zones_and_nodes_of_newer_kernels() {
        let (zones, nodes) = parsed(NEW);
        assert_eq!(zones.len(), 4, "the empty zone has no row");
        assert!(zones.rows_of(&Entity::on_node(0, "Movable")).is_none_or(|rows| rows.last("min").is_none()));
        let normal = Entity::on_node(1, "Normal");
        for (column, value) in [("free", 900), ("boost", 64), ("promo", 175), ("managed", 4000)] {
            assert_eq!(last(&zones, &normal, column), Some(value), "{column}");
        }
        assert!(zones.column("numa_hit").is_none());
        let second = Entity::on_node(1, "");
        for (column, value) in [("nr_inactive_anon", 11), ("nr_dirtied", 22), ("nr_dirty", 33)] {
            assert_eq!(last(&nodes, &second, column), Some(value), "{column}");
        }
    }

    #[test]
    fn a_truncated_text_is_read_as_far_as_it_goes() {
        for end in 0..NEW.len() {
            let (zones, _) = parsed(&NEW[..end]);
            assert!(zones.len() <= 4);
        }
    }
}
