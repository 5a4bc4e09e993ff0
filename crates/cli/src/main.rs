//! Entry point of the command; the code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatwater::main()
}
