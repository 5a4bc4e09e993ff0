//! Memory zones: /proc/zoneinfo, whose per-zone counters match those of /proc/vmstat. Kernels before 4.8 count by zone
//! what later ones count by node.

use super::columns;

/// The kernel's name of the zone of the first 16 MiB. It is small, and few allocations use it.
pub const DMA: &str = "DMA";

columns! { ALL: Zones, lines of "/proc/zoneinfo";
    FREE                          "free"                          gauge   pages "2.6.13";
    BOOST                         "boost"                         gauge   pages "5.14";
    MIN                           "min"                           gauge   pages "2.6.13";
    LOW                           "low"                           gauge   pages "2.6.13";
    HIGH                          "high"                          gauge   pages "2.6.13";
    PROMO                         "promo"                         gauge   pages "6.10";
    SCANNED                       "scanned"                       gauge   pages "2.6.13" is "pages scanned since the last page was freed, until 4.7";
    SPANNED                       "spanned"                       gauge   pages "2.6.13";
    PRESENT                       "present"                       gauge   pages "2.6.13";
    MANAGED                       "managed"                       gauge   pages "3.9";
    CMA                           "cma"                           gauge   pages "5.12";
    WORKINGSET_REFAULT            "workingset_refault"            counter pages "3.15";
    WORKINGSET_ACTIVATE           "workingset_activate"           counter pages "3.15";
    WORKINGSET_NODERECLAIM        "workingset_nodereclaim"        counter count "3.15";
    NR_FREE_PAGES                 "nr_free_pages"                 gauge   pages "2.6.21";
    NR_FREE_PAGES_BLOCKS          "nr_free_pages_blocks"          gauge   pages "6.15";
    NR_ZONE_INACTIVE_ANON         "nr_zone_inactive_anon"         gauge   pages "4.8";
    NR_ZONE_ACTIVE_ANON           "nr_zone_active_anon"           gauge   pages "4.8";
    NR_ZONE_INACTIVE_FILE         "nr_zone_inactive_file"         gauge   pages "4.8";
    NR_ZONE_ACTIVE_FILE           "nr_zone_active_file"           gauge   pages "4.8";
    NR_ZONE_UNEVICTABLE           "nr_zone_unevictable"           gauge   pages "4.8";
    NR_ZONE_WRITE_PENDING         "nr_zone_write_pending"         gauge   pages "4.8";
    NR_MLOCK                      "nr_mlock"                      gauge   pages "2.6.28";
    NR_BOUNCE                     "nr_bounce"                     gauge   pages "2.6.18";
    NR_ZSPAGES                    "nr_zspages"                    gauge   pages "4.8";
    NR_FREE_CMA                   "nr_free_cma"                   gauge   pages "3.7";
    NR_UNACCEPTED                 "nr_unaccepted"                 gauge   pages "6.5";
    NR_INACTIVE_ANON              "nr_inactive_anon"              gauge   pages "2.6.28";
    NR_ACTIVE_ANON                "nr_active_anon"                gauge   pages "2.6.28";
    NR_INACTIVE_FILE              "nr_inactive_file"              gauge   pages "2.6.28";
    NR_ACTIVE_FILE                "nr_active_file"                gauge   pages "2.6.28";
    NR_UNEVICTABLE                "nr_unevictable"                gauge   pages "2.6.28";
    NR_ACTIVE                     "nr_active"                     gauge   pages "2.6.18";
    NR_INACTIVE                   "nr_inactive"                   gauge   pages "2.6.18";
    NR_SLAB                       "nr_slab"                       gauge   pages "2.6.13";
    NR_SLAB_RECLAIMABLE           "nr_slab_reclaimable"           gauge   pages "2.6.19";
    NR_SLAB_UNRECLAIMABLE         "nr_slab_unreclaimable"         gauge   pages "2.6.19";
    NR_ISOLATED_ANON              "nr_isolated_anon"              gauge   pages "2.6.32";
    NR_ISOLATED_FILE              "nr_isolated_file"              gauge   pages "2.6.32";
    NR_PAGES_SCANNED              "nr_pages_scanned"              gauge   pages "3.17";
    NR_ANON_PAGES                 "nr_anon_pages"                 gauge   pages "2.6.18";
    NR_MAPPED                     "nr_mapped"                     gauge   pages "2.6.13";
    NR_FILE_PAGES                 "nr_file_pages"                 gauge   pages "2.6.18";
    NR_DIRTY                      "nr_dirty"                      gauge   pages "2.6.13";
    NR_WRITEBACK                  "nr_writeback"                  gauge   pages "2.6.13";
    NR_PAGE_TABLE_PAGES           "nr_page_table_pages"           gauge   pages "2.6.13";
    NR_UNSTABLE                   "nr_unstable"                   gauge   pages "2.6.13";
    NR_WRITEBACK_TEMP             "nr_writeback_temp"             gauge   pages "2.6.26";
    NR_SHMEM                      "nr_shmem"                      gauge   pages "2.6.32";
    NR_KERNEL_STACK               "nr_kernel_stack"               gauge   kib   "2.6.32";
    NR_ANON_TRANSPARENT_HUGEPAGES "nr_anon_transparent_hugepages" gauge   count "2.6.38";
    NR_VMSCAN_WRITE               "nr_vmscan_write"               counter pages "2.6.19";
    NR_VMSCAN_IMMEDIATE_RECLAIM   "nr_vmscan_immediate_reclaim"   counter pages "3.2";
    NR_DIRTIED                    "nr_dirtied"                    counter pages "2.6.37";
    NR_WRITTEN                    "nr_written"                    counter pages "2.6.37";
    NR_KERNEL_MISC_RECLAIMABLE    "nr_kernel_misc_reclaimable"    gauge   pages "4.20";
}

columns! { OWN: Zones;
    CPU_LIST_PAGES "cpu_list_pages" gauge   pages "2.6.0"  is "free pages on the per-CPU lists, model only";
}
