//! Settings from a CSV file, for servers that can't be reached: what `\copy (select * from pg_settings) to FILE csv
//! header` writes, or the report of 2015.
//!
//! The report of 2015 cut values at ten characters: a value of ten may have been longer, and is compared by its
//! beginning.

use std::{collections::HashMap, io::Read};

use csv::{ReaderBuilder, StringRecord};

use super::snapshot::{Setting, Snapshot};

/// The column that tells the report of 2015 from a copy of `pg_settings`.
const REMARK: &str = "reviewer_note";
/// The length at which that report cut its values, in characters.
const CUT_AT: usize = 10;
/// More rows than any server has settings.
const ROWS_MAX: usize = 10_000;

/// A fault in a file of settings. The fault is the file's.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// It is no CSV, or can't be read.
    #[error("{file}: {source}\n{REMEDY}")]
    Csv {
        /// The file.
        file: String,
        /// The reader's error, with the line.
        source: csv::Error,
    },
    /// A column that must be there is not.
    #[error("{file}: its first line names no column {column}\n{REMEDY}")]
    Column {
        /// The file.
        file: String,
        /// The column.
        column: &'static str,
    },
    /// A line whose numbers can't be read.
    #[error("{file}: line {line}: {column} is {value:?}, which is no number\n{REMEDY}")]
    Number {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// The value found there.
        value: String,
    },
    /// A first line, and no others.
    #[error("{file}: there are no settings in it\n{REMEDY}")]
    Empty {
        /// The file.
        file: String,
    },
    /// More lines than there are settings.
    #[error("{file}: more than {ROWS_MAX} lines\n{REMEDY}")]
    TooLong {
        /// The file.
        file: String,
    },
}

/// The way to make such a file.
pub const REMEDY: &str = "make the file in psql by: \\copy (select * from pg_settings) to 'settings.csv' csv header";

/// One line, by its columns.
struct Line<'a> {
    columns: &'a HashMap<String, usize>,
    record: &'a StringRecord,
}

impl Line<'_> {
    fn get(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|index| self.record.get(*index)).unwrap_or_default()
    }
}

/// Reads settings; `file` is its name, for messages and for the report.
///
/// # Errors
///
/// [`CsvError`].
pub fn read(file: &str, input: impl Read) -> Result<Snapshot, CsvError> {
    let fault = |source| CsvError::Csv { file: file.to_owned(), source };
    let mut reader = ReaderBuilder::new().from_reader(input);
    let headers = reader.headers().map_err(fault)?;
    let columns: HashMap<String, usize> =
        headers.iter().enumerate().map(|(index, name)| (name.trim().to_owned(), index)).collect();
    for column in ["name", "setting"] {
        if !columns.contains_key(column) {
            return Err(CsvError::Column { file: file.to_owned(), column });
        }
    }
    let of_2015 = columns.contains_key(REMARK);
    let mut snapshot = Snapshot { origin: file.to_owned(), ..Snapshot::default() };
    for record in reader.records() {
        let record = record.map_err(fault)?;
        if snapshot.settings.len() == ROWS_MAX {
            return Err(CsvError::TooLong { file: file.to_owned() });
        }
        let line = Line { columns: &columns, record: &record };
        snapshot.settings.push(setting(file, &line, of_2015)?);
    }
    if snapshot.settings.is_empty() {
        return Err(CsvError::Empty { file: file.to_owned() });
    }
    note_version(&mut snapshot);
    if of_2015 {
        let cut = "The file's values were cut at ten characters; those of ten are compared by their beginning.";
        snapshot.notes.push(cut.to_owned());
    }
    Ok(snapshot)
}

fn setting(file: &str, line: &Line<'_>, of_2015: bool) -> Result<Setting, CsvError> {
    let number = |column: &'static str| {
        let value = line.get(column);
        let bad = |_| CsvError::Number {
            file: file.to_owned(),
            line: line.record.position().map_or(0, csv::Position::line),
            column,
            value: value.to_owned(),
        };
        if value.is_empty() { Ok(None) } else { value.parse().map(Some).map_err(bad) }
    };
    let value = line.get("setting").to_owned();
    let words = line.get("enumvals").trim_matches(['{', '}']);
    Ok(Setting {
        name: line.get("name").to_owned(),
        maybe_cut: of_2015 && value.chars().count() == CUT_AT,
        value,
        unit: line.get("unit").to_owned(),
        context: line.get("context").parse().ok(),
        source: line.get("source").to_owned(),
        source_file: line.get("sourcefile").to_owned(),
        min: number("min_val")?,
        max: number("max_val")?,
        words: words.split(',').map(|word| word.trim_matches('"').to_owned()).filter(|word| !word.is_empty()).collect(),
        pending_restart: line.get("pending_restart") == "t",
        remark: Some(line.get(REMARK).to_owned()).filter(|remark| !remark.is_empty()),
    })
}

fn note_version(snapshot: &mut Snapshot) {
    snapshot.version = snapshot.get("server_version").map(|setting| setting.value.clone()).unwrap_or_default();
    // 90401 is 9.4.1 and 150014 is 15.14.
    let number = snapshot.amount("server_version_num").map_or(0, |number| number as u32);
    snapshot.major = number / 10_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_pg_settings() {
        let text = "name,setting,unit,category,context,enumvals,min_val,max_val,source,sourcefile,pending_restart\n\
                    shared_buffers,16384,8kB,Memory,postmaster,,16,1073741823,configuration file,/etc/p.conf,t\n\
                    wal_compression,off,,WAL,superuser,\"{pglz,lz4,on,off}\",,,default,,f\n\
                    server_version_num,150014,,P,internal,,,,default,,f\n";
        let snapshot = read("settings.csv", text.as_bytes()).unwrap();
        assert_eq!((snapshot.major, snapshot.settings.len()), (15, 3));
        let shared = snapshot.get("shared_buffers").unwrap();
        assert_eq!((shared.display().as_str(), shared.min, shared.pending_restart), ("128MB", Some(16.0), true));
        assert_eq!(snapshot.get("wal_compression").unwrap().words, ["pglz", "lz4", "on", "off"]);
        assert!(!shared.maybe_cut && snapshot.notes.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (text, expected) in [
            ("", "names no column name"),
            ("setting,unit\n1,s\n", "s.csv: its first line names no column name"),
            ("name,setting\n", "s.csv: there are no settings in it"),
            ("name,setting\na\n", "s.csv: CSV error"),
            ("name,setting,min_val\na,1,x\n", "s.csv: line 2: min_val is \"x\", which is no number"),
        ] {
            let error = read("s.csv", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("\\copy"), "{error}");
        }
    }
}
