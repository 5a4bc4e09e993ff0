//! Each rule on a snapshot that breaks it, and on a healthy machine, where every rule is silent.

use super::{Advice, Weight, audit};
use crate::testing::RecordingBuilder;
use flatwater_recording::{Entity, Table};

fn healthy() -> RecordingBuilder {
    let none = Entity::default();
    let zone: [(&str, &[i64]); 3] = [("managed", &[4_000_000]), ("min", &[11_000]), ("low", &[91_000])];
    let disk: [(&str, &[i64]); 5] = [
        ("write_bytes", &[40 << 30]),
        ("read_bytes", &[10 << 30]),
        ("io_ns", &[100_000_000_000]),
        ("reads", &[90_000]),
        ("read_ns", &[90_000_000_000]),
    ];
    RecordingBuilder::new()
        .knob("vm.zone_reclaim_mode", "0")
        .knob("vm.watermark_scale_factor", "200")
        .knob("vm.vfs_cache_pressure", "100")
        .knob("vm.swappiness", "60")
        .knob("vm.dirty_bytes", "268435456")
        .knob("vm.dirty_writeback_centisecs", "500")
        .knob("thp.enabled", "madvise")
        .knob("thp.defrag", "madvise")
        .knob("queue.scheduler", "none")
        .counters(Table::Vmstat, &none, &[("allocstall_normal", &[0]), ("pswpin", &[10])])
        .counters(Table::Disks, &Entity::named("vda"), &disk)
        .gauges(Table::Zones, &Entity::on_node(0, "Normal"), &zone)
}

fn about(builder: RecordingBuilder, setting: &str) -> Option<Advice> {
    audit(&builder.done()).into_iter().find(|advice| advice.setting.contains(setting))
}

#[test]
fn a_healthy_machine_gets_no_advice_and_an_empty_snapshot_neither() {
    assert_eq!(audit(&healthy().done()), []);
    assert_eq!(audit(&RecordingBuilder::new().done()), []);
}

#[test]
fn zone_reclaim_on_several_nodes_is_turned_off() {
    let on = healthy().knob("vm.zone_reclaim_mode", "1");
    let advice = about(on.node(0, 1, &[10, 21]).node(1, 1, &[21, 10]), "zone_reclaim_mode").expect("advice");
    assert_eq!((advice.old.as_str(), advice.proposed.as_str()), ("1", "0"));
    assert_eq!(
        about(healthy().knob("vm.zone_reclaim_mode", "1"), "zone_reclaim_mode"),
        None,
        "one node: it does nothing"
    );
}

#[test]
fn narrow_watermarks_hurt_where_callers_reclaimed() {
    let narrow: [(&str, &[i64]); 3] = [("managed", &[4_000_000]), ("min", &[11_000]), ("low", &[15_000])];
    let build = |stalls: i64| {
        let builder = RecordingBuilder::new().knob("vm.watermark_scale_factor", "10").gauges(
            Table::Zones,
            &Entity::on_node(0, "Normal"),
            &narrow,
        );
        builder.counters(Table::Vmstat, &Entity::default(), &[("allocstall_normal", &[stalls])])
    };
    assert_eq!(
        about(build(700), "watermark").map(|advice| (advice.weight, advice.proposed)),
        Some((Weight::Hurts, "200".to_owned()))
    );
    assert_eq!(about(build(0), "watermark").map(|advice| advice.weight), Some(Weight::Hint));
}

#[test]
fn dirty_limits_follow_the_devices_speed() {
    let slow: [(&str, &[i64]); 3] =
        [("write_bytes", &[40 << 30]), ("read_bytes", &[0]), ("io_ns", &[2_000_000_000_000])];
    let builder = RecordingBuilder::new().knob("vm.dirty_bytes", "1073741824").counters(
        Table::Disks,
        &Entity::named("sda"),
        &slow,
    );
    let advice = about(builder, "vm.dirty_bytes").expect("50 s of writing");
    assert_eq!(advice.proposed, (20_u64 << 20).to_string());
    assert!(advice.evidence[0].text.contains("sda has moved 21 MB/s"), "{}", advice.evidence[0].text);
}

#[test]
fn other_settings_that_invite_stalls() {
    let none = Entity::default();
    assert!(about(healthy().knob("vm.vfs_cache_pressure", "0"), "vfs_cache_pressure").is_some());
    assert!(about(healthy().knob("vm.vfs_cache_pressure", "1000"), "vfs_cache_pressure").is_some());
    assert!(about(healthy().knob("vm.dirty_writeback_centisecs", "0"), "writeback_centisecs").is_some());
    assert!(about(healthy().knob("thp.enabled", "always").knob("thp.defrag", "always"), "thp.defrag").is_some());
    let swapping =
        RecordingBuilder::new().knob("vm.swappiness", "60").counters(Table::Vmstat, &none, &[("pswpin", &[900_000])]);
    assert!(about(swapping, "swappiness").is_some());
    let reads: [(&str, &[i64]); 2] = [("reads", &[5_000]), ("read_ns", &[400_000_000_000])];
    let queued =
        RecordingBuilder::new().knob("queue.scheduler", "none").counters(Table::Disks, &Entity::named("vda"), &reads);
    assert!(about(queued, "queue.scheduler").is_some());
    let group: [(&str, &[i64]); 3] =
        [("limit_bytes", &[512 << 20]), ("usage_bytes", &[511 << 20]), ("file", &[500 << 20])];
    let full = RecordingBuilder::new().gauges(Table::Cgroup, &Entity::named("/jobs/feed"), &group);
    assert!(about(full, "/jobs/feed").is_some());
}

#[test]
fn compactions_are_not_all_stated_as_those_of_huge_pages() {
    let builder = healthy().knob("thp.enabled", "always").knob("thp.defrag", "always");
    let builder = builder.counters(Table::Vmstat, &Entity::default(), &[("compact_stall", &[4_000])]);
    let advice = about(builder, "thp.defrag").expect("advice");
    assert!(advice.evidence[0].text.contains("or other large blocks"), "{:?}", advice.evidence);
}
