//! What PostgreSQL says of settings: before they are stored, and of those that stand in a node's files. Patroni hands on
//! what it can't judge, and PostgreSQL says what it does not take in its log only.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use postgres::{
    Client,
    error::{DbError, SqlState},
};

use super::peer::Reach;

/// For one transaction only, which is the statement.
const TRY: &str = "SELECT pg_catalog.set_config($1, $2, true)";
const TYPE: &str = "SELECT vartype, coalesce(unit, ''), coalesce(min_val, ''), coalesce(max_val, ''), \
                    coalesce(pg_catalog.array_to_string(enumvals, ','), '') \
                    FROM pg_catalog.pg_settings WHERE pg_catalog.lower(name) = pg_catalog.lower($1)";
/// Why a setting could not be applied is said at that level.
const SAY_WHY: &str = "SET client_min_messages = debug3";
/// The function behind `pg_file_settings`: the view itself is the superuser's.
const FILES: &str = "SELECT name, setting, error, sourcefile, sourceline FROM pg_catalog.pg_show_all_file_settings() \
                     WHERE error IS NOT NULL ORDER BY seqno";

/// Settings that name what is in one database: whether it is there says nothing of the others.
const OF_A_DATABASE: [&str; 4] =
    ["default_table_access_method", "default_tablespace", "default_text_search_config", "temp_tablespaces"];

/// PostgreSQL's answer to a value, before that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It takes it.
    Taken,
    /// It does not, in its own words.
    Refused(String),
    /// It can't be set in a session: what is known is its type, if it has the setting at all.
    Untried(Option<TypeTold>),
}

/// The type of a setting's values, as `pg_settings` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeTold {
    /// `bool`, `integer`, `real`, `enum` or `string`.
    pub vartype: String,
    /// The unit of a number, if it has one.
    pub unit: String,
    /// The least number.
    pub least: String,
    /// The largest number.
    pub largest: String,
    /// The words of an enum, with commas between them.
    pub words: String,
}

/// A line in a node's files that PostgreSQL does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misread {
    /// The setting, where the line has one.
    pub name: Option<String>,
    /// Its value.
    pub value: Option<String>,
    /// PostgreSQL's words.
    pub why: String,
    /// The file and the line.
    pub place: String,
}

/// Asks a node's PostgreSQL for its judgement of each value; `None` where none runs.
///
/// # Errors
///
/// It does not answer, or whoever asks is not let in.
pub fn judge(node: Reach<'_>, settings: Vec<(String, String)>) -> io::Result<Option<Vec<Judgement>>> {
    node.ask(move |client| settings.iter().map(|(name, value)| judgement(client, name, value)).collect())
}

fn judgement(client: &mut Client, name: &str, value: &str) -> Result<Judgement, postgres::Error> {
    if OF_A_DATABASE.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(Judgement::Untried(None));
    }
    let error = match client.execute(TRY, &[&name, &value]) {
        Ok(_) => return Ok(Judgement::Taken),
        Err(error) => error,
    };
    match error.as_db_error() {
        Some(said) if is_of_the_value(said.code()) => Ok(Judgement::Refused(words(said))),
        // It is for the files only, or this role may not.
        Some(_) => {
            let row = client.query_opt(TYPE, &[&name])?;
            Ok(Judgement::Untried(row.map(|row| TypeTold {
                vartype: row.get(0),
                unit: row.get(1),
                least: row.get(2),
                largest: row.get(3),
                words: row.get(4),
            })))
        }
        None => Err(error),
    }
}

/// Whether an error is about the value, or about a name that an extension does not have.
fn is_of_the_value(code: &SqlState) -> bool {
    [SqlState::INVALID_PARAMETER_VALUE, SqlState::INVALID_NAME].contains(code)
}

/// Asks a node's PostgreSQL which lines of its files it does not take, as they are now; `None` where none runs.
///
/// # Errors
///
/// It does not answer, or whoever asks may not ask for that.
pub fn misread(node: Reach<'_>) -> io::Result<Option<Vec<Misread>>> {
    let heard = Arc::<Mutex<Vec<DbError>>>::default();
    let hear = {
        let heard = heard.clone();
        move |said| heard.lock().unwrap_or_else(PoisonError::into_inner).push(said)
    };
    node.ask_and_hear(hear, move |client| {
        client.batch_execute(SAY_WHY)?;
        let rows = client.query(FILES, &[])?;
        let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = rows.iter().filter_map(|row| {
            let name: Option<String> = row.get(0);
            let said = name.as_ref().and_then(|name| heard.iter().find(|said| is_about(said, name)));
            // It takes the value, and needs a restart for it, or has another one from its command line.
            if said.is_some_and(|said| *said.code() == SqlState::CANT_CHANGE_RUNTIME_PARAM) {
                return None;
            }
            let why = said.map_or_else(|| row.get(2), words);
            let (file, line): (Option<String>, Option<i32>) = (row.get(3), row.get(4));
            let place = format!("{}, line {}", file.unwrap_or_default(), line.unwrap_or_default());
            Some(Misread { name, value: row.get(1), why, place })
        });
        Ok(lines.collect())
    })
}

/// Whether it is the reason why that setting could not be applied.
fn is_about(said: &DbError, name: &str) -> bool {
    let is_reason = is_of_the_value(said.code()) || *said.code() == SqlState::CANT_CHANGE_RUNTIME_PARAM;
    is_reason && names(said.message(), name)
}

/// Whether a message has that name in it, between whatever its language quotes by.
fn names(message: &str, name: &str) -> bool {
    let mut words = message.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')));
    words.any(|word| word.eq_ignore_ascii_case(name))
}

fn words(said: &DbError) -> String {
    let more = [said.detail(), said.hint()].into_iter().flatten();
    std::iter::once(said.message()).chain(more).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_about_the_setting_that_it_names() {
        assert!(names(r#"invalid value for parameter "TimeZone": "nonsense""#, "timezone"));
        assert!(names("ungültiger Wert für Parameter »a.b«: »x«", "a.b"));
        assert!(!names(r#"invalid value for parameter "maintenance_work_mem": "x""#, "work_mem"));
    }
}
