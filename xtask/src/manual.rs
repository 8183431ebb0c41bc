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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        for file in ["man/sluice.1", "man/sluice-serve.1", "man/sluice-bench-run.1"] {
            let page = fs::read_to_string(dir.path().join(file)).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{file}");
        }
        for file in ["sluice.bash", "_sluice", "sluice.fish"] {
            let text = fs::read_to_string(dir.path().join("completions").join(file)).unwrap();
            assert!(text.contains("serve"), "{file}");
        }
    }
}
