//! The arithmetic of blk-wbt.c and rq_depth on small numbers.

use super::{Depth, Latency, Purpose, Wbt};
use crate::block::disk::DiskModel;
use crate::block::{Done, Request};

const MS: u64 = 1_000_000;

fn disk(caches_writes: bool) -> DiskModel {
    DiskModel {
        read_bytes_per_s: 1,
        write_bytes_per_s: 1,
        seek_ns: u64::from(!caches_writes),
        rotation_ns: 0,
        access_ns: 1,
        pages: 1 << 20,
        in_order: true,
        depth: 32,
    }
}

fn throttled(purpose: Purpose) -> Request {
    Request { throttled: Some(purpose), ..Request::new(true, 0, 1, Done::Wake(0)) }
}

#[test]
fn depths_are_halved_downwards_and_doubled_upwards_to_three_quarters_of_the_queue() {
    let mut depth = Depth::new(32);
    assert_eq!((depth.max, depth.limits()), (16, (8, 4)), "(16 + 1) / 2 and (16 + 3) / 4");
    // 1 + (15 >> step): 8, 4, 2, 1, and no further down.
    let down: Vec<u32> = (0..4).map(|_| (depth.scale_down(true), depth.max).1).collect();
    assert_eq!((down, depth.scale_down(true)), (vec![8, 4, 2, 1], false));
    assert_eq!(depth.limits(), (1, 1));
    let mut depth = Depth::new(32);
    // 1 + (15 << 1) = 31 is above 3 * 32 / 4.
    assert!(depth.scale_up() && depth.scaled_max && !depth.scale_up());
    assert_eq!((depth.max, depth.limits(), depth.step), (24, (12, 6), -1));
    // A violation snaps back to the center, patience goes step by step.
    assert!(depth.scale_down(true));
    assert_eq!((depth.step, depth.max), (0, 16));
    let mut deep = Depth::new(256);
    (0..4).for_each(|_| assert!(deep.scale_up()));
    assert_eq!((deep.max, deep.scaled_max), (192, true), "1 + (15 << 4) = 241 is above 192");
    assert!(deep.scale_down(false));
    assert_eq!((deep.step, deep.max), (-3, 121));
}

#[test]
fn a_device_of_one_request_is_given_two_or_one() {
    let mut depth = Depth::new(1);
    assert_eq!((depth.max, depth.limits()), (2, (2, 1)));
    assert!(depth.scale_down(true));
    assert_eq!((depth.max, depth.limits(), depth.scale_down(true)), (1, (1, 1), false));
}

#[test]
fn the_limit_is_by_what_a_write_is_for_and_by_what_went_before() {
    let mut wbt = Wbt::new(2000, 32, &disk(true));
    let limits = |wbt: &Wbt, now| {
        [Purpose::Plain, Purpose::Background, Purpose::Sync, Purpose::Kswapd].map(|purpose| wbt.limit(purpose, now))
    };
    assert_eq!(limits(&wbt, 0), [8, 4, 16, 16]);
    wbt.last_read_ns = Some(0);
    assert_eq!(limits(&wbt, 99 * MS), [4, 4, 16, 16], "a read within 100 ms");
    assert_eq!(limits(&wbt, 100 * MS), [8, 4, 16, 16]);
    wbt.slept(0);
    assert_eq!(limits(&wbt, 999 * MS), [16; 4], "a write was throttled within the second");
    wbt.set_target(0);
    assert_eq!(limits(&wbt, 0), [u32::MAX; 4]);
}

#[test]
fn sleepers_wait_for_an_empty_device_where_it_caches_writes_and_for_half_a_background_batch_where_not() {
    for (caches, woken_at) in [(true, 0), (false, 6)] {
        let mut wbt = Wbt::new(2000, 32, &disk(caches));
        (0..8).for_each(|_| assert!(wbt.take(Purpose::Plain, 0)));
        assert!(!wbt.take(Purpose::Plain, 0));
        wbt.waiting[0].extend([(5, Purpose::Plain), (6, Purpose::Plain)]);
        let mut left = 8;
        let woken = loop {
            left -= 1;
            let woken = wbt.done(&throttled(Purpose::Plain), 0);
            if !woken.is_empty() {
                break woken;
            }
        };
        // Without a cache: wb_normal 8, less 6 under way, is half of wb_background 4.
        assert_eq!((left, woken), (woken_at, vec![5, 6]), "write cache: {caches}");
        assert_eq!(wbt.inflight[0], woken_at + 2);
    }
}

#[test]
fn a_window_steps_down_when_its_fastest_read_was_too_slow_and_up_when_there_were_only_writes() {
    let read = |begun_ns| Request { begun_ns, ..Request::new(false, 0, 1, Done::Wake(0)) };
    let write = |begun_ns| Request { begun_ns, ..throttled(Purpose::Background) };
    let mut wbt = Wbt::new(2000, 32, &disk(false));
    let start = |wbt: &mut Wbt, now| {
        (0..4).for_each(|_| assert!(wbt.take(Purpose::Background, now)));
        wbt.ends_ns.is_none().then(|| wbt.arm(now));
        (0..3).for_each(|_| drop(wbt.done(&write(now), now + MS)));
    };
    start(&mut wbt, 0);
    wbt.done(&read(0), 3 * MS);
    wbt.done(&read(0), 9 * MS);
    assert_eq!(wbt.judge(100 * MS), Latency::Exceeded, "3 ms are more than 2");
    wbt.roll(100 * MS);
    assert_eq!((wbt.depth.step, wbt.depth.max, wbt.window_ns), (1, 8, ((100 * MS) << 4) / 22), "isqrt(2 << 8) = 22");
    // Too few writes to judge.
    wbt.done(&read(101 * MS), 102 * MS);
    wbt.done(&write(101 * MS), 102 * MS);
    assert_eq!(wbt.judge(110 * MS), Latency::UnknownWrites);
    wbt.roll(100 * MS + ((100 * MS) << 4) / 22);
    assert_eq!(wbt.depth.step, 0);
    // A read that the device keeps for longer than the window.
    wbt.issue(&Request { order: 9, ..read(200 * MS) }, 200 * MS);
    assert_eq!(wbt.judge(203 * MS), Latency::Exceeded, "no read was answered, and this one is late");
}

#[test]
fn without_any_request_the_depth_goes_back_to_the_center_after_five_windows() {
    let mut wbt = Wbt::new(2000, 32, &disk(false));
    assert!(wbt.depth.scale_down(true));
    wbt.arm(0);
    let window = wbt.window_ns;
    wbt.roll(4 * window);
    assert_eq!(wbt.depth.step, 1);
    wbt.roll(5 * window);
    assert_eq!((wbt.depth.step, wbt.ends_ns), (0, None));
}
