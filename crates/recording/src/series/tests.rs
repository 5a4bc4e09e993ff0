//! Tables in memory: thinning, appending, and limits.

use super::{ColumnKind, Entity, Series, Table};

fn two_zones(moments: u64) -> Series {
    let mut series = Series::new(Table::Zones);
    for at_ns in 0..moments {
        for node in 0..2 {
            let free = (at_ns != 1).then_some(at_ns as i64);
            series.push(at_ns, &Entity::on_node(node, "Normal"), &[("free", ColumnKind::Gauge, free)]);
        }
    }
    series
}

#[test]
fn rows_and_columns_beyond_the_limits_become_gaps() {
    let mut series = Series::new(Table::Slabs);
    for cache in 0..=super::ENTITIES_MAX {
        let value = i64::try_from(cache).ok();
        series.push(0, &Entity::named(&cache.to_string()), &[("active_objs", ColumnKind::Gauge, value)]);
    }
    let last = series.rows_of(&Entity::named(&(super::ENTITIES_MAX - 1).to_string())).expect("the last in its place");
    assert_eq!(last.values("active_objs").collect::<Vec<_>>(), [(0, super::ENTITIES_MAX as i64 - 1)]);
    assert_eq!(series.len(), super::ENTITIES_MAX);
    let gaps: Vec<_> = series.gaps().collect();
    assert!(matches!(&gaps[..], [gap] if gap.why.starts_with("1 rows of entities beyond the limit")), "{gaps:?}");

    let mut wide = Series::new(Table::Vmstat);
    let names: Vec<String> = (0..super::COLUMNS_MAX + 3).map(|name| format!("c{name}")).collect();
    let values: Vec<_> = names.iter().map(|name| (name.as_str(), ColumnKind::Gauge, Some(1))).collect();
    wide.push(0, &Entity::default(), &values);
    assert_eq!(wide.columns.len(), super::COLUMNS_MAX);
    let mut other = Series::new(Table::Vmstat);
    other.append(&wide);
    let gaps: Vec<_> = other.gaps().collect();
    assert!(matches!(&gaps[..], [gap] if gap.why.contains("columns beyond the limit of 4096")), "{gaps:?}");
}

#[test]
fn thinning_keeps_whole_samples_and_appending_keeps_nulls() {
    let thin = two_zones(5).thinned();
    assert_eq!(thin.at_ns(), [0, 0, 2, 2, 4, 4]);
    let zones = two_zones(2);
    assert_eq!((zones.only(&["free"]), zones.only(&["low"]).columns.len()), (zones.clone(), 0));
    let mut both = zones;
    let mut other = Series::new(Table::Zones);
    other.push(9, &Entity::on_node(1, "DMA"), &[("low", ColumnKind::Gauge, Some(3))]);
    both.append(&other);
    let rows = both.rows_of(&Entity::on_node(1, "DMA")).expect("added");
    assert_eq!((rows.last("low"), rows.last("free"), both.len()), (Some(3), None, 5));
    let normal = both.rows_of(&Entity::on_node(0, "Normal")).expect("kept");
    assert_eq!(normal.values("free").collect::<Vec<_>>(), [(0, 0)], "a failed reading is not a zero");
}
