//! `sluice review`: arguments in, a report out.
//!
//! It reads a server or a file and writes to standard output or a file; it changes nothing on a server.

use std::{
    error::Error,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Result, anyhow};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use sluice_lab::{
    connect::Dsn,
    review::{self, Disk, Format, Instance, Place, Rules, Snapshot, Workload},
};
use sluice_units::{Dimension, Quantity, Unit};

use crate::{number::number, output};

/// Arguments of `sluice review`.
#[derive(Debug, Args)]
pub(crate) struct ReviewArgs {
    /// The server: postgresql://user@host:5432/database, 'host=… user=…', or a database's name; what it leaves open
    /// comes from the PG* variables and ~/.pgpass, as for psql
    dsn: Option<String>,
    /// Review a file instead: \copy (select * from pg_settings) to FILE csv header
    #[arg(long, value_name = "FILE", conflicts_with = "dsn")]
    csv: Option<PathBuf>,
    /// Main memory for PostgreSQL, for example 16GB [default: what the server may use, if it is on this machine]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,
    /// Processors [default: what the server may use, if it is on this machine]
    #[arg(long, value_name = "N", value_parser = number::<u32, _>(1..=4096))]
    cpus: Option<u32>,
    /// Connections at once [default: max_connections]
    #[arg(long, value_name = "N", value_parser = number::<u32, _>(1..=262_143))]
    connections: Option<u32>,
    /// Operations a second that the disk does [default: as many as are wanted]
    #[arg(long, value_name = "N", value_parser = number::<u32, _>(1..))]
    iops: Option<u32>,
    /// What the data lie on
    #[arg(long, default_value = "ssd", value_parser = word::<Disk>(Disk::WORDS))]
    disk: Disk,
    /// What the database is used for
    #[arg(long, default_value = "mixed", value_parser = word::<Workload>(Workload::WORDS))]
    workload: Workload,
    /// Clients come through a connection pool
    #[arg(long)]
    pool: bool,
    /// Show every setting, not only what should change
    #[arg(long)]
    all: bool,
    /// How to write it
    #[arg(long, default_value = "table", value_parser = word::<Format>(Format::WORDS))]
    format: Format,
    /// The file to write, which must not be there yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Reviews a server or a file.
pub(crate) fn review(args: ReviewArgs) -> Result<()> {
    let rules = Rules::built_in()?;
    let answers = review::answers()?;
    let (snapshot, place) = read(&args)?;
    let instance = args.instance().or_those_of(place);
    let report = review::review(&rules, &answers, &snapshot, instance)?;
    let text = review::render(&report, args.format, args.all)?;
    write(&text, args.output.as_deref())
}

/// The settings, and where their server runs.
fn read(args: &ReviewArgs) -> Result<(Snapshot, Place)> {
    if let Some(path) = &args.csv {
        let file = File::open(path);
        let file = file.map_err(|error| anyhow!("cannot read {}: {error}\n{}", path.display(), review::CSV_REMEDY))?;
        return Ok((review::read_csv(&path.display().to_string(), file)?, Place::Elsewhere));
    }
    let dsn = Dsn::resolve(args.dsn.as_deref(), "sluice review")?;
    let mut client = dsn.connect()?;
    let snapshot = review::read_server(&mut client, dsn.to_string())?;
    let place = if dsn.is_local() { Place::Here(review::groups_here(&mut client)) } else { Place::Elsewhere };
    Ok((snapshot, place))
}

fn write(text: &str, output: Option<&Path>) -> Result<()> {
    match output {
        Some(path) => output::write_new(path, text, 0o666),
        None => match io::stdout().write_all(text.as_bytes()) {
            // A pager that was left early.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done.map_err(|error| anyhow!("cannot write to standard output: {error}")),
        },
    }
}

impl ReviewArgs {
    fn instance(&self) -> Instance {
        Instance {
            memory_bytes: self.memory,
            cores: self.cpus,
            connections: self.connections,
            iops: self.iops,
            disk: self.disk,
            workload: self.workload,
            pool: self.pool,
        }
    }
}

/// One of a type's words; help lists them.
fn word<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

/// A size in PostgreSQL's units, of 64 MB at least.
fn parse_memory(text: &str) -> Result<u64, &'static str> {
    let size = Quantity::parse(text, Unit::PLAIN).filter(|size| size.dimension == Dimension::Bytes);
    let bytes = size.map(|size| size.amount as u64).filter(|bytes| *bytes >= 64 << 20);
    bytes.ok_or("a size with its unit is needed, 64MB or more: 512MB, 16GB, 1TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory() {
        for (text, bytes) in
            [("1GB", Some(1 << 30)), ("1536MB", Some(1536 << 20)), ("1", None), ("8kB", None), ("2min", None)]
        {
            assert_eq!(parse_memory(text).ok(), bytes, "{text}");
        }
    }
}
