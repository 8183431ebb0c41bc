//! `sluice bench handshakes`: whole TLS handshakes a second.

use std::path::PathBuf;

use anyhow::Result;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use sluice_lab::{
    handshakes::{Bench, KeyKind},
    process::Interrupt,
    target::Target,
};

use super::say;
use crate::number::number;

/// The targets, unless they are named.
const TARGETS: [&str; 3] = ["pool-tls", "pgbouncer-tls", "straight"];

/// Arguments of `sluice bench handshakes`.
#[derive(Debug, Args)]
pub(crate) struct HandshakesArgs {
    /// Who answers: pool-tls, pgbouncer-tls, straight; the first one is compared with the others; may be given several
    /// times [default: all three]
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<Target>,
    /// The keys of the certificates that they show, separated by commas
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', default_values = KeyKind::ALL.map(KeyKind::name), value_parser = keys())]
    keys: Vec<KeyKind>,
    /// Length of a turn
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = number::<u32, _>(1..=3600))]
    seconds: u32,
    /// Turns of each target
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u32, _>(1..=100))]
    turns: u32,
    /// The folder of PostgreSQL's programs
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,
}

fn keys() -> impl TypedValueParser<Value = KeyKind> {
    let named = |word: String| KeyKind::ALL.into_iter().find(|key| key.name() == word);
    PossibleValuesParser::new(KeyKind::ALL.map(KeyKind::name)).map(move |word| named(word).unwrap_or(KeyKind::Ecdsa))
}

/// Measures and prints, a table for each kind of key.
pub(super) fn handshakes(args: HandshakesArgs) -> Result<()> {
    let targets = match args.targets {
        named if named.is_empty() => TARGETS.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        named => named,
    };
    let interrupt = Interrupt::install()?;
    let see = |what: &str| say_aside!("{what}");
    let bench = Bench {
        targets: &targets,
        seconds: args.seconds,
        turns: args.turns,
        pg_bin: args.pg_bin.as_deref(),
        see: &see,
        interrupt: &interrupt,
    };
    for keys in args.keys {
        say(&format!("{}\n", bench.run(keys)?))?;
    }
    Ok(())
}
