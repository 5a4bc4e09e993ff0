//! CPU time and scheduler counters: /proc/stat. Entity: `all` or `cpuN`.

use super::columns;

columns! { STAT: Cpu, from "/proc/stat";
    USER_NS       "user_ns"       counter ns    "2.4.0";
    NICE_NS       "nice_ns"       counter ns    "2.4.0";
    SYSTEM_NS     "system_ns"     counter ns    "2.4.0";
    IDLE_NS       "idle_ns"       counter ns    "2.4.0";
    IOWAIT_NS     "iowait_ns"     counter ns    "2.6.0";
    IRQ_NS        "irq_ns"        counter ns    "2.6.0";
    SOFTIRQ_NS    "softirq_ns"    counter ns    "2.6.0";
    STEAL_NS      "steal_ns"      counter ns    "2.6.11";
    GUEST_NS      "guest_ns"      counter ns    "2.6.24";
    GUEST_NICE_NS "guest_nice_ns" counter ns    "2.6.33";
    INTR          "intr"          counter count "2.4.0";
    CTXT          "ctxt"          counter count "2.4.0";
    PROCESSES     "processes"     counter count "2.4.0";
    PROCS_RUNNING "procs_running" gauge   count "2.6.0";
    PROCS_BLOCKED "procs_blocked" gauge   count "2.6.0";
    SOFTIRQ       "softirq"       counter count "2.6.31";
}

columns! { OF_TOOLS: Cpu;
    TASKS        "tasks"        gauge   count "2.4.0"  is "plist-sz of sar";
    LOAD1_CENTI  "load1_centi"  gauge   centi "2.4.0"  is "load average over 1 min, times 100";
    LOAD5_CENTI  "load5_centi"  gauge   centi "2.4.0"  is "load average over 5 min, times 100";
    LOAD15_CENTI "load15_centi" gauge   centi "2.4.0"  is "load average over 15 min, times 100";
}
