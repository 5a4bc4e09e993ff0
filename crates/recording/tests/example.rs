//! Runs the example of the documentation on a recording: it prints the slowest calls first, with their segments.

#[path = "../examples/slow_calls.rs"]
#[expect(dead_code, reason = "its main reads the command line of an example, not of a test")]
mod slow_calls;

use flatwater_recording::Recording;

#[test]
fn the_example_prints_the_slowest_calls_of_a_recording() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/recordings-3c238a6/host");
    let recording = Recording::open(path).expect("a recording of 3c238a6");
    let mut text = Vec::new();
    slow_calls::print_slow_calls(&recording, 3, &mut text).expect("into memory");
    let text = String::from_utf8(text).expect("text");
    let slowest = recording.calls.iter().max_by_key(|call| call.duration_ns).expect("slow calls");
    assert!(text.starts_with(&format!("write of {} took {} ns\n", slowest.thread, slowest.duration_ns)), "{text}");
    assert!(text.contains(" ns memcg-reclaim\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" took ")).count(), 3);
}
