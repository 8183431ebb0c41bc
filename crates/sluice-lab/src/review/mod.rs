//! The settings review: every setting of a PostgreSQL server, what it should be for an instance and a workload, and
//! why.
//!
//! | file | what |
//! |---|---|
//! | `rules/*.toml` | the rules: data, a row a setting and version |
//! | `rules.rs`, `reader.rs`, `rule.rs`, `words.rs` | all rules, how they are read, what one is, the words in it |
//! | `formula.rs` | formulas in rules |
//! | `snapshot.rs`, `evidence.rs` | what is known of a server: its settings, its counters |
//! | `server.rs`, `csv_file.rs` | where that comes from: a server, a file |
//! | `instance.rs` | what the recommendations are for |
//! | `assess.rs`, `report.rs` | the rules applied; the outcome |
//! | `remarks.rs`, `remarks_2015.toml` | today's answers to the remarks of 2015 |
//! | `render/` | the outcome as text |
//!
//! It changes nothing on a server, and never recommends what may lose data ([`NEVER`]).

mod assess;
mod csv_file;
mod evidence;
mod formula;
mod instance;
mod reader;
mod remarks;
mod render;
mod report;
mod rule;
mod rules;
mod server;
mod snapshot;
mod words;

pub use self::{
    assess::{AssessError, review},
    csv_file::{CsvError, REMEDY as CSV_REMEDY, read as read_csv},
    evidence::{
        Archiver, Checkpoints, Databases, DeadRows, Evidence, Prepared, Replication, Topic, Wal, Wraparound, Writes,
    },
    formula::{Formula, FormulaError, Outcome, VARIABLES, Variables},
    instance::{Disk, Instance, Place, Workload},
    reader::{NEVER, RuleError, RuleFault},
    remarks::{Agreement, Answer, answers},
    render::{Format, render},
    report::{Remark, Report, Row, Status},
    rule::{Advice, Direction, Kind, Level, MAJORS, Removed, Risk, Rule, SettingContext, Source, Target, Versions},
    rules::Rules,
    server::{ServerError, groups_here, read as read_server},
    snapshot::{SetBy, Setting, Snapshot},
    words::UnknownWord,
};
