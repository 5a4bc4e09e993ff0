//! /proc/buddyinfo: free blocks of each zone by order.

use super::sheet::Sheet;
use super::text::Scan;
use super::zoneinfo::zone_header;
use flatwater_recording::ColumnKind;

const ORDERS: [&str; 16] = [
    "order_0", "order_1", "order_2", "order_3", "order_4", "order_5", "order_6", "order_7", "order_8", "order_9",
    "order_10", "order_11", "order_12", "order_13", "order_14", "order_15",
];

/// Puts each zone into a row.
pub fn read(text: &[u8], at_ns: u64, sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        if let Some((node, name)) = zone_header(&mut scan) {
            sheet.open(at_ns, Some(node), name);
            for order in ORDERS {
                let Some(blocks) = scan.number() else { break };
                sheet.put("", order.as_bytes(), Some(blocks), |name| (name.to_owned(), ColumnKind::Gauge));
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
