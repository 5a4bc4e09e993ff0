//! Prefixes of lines from collectors, `grep`, `ts` and `cat -n`.

use super::{Files, Paste};

/// 2026-11-21 08:00:01 UTC, a Saturday.
const EPOCH_S: usize = 1_795_248_001;

/// The microseconds of the timestamp of line `at`.
fn us(at: usize) -> usize {
    123_456 + at * 37 % 800_000
}

pub fn unit(paste: &Paste<'_>) -> Option<Files> {
    paste.timed_lines(|file, _, line| format!("Nov 21 08:{file:02}:01 db1 collect[123]: {line}"))
}

pub fn kubernetes(paste: &Paste<'_>) -> Option<Files> {
    paste.timed_lines(|file, at, line| format!("2026-11-21T08:{file:02}:01.{:06}789Z stderr F {line}", us(at)))
}

pub fn docker(paste: &Paste<'_>) -> Option<Files> {
    paste.timed_lines(|file, at, line| format!("2026-11-21T08:{file:02}:01.{:06}789Z {line}", us(at)))
}

pub fn compose(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| format!("web-1  | {line}"))
}

pub fn pod(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| format!("[pod/web-0/app] {line}"))
}

pub fn grep_n(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|at, line| format!("{}:{line}", at + 1))
}

pub fn grep_r(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| format!("./dir/messages:{line}"))
}

pub fn grep_rn(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|at, line| format!("messages.log:{}:{line}", at + 1))
}

pub fn ts(paste: &Paste<'_>) -> Option<Files> {
    paste.timed_lines(|file, _, line| format!("Nov 21 08:{file:02}:01 {line}"))
}

pub fn ts_date(paste: &Paste<'_>) -> Option<Files> {
    paste.timed_lines(|file, at, line| format!("[2026-11-21 08:{file:02}:01.{:06}] {line}", us(at)))
}

pub fn ts_clock(paste: &Paste<'_>) -> Option<Files> {
    paste.timed_lines(|file, _, line| format!("08:{file:02}:01 {line}"))
}

pub fn ts_epoch(paste: &Paste<'_>) -> Option<Files> {
    paste.timed_lines(|file, at, line| format!("{}.{:06} {line}", EPOCH_S + 60 * file, us(at)))
}

pub fn cat_n(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|at, line| format!("{:6}\t{line}", at + 1))
}

pub fn numbers(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|at, line| format!("{}: {line}", at + 1))
}

pub fn pdsh(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| format!("node01: {line}"))
}
