//! Entry of the command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatwater::main()
}
