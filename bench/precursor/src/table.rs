//! The figures of all cells as one table per condition: medians over the rounds, and the spread of the largest values.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::Scheduling;
use crate::cell::Figures;
use crate::loads::Condition;
use crate::rivals::Method;

#[derive(Debug)]
pub struct Table {
    pub seconds: u64,
    pub memory_mib: u64,
    pub scheduling: Scheduling,
    cells: BTreeMap<(Condition, Method), Vec<Figures>>,
}

impl Table {
    pub fn new(seconds: u64, memory_mib: u64, scheduling: Scheduling) -> Table {
        Table { seconds, memory_mib, scheduling, cells: BTreeMap::new() }
    }

    pub fn add(&mut self, condition: Condition, way: Method, figures: Figures) {
        self.cells.entry((condition, way)).or_default().push(figures);
    }

    pub fn text(&self) -> String {
        let mut out = format!(
            "220 B every 200 us, {} s a cell, cgroup of {} MiB, {:?}; us\n",
            self.seconds, self.memory_mib, self.scheduling
        );
        let mut last = None;
        for ((condition, way), runs) in &self.cells {
            if last.replace(*condition) != Some(*condition) {
                let _ = writeln!(out, "\n{}", condition.name());
                let _ = writeln!(
                    out,
                    "  {:<10} {:>4} {:>8} {:>9} {:>10} {:>21} {:>6} {:>9} {:>10} {:>10} {:>5} {:>8} {:>6}",
                    "method",
                    "runs",
                    "p50",
                    "p99.9",
                    "p99.99",
                    "largest (least..most)",
                    ">1ms",
                    "preempted",
                    "due p99.9",
                    "due max",
                    "late",
                    "open ms",
                    "CPU %"
                );
            }
            let median = |of: fn(&Figures) -> u64| {
                let mut values: Vec<u64> = runs.iter().map(of).collect();
                values.sort_unstable();
                crate::cell::at(&values, 0.5)
            };
            let least = runs.iter().map(|f| f.max).min().unwrap_or(0);
            let most = runs.iter().map(|f| f.max).max().unwrap_or(0);
            let _ = writeln!(
                out,
                "  {:<10} {:>4} {:>8} {:>9} {:>10} {:>21} {:>6} {:>9} {:>10} {:>10} {:>5} {:>8} {:>6.2}",
                way.name(),
                runs.len(),
                us(median(|f| f.p50)),
                us(median(|f| f.p999)),
                us(median(|f| f.p9999)),
                format!("{}..{}", us(least), us(most)),
                runs.iter().map(|f| f.slow).sum::<u64>(),
                runs.iter().map(|f| f.preempted).sum::<u64>(),
                us(median(|f| f.due_p999)),
                us(runs.iter().map(|f| f.due_max).max().unwrap_or(0)),
                runs.iter().map(|f| f.late).sum::<u64>(),
                us(runs.iter().map(|f| f.open).max().unwrap_or(0) / 1000),
                median(|f| f.cpu) as f64 / 100.0,
            );
        }
        out
    }

    pub fn tsv(&self) -> String {
        let mut out =
            "condition\tway\trun\tcount\tp50_ns\tp999_ns\tp9999_ns\tmax_ns\tover_1ms\tpreempted\tdue_p999_ns\tdue_max_ns\tlate\topen_ns\tcpu_10000\n"
                .to_owned();
        for ((condition, way), runs) in &self.cells {
            for (run, figures) in runs.iter().enumerate() {
                let _ =
                    writeln!(out, "{}\t{}\t{run}\t{}", condition.name(), way.name(), figures.line().replace(' ', "\t"));
            }
        }
        out
    }
}

fn us(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    if us < 10.0 {
        format!("{us:.2}")
    } else if us < 100.0 {
        format!("{us:.1}")
    } else {
        format!("{us:.0}")
    }
}
