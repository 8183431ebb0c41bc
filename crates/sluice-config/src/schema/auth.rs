//! `[auth]` and `[auth.lookup]`: who is let in.

use super::{Absent, DAY, Key, NAME, Table, seconds};
use crate::{
    Method,
    kinds::{FilePath, Flag, Names, Password, Text, Time, Words},
};

pub(crate) static AUTH: Table = Table {
    path: "auth",
    many: false,
    meaning: "How clients prove who they are. The secrets come from `users_file`, from `[auth.lookup]`, or from both: who stands in the file is not looked up.",
    keys: &[
        &METHOD,
        &HBA,
        &HBA_FILE,
        &IDENT_FILE,
        &USERS_FILE,
        &USERS_WITHOUT_SECRET,
        &KNOWN_USERS_ONLY,
        &TRUST_ANYONE,
    ],
    tables: &[&LOOKUP],
};

pub(crate) static METHOD: Key<Words<Method>> = Key {
    name: "method",
    kind: Words(&[("trust", Method::Trust), ("md5", Method::Md5), ("scram-sha-256", Method::ScramSha256)]),
    absent: Absent::Default("\"scram-sha-256\""),
    meaning: "The method, by PostgreSQL's name. With `\"scram-sha-256\"`, users whose secret is an MD5 hash are rejected; \
              `\"md5\"` uses MD5 for those, and SCRAM for users whose secret is a SCRAM verifier; `\"trust\"` asks for no \
              proof.",
};

pub(crate) static HBA: Key<Words<()>> = Key {
    name: "hba",
    kind: Words(&[("server", ())]),
    absent: Absent::Means("`method` or `hba_file`"),
    meaning: "`\"server\"`: the rules by which the server itself lets clients in, where `[auth.lookup]` asks, in place of \
              `method`; see [The server's own rules](#the-servers-own-rules).",
};

pub(crate) static HBA_FILE: Key<FilePath> = Key {
    name: "hba_file",
    kind: FilePath,
    absent: Absent::Means("`method` counts for all clients"),
    meaning: "A `pg_hba.conf`, whose rules say who is let in and by which method, in place of `method`; see \
              [Access rules](#access-rules).",
};

pub(crate) static IDENT_FILE: Key<FilePath> = Key {
    name: "ident_file",
    kind: FilePath,
    absent: Absent::Means("no maps"),
    meaning: "A `pg_ident.conf` with the maps that the rules of `hba_file` name.",
};

pub(crate) static USERS_FILE: Key<FilePath> = Key {
    name: "users_file",
    kind: FilePath,
    absent: Absent::Means("`[auth.lookup]`, or `method = \"trust\"`"),
    meaning: "A file of users and their secrets; see [The users file](#the-users-file).",
};

pub(crate) static USERS_WITHOUT_SECRET: Key<Names> = Key {
    name: "users_without_secret",
    kind: Names { count_max: 10_000 },
    absent: Absent::Means("nobody"),
    meaning: "Users who have no secret, as if each had a line with an empty one in `users_file`, unless it has another: they \
              can't log in by password, are not looked up, and are let in by `trust`, `cert` and `peer` where there is \
              `known_users_only`.",
};

pub(crate) static KNOWN_USERS_ONLY: Key<Flag> = Key {
    name: "known_users_only",
    kind: Flag,
    absent: Absent::Default("false"),
    meaning: "`true`: only users who stand in `users_file` or `users_without_secret` are let in, also by `trust`, `cert` and `peer`, which do not ask \
              for what stands there. Otherwise `trust` lets in any name, and in a `[[database]]` with `user` as that role. \
              A name is no proof: whoever knows one that is listed is let in by `trust`. Others hear that no `pg_hba.conf` entry is for them.",
};

pub(crate) static TRUST_ANYONE: Key<Flag> = Key {
    name: "trust_anyone",
    kind: Flag,
    absent: Absent::Default("false"),
    meaning: "Allows `method = \"trust\"` on an address that other hosts can reach.",
};

pub(crate) static LOOKUP: Table = Table {
    path: "auth.lookup",
    many: false,
    meaning: "Takes secrets, and the roles of which users are members, from one server, that of `database`. Users of that \
              server get into all databases; one on another server that has a `user` is theirs as that role, of which \
              `sluice check` and the log warn. The verifiers that PostgreSQL stores are enough: Sluice needs no plain password.",
    keys: &[&LOOKUP_USER, &LOOKUP_PASSWORD, &LOOKUP_PASSWORD_FILE, &LOOKUP_DATABASE, &QUERY, &CACHE],
    tables: &[],
};

pub(crate) static LOOKUP_USER: Key<Text> = Key {
    name: "user",
    kind: NAME,
    absent: Absent::Required,
    meaning: "The role that asks. It must be able to read `pg_authid`, or to call the function in `query`.",
};

pub(crate) static LOOKUP_PASSWORD: Key<Password> = Key {
    name: "password",
    kind: Password,
    absent: Absent::Means("the server must let the role in by peer or trust"),
    meaning: "Its password. The configuration file must then be closed to others.",
};

pub(crate) static LOOKUP_PASSWORD_FILE: Key<FilePath> = Key {
    name: "password_file",
    kind: FilePath,
    absent: Absent::Means("as without `password`"),
    meaning: "A file whose only line is its password.",
};

pub(crate) static LOOKUP_DATABASE: Key<Text> = Key {
    name: "database",
    kind: NAME,
    absent: Absent::Required,
    meaning: "The database in which to ask, by the name that clients use: one of the `[[database]]` entries, or any \
              where one is named `\"*\"`.",
};

pub(crate) static QUERY: Key<Text> = Key {
    name: "query",
    kind: Text { bytes_max: 8192 },
    absent: Absent::Means("reads `pg_authid`; the text is below"),
    meaning: "The query. It takes the user's name as `$1` and returns no row, or one: the secret, or the \
              user's name and the secret, as PgBouncer's `auth_query` does. A row of NULLs counts as none. Where it \
              gives more columns, or the secret of another name, nobody can log in (57P03), and the log says so. The name \
              reaches the server byte by byte, whatever the database's encoding; where the query itself is not ASCII, the \
              server converts both from UTF-8.",
};

pub(crate) static CACHE: Key<Time> = Key {
    name: "cache",
    kind: Time { min: seconds(1), max: seconds(DAY) },
    absent: Absent::Default("\"10s\""),
    meaning: "How long an answer is believed, also that there is no such user. A login that fails ends it: the next one \
              asks again.",
};
