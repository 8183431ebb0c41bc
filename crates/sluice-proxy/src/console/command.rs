//! The commands of the admin console.

use sluice_control::access::Rights;
use sluice_wire::{
    ErrorResponse,
    message::{framed, put_cstr},
    sqlstate,
};

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// An empty text.
    Nothing,
    Show(Show),
    Reload,
    Shutdown,
}

/// A table that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    Help,
    Version,
    Databases,
    Pools,
    Pins,
    Stats,
    StatsTotals,
    StatsAverages,
    Lists,
    Users,
    Config,
}

/// Each table with its name.
const SHOWN: [(&str, Show); 11] = [
    ("help", Show::Help),
    ("version", Show::Version),
    ("databases", Show::Databases),
    ("pools", Show::Pools),
    ("pins", Show::Pins),
    ("stats", Show::Stats),
    ("stats_totals", Show::StatsTotals),
    ("stats_averages", Show::StatsAverages),
    ("lists", Show::Lists),
    ("users", Show::Users),
    ("config", Show::Config),
];

impl Command {
    /// Reads a command, and sees that whoever gives it may.
    pub(super) fn parse(text: &str, rights: Rights) -> Result<Self, ErrorResponse> {
        let mut words = text.trim().trim_end_matches(';').split_whitespace().map(str::to_ascii_lowercase);
        let (first, second, more) = (words.next(), words.next(), words.next());
        let command = match (first.as_deref(), second.as_deref(), more) {
            (None, ..) => Some(Self::Nothing),
            (Some("show"), Some(name), None) => {
                SHOWN.iter().find(|(known, _)| *known == name).map(|(_, show)| Self::Show(*show))
            }
            (Some("reload"), None, None) => Some(Self::Reload),
            (Some("shutdown"), None, None) => Some(Self::Shutdown),
            _ => None,
        };
        let command = command.ok_or_else(|| {
            let error = format!("invalid command '{}', use SHOW HELP;", text.trim());
            ErrorResponse::error(sqlstate::SYNTAX_ERROR, error)
        })?;
        match command {
            Self::Reload | Self::Shutdown if rights != Rights::All => {
                let hint = "Name the user in \"users\" under [admin] in the pool's configuration.";
                Err(ErrorResponse::error(sqlstate::INSUFFICIENT_PRIVILEGE, "admin access needed").hint(hint))
            }
            command => Ok(command),
        }
    }
}

/// Writes the commands there are as a notice, as PgBouncer does.
pub(super) fn put_help(out: &mut Vec<u8>) {
    let shown: Vec<_> = SHOWN.iter().map(|(name, _)| name.to_ascii_uppercase()).collect();
    let detail = format!("\n\tSHOW {}\n\tRELOAD\n\tSHUTDOWN", shown.join("|"));
    framed(out, b'N', |out| {
        for (field, value) in
            [(b'S', "NOTICE"), (b'V', "NOTICE"), (b'C', "00000"), (b'M', "Console usage"), (b'D', &*detail)]
        {
            out.push(field);
            put_cstr(out, value.as_bytes());
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_people_write_them() {
        let read = |text| Command::parse(text, Rights::All).ok();
        assert_eq!(read(" show  Pools ; "), Some(Command::Show(Show::Pools)));
        assert_eq!(read("SHOW STATS_TOTALS"), Some(Command::Show(Show::StatsTotals)));
        assert_eq!((read("reload;"), read(";")), (Some(Command::Reload), Some(Command::Nothing)));
        for text in ["show", "show nonsense", "show pools now", "reload it", "select 1"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn who_may_only_look_changes_nothing() {
        assert!(Command::parse("show stats", Rights::Show).is_ok());
        for text in ["reload", "shutdown"] {
            assert_eq!(Command::parse(text, Rights::Show).map_err(|error| error.code), Err("42501".into()));
        }
    }
}
