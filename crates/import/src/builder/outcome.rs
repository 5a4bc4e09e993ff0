//! Outcomes of workloads from logs: delays by writer, checkpoints.

use super::Builder;
use super::place::Places;
use flatwater_recording::outcome::{BulkDelay, BulkOutcome, CheckpointOutcome, CheckpointRow, WorkloadOutcome};

pub fn outcomes(builder: &Builder, places: &Places) -> Vec<WorkloadOutcome> {
    let bulk = bulk(builder, places).map(WorkloadOutcome::Bulk);
    bulk.into_iter().chain(checkpoints(builder, places).map(WorkloadOutcome::Checkpoint)).collect()
}

fn bulk(builder: &Builder, places: &Places) -> Option<BulkOutcome> {
    if builder.delays.is_empty() && builder.delay_ns_max.is_none() {
        return None;
    }
    let mut delays: Vec<BulkDelay> = (builder.delays.iter())
        .map(|placed| BulkDelay { at_ns: places.at_ns(placed.track, placed.at), ..placed.item.clone() })
        .collect();
    delays.sort_by_key(|delay| delay.at_ns);
    let seen = delays.iter().map(|delay| delay.delay_ns);
    // These logs print delays over a threshold that they do not state; the smallest delay is its upper bound.
    let threshold_ns = seen.clone().min().unwrap_or(0);
    let delay_ns_max = seen.max().max(builder.delay_ns_max).unwrap_or(0);
    // No `writers`: such logs do not say how much each writer wrote, and 0 would be false.
    Some(BulkOutcome { threshold_ns, delays, delay_ns_max, ..BulkOutcome::default() })
}

fn checkpoints(builder: &Builder, places: &Places) -> Option<CheckpointOutcome> {
    let mut checkpoints: Vec<CheckpointRow> = (builder.checkpoints.iter())
        .map(|placed| CheckpointRow { at_ns: places.at_ns(placed.track, placed.at), ..placed.item.clone() })
        .collect();
    checkpoints.sort_by_key(|row| row.at_ns);
    (!checkpoints.is_empty()).then_some(CheckpointOutcome { checkpoints })
}
