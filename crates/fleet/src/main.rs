//! The program `flatwater-fleet`; see `flatwater_fleet::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatwater_fleet::cli::main()
}
