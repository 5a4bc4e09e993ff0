//! Kernel counters of the target's processes, and counters of workloads and tools over time.

use super::columns;

columns! { OF_THREADS: Workload;
    CPU_NS              "cpu_ns"              counter ns    "2.6.9";
    RUN_DELAY_NS        "run_delay_ns"        counter ns    "2.6.9"  is "runnable, waiting for a CPU";
    MINOR_FAULTS        "minor_faults"        counter count "2.6.0";
    MAJOR_FAULTS        "major_faults"        counter count "2.6.0";
    BLOCK_IO_DELAY_NS   "block_io_delay_ns"   counter ns    "2.6.18";
    SWAP_IN_DELAY_NS    "swap_in_delay_ns"    counter ns    "2.6.18";
    RECLAIM_DELAY_NS    "reclaim_delay_ns"    counter ns    "2.6.27";
    THRASHING_DELAY_NS  "thrashing_delay_ns"  counter ns    "4.20";
    COMPACTION_DELAY_NS "compaction_delay_ns" counter ns    "5.18";
}

columns! { OF_TOOLS: Workload;
    READ_BYTES            "read_bytes"            counter bytes "2.6.20" is "of one process, pidstat -d";
    WRITE_BYTES           "write_bytes"           counter bytes "2.6.20" is "of one process, pidstat -d";
    CANCELLED_WRITE_BYTES "cancelled_write_bytes" counter bytes "2.6.20";
    IO_DELAY_NS           "io_delay_ns"           counter ns    "2.6.18" is "iodelay of pidstat";
    DENTRIES_UNUSED       "dentries_unused"       gauge   count "2.4.0";
    FILE_HANDLES          "file_handles"          gauge   count "2.4.0";
    INODES                "inodes"                gauge   count "2.4.0";
    CACHE_HITS            "cache_hits"            counter pages "2.6.0"  is "page cache, from cachestat";
    CACHE_MISSES          "cache_misses"          counter pages "2.6.0"  is "page cache, from cachestat";
    CACHE_DIRTIED         "cache_dirtied"         counter pages "2.6.0"  is "page cache, DIRTIES of cachestat";
    SYNC_CALLS            "sync_calls"            counter count "2.6.0"  is "sync(), fsync() and similar calls of one \
        program, from syncsnoop";
    SWAP_INS              "swap_ins"              counter pages "2.6.0"  is "pages read back from swap for one program, from swapin";
    SYSTEM_CALLS          "system_calls"          counter count "2.6.0"  is "of one kind or program, from syscount and strace -c";
    SYSTEM_CALL_NS        "system_call_ns"        counter ns    "2.6.0"  is "time in system_calls";
    GC_PAUSES             "gc_pauses"             counter count "2.6.0"  is "pauses of a JVM's garbage collector";
    GC_PAUSE_NS           "gc_pause_ns"           counter ns    "2.6.0"  is "wall time of gc_pauses";
    GC_USER_NS            "gc_user_ns"            counter ns    "2.6.0"  is "user CPU time of the collector's threads in gc_pauses";
    GC_SYSTEM_NS          "gc_system_ns"          counter ns    "2.6.0"  is "kernel CPU time of the collector's threads in gc_pauses";
}
