//! /proc/pressure: entity `cpu`, `memory`, `io` or `irq`.

use super::columns;

columns! { FILE: Pressure, from "/proc/pressure";
    SOME_TOTAL_US           "some_total_us"           counter us    "4.20";
    FULL_TOTAL_US           "full_total_us"           counter us    "4.20";
    SOME_AVG10_CENTIPERCENT "some_avg10_centipercent" gauge   cpct  "4.20";
    FULL_AVG10_CENTIPERCENT "full_avg10_centipercent" gauge   cpct  "4.20";
}

columns! { OF_TOOLS: Pressure;
    SOME_AVG60_CENTIPERCENT  "some_avg60_centipercent"  gauge   cpct  "4.20";
    SOME_AVG300_CENTIPERCENT "some_avg300_centipercent" gauge   cpct  "4.20";
    FULL_AVG60_CENTIPERCENT  "full_avg60_centipercent"  gauge   cpct  "4.20";
    FULL_AVG300_CENTIPERCENT "full_avg300_centipercent" gauge   cpct  "4.20";
}
