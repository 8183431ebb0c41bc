//! The scenarios that are part of the program.

type File = (&'static str, &'static str);

/// A scenario's folder below `scenarios/`, with its files.
macro_rules! scenarios {
    ($($name:literal: $($file:literal),+;)*) => {
        const SHIPPED: &[(&str, &[File])] = &[$(
            ($name, &[$(($file, include_str!(concat!("../../../../scenarios/", $name, "/", $file)))),+]),
        )*];
    };
}

scenarios! {
    "everything-on": "scenario.toml";
    "floods": "scenario.toml";
    "follow": "scenario.toml";
    "gate": "scenario.toml";
    "peers": "scenario.toml";
    "quick": "scenario.toml";
    "session-log": "scenario.toml", "schema.sql", "with-update.sql", "without-update.sql";
    "select-ladder": "scenario.toml";
    "sessions": "scenario.toml", "plain.sql", "function.sql", "setting.sql", "lock.sql";
    "sync-matrix": "scenario.toml", "schema.sql", "read-only.sql", "write-only.sql", "read-mostly.sql",
        "write-mostly.sql";
    "tpcb-ladder": "scenario.toml";
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The files of one.
pub(super) fn files(name: &str) -> Option<&'static [File]> {
    SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, files)| *files)
}
