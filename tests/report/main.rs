//! Every format against recordings made by hand. `tests/golden/report` holds what they print;
//! `INSTA_UPDATE=always cargo test --test report` rewrites it.

#[path = "../common/fixture/mod.rs"]
mod fixture;
mod golden;
