//! Free blocks of each zone by order: /proc/buddyinfo.

use super::columns;

columns! { ALL: Buddy, from "/proc/buddyinfo";
    ORDER_0  "order_0"  gauge   count "2.6.0";
    ORDER_1  "order_1"  gauge   count "2.6.0";
    ORDER_2  "order_2"  gauge   count "2.6.0";
    ORDER_3  "order_3"  gauge   count "2.6.0";
    ORDER_4  "order_4"  gauge   count "2.6.0";
    ORDER_5  "order_5"  gauge   count "2.6.0";
    ORDER_6  "order_6"  gauge   count "2.6.0";
    ORDER_7  "order_7"  gauge   count "2.6.0";
    ORDER_8  "order_8"  gauge   count "2.6.0";
    ORDER_9  "order_9"  gauge   count "2.6.0";
    ORDER_10 "order_10" gauge   count "2.6.0";
    ORDER_11 "order_11" gauge   count "2.6.0";
    ORDER_12 "order_12" gauge   count "2.6.0";
    ORDER_13 "order_13" gauge   count "2.6.0";
    ORDER_14 "order_14" gauge   count "2.6.0";
    ORDER_15 "order_15" gauge   count "2.6.0";
}
