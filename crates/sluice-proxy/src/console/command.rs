//! The commands of the admin console.

use std::time::Duration;

use sluice_control::access::Rights;
use sluice_wire::{
    ErrorResponse,
    message::{framed, put_cstr},
    sqlstate,
};

use super::clusters::{WAIT, longest};

/// The longest time that a command may name.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// A command. A database is all of them where none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// An empty text.
    Nothing,
    /// A SET that has no effect.
    Set,
    Show(Show),
    Reload,
    Pause(Option<String>),
    Resume(Option<String>),
    Reconnect(Option<String>),
    Kill(String),
    Disable(String),
    Enable(String),
    WaitClose(Option<String>),
    Drain,
    /// The cluster, the time that transactions have to end, and the time for which it holds at most.
    Hold(String, Duration, Duration),
    Release(String),
    Shutdown,
}

/// A table that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    Help,
    Version,
    Databases,
    Pools,
    Clusters,
    Nodes,
    Clients,
    Servers,
    Pins,
    Waits,
    Statements,
    Stats,
    StatsTotals,
    StatsAverages,
    Totals,
    Sockets,
    ActiveSockets,
    Lists,
    Users,
    Config,
    DnsHosts,
    DnsZones,
    /// One of [`SETTINGS`].
    Setting(&'static (&'static str, &'static str)),
}

/// Each table with its name.
const SHOWN: [(&str, Show); 22] = [
    ("help", Show::Help),
    ("version", Show::Version),
    ("databases", Show::Databases),
    ("pools", Show::Pools),
    ("clusters", Show::Clusters),
    ("nodes", Show::Nodes),
    ("clients", Show::Clients),
    ("servers", Show::Servers),
    ("pins", Show::Pins),
    ("waits", Show::Waits),
    ("statements", Show::Statements),
    ("stats", Show::Stats),
    ("stats_totals", Show::StatsTotals),
    ("stats_averages", Show::StatsAverages),
    ("totals", Show::Totals),
    ("sockets", Show::Sockets),
    ("active_sockets", Show::ActiveSockets),
    ("lists", Show::Lists),
    ("users", Show::Users),
    ("config", Show::Config),
    ("dns_hosts", Show::DnsHosts),
    ("dns_zones", Show::DnsZones),
];

/// The settings that drivers make and the console ignores, with the values that it shows: both as PgBouncer's
/// (`fake_param_list` in its `admin.c`).
static SETTINGS: [(&str, &str); 5] = [
    ("client_encoding", "UTF-8"),
    ("datestyle", "ISO"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("timezone", "GMT"),
];

impl Command {
    /// Reads a command, and sees that whoever gives it may.
    pub(super) fn parse(text: &str, rights: Rights) -> Result<Self, ErrorResponse> {
        if sets_ignored(text) {
            return Ok(Self::Set);
        }
        let mut words = words(text.trim().trim_end_matches(';').trim_end()).into_iter();
        let (verb, second, more) = (words.next(), words.next(), words.next());
        let fourth = words.next();
        // PgBouncer takes any word in double quotes.
        let (first, database) = (verb.and_then(unquoted), second.and_then(unquoted));
        let is_no_name = first.is_some() != verb.is_some() || database.is_some() != second.is_some();
        let command = match (first.map(|it| it.to_ascii_lowercase()).as_deref(), database.as_deref(), more) {
            _ if is_no_name => None,
            (None, ..) => Some(Self::Nothing),
            (Some("show"), Some(name), None) => {
                let known = SHOWN.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                let setting = || SETTINGS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(Show::Setting);
                known.map(|(_, show)| *show).or_else(setting).map(Self::Show)
            }
            (Some("reload"), None, None) => Some(Self::Reload),
            (Some("pause"), _, None) => Some(Self::Pause(database)),
            (Some("resume"), _, None) => Some(Self::Resume(database)),
            (Some("reconnect"), _, None) => Some(Self::Reconnect(database)),
            (Some("kill"), Some(_), None) => database.map(Self::Kill),
            (Some("disable"), Some(_), None) => database.map(Self::Disable),
            (Some("enable"), Some(_), None) => database.map(Self::Enable),
            (Some(verb @ ("kill" | "disable" | "enable")), None, None) => {
                let error = ErrorResponse::error(sqlstate::SYNTAX_ERROR, "a database is required");
                // Newer ones of PgBouncer's mean all.
                let is_kill = verb == "kill";
                return Err(if is_kill { error.hint("DRAIN has the clients of all of them leave.") } else { error });
            }
            (Some("wait_close"), _, None) => Some(Self::WaitClose(database)),
            (Some("drain"), None, None) => Some(Self::Drain),
            (Some("hold"), Some(_), _) => {
                let times = time(more, WAIT).and_then(|wait| Some((wait, time(fourth, longest(wait))?)));
                database.zip(times).map(|(cluster, (wait, longest))| Self::Hold(cluster, wait, longest))
            }
            (Some("release"), Some(_), None) => database.map(Self::Release),
            (Some("shutdown"), None, None) => Some(Self::Shutdown),
            _ => None,
        };
        let is_over = words.next().is_none() && (fourth.is_none() || matches!(command, Some(Self::Hold(..))));
        let command = command.filter(|_| is_over).ok_or_else(|| {
            let of_pgbouncers = verb.and_then(|verb| absent(verb, second, more));
            of_pgbouncers.unwrap_or_else(|| {
                let error = format!("invalid command '{}', use SHOW HELP;", text.trim());
                ErrorResponse::error(sqlstate::SYNTAX_ERROR, error)
            })
        })?;
        if command.changes_something() && rights != Rights::All {
            let hint = "Name the user in \"users\" under [admin] in the pool's configuration.";
            return Err(ErrorResponse::error(sqlstate::INSUFFICIENT_PRIVILEGE, "admin access needed").hint(hint));
        }
        Ok(command)
    }

    /// Whether it is more than a look.
    pub(super) fn changes_something(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Set | Self::Show(_))
    }
}

/// The error for a command of PgBouncer's that is not there, with what to do instead.
fn absent(verb: &str, second: Option<&str>, more: Option<&str>) -> Option<ErrorResponse> {
    let (verb, second) = (verb.to_ascii_uppercase(), second.map(str::to_ascii_uppercase));
    let hint = match (&*verb, second.as_deref(), more) {
        ("SET", Some(_), _) => "Change the configuration file, and have it read by RELOAD.".to_owned(),
        ("SUSPEND", None, _) => {
            "SIGUSR2 has a new process take over without that; PAUSE has clients wait for their servers.".to_owned()
        }
        ("SHOW", Some("FDS"), None) => {
            "SHOW SOCKETS lists the connections; SIGUSR2 hands the sockets that are listened on to a new process."
                .to_owned()
        }
        ("SHOW", Some("MEM"), None) => {
            let process = std::process::id();
            format!("There are no such caches: VmRSS in /proc/{process}/status is the memory of the whole process.")
        }
        ("SHOW", Some("STATE"), None) => "SHOW DATABASES says which of them are paused or disabled.".to_owned(),
        ("SHOW", Some("PEERS" | "PEER_POOLS"), None) => "There are no peers: one process uses all cores.".to_owned(),
        ("KILL_CLIENT", ..) => "KILL takes a database and disconnects all its clients. Where the client has a server, \
                                pg_terminate_backend in PostgreSQL ends both: SHOW SERVERS has its process number \
                                (remote_pid), and the client's ptr as link."
            .to_owned(),
        ("SHUTDOWN", Some("WAIT_FOR_SERVERS" | "WAIT_FOR_CLIENTS"), None) => {
            "SHUTDOWN lets transactions finish for up to shutdown_grace. DRAIN, before it, waits for them however long \
             they take: each client is disconnected when it has none open."
                .to_owned()
        }
        _ => return None,
    };
    let name = match &*verb {
        "SHOW" | "SHUTDOWN" => format!("{verb} {}", second.unwrap_or_default()),
        _ => verb,
    };
    let error = format!("{name} of PgBouncer's is not supported");
    Some(ErrorResponse::error(sqlstate::FEATURE_NOT_SUPPORTED, error).hint(hint))
}

/// Whether a text is a SET of one of [`SETTINGS`].
fn sets_ignored(text: &str) -> bool {
    let text = text.trim().trim_end_matches(';').trim_end();
    let Some((set, rest)) = text.split_once(char::is_whitespace) else { return false };
    let rest = rest.trim_start();
    let (name, rest) = rest.split_at(rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len()));
    let rest = rest.trim_start();
    let value = rest.strip_prefix('=').or_else(|| {
        let (to, value) = rest.split_at_checked(2)?;
        (to.eq_ignore_ascii_case("to") && value.starts_with(char::is_whitespace)).then_some(value)
    });
    set.eq_ignore_ascii_case("set")
        && SETTINGS.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
        && value.is_some_and(|value| !value.trim().is_empty())
}

/// The words of a text, of which one in double quotes may have blanks.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let mut is_quoted = false;
        let end = rest.find(|c: char| {
            is_quoted ^= c == '"';
            !is_quoted && c.is_whitespace()
        });
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

/// A time in seconds, or that one where none is given; `None`: it is no time.
fn time(word: Option<&str>, otherwise: Duration) -> Option<Duration> {
    let Some(word) = word else { return Some(otherwise) };
    let seconds = word.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| *time <= TIME_MAX)
}

/// A name as it was meant, in double quotes or as it stands, if it is one.
fn unquoted(name: &str) -> Option<String> {
    let Some(rest) = name.strip_prefix('"') else {
        return (!name.contains(['"', '\''])).then(|| name.to_owned());
    };
    let within = rest.strip_suffix('"')?;
    let is_name = !within.is_empty() && !within.replace("\"\"", "").contains('"');
    is_name.then(|| within.replace("\"\"", "\""))
}

/// Writes the commands there are as a notice, as PgBouncer does.
pub(super) fn put_help(out: &mut Vec<u8>) {
    let shown: Vec<_> = SHOWN.iter().map(|(name, _)| name.to_ascii_uppercase()).collect();
    let detail = format!(
        "\n\tSHOW {}\n\tRELOAD\n\tPAUSE [<db>]\n\tRESUME [<db>]\n\tDISABLE <db>\n\tENABLE <db>\n\tRECONNECT [<db>]\n\t\
         WAIT_CLOSE [<db>]\n\tKILL <db>\n\tDRAIN\n\tHOLD <cluster> [<seconds for transactions> [<seconds in all>]]\n\tRELEASE <cluster>\n\tSHUTDOWN",
        shown.join("|")
    );
    put_notice(out, &[(b'M', "Console usage"), (b'D', &*detail)]);
}

/// Writes that a SET has no effect, in PgBouncer's words.
pub(super) fn put_ignored(out: &mut Vec<u8>) {
    put_notice(out, &[(b'M', "SET ignored")]);
}

fn put_notice(out: &mut Vec<u8>, fields: &[(u8, &str)]) {
    framed(out, b'N', |out| {
        for (field, value) in [(b'S', "NOTICE"), (b'V', "NOTICE"), (b'C', "00000")].iter().chain(fields) {
            out.push(*field);
            put_cstr(out, value.as_bytes());
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn commands_are_read_as_people_write_them() {
        let read = |text| Command::parse(text, Rights::All).ok();
        for text in [" show  Pools ; ", "SHOW \"pools\"", "\"show\" \"POOLS\";"] {
            assert_eq!(read(text), Some(Command::Show(Show::Pools)), "{text}");
        }
        for text in ["show 'pools'", "show \"pools", "show \"\"", "'show' pools"] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in ["SET client_encoding TO 'UTF8'", "set TimeZone='utc';", "set datestyle = ISO, MDY"] {
            assert_eq!(read(text), Some(Command::Set), "{text}");
        }
        for text in ["set", "set client_encoding", "set client_encoding to", "set verbose = 1", "settimezone=1"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("SHOW STATS_TOTALS"), Some(Command::Show(Show::StatsTotals)));
        assert_eq!((read("reload;"), read(";")), (Some(Command::Reload), Some(Command::Nothing)));
        assert_eq!(read("PAUSE"), Some(Command::Pause(None)));
        assert_eq!(read("Resume App"), Some(Command::Resume(Some("App".to_owned()))));
        assert_eq!(read("kill \"a\"\"b\";"), Some(Command::Kill("a\"b".to_owned())));
        assert_eq!(read("pause \"my db\" ;"), Some(Command::Pause(Some("my db".to_owned()))));
        assert_eq!(read("DRAIN;"), Some(Command::Drain));
        assert_eq!(
            (read("wait_close"), read("disable \"a\"")),
            (Some(Command::WaitClose(None)), Some(Command::Disable("a".to_owned())))
        );
        let held = |wait, longest| Some(Command::Hold("main".to_owned(), wait, longest));
        assert_eq!(read("hold main"), held(WAIT, 30_000 * MS));
        assert_eq!(read("HOLD \"main\" 2.5;"), held(2500 * MS, 30_000 * MS));
        assert_eq!(read("HOLD main 60"), held(60_000 * MS, 80_000 * MS), "longer than transactions have");
        assert_eq!(read("HOLD main 0 60"), held(Duration::ZERO, 60_000 * MS));
        assert_eq!(read("release Main"), Some(Command::Release("Main".to_owned())));
        for text in ["hold", "hold a b", "hold a -1", "hold a 1 4000", "hold a 1 2 3", "release", "release a b"] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in [
            "pause \"",
            "pause 'a'",
            "kill \"\"",
            "resume \"\"\"",
            "release a\"b",
            "release a\"\"b",
            "hold \"a",
            "reconnect a\"",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in [
            "kill",
            "enable",
            "disable a b",
            "wait_close a b",
            "drain a",
            "pause a b",
            "show",
            "show nonsense",
            "show pools now",
            "reload it",
            "select 1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn settings_of_drivers_are_shown() {
        for (name, value) in &SETTINGS {
            let text = format!("show {};", name.to_ascii_uppercase());
            let Ok(Command::Show(Show::Setting(shown))) = Command::parse(&text, Rights::Show) else { panic!("{text}") };
            assert_eq!(shown, &(*name, *value));
        }
    }

    #[test]
    fn commands_of_newer_pgbouncers_say_what_to_do_instead() {
        for (text, code, hint) in [
            ("KILL", "42601", "DRAIN"),
            ("KILL_CLIENT 0x55", "0A000", "pg_terminate_backend"),
            ("SHOW STATE;", "0A000", "SHOW DATABASES"),
            ("show peers", "0A000", "one process"),
            ("show peer_pools", "0A000", "one process"),
            ("SHUTDOWN WAIT_FOR_SERVERS", "0A000", "shutdown_grace"),
            ("shutdown wait_for_clients;", "0A000", "DRAIN"),
        ] {
            let error = Command::parse(text, Rights::All).unwrap_err();
            assert_eq!(error.code, code, "{text}");
            assert!(format!("{error:?}").contains(hint), "{text}: {error:?}");
        }
        assert_eq!(Command::parse("SHUTDOWN NOW", Rights::All).unwrap_err().code, "42601");
    }

    #[test]
    fn who_may_only_look_changes_nothing() {
        assert!(Command::parse("show stats", Rights::Show).is_ok());
        for text in [
            "reload",
            "pause",
            "resume a",
            "reconnect",
            "kill a",
            "drain",
            "shutdown",
            "hold a",
            "release a",
            "disable a",
            "enable a",
            "wait_close",
        ] {
            assert_eq!(Command::parse(text, Rights::Show).map_err(|error| error.code), Err("42501".into()));
        }
    }
}
