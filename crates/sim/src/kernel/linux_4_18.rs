//! Linux 4.18: LRU lists by node, watermarks by scale factor, shrinkers by priority.

use super::{
    BarrierOptions, ContextReadahead, DirtySpread, Dirtyable, FaultAround, Immediate, KswapdRule, Profile, QueueRule,
    ShadowNodes, ShrinkRule, SwapRule, SyncRule, WatermarkRule, Workingset, ZoneReclaim, linux_3_10,
};

pub fn profile() -> Profile {
    Profile {
        name: "linux-4.18",
        sentence: "4.18: as 3.10, with LRU lists by node (4.8), watermarks by scale factor (4.6) and shrinkers asked by priority (4.16).",
        watermarks: WatermarkRule::ScaleFactor,
        reclaim_distance: None,
        // Zonelists by zone went with 4.14.
        zonelist_by_zone: false,
        dirty_spread: DirtySpread::ByNode,
        dirtyable: Dirtyable::Files,
        lru_per_node: true,
        immediate: Immediate::MovesAway,
        kswapd: KswapdRule::ProportionalOnce,
        tree_nodes: true,
        shadow_nodes: ShadowNodes::OfFiles,
        context_readahead: ContextReadahead::MoreThanAsked,
        sync: SyncRule::Together,
        one_full_flush: true,
        writeback_holds_handles: false,
        fault_around: FaultAround::Maps,
        calls_widen_readahead: true,
        queue: QueueRule {
            has_wbt: true,
            has_multi_queue: true,
            plugs: true,
            cfq_ticks: false,
            ..linux_3_10::profile().queue
        },
        request_pages: crate::block::REQUEST_PAGES_4_3,
        writes_activate: false,
        files_by_ratio: true,
        xfs_barrier_options: BarrierOptions::Ignored,
        workingset: Workingset::OfFiles,
        refaults_age_active: true,
        swap: SwapRule { activates_faulted: true, watches_readahead: true, ..linux_3_10::profile().swap },
        zone_reclaim: ZoneReclaim::PerNode,
        shrink: ShrinkRule { divisor_is_lru: false, new_are_referenced: false, ..linux_3_10::profile().shrink },
        flash_disk: true,
        file_systems: &["ext4", "xfs", "ext2", "nfs", "nfs4"],
        schedulers: &["cfq", "deadline", "mq-deadline", "bfq", "none", "noop"],
        ..linux_3_10::profile()
    }
}
