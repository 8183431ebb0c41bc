//! `sluice convert`: a `pgbouncer.ini` in, a `sluice.toml` out, and what is not carried over.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Result, anyhow};
use clap::Args;
use sluice_config::pgbouncer::{self, Converted};

use crate::output;

/// Arguments of `sluice convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// PgBouncer's configuration
    #[arg(value_name = "PGBOUNCER.INI")]
    from: PathBuf,
    /// The file to write, which must not be there yet [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Converts; what is not carried over goes to standard error.
pub(crate) fn convert(args: &ConvertArgs) -> Result<()> {
    let Converted { toml, notes } = pgbouncer::convert(&args.from).map_err(|report| anyhow!("{report}"))?;
    match &args.output {
        None => {
            let written = io::stdout().lock().write_all(toml.as_bytes());
            // Whoever reads it may have enough.
            if let Err(error) = written.and_then(|()| io::stdout().flush())
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                return Err(anyhow!("cannot write to standard output: {error}"));
            }
        }
        // It may have passwords in it.
        Some(path) => output::write_new(path, &toml, 0o600)?,
    }
    for note in &notes {
        let sign = if note.matters { "not as before" } else { "not needed" };
        say_aside!("{sign}: {note}");
    }
    if let Some(path) = &args.output {
        say_aside!("written to {}; check it with: sluice check -c {0}", path.display());
    }
    Ok(())
}
