//! The planner with a modelled writer: it is not late while the helper can keep up, and stays within its budget.

use super::{Ledger, Mode, Planner, Span, Step, Tuning, Which};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Performs a step on the ledger, as the simulator does. Returns its cost, ns.
fn perform(step: Step, at: &mut Ledger) -> u64 {
    match step {
        Step::Flush(s) => at.flushed = s.end(),
        Step::Allocate(Which::Current, s) => at.allocated = s.end(),
        Step::Allocate(Which::Next, s) => at.next_allocated = s.end(),
        Step::Warm(Which::Current, s) => at.warm = s.end(),
        Step::Warm(Which::Next, s) => at.next_warm = s.end(),
        Step::WriteBack(s) => at.written_back = s.end(),
        Step::Release(s) => at.released = s.end(),
        Step::Refresh(_) => {}
        Step::Nap(ns) => return ns,
    }
    200_000
}

struct Outcome {
    late: u64,
    ahead_max: u64,
    held_max: u64,
    at: Ledger,
}

/// Runs the planner with a writer of constant rate. `late` counts the steps at which the writer had passed `warm`.
fn drive(tuning: Tuning, rate_bytes_per_s: u64, duration_ns: u64) -> Outcome {
    let mut planner = Planner::new(tuning);
    let (mut now, mut at, mut total, mut base, mut late) = (0, Ledger::default(), 0u64, 0u64, 0);
    let (mut ahead_max, mut held_max) = (0, 0);
    while now < duration_ns {
        planner.pace.on_position(now, total);
        let step = planner.next(now, &at);
        let cost = perform(step, &mut at);
        if matches!(step, Step::Warm(..)) {
            planner.pace.on_warmed(cost);
        }
        assert!(at.released <= at.position && at.written_back <= at.position && at.warm <= at.allocated, "{at:?}");
        ahead_max = ahead_max.max(at.warm.saturating_sub(at.position));
        held_max = held_max.max(at.held_bytes());
        now += cost;
        total = u64::try_from(u128::from(now) * u128::from(rate_bytes_per_s) / 1_000_000_000).unwrap();
        at.position = total - base;
        if tuning.roll_bytes != 0 && at.position >= tuning.roll_bytes {
            assert!(at.next_warm > 0, "rolled into a file that was not prepared");
            base += tuning.roll_bytes;
            at = Ledger {
                position: total - base,
                allocated: at.next_allocated,
                warm: at.next_warm,
                ..Ledger::default()
            };
        }
        if at.position > at.warm && now > 20 * MS {
            late += 1;
        }
    }
    Outcome { late, ahead_max, held_max, at }
}

/// madvise and mlock2 refuse a range that does not begin on a page.
#[test]
fn every_step_begins_on_a_page_of_the_machine() {
    for page_bytes in [4096, 16 << 10, 64 << 10] {
        for (mode, budget) in [(Mode::Window, 64 * MIB), (Mode::Window, 5 * page_bytes), (Mode::Prefetch, MIB)] {
            let tuning = Tuning::new(mode, budget, page_bytes);
            assert!(tuning.window_bytes > 0 && tuning.window_bytes.is_multiple_of(page_bytes), "{tuning:?}");
            let mut planner = Planner::new(tuning);
            let (mut now, mut at, mut spans) = (0, Ledger::default(), 0);
            for _ in 0..20_000 {
                planner.pace.on_position(now, at.position);
                let step = planner.next(now, &at);
                if let Step::Warm(_, span) | Step::Refresh(span) | Step::Release(span) | Step::WriteBack(span) = step {
                    assert!(span.at.is_multiple_of(page_bytes) && span.len.is_multiple_of(page_bytes), "{step:?}");
                    spans += 1;
                }
                now += perform(step, &mut at);
                // Unaligned positions, some beyond the warm range.
                at.position = now / 97;
            }
            assert!(spans > 100, "{spans} steps of {tuning:?}");
        }
    }
}

#[test]
fn the_helper_is_never_late_for_a_slow_writer_and_uses_little_memory() {
    let got = drive(Tuning::new(Mode::Window, 64 * MIB, 4096), 1_100_000, 3_000 * MS);
    assert_eq!(got.late, 0);
    assert!(got.ahead_max <= 6 * MIB, "run-ahead {} for 1.1 MB/s", got.ahead_max);
    assert!(got.at.released > 0, "nothing behind was released: {:?}", got.at);
}

#[test]
fn a_fast_writer_gets_a_longer_run_ahead_within_the_budget() {
    let tuning = Tuning::new(Mode::Window, 64 * MIB, 4096);
    let got = drive(tuning, 1_000_000_000, 1_000 * MS);
    assert_eq!(got.late, 0);
    assert!(got.ahead_max > 2 * MIB && got.ahead_max <= tuning.ahead_bytes_max, "{}", got.ahead_max);
}

#[test]
fn a_writer_faster_than_the_helper_passes_the_warm_pages() {
    // One window of 1 MiB costs 200 us here, so no helper can serve 20 GB/s.
    assert!(drive(Tuning::new(Mode::Window, 64 * MIB, 4096), 20_000_000_000, 200 * MS).late > 0);
}

#[test]
fn the_next_file_is_warm_before_the_roll() {
    let tuning = Tuning { roll_bytes: 32 * MIB, ..Tuning::new(Mode::Window, 64 * MIB, 4096) };
    assert_eq!(drive(tuning, 200_000_000, 2_000 * MS).late, 0);
}

#[test]
fn a_small_budget_is_obeyed() {
    let tuning = Tuning::new(Mode::Window, 64 * 1024, 4096);
    let got = drive(tuning, 1_100_000, 1_000 * MS);
    assert!(got.held_max <= 64 * 1024, "{}", got.held_max);
    assert_eq!(got.late, 0);
}

/// The writer consumes each window as soon as it is warm, so the helper is never idle.
#[test]
fn a_flood_never_holds_more_than_the_budget() {
    for (budget, roll_bytes) in [(64 * MIB, 0), (64 * MIB, 32 * MIB), (8 * MIB, 0), (256 << 10, 0)] {
        let tuning = Tuning { roll_bytes, ..Tuning::new(Mode::Window, budget, 4096) };
        let mut planner = Planner::new(tuning);
        let (mut at, mut held_max, mut total) = (Ledger::default(), 0, 0);
        for tick in 0..20_000u64 {
            planner.pace.on_position(tick * MS, total);
            let step = planner.next(tick * MS, &at);
            if matches!(step, Step::Warm(..)) {
                planner.pace.on_warmed(20 * MS);
            }
            perform(step, &mut at);
            held_max = held_max.max(at.held_bytes());
            total += at.warm - at.position;
            at.position = at.warm;
            if roll_bytes != 0 && at.position == roll_bytes && at.next_warm > 0 {
                at = Ledger { allocated: at.next_allocated, warm: at.next_warm, ..Ledger::default() };
            }
        }
        assert!(held_max <= budget, "{held_max} held of {budget}, rolling at {roll_bytes}");
        assert!(total > 4 * budget, "only {total} bytes in 20 000 steps, budget {budget}, rolling at {roll_bytes}");
    }
}

#[test]
fn a_ring_flushes_before_it_naps_and_allocates_before_it_flushes() {
    let mut planner = Planner::new(Tuning::new(Mode::Ring, 8 * MIB, 4096));
    let at = Ledger { position: 500, ..Ledger::default() };
    let first = planner.next(0, &at);
    assert!(matches!(first, Step::Allocate(Which::Current, Span { at: 0, .. })), "{first:?}");
    let at = Ledger { allocated: 64 * MIB, ..at };
    assert_eq!(planner.next(0, &at), Step::Flush(Span { at: 0, len: 500 }));
    let at = Ledger { flushed: 500, ..at };
    assert!(matches!(planner.next(0, &at), Step::Nap(_)));
}

#[test]
fn prefetch_reads_ahead_but_neither_refreshes_nor_releases() {
    let mut planner = Planner::new(Tuning::new(Mode::Prefetch, 8 * MIB, 4096));
    let mut at = Ledger::default();
    for tick in 0..2000u64 {
        at.position = tick * 5_000;
        planner.pace.on_position(tick * MS, at.position);
        let step = planner.next(tick * MS, &at);
        assert!(!matches!(step, Step::Refresh(_) | Step::Release(_) | Step::Flush(_)), "{step:?}");
        perform(step, &mut at);
    }
    assert!(at.warm > at.position);
}
