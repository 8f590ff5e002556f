//! The `slotline` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotline_cli::run(std::env::args_os()).into()
}
