//! /proc/buddyinfo: free blocks of each zone, by order.

use super::sheet::Sheet;
use super::text::Scan;
use super::zoneinfo::zone_header;
use flatwater_recording::schema::buddy;

/// Puts each zone into a row.
pub fn read(text: &[u8], at_ns: u64, sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        if let Some((node, name)) = zone_header(&mut scan) {
            sheet.open(at_ns, Some(node), name);
            for &order in buddy::ALL.columns {
                let Some(blocks) = scan.number() else { break };
                sheet.put_column("", order, Some(blocks));
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
    fn orders_by_zone() {
        let text = "Node 0, zone      DMA      1      0      3 \nNode 1, zone   Normal    216     55    189 \n";
        let mut sheet = Sheet::new(Table::Buddy);
        read(text.as_bytes(), 1, &mut sheet);
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        let normal = series.rows_of(&Entity::on_node(1, "Normal")).expect("rows");
        assert_eq!(
            (normal.last("order_0"), normal.last("order_2"), normal.last("order_3")),
            (Some(216), Some(189), None)
        );
    }
}
