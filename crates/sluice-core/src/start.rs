//! The settings that a client asks for in its StartupMessage.
//!
//! In transaction mode they follow it from server to server, and are put in place in the order in which PostgreSQL does
//! that: those in `options` first, then the parameters. One may keep a part of what an earlier one has said, or of what
//! the configuration says (`DateStyle`), and the first that is refused is the one that the client hears of. In session
//! mode the client's server is opened with them, as the client has sent them, and PostgreSQL does the rest.

use std::sync::Arc;

use sluice_wire::{ErrorResponse, sqlstate, startup::SessionRequest};

use crate::{
    date_style::DateStyle,
    profile::{Profile, Scope, Settings, put_set_configs},
};

/// The assignments of a StartupMessage, with names as they were written and values in the encoding of the server's
/// database. Shared and immutable; cheap to clone.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub struct Start(Arc<[Assignment]>);

type Assignment = (Box<str>, Box<[u8]>);

const SEED: &str = "seed";

const DATE_STYLE: &str = "datestyle";

/// The settings that DISCARD ALL does not bring back to what a session began with, or that count for a server which has
/// no client.
const NOT_DISCARDED: [&str; 6] = [
    "role",
    "session_authorization",
    SEED,
    "idle_session_timeout",
    "session_preload_libraries",
    "local_preload_libraries",
];

/// The parameters of a StartupMessage, besides user and database, as they were sent. Cheap to clone.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct StartupParameters(Option<Arc<[Parameter]>>);

/// A name and a value.
type Parameter = (Box<str>, Box<str>);

impl StartupParameters {
    /// None.
    pub const NONE: Self = Self(None);

    /// Those of a client.
    pub fn of(request: &SessionRequest) -> Self {
        let own = |(name, _): &&(String, String)| {
            !matches!(name.as_str(), "user" | "database" | "replication") && !name.starts_with("_pq_.")
        };
        let own = request.parameters.iter().filter(own).map(|(name, value)| (&**name, &**value));
        let parameters: Arc<[_]> = own.map(|(name, value)| (name.into(), value.into())).collect();
        Self((!parameters.is_empty()).then_some(parameters))
    }

    /// A `DateStyle` that says nothing: a server that is opened with it reports the configuration's, whatever its role or
    /// its database begins with.
    pub fn of_date_style() -> Self {
        let says_nothing: Parameter = ("DateStyle".into(), "".into());
        Self(Some(Arc::new([says_nothing])))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Their names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|parameters| parameters.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// Whether DISCARD ALL brings a session back to how it began with these, so that it can serve another client's.
    pub fn can_come_again(&self) -> bool {
        self.iter().all(|(name, value)| match name {
            "options" => {
                // Names may be written with hyphens and backslashes there, and anything may stand around them.
                let options = value.to_ascii_lowercase().replace('-', "_").replace('\\', "");
                !NOT_DISCARDED.iter().any(|setting| options.contains(setting))
            }
            name => !NOT_DISCARDED.iter().any(|setting| name.eq_ignore_ascii_case(setting)),
        })
    }
}

impl Start {
    /// The assignments of a StartupMessage, or what PostgreSQL says of its `options`.
    pub fn of(request: &SessionRequest) -> Result<Self, ErrorResponse> {
        let mut assignments = Vec::new();
        if let Some(options) = request.get("options") {
            read_options(options, &mut assignments)?;
        }
        for (name, value) in &request.parameters {
            let is_setting = !matches!(name.as_str(), "user" | "database" | "replication" | "options");
            if is_setting && !name.starts_with("_pq_.") {
                assignments.push((name.as_str().into(), value.as_bytes().into()));
            }
        }
        Ok(Self(assignments.into()))
    }

    /// The same with each `DateStyle` as PostgreSQL completes it, where that is known: from the configuration's on,
    /// since what a role or a database begins with ranks below what a client asks for.
    #[must_use]
    pub fn completed(self, configured: Option<DateStyle>) -> Self {
        if !self.has_date_style() {
            return self;
        }
        let mut before = Some(configured.unwrap_or_default());
        let complete = |(name, value): &Assignment| {
            if !name.eq_ignore_ascii_case(DATE_STYLE) {
                return (name.clone(), value.clone());
            }
            before = before.and_then(|before| before.assign(value));
            let complete = before.filter(|style| style.is_complete());
            let value = complete.map_or_else(|| value.clone(), |style| style.to_string().into_bytes().into());
            (name.clone(), value)
        };
        Self(self.0.iter().map(complete).collect())
    }

    /// Whether it says a part of `DateStyle`, and what the rest is hangs on the configuration.
    pub fn leaves_date_style_open(&self) -> bool {
        let mut values = self.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case(DATE_STYLE));
        let last = values.try_fold(DateStyle::default(), |before, (_, value)| before.assign(value));
        // One that PostgreSQL refuses ends the log-in.
        self.has_date_style() && last.is_some_and(|style| !style.is_complete())
    }

    fn has_date_style(&self) -> bool {
        self.0.iter().any(|(name, _)| name.eq_ignore_ascii_case(DATE_STYLE))
    }

    /// The settings, each as it was written last; PostgreSQL has the last word on what that comes to. A seed is none of
    /// them: it sows nothing at a session's start.
    pub fn profile(&self) -> Profile {
        let mut settings: Settings =
            self.0.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        settings.remove(SEED);
        Profile::new(settings)
    }

    /// Whether the query gives the server a seed.
    pub fn sows(&self) -> bool {
        self.0.iter().any(|(name, _)| name.eq_ignore_ascii_case(SEED))
    }

    /// The query that makes the assignments one after another, in ASCII; `None` where there are none.
    pub fn sql(&self) -> Option<String> {
        let mut sql = String::new();
        put_set_configs(&mut sql, self.0.iter().map(|(name, value)| (&**name, Some(&**value))), Scope::Session);
        (!sql.is_empty()).then_some(sql)
    }
}

/// Reads `-c name=value`, `--name=value` and the switches for single settings, with `\` before a space that is part of
/// a value (PostgreSQL documentation, 20.1.3 and `postgres`; `process_postgres_switches`).
fn read_options(options: &str, assignments: &mut Vec<Assignment>) -> Result<(), ErrorResponse> {
    let mut words = split_words(options).into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            // It ends the switches, and nothing else may follow.
            return words.next().map_or(Ok(()), |word| Err(invalid(&word)));
        }
        if let Some(assignment) = word.strip_prefix("--") {
            assignments.push(assignment_of(assignment, "--")?);
            continue;
        }
        let mut letters = word.strip_prefix('-').filter(|letters| !letters.is_empty()).ok_or_else(|| invalid(&word))?;
        while let Some(letter) = letters.chars().next() {
            letters = &letters[letter.len_utf8()..];
            if letter == 'e' {
                assignments.push(("datestyle".into(), b"euro"[..].into()));
                continue;
            }
            if !matches!(letter, 'c' | 'S') {
                return Err(invalid(&word));
            }
            // Its argument is the rest of the word, or the next one.
            let argument = match letters {
                "" => words.next().ok_or_else(|| invalid(&word))?,
                rest => rest.to_owned(),
            };
            assignments.push(match letter {
                'S' => ("work_mem".into(), argument.into_bytes().into()),
                _ => assignment_of(&argument, "-c ")?,
            });
            break;
        }
    }
    Ok(())
}

fn assignment_of(text: &str, switch: &str) -> Result<Assignment, ErrorResponse> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        ErrorResponse::fatal(sqlstate::SYNTAX_ERROR, format!("{switch}{text} requires a value")).routine(READS_OPTIONS)
    })?;
    Ok((name.replace('-', "_").into(), value.as_bytes().into()))
}

const READS_OPTIONS: &str = "process_postgres_switches";

fn invalid(word: &str) -> ErrorResponse {
    let message = format!("invalid command-line argument for server process: {word}");
    ErrorResponse::fatal(sqlstate::SYNTAX_ERROR, message)
        .hint("Try \"postgres --help\" for more information.")
        .routine(READS_OPTIONS)
}

/// The words of a text, with `\` before a character that is part of one whatever it is (`pg_split_opts`). One that is
/// only begun by a `\` is empty, and is there.
fn split_words(text: &str) -> Vec<String> {
    let is_space = |c: char| c.is_ascii_whitespace() || c == '\x0b';
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| is_space(*c)).is_some() {}
        if chars.peek().is_none() {
            return words;
        }
        let mut word = String::new();
        while let Some(c) = chars.next_if(|c| !is_space(*c)) {
            match c {
                '\\' => word.extend(chars.next()),
                c => word.push(c),
            }
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use sluice_wire::startup::ProtocolVersion;

    use super::*;

    fn start(parameters: &[(&str, &str)]) -> Result<Start, ErrorResponse> {
        let parameters = parameters.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Start::of(&SessionRequest { version: ProtocolVersion::V3_0, parameters })
    }

    #[test]
    fn assignments_keep_their_order_with_those_of_options_first() {
        let start = start(&[
            ("user", "app"),
            ("DateStyle", "ISO"),
            ("options", r"-c geqo=off --work-mem=64MB -cDateStyle=SQL,\ DMY -eS 7MB"),
            ("geqo", "on"),
        ])
        .expect("they are valid");
        let call = |name: &str, value: &str| format!("pg_catalog.set_config('{name}','{value}',false)");
        let calls = [
            call("geqo", "off"),
            call("work_mem", "64MB"),
            call("DateStyle", "SQL, DMY"),
            call("datestyle", "euro"),
            call("work_mem", "7MB"),
            call("DateStyle", "ISO"),
            call("geqo", "on"),
        ];
        assert_eq!(start.sql(), Some(format!("SELECT {}", calls.join(","))));
        assert_eq!(start.profile().get("datestyle"), Some(&b"ISO"[..]));
        assert_eq!(start.profile().get("work_mem"), Some(&b"7MB"[..]));
    }

    #[test]
    fn a_date_style_is_completed_from_the_configurations() {
        let configured = DateStyle::read("ISO, MDY");
        for (parameters, is_open, known, unknown) in [
            (&[("DateStyle", "ISO")][..], true, "ISO, MDY", "ISO"),
            (&[("DateStyle", "ISO"), ("options", "-c datestyle=DMY")], false, "ISO, DMY", "ISO, DMY"),
            (&[("DateStyle", "German")], false, "German, DMY", "German, DMY"),
            (&[("options", "-e")], true, "ISO, DMY", "euro"),
            (&[("DateStyle", "none")], false, "none", "none"),
        ] {
            let start = start(parameters).expect("it is valid");
            assert_eq!(start.leaves_date_style_open(), is_open, "{parameters:?}");
            for (configured, expected) in [(configured, known), (None, unknown)] {
                let completed = start.clone().completed(configured);
                let value = completed.profile().get("datestyle").map(<[u8]>::to_vec);
                assert_eq!(value.as_deref(), Some(expected.as_bytes()), "{parameters:?}");
                assert_eq!(completed.leaves_date_style_open(), is_open && configured.is_none(), "{parameters:?}");
            }
        }
        assert!(!start(&[("geqo", "off")]).expect("it is valid").leaves_date_style_open());
    }

    #[test]
    fn as_many_as_a_packet_holds_can_be_set() {
        let columns = |count: usize| {
            let parameters: Vec<_> = (0..count).map(|_| ("a.b", "")).collect();
            let sql = start(&parameters).expect("they are valid").sql().expect("there are some");
            sql.replace("pg_catalog.set_config('a.b','',false)", "f")
        };
        let row = |count: usize| vec!["f"; count].join(",");
        assert_eq!(columns(1000), format!("SELECT {}", row(1000)));
        assert_eq!(columns(1001), format!("SELECT {},ROW(f)", row(1000)));
        assert_eq!(columns(2500), format!("SELECT {},ROW({}),ROW({})", row(1000), row(1000), row(500)));
    }

    #[test]
    fn what_a_session_may_begin_with_again_is_what_discard_all_goes_back_to() {
        for (parameters, again) in [
            (&[][..], true),
            (&[("application_name", "role"), ("options", r"-c work_mem=7MB -c app.x=6 --geqo=off")][..], true),
            (&[("Role", "app")][..], false),
            (&[("options", "--idle-session-timeout=5s")][..], false),
            (&[("options", r"-c sE\ed=0.5")][..], false),
        ] {
            let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let request = SessionRequest { version: ProtocolVersion::V3_0, parameters };
            assert_eq!(StartupParameters::of(&request).can_come_again(), again, "{request:?}");
        }
    }

    #[test]
    fn nothing_asked_for_is_nothing_to_do() {
        for asked in [&[("user", "app"), ("database", "app")][..], &[("options", "--")][..]] {
            assert_eq!(start(asked).expect("it is valid").sql(), None);
        }
    }

    #[test]
    fn options_are_refused_in_postgresqls_words() {
        for (options, message) in [
            ("-x", "invalid command-line argument for server process: -x"),
            ("geqo=off", "invalid command-line argument for server process: geqo=off"),
            ("-c", "invalid command-line argument for server process: -c"),
            (r"\", "invalid command-line argument for server process: "),
            (r"-c \", "-c  requires a value"),
            ("-c geqo=off\x0b-x", "invalid command-line argument for server process: -x"),
            ("-c geqo", "-c geqo requires a value"),
            ("--geqo", "--geqo requires a value"),
            ("-c geqo=off -- -c geqo=on", "invalid command-line argument for server process: -c"),
        ] {
            let error = start(&[("options", options)]).expect_err(options);
            assert_eq!((error.message.as_str(), &*error.code), (message, "42601"));
        }
    }
}
