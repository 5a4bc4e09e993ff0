//! Every format against recordings made by hand. `tests/golden/report` holds what they print;
//! `INSTA_UPDATE=always cargo test -p flatwater report::` rewrites it.

mod browser;
mod golden;
mod pages;
mod payload;
