//! Block devices: one line of /proc/diskstats (Documentation/admin-guide/iostats.rst), in bytes and ns.

use super::columns;

columns! { STAT: Disks, from "/sys/dev/block/N:M/stat";
    READS           "reads"           counter count "2.6.0";
    READS_MERGED    "reads_merged"    counter count "2.6.0";
    READ_BYTES      "read_bytes"      counter bytes "2.6.0";
    READ_NS         "read_ns"         counter ns    "2.6.0";
    WRITES          "writes"          counter count "2.6.0";
    WRITES_MERGED   "writes_merged"   counter count "2.6.0";
    WRITE_BYTES     "write_bytes"     counter bytes "2.6.0";
    WRITE_NS        "write_ns"        counter ns    "2.6.0";
    IN_FLIGHT       "in_flight"       gauge   count "2.6.0";
    IO_NS           "io_ns"           counter ns    "2.6.0"  is "time with at least one request in flight";
    QUEUE_NS        "queue_ns"        counter ns    "2.6.0"  formerly ["weighted_io_ns"] is "time summed over requests: its rate is the mean queue length";
    DISCARDS        "discards"        counter count "4.18";
    DISCARDS_MERGED "discards_merged" counter count "4.18";
    DISCARD_BYTES   "discard_bytes"   counter bytes "4.18";
    DISCARD_NS      "discard_ns"      counter ns    "4.18";
    FLUSHES         "flushes"         counter count "5.5";
    FLUSH_NS        "flush_ns"        counter ns    "5.5";
}

columns! { OF_TOOLS: Disks;
    REQUESTS    "requests"    counter count "2.6.0"  is "reads and writes together, if a tool does not separate them";
    REQUEST_NS  "request_ns"  counter ns    "2.6.0"  is "read_ns and write_ns together, from the same tools";
    FLUSH_BYTES "flush_bytes" counter bytes "2.6.37" is "bytes of flush requests, from trace events";
}
