//! `sluice top`: a page of what goes on in a pool, written anew every few seconds.
//!
//! | file | what it is about |
//! |---|---|
//! | `sample` | what the admin console says at one moment |
//! | `page` | the page that two samples make |

mod page;
mod sample;

use std::{
    io::{self, IsTerminal, Write},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow};
use clap::Args;
use console::Term;
use postgres::Client;
use sluice_lab::connect::Dsn;

use crate::number::number;

use page::Page;
use sample::{ReadError, Sample};

/// Goes to the beginning of the screen.
const HOME: &str = "\x1b[H";
/// Takes away what is left of a line, and of the screen, from before.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The time up to the first page: nobody wants to look at nothing for long.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);

/// The width of a page that goes to no terminal.
const PLAIN_COLUMNS: usize = 132;
/// The lines of one: enough for twenty databases and as many statements.
const PLAIN_LINES: usize = 50;

/// Arguments of `sluice top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The pool's admin console: postgresql://user@host:6432/pgbouncer, or 'host=… user=… dbname=pgbouncer'; what it
    /// leaves open comes from the PG* variables and ~/.pgpass, as for psql
    #[arg(default_value = "dbname=pgbouncer")]
    dsn: String,
    /// Seconds between two pages
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2, value_parser = number::<u64, _>(1..=3600))]
    interval: u64,
    /// End after so many pages [default: at Ctrl-C]
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<u64, _>(1..))]
    pages: Option<u64>,
}

/// Shows what goes on, up to Ctrl-C.
pub(crate) fn top(args: &TopArgs) -> Result<()> {
    let dsn = Dsn::resolve(Some(&args.dsn), "sluice top")?;
    let mut client = dsn.connect()?;
    let mut before = read(&mut client)?;
    let interval = Duration::from_secs(args.interval);
    let mut shown = 0;
    while args.pages.is_none_or(|pages| shown < pages) {
        thread::sleep(if shown == 0 { interval.min(FIRST_INTERVAL) } else { interval });
        let page = match Sample::read(&mut client) {
            Ok(now) => {
                let page = Page::new(&dsn.to_string(), interval, &before, &now);
                before = now;
                page
            }
            Err(error) => {
                // The pool may come back, and may be another process by then.
                if let Ok(another) = dsn.connect() {
                    client = another;
                }
                Page::of_error(&dsn.to_string(), interval, &error.to_string())
            }
        };
        show(&page)?;
        shown += 1;
    }
    Ok(())
}

/// The first sample shows whether this is a pool's console at all.
fn read(client: &mut Client) -> Result<Sample> {
    Sample::read(client).map_err(|error| match error {
        ReadError::NoConsole => anyhow!(
            "that database is no admin console of a pool; its name is \"pgbouncer\", unless [admin] in the pool's \
             configuration says otherwise"
        ),
        error => anyhow!("the admin console does not answer: {error}"),
    })
}

fn show(page: &Page) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !out.is_terminal() {
        page.lines(PLAIN_COLUMNS, PLAIN_LINES).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        return writeln!(out);
    }
    let (lines, columns) = Term::stdout().size();
    write!(out, "{HOME}")?;
    let lines = page.lines(columns.into(), lines.into());
    for (place, line) in lines.iter().enumerate() {
        // The last line of a screen takes no line end, which would move all of it up.
        let end = if place + 1 < lines.len() { "\r\n" } else { "" };
        write!(out, "{line}{CLEAR_LINE}{end}")?;
    }
    write!(out, "{CLEAR_BELOW}")?;
    out.flush()
}
