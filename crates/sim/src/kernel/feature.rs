//! Which versions have a feature: a row each, since and until.

/// A version of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16, pub u16);

/// A change between two modelled kernels that the model decides by version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// File and process pages share the LRU lists; each pass ages the active list by the same fraction as it scans of
    /// the inactive list (mm/vmscan.c: shrink_zone).
    SharedLru,
    /// Access times are relative to changes unless a mount option says otherwise (MNT_RELATIME).
    Relatime,
    /// Cached pages before a miss make it part of a stream (mm/readahead.c: try_context_readahead).
    ContextReadahead,
    /// The same only if the cached pages are more than the pages of the read.
    ContextBeyondRead,
    /// The flusher holds requests back over many files (blk_start_plug around writeback_sb_inodes).
    FlusherPlug,
    /// LRU lists by node, and reclaim of a node by priority (struct pglist_data's lruvec).
    NodeLru,
    /// Requests are tags (blk-mq), and writeback is throttled by latency unless configured otherwise
    /// (CONFIG_BLK_WBT_MQ).
    MultiQueue,
    /// A CPU's list of free pages and its batches grow while pages are only taken (mm/page_alloc.c: nr_pcp_alloc).
    PcpAutoTuning,
}

struct Row {
    feature: Feature,
    since: Version,
    /// The first version without it.
    until: Option<Version>,
}

const fn since(feature: Feature, since: Version) -> Row {
    Row { feature, since, until: None }
}

/// In the order of `Feature`.
const TABLE: [Row; 8] = [
    Row { feature: Feature::SharedLru, since: Version(2, 4, 0), until: Some(Version(2, 6, 28)) },
    since(Feature::Relatime, Version(2, 6, 30)),
    since(Feature::ContextReadahead, Version(2, 6, 31)),
    since(Feature::ContextBeyondRead, Version(3, 12, 0)),
    since(Feature::FlusherPlug, Version(4, 3, 0)),
    since(Feature::NodeLru, Version(4, 8, 0)),
    since(Feature::MultiQueue, Version(5, 0, 0)),
    since(Feature::PcpAutoTuning, Version(6, 7, 0)),
];

impl Version {
    #[must_use]
    #[inline]
    pub fn has(self, feature: Feature) -> bool {
        let row = &TABLE[feature as usize];
        debug_assert!(row.feature as usize == feature as usize);
        self >= row.since && row.until.is_none_or(|until| self < until)
    }
}

#[cfg(test)]
mod tests {
    use super::{Feature, TABLE, Version};

    #[test]
    fn a_feature_begins_with_its_first_version_and_ends_before_its_last() {
        assert_eq!([27, 28].map(|patch| Version(2, 6, patch).has(Feature::SharedLru)), [true, false]);
        assert_eq!([(6, 6), (6, 7)].map(|(a, b)| Version(a, b, 0).has(Feature::PcpAutoTuning)), [false, true]);
    }

    #[test]
    fn each_row_is_at_its_features_index() {
        assert!(TABLE.iter().enumerate().all(|(place, row)| row.feature as usize == place));
    }
}
