//! Files of /proc and /sys, once or in a series with a time before each.

mod zoneinfo;

pub use zoneinfo::ZONEINFO;
