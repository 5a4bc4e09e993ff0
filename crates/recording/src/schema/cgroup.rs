//! Memory cgroups, v1 and v2: limits and events under common names, memory.stat under the kernel's names. In v1,
//! `total_` is the sum over a cgroup and its descendants.

use super::columns;

columns! { OWN: Cgroup;
    USAGE_BYTES      "usage_bytes"      gauge   bytes "2.6.25" is "memory.current, v1 memory.usage_in_bytes";
    LIMIT_BYTES      "limit_bytes"      gauge   bytes "2.6.25" is "memory.max, v1 memory.limit_in_bytes; null: no limit";
    HIGH_BYTES       "high_bytes"       gauge   bytes "4.5"    is "memory.high";
    SOFT_LIMIT_BYTES "soft_limit_bytes" gauge   bytes "2.6.32" is "v1 memory.soft_limit_in_bytes";
    SWAP_BYTES       "swap_bytes"       gauge   bytes "4.5"    is "memory.swap.current";
    PEAK_BYTES       "peak_bytes"       gauge   bytes "2.6.25" is "memory.peak, v1 memory.max_usage_in_bytes";
    EVENTS_MAX       "events_max"       counter count "2.6.25" formerly ["failcnt"] is "charges that reached the limit: v1 memory.failcnt";
}

columns! { EVENTS: Cgroup, lines of "memory.events";
    EVENTS_LOW            "events_low"            counter count "4.5";
    EVENTS_HIGH           "events_high"           counter count "4.5";
    EVENTS_OOM            "events_oom"            counter count "4.5";
    EVENTS_OOM_KILL       "events_oom_kill"       counter count "4.13";
    EVENTS_OOM_GROUP_KILL "events_oom_group_kill" counter count "5.17";
    EVENTS_SOCK_THROTTLED "events_sock_throttled" counter count "6.17";
}

columns! { PRESSURE: Cgroup, from "memory.pressure";
    SOME_TOTAL_US           "some_total_us"           counter us    "4.20";
    FULL_TOTAL_US           "full_total_us"           counter us    "4.20";
    SOME_AVG10_CENTIPERCENT "some_avg10_centipercent" gauge   cpct  "4.20";
    FULL_AVG10_CENTIPERCENT "full_avg10_centipercent" gauge   cpct  "4.20";
}

columns! { CPU_STAT: Cgroup, from "cpu.stat";
    CPU_PERIODS      "cpu_periods"      counter count "3.2"    is "cpu.stat: nr_periods";
    CPU_THROTTLED    "cpu_throttled"    counter count "3.2"    is "cpu.stat: nr_throttled";
    CPU_THROTTLED_NS "cpu_throttled_ns" counter ns    "3.2"    is "cpu.stat: throttled_usec, v1 throttled_time";
    CPU_USAGE_NS     "cpu_usage_ns"     counter ns    "4.15"   is "cpu.stat: usage_usec";
}

columns! { IO_STAT: Cgroup, from "io.stat";
    IO_READ_BYTES      "io_read_bytes"      counter bytes "4.5"  is "io.stat of all devices: rbytes";
    IO_WRITE_BYTES     "io_write_bytes"     counter bytes "4.5"  is "io.stat: wbytes";
    IO_READS           "io_reads"           counter count "4.5"  is "io.stat: rios";
    IO_WRITES          "io_writes"          counter count "4.5"  is "io.stat: wios";
    IO_COST_USAGE_NS   "io_cost_usage_ns"   counter ns    "5.4"  is "io.stat: cost.usage, device time that blk-iocost charged";
    IO_COST_WAIT_NS    "io_cost_wait_ns"    counter ns    "5.10" is "io.stat: cost.wait, wait of requests for budget";
    IO_COST_INDELAY_NS "io_cost_indelay_ns" counter ns    "5.10" is "io.stat: cost.indelay, delay of tasks in debt";
    IO_USE_DELAY       "io_use_delay"       gauge   count "4.19" is "io.stat: use_delay, delay that blk-iolatency imposes";
}

columns! { IO_MAX: Cgroup, from "io.max";
    IO_MAX_READ_BYTES  "io_max_read_bytes"  gauge   bytes "4.5"  is "io.max: rbps, v1 blkio.throttle.read_bps_device, per second";
    IO_MAX_WRITE_BYTES "io_max_write_bytes" gauge   bytes "4.5"  is "io.max: wbps, v1 blkio.throttle.write_bps_device, per second";
    IO_MAX_READS       "io_max_reads"       gauge   count "4.5"  is "io.max: riops, v1 blkio.throttle.read_iops_device, per second";
    IO_MAX_WRITES      "io_max_writes"      gauge   count "4.5"  is "io.max: wiops, v1 blkio.throttle.write_iops_device, per second";
}

columns! { STAT: Cgroup, lines of "memory.stat";
    ANON                     "anon"                     gauge   bytes "4.5";
    FILE                     "file"                     gauge   bytes "4.5";
    KERNEL                   "kernel"                   gauge   bytes "5.18";
    KERNEL_STACK             "kernel_stack"             gauge   bytes "4.5";
    SLAB                     "slab"                     gauge   bytes "4.5";
    SOCK                     "sock"                     gauge   bytes "4.5";
    PAGETABLES               "pagetables"               gauge   bytes "5.11";
    SEC_PAGETABLES           "sec_pagetables"           gauge   bytes "6.1";
    PERCPU                   "percpu"                   gauge   bytes "5.9";
    VMALLOC                  "vmalloc"                  gauge   bytes "5.18";
    SHMEM                    "shmem"                    gauge   bytes "4.5";
    ZSWAP                    "zswap"                    gauge   bytes "5.19";
    ZSWAPPED                 "zswapped"                 gauge   bytes "5.19";
    FILE_MAPPED              "file_mapped"              gauge   bytes "4.5";
    FILE_DIRTY               "file_dirty"               gauge   bytes "4.5";
    FILE_WRITEBACK           "file_writeback"           gauge   bytes "4.5";
    SWAPCACHED               "swapcached"               gauge   bytes "5.12";
    ANON_THP                 "anon_thp"                 gauge   bytes "5.4";
    FILE_THP                 "file_thp"                 gauge   bytes "5.11";
    SHMEM_THP                "shmem_thp"                gauge   bytes "5.11";
    INACTIVE_ANON            "inactive_anon"            gauge   bytes "2.6.28";
    ACTIVE_ANON              "active_anon"              gauge   bytes "2.6.28";
    INACTIVE_FILE            "inactive_file"            gauge   bytes "2.6.28";
    ACTIVE_FILE              "active_file"              gauge   bytes "2.6.28";
    UNEVICTABLE              "unevictable"              gauge   bytes "2.6.28";
    SLAB_RECLAIMABLE         "slab_reclaimable"         gauge   bytes "4.5";
    SLAB_UNRECLAIMABLE       "slab_unreclaimable"       gauge   bytes "4.5";
    // 05d4532b60e3. mm/hugetlb.c: alloc_hugetlb_folio() counts it if hugetlb pages are charged to memory (6.7).
    HUGETLB                  "hugetlb"                  gauge   bytes "6.13";
    WORKINGSET_REFAULT       "workingset_refault"       counter pages "4.5";
    WORKINGSET_ACTIVATE      "workingset_activate"      counter pages "4.5";
    WORKINGSET_RESTORE       "workingset_restore"       counter pages "4.20";
    WORKINGSET_REFAULT_ANON  "workingset_refault_anon"  counter pages "5.9";
    WORKINGSET_REFAULT_FILE  "workingset_refault_file"  counter pages "5.9";
    WORKINGSET_ACTIVATE_ANON "workingset_activate_anon" counter pages "5.9";
    WORKINGSET_ACTIVATE_FILE "workingset_activate_file" counter pages "5.9";
    WORKINGSET_RESTORE_ANON  "workingset_restore_anon"  counter pages "5.9";
    WORKINGSET_RESTORE_FILE  "workingset_restore_file"  counter pages "5.9";
    WORKINGSET_NODERECLAIM   "workingset_nodereclaim"   counter count "4.5";
    PGSCAN                   "pgscan"                   counter pages "4.14";
    PGSTEAL                  "pgsteal"                  counter pages "4.14";
    PGSCAN_KSWAPD            "pgscan_kswapd"            counter pages "6.0";
    PGSCAN_DIRECT            "pgscan_direct"            counter pages "6.0";
    PGSTEAL_KSWAPD           "pgsteal_kswapd"           counter pages "6.0";
    PGSTEAL_DIRECT           "pgsteal_direct"           counter pages "6.0";
    // 57e9cc50f4dd; mm/memcontrol.c: memcg_vm_event_stat[].
    PGSCAN_KHUGEPAGED        "pgscan_khugepaged"        counter pages "6.2";
    PGSTEAL_KHUGEPAGED       "pgsteal_khugepaged"       counter pages "6.2";
    PGSCAN_PROACTIVE         "pgscan_proactive"         counter pages "6.15";
    PGSTEAL_PROACTIVE        "pgsteal_proactive"        counter pages "6.15";
    PGFAULT                  "pgfault"                  counter count "2.6.25";
    PGMAJFAULT               "pgmajfault"               counter count "2.6.25";
    PGREFILL                 "pgrefill"                 counter pages "4.14";
    PGACTIVATE               "pgactivate"               counter pages "4.14";
    PGDEACTIVATE             "pgdeactivate"             counter pages "4.14";
    PGLAZYFREE               "pglazyfree"               counter pages "4.14";
    PGLAZYFREED              "pglazyfreed"              counter pages "4.14";
    PSWPIN                   "pswpin"                   counter pages "6.14";
    PSWPOUT                  "pswpout"                  counter pages "6.14";
    SWPIN_ZERO               "swpin_zero"               counter pages "6.12";
    SWPOUT_ZERO              "swpout_zero"              counter pages "6.12";
    ZSWPIN                   "zswpin"                   counter pages "5.19";
    ZSWPOUT                  "zswpout"                  counter pages "5.19";
    ZSWPWB                   "zswpwb"                   counter pages "6.8";
    THP_FAULT_ALLOC          "thp_fault_alloc"          counter count "5.4";
    THP_COLLAPSE_ALLOC       "thp_collapse_alloc"       counter count "5.4";
    THP_SWPOUT               "thp_swpout"               counter count "6.7";
    THP_SWPOUT_FALLBACK      "thp_swpout_fallback"      counter count "6.7";
    NUMA_PAGES_MIGRATED      "numa_pages_migrated"      counter pages "6.11";
    NUMA_PTE_UPDATES         "numa_pte_updates"         counter count "6.11";
    NUMA_HINT_FAULTS         "numa_hint_faults"         counter count "6.11";
    NUMA_TASK_MIGRATED       "numa_task_migrated"       counter count "6.17";
    NUMA_TASK_SWAPPED        "numa_task_swapped"        counter count "6.17";
    PGPROMOTE_SUCCESS        "pgpromote_success"        counter pages "6.12";
    PGDEMOTE_KSWAPD          "pgdemote_kswapd"          counter pages "6.12";
    PGDEMOTE_DIRECT          "pgdemote_direct"          counter pages "6.12";
    PGDEMOTE_KHUGEPAGED      "pgdemote_khugepaged"      counter pages "6.12";
    // Missing in 6.12; added together with the other proactive counters.
    PGDEMOTE_PROACTIVE       "pgdemote_proactive"       counter pages "6.15";
}

columns! { STAT_V1: Cgroup, lines of "memory.stat";
    CACHE                         "cache"                         gauge   bytes "2.6.25";
    RSS                           "rss"                           gauge   bytes "2.6.25";
    RSS_HUGE                      "rss_huge"                      gauge   bytes "3.10";
    MAPPED_FILE                   "mapped_file"                   gauge   bytes "2.6.31";
    DIRTY                         "dirty"                         gauge   bytes "4.2";
    WRITEBACK                     "writeback"                     gauge   bytes "3.12";
    SWAP                          "swap"                          gauge   bytes "2.6.29";
    PGPGIN                        "pgpgin"                        counter count "2.6.25";
    PGPGOUT                       "pgpgout"                       counter count "2.6.25";
    TOTAL_CACHE                   "total_cache"                   gauge   bytes "2.6.29";
    TOTAL_RSS                     "total_rss"                     gauge   bytes "2.6.29";
    TOTAL_RSS_HUGE                "total_rss_huge"                gauge   bytes "3.10";
    TOTAL_MAPPED_FILE             "total_mapped_file"             gauge   bytes "2.6.31";
    TOTAL_DIRTY                   "total_dirty"                   gauge   bytes "4.2";
    TOTAL_WRITEBACK               "total_writeback"               gauge   bytes "3.12";
    TOTAL_SWAP                    "total_swap"                    gauge   bytes "2.6.29";
    TOTAL_PGPGIN                  "total_pgpgin"                  counter count "2.6.29";
    TOTAL_PGPGOUT                 "total_pgpgout"                 counter count "2.6.29";
    TOTAL_SHMEM                   "total_shmem"                   gauge   bytes "4.9";
    TOTAL_WORKINGSET_REFAULT      "total_workingset_refault"      counter pages "5.2";
    TOTAL_WORKINGSET_REFAULT_ANON "total_workingset_refault_anon" counter pages "5.9";
    TOTAL_WORKINGSET_REFAULT_FILE "total_workingset_refault_file" counter pages "5.9";
    TOTAL_SWAPCACHED              "total_swapcached"              gauge   bytes "6.5";
    TOTAL_INACTIVE_ANON           "total_inactive_anon"           gauge   bytes "2.6.29";
    TOTAL_ACTIVE_ANON             "total_active_anon"             gauge   bytes "2.6.29";
    TOTAL_INACTIVE_FILE           "total_inactive_file"           gauge   bytes "2.6.29";
    TOTAL_ACTIVE_FILE             "total_active_file"             gauge   bytes "2.6.29";
    TOTAL_UNEVICTABLE             "total_unevictable"             gauge   bytes "2.6.29";
    TOTAL_PGFAULT                 "total_pgfault"                 counter count "2.6.39";
    TOTAL_PGMAJFAULT              "total_pgmajfault"              counter count "2.6.39";
    HIERARCHICAL_MEMORY_LIMIT     "hierarchical_memory_limit"     gauge   bytes "2.6.29";
    HIERARCHICAL_MEMSW_LIMIT      "hierarchical_memsw_limit"      gauge   bytes "2.6.29";
}
