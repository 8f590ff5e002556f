//! `slotline demo` as a separate program, which builds quickly.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use slotline_demo::{Demo, program};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Debug, Parser)]
#[command(
    name = "slotline-demo",
    version,
    about = "Trains a small network on digits; slotline-cli has the other commands"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a small network on the bundled digits, and print its accuracy and the loader's throughput
    Demo(Demo),
}

fn main() -> ExitCode {
    let run = |Cli { command: Command::Demo(demo) }| {
        tracing_subscriber::registry().with(program::warnings()).init();
        demo.run()
    };
    program::run(std::env::args_os(), run, |error| error).into()
}
