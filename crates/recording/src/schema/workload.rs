//! What the kernel counts of the target's own processes, and what a workload or a tool counts over time.

use super::columns;

columns! { OF_THREADS: Workload;
    CPU_NS              "cpu_ns"              counter ns    "2.6.9";
    RUN_DELAY_NS        "run_delay_ns"        counter ns    "2.6.9"  is "ready to run, waiting for a CPU";
    MINOR_FAULTS        "minor_faults"        counter count "2.6.0";
    MAJOR_FAULTS        "major_faults"        counter count "2.6.0";
    BLOCK_IO_DELAY_NS   "block_io_delay_ns"   counter ns    "2.6.18";
    SWAP_IN_DELAY_NS    "swap_in_delay_ns"    counter ns    "2.6.18";
    RECLAIM_DELAY_NS    "reclaim_delay_ns"    counter ns    "2.6.27";
    THRASHING_DELAY_NS  "thrashing_delay_ns"  counter ns    "4.20";
    COMPACTION_DELAY_NS "compaction_delay_ns" counter ns    "5.18";
}

columns! { OF_TOOLS: Workload;
    READ_BYTES            "read_bytes"            counter bytes "2.6.20" is "of a process, pidstat -d";
    WRITE_BYTES           "write_bytes"           counter bytes "2.6.20" is "of a process, pidstat -d";
    CANCELLED_WRITE_BYTES "cancelled_write_bytes" counter bytes "2.6.20";
    IO_DELAY_NS           "io_delay_ns"           counter ns    "2.6.18" is "iodelay of pidstat";
    DENTRIES_UNUSED       "dentries_unused"       gauge   count "2.4.0";
    FILE_HANDLES          "file_handles"          gauge   count "2.4.0";
    INODES                "inodes"                gauge   count "2.4.0";
}
