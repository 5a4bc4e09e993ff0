//! A slow device beside a fast one: the stalls of the fast one's writer, by kernel.

use flatwater_explain::{CauseId, explain};
use flatwater_recording::{Cause, Entity, OpKind, Recording, Table};
use flatwater_sim as sim;
use flatwater_workload::scenario::Scenario;

/// Eight copies to a USB stick of 2 MB/s, and from 10 s on a writer of 3 MB/s to a disk of 60 MB/s. `stick` has more
/// lines for the stick's table.
fn run(kernel: &str, stick: &str) -> Recording {
    run_for("60s", kernel, stick)
}

fn run_for(duration: &str, kernel: &str, stick: &str) -> Recording {
    let text = format!(
        "name = 'devices'\nsentence = 'A writer to a disk while files are copied to a USB stick.'\nduration = '{duration}'\n\
         threshold = '10ms'\nkernel = '{kernel}'\n\
         [machine]\ncpus = 2\nnodes = ['1GiB']\n\
         disk = {{ size = '100GB', write_bps = '60MB', seek = '8ms', file_system = 'ext2' }}\n\
         [[machine.device]]\nname = 'usb'\n\
         disk = {{ size = '8GB', write_bps = '2MB', latency = '2ms', file_system = 'ext2' }}\n{stick}\n\
         [[workload]]\nuse = 'stream'\nlabel = 'copy'\ndevice = 'usb'\nrole = 'neighbour'\nthreads = 8\n\
         file_size = '2GiB'\nbytes = '64KiB'\ndirection = 'write'\n\
         [[workload]]\nuse = 'stream'\nlabel = 'work'\nrole = 'foreground'\nstart = '10s'\nfile_size = '2GiB'\n\
         bytes = '64KiB'\ndirection = 'write'\npause = '20ms'\n"
    );
    let scenario = Scenario::parse("devices", &text).expect("parses");
    sim::run(&scenario).unwrap_or_else(|error| panic!("{kernel}: {error}")).0
}

/// Seconds for which the dirty limits throttled the disk's writer, and its longest write() in seconds.
fn stalls(recording: &Recording) -> (f64, f64) {
    let own = recording.calls.iter().filter(|call| call.thread.starts_with("work"));
    let held = own.flat_map(|call| &call.segments).filter(|segment| segment.cause == Cause::DirtyThrottle);
    let held_ns: u64 = held.map(|segment| segment.ns).sum();
    let buckets = recording.latency.iter().filter(|bucket| bucket.op == OpKind::Write && bucket.thread.is_empty());
    let worst_ns = buckets.map(|bucket| bucket.worst_from_start_ns).max().unwrap_or(0);
    (held_ns as f64 / 1e9, worst_ns as f64 / 1e9)
}

/// MB written to each device.
fn written(recording: &Recording) -> [f64; 2] {
    let disks = recording.table(Table::Disks).expect("disks");
    ["sda", "usb"].map(|name| {
        let rows = disks.rows_of(&Entity::named(name)).expect("its rows");
        rows.last("write_bytes").expect("bytes") as f64 / 1e6
    })
}

#[test]
fn limits_by_device_keep_a_slow_device_from_stalling_the_writer_of_a_fast_one() {
    for kernel in ["linux-2.6.32", "linux-6.1", "linux-6.12"] {
        // drivers/usb/storage/scsiglue.c: 240 sectors. The 1280 KiB that a queue may use since 4.3 would take this
        // stick 0.6 s.
        let recording = run(kernel, "set = { 'queue.max_sectors_kb' = 120 }");
        let (held, worst) = stalls(&recording);
        println!("{kernel}: held for {held} s, the longest for {worst} s");
        assert!(held < 2.5 && worst < 0.5, "{kernel}: held for {held} s, the longest for {worst} s");
        let [_, stick] = written(&recording);
        assert!((stick - 120.0).abs() < 6.0, "the stick is always busy: {stick} MB in 60 s");
    }
}

/// A writer whose only slow call has not returned must not be reported as quiet.
#[test]
fn a_writer_throttled_at_the_end_of_the_run_is_recorded() {
    let limits = "[setup]\n'vm.dirty_ratio' = 10\n'vm.dirty_background_ratio' = 5";
    let recording = run_for("30s", "linux-2.6.17", limits);
    let hung: Vec<_> = recording.calls.iter().filter(|call| call.still_under_way).collect();
    let [call] = hung[..] else { panic!("not one call under way: {hung:?}") };
    let held: u64 = call.segments.iter().filter(|part| part.cause == Cause::DirtyThrottle).map(|part| part.ns).sum();
    assert!(call.thread.starts_with("work") && call.tiles(), "{}", call.thread);
    assert_eq!(call.end_ns(), recording.header.duration_ns);
    assert!(call.duration_ns > 1_000_000_000 && held > call.duration_ns / 100 * 99, "{held} of {}", call.duration_ns);
    let slow = explain(&recording).slow;
    assert_eq!((slow.still_under_way, slow.under_way_ns_max), (1, call.duration_ns));
    assert_eq!(slow.causes.first().map(|share| share.cause), Some(CauseId::DirtyThrottle));
}

#[test]
fn max_ratio_bounds_the_dirty_pages_of_a_device() {
    // In the first 9 s only the stick is written. Without max_ratio it gets nearly the whole dirty limit.
    let dirty = |stick: &str| {
        let recording = run("linux-6.12", stick);
        let vmstat = recording.table(Table::Vmstat).expect("vmstat");
        let rows = vmstat.rows_of(&Entity::default()).expect("rows");
        let at =
            |column: &str| rows.values(column).filter(|(at, _)| *at < 9_000_000_000).map(|(_, n)| n).max().unwrap_or(0);
        at("nr_dirty") as f64 * 4096.0 / 1e6
    };
    let strict = "set = { bdi.max_ratio = 5, bdi.strict_limit = 1 }";
    let (free, bound) = (dirty(""), dirty(strict));
    // 5 % of the limit, which is a fifth of 1 GiB, is 10 MB.
    assert!(free > 80.0 && bound < 15.0, "{free} MB dirty without a bound, {bound} MB with 5 %");
}

#[test]
fn two_runs_of_two_devices_are_the_same() {
    for kernel in ["linux-2.6.17", "linux-2.6.32", "linux-6.12"] {
        assert!(format!("{:?}", run(kernel, "")) == format!("{:?}", run(kernel, "")), "{kernel}");
    }
}

/// A hard disk of 100 MB/s in a machine of 1 GiB.
fn on_an_arm(kernel: &str, rest: &str) -> Recording {
    let text = format!(
        "name = 'arm'\nsentence = 'A disk with an arm.'\nduration = '20s'\nthreshold = '10s'\nkernel = '{kernel}'\n\
         [machine]\ncpus = 2\nnodes = ['1GiB']\n\
         disk = {{ size = '500GB', write_bps = '100MB', seek = '8ms', file_system = 'ext2' }}\n{rest}"
    );
    let scenario = Scenario::parse("arm", &text).expect("parses");
    sim::run(&scenario).unwrap_or_else(|error| panic!("{kernel}: {error}")).0
}

/// MB read in 20 s beside a writer.
fn read_beside_a_writer(kernel: &str, setup: &str) -> f64 {
    let recording = on_an_arm(
        kernel,
        &format!(
            "[setup]\n{setup}\n[[workload]]\nuse = 'stream'\nfile_size = '2GiB'\nbytes = '64KiB'\ndirection = 'read'\n\
             [[workload]]\nuse = 'stream'\nlabel = 'writer'\nrole = 'neighbour'\nfile_size = '4GiB'\nbytes = '64KiB'\n\
             direction = 'write'\n"
        ),
    );
    let reads = recording.latency.iter().filter(|bucket| bucket.op == OpKind::Read);
    reads.map(|bucket| bucket.bytes).sum::<u64>() as f64 / 1e6
}

#[test]
fn writeback_beside_a_reader_is_throttled_by_default() {
    let off = "'queue.wbt_lat_usec' = 0";
    let (by_default, without) = (read_beside_a_writer("linux-6.1", ""), read_beside_a_writer("linux-6.1", off));
    assert!(without > 1.0 && without < 40.0, "the queue is full of writes: {without} MB");
    assert!(by_default > 5.0 * without, "{by_default} MB, {without} MB without throttling of writeback");
}

/// Mean size of a write request in KiB while 4000 messages of up to 4 KiB in 400 directories go to flash that takes
/// requests of up to 4096 KiB.
fn request_kib(kernel: &str) -> i64 {
    let text = format!(
        "name = 'x'\nsentence = 'X.'\nduration = '40s'\nkernel = '{kernel}'\n[machine]\ncpus = 2\nnodes = ['1GiB']\n\
         disk = {{ write_bps = '500MB', latency = '100us', file_system = 'ext4' }}\n\
         [[workload]]\nuse = 'maildir'\nmailboxes = 400\nmessages = 1\nthreads = 2\ndeliver = 1\nexpunge = 0\nlist = 0\n\
         pause = '10ms'\nmessage_size = '4KiB'\n"
    );
    let recording = sim::run(&Scenario::parse("small", &text).expect("parses")).expect("runs").0;
    let disks = recording.table(Table::Disks).expect("disks");
    let rows = disks.rows_of(&Entity::named("sda")).expect("its rows");
    (rows.rise("write_bytes").expect("bytes") >> 10) / rows.rise("writes").expect("writes").max(1)
}

/// fs/ext4/mballoc.c allocates small files one after another, whatever their directories, and a plug merges their
/// writes. If each file had its own request, the mean with the journal would be 6 KiB. On a host with 6.18 the
/// flusher's requests for 20 000 messages at once, and those for a stream, had 175 KiB.
#[test]
fn small_files_go_to_the_disk_in_large_requests() {
    for kernel in ["linux-6.1", "linux-6.18"] {
        let kib = request_kib(kernel);
        assert!(kib >= 12, "{kernel}: {kib} KiB");
    }
}
