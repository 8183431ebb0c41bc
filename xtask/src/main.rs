//! Sluice's own chores, run with `cargo run --release -p xtask -- <chore>` or through `make`.
//!
//! Nothing here is part of what users install, and no crate of the product may depend on it.

mod manual;
mod tidy;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Sluice's own chores", max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Write the manual pages and the shells' completions of the sluice command
    Man {
        /// The folder to write to
        dir: PathBuf,
    },
    /// Check the rules of this repository that no compiler knows
    Tidy,
}

fn main() -> ExitCode {
    let result = match Cli::parse().chore {
        Chore::Man { dir } => manual::write(&dir),
        Chore::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
