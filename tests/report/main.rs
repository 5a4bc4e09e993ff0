//! Every format against recordings made by hand. `tests/golden/report` holds what they print;
//! `INSTA_UPDATE=always cargo test --test report` rewrites it.

mod browser;
#[path = "../common/fixture/mod.rs"]
mod fixture;
mod golden;
mod pages;
mod payload;
