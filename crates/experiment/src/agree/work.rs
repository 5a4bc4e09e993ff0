//! Progress of a workload over time, in bytes: the clock that two machines of unequal speed share.

use super::MOMENTS;
use flatwater_recording::{OpKind, Recording};

/// (ns since the start of the measured part, bytes moved until then), in order. Bytes count in the second in which
/// their call ended. Page faults count only if there are no calls: touching a page of a mapping again moves nothing.
pub(super) fn progress(recording: &Recording) -> Vec<(u64, f64)> {
    let start_ns = recording.header.clock.start_ns;
    let moving = || recording.latency.iter().filter(|bucket| bucket.bytes > 0);
    let calls = moving().any(|bucket| bucket.op != OpKind::PageFault);
    let mut ends: Vec<(u64, u64)> = moving()
        .filter(|bucket| (bucket.op != OpKind::PageFault) == calls)
        .filter(|bucket| bucket.start_ns + bucket.width_ns > start_ns)
        .map(|bucket| ((bucket.start_ns + bucket.width_ns).saturating_sub(start_ns), bucket.bytes))
        .collect();
    ends.sort_unstable();
    let mut done = vec![(0, 0.0)];
    let mut sum = 0.0;
    for (end_ns, bytes) in ends {
        sum += bytes as f64;
        match done.last_mut() {
            Some((last_ns, last)) if *last_ns == end_ns => *last = sum,
            _ => done.push((end_ns, sum)),
        }
    }
    // The last bucket ends with the run, not with its second.
    let length_ns = recording.header.duration_ns;
    if let Some((last_ns, _)) = done.last_mut().filter(|(last_ns, _)| length_ns > 0 && *last_ns > length_ns) {
        *last_ns = length_ns;
    }
    done
}

/// The moments (ns) at which equal shares of `total` bytes were done.
pub(super) fn moments(progress: &[(u64, f64)], total: f64) -> Vec<u64> {
    let at = |share: f64| {
        let wanted = total * share;
        let place = progress.partition_point(|(_, bytes)| *bytes < wanted).min(progress.len().saturating_sub(1));
        let (to_ns, to) = progress.get(place).copied().unwrap_or((0, 0.0));
        let (from_ns, from) = place.checked_sub(1).and_then(|place| progress.get(place)).copied().unwrap_or((0, 0.0));
        if to <= from {
            return to_ns;
        }
        from_ns + ((to_ns.saturating_sub(from_ns)) as f64 * ((wanted - from) / (to - from)).clamp(0.0, 1.0)) as u64
    };
    (0..MOMENTS).map(|moment| at(moment as f64 / (MOMENTS - 1) as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::moments;
    use crate::agree::MOMENTS;

    #[test]
    fn moments_of_equal_work_are_interpolated_between_seconds() {
        // Nothing in the first second, then evenly.
        let progress = [(0, 0.0), (1_000, 0.0), (2_000, 50.0), (3_000, 100.0)];
        let found = moments(&progress, 100.0);
        assert_eq!((found.len(), found[0], found[MOMENTS - 1]), (MOMENTS, 0, 3_000));
        assert!((1_900..2_200).contains(&found[MOMENTS / 2]), "{found:?}");
        assert_eq!(moments(&[(0, 0.0)], 0.0), vec![0; MOMENTS]);
    }
}
