//! Every format with hand-made recordings. `tests/golden/report` holds the expected output;
//! `INSTA_UPDATE=always cargo test -p flatwater report::` rewrites it.

mod browser;
mod golden;
mod pages;
mod payload;
