//! Dirty pages and their limits: of the machine (no entity), and of each backing device.

use super::columns;

columns! { ALL: Writeback;
    DIRTY_BYTES                "dirty_bytes"                gauge   bytes "2.6.0";
    WRITEBACK_BYTES            "writeback_bytes"            gauge   bytes "2.6.0";
    DIRTY_THRESHOLD_BYTES      "dirty_threshold_bytes"      gauge   bytes "2.6.31";
    BACKGROUND_THRESHOLD_BYTES "background_threshold_bytes" gauge   bytes "2.6.37" is "of the machine";
    MAX_BYTES                  "max_bytes"                  gauge   bytes "6.2";
    MIN_BYTES                  "min_bytes"                  gauge   bytes "6.2";
    DIRTIED_BYTES              "dirtied_bytes"              counter bytes "2.6.37";
    WRITTEN_BYTES              "written_bytes"              counter bytes "2.6.36";
    BANDWIDTH_BYTES_PER_S      "bandwidth_bytes_per_s"      gauge   bps   "3.1";
    INODES_DIRTY               "inodes_dirty"               gauge   count "2.6.31";
    INODES_WRITING             "inodes_writing"             gauge   count "2.6.31";
    INODES_REQUEUED            "inodes_requeued"            gauge   count "2.6.31";
    INODES_DIRTY_TIME          "inodes_dirty_time"          gauge   count "4.0";
}
