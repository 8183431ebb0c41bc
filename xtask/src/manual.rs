//! Manual pages and completions of the `sluice` command, made of its own command line.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use clap_complete::{Shell, generate_to};

/// Writes `man/*.1` and `completions/*` below a folder.
pub(crate) fn write(dir: &Path) -> Result<()> {
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    for dir in [&man, &completions] {
        fs::create_dir_all(dir).with_context(|| format!("can't create {}", dir.display()))?;
    }
    clap_mangen::generate_to(sluice::command_line(), &man).context("can't write the manual pages")?;
    let mut command = sluice::command_line();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "sluice", &completions).context("can't write the completions")?;
    }
    Ok(())
}
