//! `flatwater-fleet`: one verb for each thing that is done with a fleet (`flatwater_fleet::cli`).

use std::process::ExitCode;

fn main() -> ExitCode {
    flatwater_fleet::cli::main()
}
