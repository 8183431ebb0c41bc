//! A script beside PostgreSQL: clients of a pool of two servers say it, and the same clients by connections of their own,
//! and their answers are the same.

use sluice_testkit::{
    Case, Raw, Script, TestPool,
    raw::{Message, transcript},
};
use sluice_wire::{BackendKind, FrontendKind, message::framed, startup::ProtocolVersion};

use crate::{ignored::ordered, twins::Place};

/// Clients of a pool, and the same clients beside it.
pub(crate) struct Beside {
    pub(crate) place: &'static Place,
    pub(crate) pool: TestPool,
    pub(crate) databases: [String; 2],
    pub(crate) pooled: Vec<Raw>,
    pub(crate) alone: Vec<Raw>,
}

/// Parameters of a startup message.
pub(crate) type Startup<'a> = &'a [(&'a str, &'a str)];

/// Runs a script for clients that begin with these settings, with the extension and without it.
pub(crate) fn beside(case: Case, clients: &[Startup<'_>], script: impl Fn(&mut Beside)) {
    for extension in [false, true] {
        beside_with(case, extension, clients, &script);
    }
}

/// The same, with the extension or without it.
pub(crate) fn beside_with(case: Case, extension: bool, clients: &[Startup<'_>], script: impl Fn(&mut Beside)) {
    let place = Place::shared(case.version, extension);
    let databases = [place.empty(), place.empty()];
    let mut beside = Beside { place, pool: place.pool(case), databases, pooled: Vec::new(), alone: Vec::new() };
    beside.clients(clients);
    script(&mut beside);
}

impl Beside {
    /// Other clients, in place of those that are there.
    pub(crate) fn clients(&mut self, clients: &[Startup<'_>]) {
        let log_in = |mut raw: Raw, startup: Startup<'_>, database: &str| {
            let has_user = startup.iter().any(|(name, _)| *name == "user");
            let user: &[_] = if has_user { &[] } else { &[("user", "app")] };
            let said = raw.login_with(ProtocolVersion::V3_0, &[user, &[("database", database)], startup].concat());
            assert!(transcript(&said).ends_with("Z(I)"), "{}", transcript(&said));
            raw
        };
        let [pooled, alone] = &self.databases;
        self.pooled = clients.iter().map(|startup| log_in(self.pool.raw(), startup, pooled)).collect();
        self.alone = clients.iter().map(|startup| log_in(self.place.alone(), startup, alone)).collect();
    }

    /// The answer to a client that logs in with these settings, which is the same at both. It goes at once.
    pub(crate) fn log_in(&self, startup: Startup<'_>) -> String {
        let sides = [(self.pool.raw(), &self.databases[0]), (self.place.alone(), &self.databases[1])];
        let [pooled, alone] = sides.map(|(mut raw, database)| {
            let user = [("user", "app"), ("database", database.as_str())];
            let said = raw.login_with(ProtocolVersion::V3_0, &[&user, startup].concat());
            let is_key = |message: &&Message| BackendKind::from(message.tag) == BackendKind::BackendKeyData;
            let said = ordered(&said).into_iter().filter(|message| !is_key(message));
            said.map(shown).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(pooled, alone, "{startup:?}");
        pooled
    }

    /// PostgreSQL refuses clients that log in with any of these settings, and the pool says so in its words.
    pub(crate) fn refuses(&self, startups: &[Startup<'_>]) {
        for startup in startups {
            let said = self.log_in(startup);
            assert!(said.contains("FATAL"), "{startup:?}: {said}");
        }
    }

    /// A client sends this, through the pool and beside it, up to so many ReadyForQuery. Gives the answer, which is the
    /// same.
    pub(crate) fn until(&mut self, client: usize, script: &Script, times: usize) -> String {
        let [pooled, alone] = [&mut self.pooled[client], &mut self.alone[client]].map(|raw| {
            raw.send(script);
            ordered(&raw.until_ready(times)).into_iter().map(shown).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(pooled, alone, "client {client}, {}", script.0.escape_ascii());
        pooled
    }

    /// A client sends this, whatever is answered: what comes of it is seen by what it asks next.
    pub(crate) fn runs(&mut self, client: usize, script: &Script) {
        for raw in [&mut self.pooled[client], &mut self.alone[client]] {
            raw.send(script);
            raw.until_ready(1);
        }
    }

    pub(crate) fn says(&mut self, client: usize, script: &Script) -> String {
        self.until(client, script, 1)
    }

    pub(crate) fn query(&mut self, client: usize, sql: &str) -> String {
        self.says(client, &s().query(sql))
    }

    /// Others do this beside the pool, at the same moment in both databases.
    pub(crate) fn past_the_pool(&self, sql: &str) {
        for database in &self.databases {
            self.place.execute_in(database, sql);
        }
    }

    /// Messages that a client gets without asking, up to the end of its connection.
    pub(crate) fn ends(&mut self, client: usize) -> String {
        let [pooled, alone] = [&mut self.pooled[client], &mut self.alone[client]].map(|raw| {
            let heard: Vec<_> = std::iter::from_fn(|| raw.message()).collect();
            ordered(&heard).into_iter().map(shown).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(pooled, alone, "client {client}");
        pooled
    }

    /// Once the other servers are kept busy by these clients, too.
    pub(crate) fn on_each_server(&mut self, client: usize, holder: usize, script: &Script) {
        self.says(client, script);
        self.query(holder, "BEGIN READ WRITE");
        self.says(client, script);
        self.query(holder, "COMMIT");
        self.says(client, script);
    }
}

pub(crate) fn s() -> Script {
    Script::new()
}

/// A message, with what an error says, and with the types of what is described.
pub(crate) fn shown(message: &Message) -> String {
    match message.tag.into() {
        BackendKind::ParameterDescription => format!("{message}{:?}", numbers(&message.body[2..])),
        // Behind a name stand its table, which differs, and its column's number, type, size, modifier and format.
        BackendKind::RowDescription => {
            let (mut rest, mut types) = (&message.body[2..], Vec::new());
            while let Some(name) = rest.iter().position(|byte| *byte == 0) {
                types.extend(numbers(&rest[name + 7..name + 11]));
                rest = &rest[name + 19..];
            }
            format!("{message}{types:?}")
        }
        BackendKind::ErrorResponse => {
            [b'V', b'C', b'M', b'R'].map(|field| message.field(field)).join(" ").replace('\n', "\\n")
        }
        _ => message.to_string(),
    }
}

/// The types of that number on are a database's own (`FirstNormalObjectId`): in the twin they have other numbers.
const FIRST_OWN: u32 = 16384;

fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|number| u32::from_be_bytes(*number).min(FIRST_OWN)).collect()
}

/// A Query in another encoding.
pub(crate) fn query_of(text: &[u8]) -> Script {
    let mut out = Vec::new();
    framed(&mut out, FrontendKind::Query, |out| {
        out.extend_from_slice(text);
        out.push(0);
    });
    Script(out)
}
