//! Replaces fixes by knobs that the recorded kernel does not have yet.

use super::Fix;
use super::facts::Facts;

/// (knob, first kernel with the knob, remedy on earlier kernels)
const CAME: [(&str, [u32; 3], &str); 7] = [
    ("vm.watermark_scale_factor", [4, 6, 0], "raise vm.min_free_kbytes, from which all watermarks follow"),
    ("vm.compaction_proactiveness", [5, 9, 0], "write 1 to /proc/sys/vm/compact_memory now and then (since 2.6.35)"),
    ("vm.dirty_bytes", [2, 6, 29], "lower vm.dirty_ratio, which is a share of memory and no less than 5 %"),
    ("vm.dirty_background_bytes", [2, 6, 29], "lower vm.dirty_background_ratio, a share of memory"),
    ("queue.wbt_lat_usec", [4, 10, 0], "a smaller queue.nr_requests, or the deadline scheduler"),
    ("vm.zone_reclaim_mode", [2, 6, 16], "boot with numa=off, or interleave the memory of large programs"),
    ("vm.vfs_cache_pressure", [2, 6, 8], "nothing steers that cache before"),
];

/// Returns the fix, or its replacement if the recorded kernel is too old for the knob.
#[must_use]
pub fn fit(fix: Fix, facts: &Facts<'_>) -> Fix {
    let missing =
        CAME.iter().find(|(knob, since, _)| fix.set.get(knob).is_some() && facts.kernel_from(*since) == Some(false));
    let Some((knob, [major, minor, patch], instead)) = missing else { return fix };
    let came = if *major < 3 { format!("{major}.{minor}.{patch}") } else { format!("{major}.{minor}") };
    let kernel = facts.recording.header.machine.kernel.as_deref().unwrap_or_default();
    Fix::advice(format!("{}: {instead} ({knob} came with {came}, this is {kernel})", fix.text))
}

#[cfg(test)]
mod tests {
    use super::fit;
    use crate::Fix;
    use crate::facts::Facts;
    use crate::testing::RecordingBuilder;

    #[test]
    fn a_knob_that_the_kernel_lacks_is_replaced() {
        let fix = || Fix::knob("start kswapd earlier", knob!("vm.watermark_scale_factor"), "200");
        let old = RecordingBuilder::new().kernel("2.6.32-431.el6.x86_64").done();
        let reported = fit(fix(), &Facts::of(&old));
        assert!(reported.set.get("vm.watermark_scale_factor").is_none());
        assert!(
            reported.text.contains("min_free_kbytes") && reported.text.contains("came with 4.6"),
            "{}",
            reported.text
        );
        let new = RecordingBuilder::new().done();
        assert_eq!(fit(fix(), &Facts::of(&new)), fix());
    }

    #[test]
    fn an_unknown_kernel_is_not_treated_as_old() {
        let unknown = RecordingBuilder::new().edit(|recording| recording.header.machine.kernel = None).done();
        let fix = Fix::knob("write back early", knob!("vm.dirty_background_bytes"), "16MiB");
        assert_eq!(fit(fix.clone(), &Facts::of(&unknown)), fix);
    }
}
