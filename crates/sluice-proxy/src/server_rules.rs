//! Following the access rules of the server where secrets are looked up (`auth.hba = "server"`).
//!
//! `pg_hba_file_rules` shows what the files say now; what counts is what the server has loaded, which nothing shows. So
//! what they said when it last loaded its configuration (`pg_conf_load_time`) is taken for that, and a file with a line
//! that PostgreSQL refuses for what it said before. Where files have been changed since, the server may have loaded them
//! all the same, as it does where `postgresql.conf` has a mistake: whoever the two would treat differently is not let
//! in.
//!
//! What a server has loaded is known of one postmaster. Where another one answers, after a failover behind one address
//! or a restart, all begins anew, as at the start of the pool: what its files say at the first look is taken for loaded.
//! A start loads them as they are then, and does not take place with a file that PostgreSQL refuses.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_control::{
    access::{AccessRules, LookUp, Policy, Users},
    address::Address,
};
use sluice_core::hub::Hub;
use sluice_hba::{Interface, MapRow, Questions, RuleRow, Rules, ServerRules};
use tokio::{sync::mpsc, time::timeout};
use tokio_postgres::{
    Client, Error, Row,
    types::{FromSql, Type},
};

use crate::{
    lookup::{connect, describe},
    net::sockets::Target,
    resolver::Resolver,
};

/// The interval at which the server is asked for them.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The most of the time that goes into asking: one part of so many.
const SHARE: u32 = 5;

/// Time limit for reading them, the connect included.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Everybody may ask that.
const LOADED_AT: &str = "SELECT (EXTRACT(epoch FROM pg_catalog.pg_conf_load_time()) * 1000000)::bigint, \
    (EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint, \
    pg_catalog.current_setting('server_version_num')::int, pg_catalog.getdatabaseencoding()::text";

/// Encodings in which names are told as they stand in the files.
const ENCODINGS: [&str; 2] = ["UTF8", "SQL_ASCII"];

/// The rules of the server at that address, for the control thread; `None`: it does not tell them.
pub(crate) type Told = (Address, Option<Arc<AccessRules>>);

/// Tells the rules of the server that is to be asked, as they are now, again and again.
pub(crate) async fn follow(hub: Arc<Hub>, resolver: Arc<Resolver>, told: mpsc::Sender<Told>) {
    let mut follower = Follower::new(resolver);
    loop {
        let begun = Instant::now();
        let access = hub.snapshot().access.clone();
        if let (Policy::ServerRules(rules), Users::LookedUp(look_up, _)) = (&access.policy, &access.users) {
            let news = follower.look(look_up, rules.is_some()).await;
            if let Some(rules) = news
                && told.send((look_up.address.clone(), rules)).await.is_err()
            {
                return;
            }
        } else {
            (follower.client, follower.known) = (None, None);
        }
        tokio::time::sleep(LOOK_EVERY.max(begun.elapsed() * SHARE)).await;
    }
}

struct Follower {
    resolver: Arc<Resolver>,
    /// Reads this host's own addresses.
    interfaces: fn() -> io::Result<Vec<Interface>>,
    /// The connection, and what it was made by.
    client: Option<(LookUp, Client)>,
    known: Option<Known>,
    /// Faults that the log has been told of.
    said: BTreeSet<String>,
}

/// A server's files as it has loaded them.
struct Known {
    address: Address,
    /// The time at which its postmaster started, as far as it says, in microseconds. No other server's is the same.
    started_at: i64,
    /// The time at which it last loaded its configuration, as far as it says, in microseconds. Each of its processes has
    /// its own, and one that is new that of the postmaster, which is the first to load it.
    loaded_at: i64,
    /// Its files as they were then.
    loaded: Files,
}

/// The rows of the two files.
#[derive(Debug, Clone, PartialEq)]
struct Files {
    rules: Vec<RuleRow>,
    maps: Vec<MapRow>,
}

/// A server's answers.
#[derive(Debug, Clone)]
struct Reading {
    started_at: i64,
    loaded_at: i64,
    version: u32,
    /// The rows of a file, or what PostgreSQL says is wrong with it: then it keeps what it has loaded of that file.
    rules: Result<Vec<RuleRow>, String>,
    maps: Result<Vec<MapRow>, String>,
    /// Names that mean something else without quotes; whether it is a role's.
    odd_names: Vec<(bool, Text)>,
}

/// The reason why there is none.
enum Failure {
    /// The server can't be asked now, and nobody can log in to it either.
    Away(String),
    /// It does not tell.
    Refused(String),
}

impl Follower {
    fn new(resolver: Arc<Resolver>) -> Self {
        let interfaces = sluice_config::interfaces;
        Self { resolver, interfaces, client: None, known: None, said: BTreeSet::new() }
    }

    /// The rules as they are now; nothing if the server can't be asked. `has_rules` says whether some count already.
    async fn look(&mut self, look_up: &LookUp, has_rules: bool) -> Option<Option<Arc<AccessRules>>> {
        let read = timeout(TIMEOUT, self.read(look_up)).await;
        let read = read.unwrap_or_else(|_| Err(Failure::Away(format!("no answer within {} s", TIMEOUT.as_secs()))));
        let mut wrong = BTreeSet::new();
        let news = match read {
            Ok(reading) => Some(self.take(look_up, reading, &mut wrong)),
            Err(Failure::Away(error)) => {
                self.client = None;
                let meanwhile = if has_rules { "those of before count" } else { "until it can, nobody is let in" };
                wrong.insert(format!("the server can't be asked: {error}; {meanwhile}"));
                None
            }
            Err(Failure::Refused(error)) => {
                (self.client, self.known) = (None, None);
                wrong.insert(format!("the server does not tell them, and nobody is let in: {error}"));
                Some(None)
            }
        };
        for wrong in wrong.difference(&self.said) {
            tracing::warn!("access rules of {}: {wrong}", look_up.address);
        }
        self.said = wrong;
        news
    }

    async fn read(&mut self, look_up: &LookUp) -> Result<Reading, Failure> {
        self.client.take_if(|(by, client)| by != look_up || client.is_closed());
        if self.client.is_none() {
            let client = connect(look_up, &self.resolver).await.map_err(Failure::Away)?;
            self.client = Some((look_up.clone(), client));
        }
        match &self.client {
            Some((_, client)) => read(client).await,
            None => Err(Failure::Away("no connection".to_owned())),
        }
    }

    /// The rules by which the server goes, as far as can be told.
    fn take(&mut self, look_up: &LookUp, reading: Reading, wrong: &mut BTreeSet<String>) -> Option<Arc<AccessRules>> {
        let is_of_it = |known: &Known| (&known.address, known.started_at) == (&look_up.address, reading.started_at);
        let before = self.known.take().filter(is_of_it);
        let has_loaded = before.as_ref().is_none_or(|known| known.loaded_at < reading.loaded_at);
        let loaded_at = before.as_ref().map_or(reading.loaded_at, |known| known.loaded_at.max(reading.loaded_at));
        let (rules, maps) = before.map(|known| (known.loaded.rules, known.loaded.maps)).unzip();
        for mistake in [reading.rules.as_ref().err(), reading.maps.as_ref().err()].into_iter().flatten() {
            wrong.insert(format!("{mistake}; as for the server, those of before count"));
        }
        let Some(rules) = loaded(&reading.rules, rules, has_loaded) else {
            wrong.insert("which rules the server goes by is not known, and nobody is let in".to_owned());
            return None;
        };
        let maps = loaded(&reading.maps, maps, has_loaded).unwrap_or_default();
        let now = Files { rules, maps };
        let on_disk = Files {
            rules: reading.rules.unwrap_or_else(|_| now.rules.clone()),
            maps: reading.maps.unwrap_or_else(|_| now.maps.clone()),
        };
        let is_here = |place: &Address| match self.resolver.target(place) {
            Ok(Target::Unix(_)) => true,
            Ok(Target::Tcp(address)) => address.ip().is_loopback(),
            Err(_) => false,
        };
        let is_on_this_host = self.resolver.places(&look_up.address).iter().all(is_here);
        let names = |roles: bool| {
            reading
                .odd_names
                .iter()
                .filter(move |(is_role, _)| *is_role == roles)
                .map(|(_, name)| name.0.clone())
                .collect()
        };
        let told = |Files { rules, maps }: Files| ServerRules {
            rules,
            maps,
            odd_databases: names(false),
            odd_roles: names(true),
            version: reading.version,
            is_on_this_host,
        };
        let unloaded = (on_disk != now).then_some(on_disk);
        let (address, started_at) = (look_up.address.clone(), reading.started_at);
        self.known = Some(Known { address, started_at, loaded_at, loaded: now.clone() });
        if unloaded.is_some() {
            let said = "the files have been changed, and the server does not say that it has loaded them; whoever they \
                        would treat otherwise is not let in";
            wrong.insert(said.to_owned());
        }
        let all = [Some(told(now)), unloaded.map(told)];
        let text = format!("{all:?}");
        let [rules, unloaded] = all.map(|told| told.map(|told| made_of(&told, wrong)));
        // One that can't be read may say anything.
        let unloaded = unloaded.map_or(Some(None), |rules| rules.map(Some))?;
        let rules = rules??;
        // Of a server elsewhere, rules that ask for its addresses turn away whoever they are for.
        let asks_for_addresses = [Some(&rules), unloaded.as_ref()].into_iter().flatten().any(Rules::needs_interfaces);
        let interfaces = match is_on_this_host && asks_for_addresses {
            true => (self.interfaces)().map_err(|error| {
                let said = "samehost and samenet need this host's own addresses, and nobody is let in";
                wrong.insert(format!("{said}: they can't be read: {error}"));
            }),
            false => Ok(Vec::new()),
        };
        Some(Arc::new(AccessRules { rules, unloaded, interfaces: interfaces.ok()?, text }))
    }
}

/// The rows that the server goes by, of those of a file as it was read and those that it had loaded before.
fn loaded<T: Clone>(read: &Result<Vec<T>, String>, before: Option<Vec<T>>, has_loaded: bool) -> Option<Vec<T>> {
    match read {
        Ok(rows) if has_loaded => Some(rows.clone()),
        _ => before,
    }
}

/// The rules that a server has told; what it does with them that Sluice can't is noted.
fn made_of(told: &ServerRules, wrong: &mut BTreeSet<String>) -> Option<Rules> {
    match Rules::of_server(told) {
        Ok((rules, refused)) => {
            wrong.extend(refused.iter().map(|problem| format!("a line turns away whoever it is for: {problem}")));
            Some(rules)
        }
        Err(problems) => {
            wrong.extend(problems.iter().map(|problem| format!("not understood, and nobody is let in: {problem}")));
            None
        }
    }
}

async fn read(client: &Client) -> Result<Reading, Failure> {
    let first = client.query_one(LOADED_AT, &[]).await.map_err(failure)?;
    let (loaded_at, started_at): (i64, i64) = (get(&first, 0)?, get(&first, 1)?);
    let (version, encoding): (i32, String) = (get(&first, 2)?, get(&first, 3)?);
    if !ENCODINGS.contains(&&*encoding) {
        let remedy = "name one by database under [auth.lookup] that is in UTF8";
        return Err(Failure::Refused(format!("in a database in {encoding} it changes names in its files; {remedy}")));
    }
    let questions = Questions::of(version.unsigned_abs());
    let rules = client.query(questions.rules, &[]).await.map_err(failure)?;
    let maps = match questions.maps {
        Some(maps) => client.query(maps, &[]).await.map_err(failure)?,
        None => Vec::new(),
    };
    let names = client.query(questions.odd_names, &[]).await.map_err(failure)?;
    Ok(Reading {
        started_at,
        loaded_at,
        version: version.unsigned_abs(),
        rules: rows(&rules, 9, rule)?,
        maps: rows(&maps, 5, map)?,
        odd_names: names.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect::<Result<_, _>>()?,
    })
}

/// The rows of a file, or what PostgreSQL says, in that column, is wrong with one: with a line of which nothing else is
/// told. Where it only says that a line can match nobody, the line is there.
fn rows<T>(
    rows: &[Row],
    error: usize,
    read: impl Fn(&Row) -> Result<T, Failure>,
) -> Result<Result<Vec<T>, String>, Failure> {
    let mut done = Vec::new();
    for row in rows {
        let said: Option<Text> = get(row, error)?;
        let is_there = get::<Option<Text>>(row, 2)?.is_some();
        if !is_there {
            let file: Option<Text> = get(row, 0)?;
            let file = file.map(|Text(file)| format!("{file}:")).unwrap_or_default();
            // It does not of all that it refuses: of a RADIUS server's name that leads nowhere the log alone tells.
            let said = said.map_or_else(|| "refused, and the server's log tells why".to_owned(), |Text(said)| said);
            return Ok(Err(format!("{file}{}: {said}", get::<Option<i32>>(row, 1)?.unwrap_or_default())));
        }
        done.push(read(row)?);
    }
    Ok(Ok(done))
}

fn rule(row: &Row) -> Result<RuleRow, Failure> {
    let text = |at| Ok::<_, Failure>(get::<Option<Text>>(row, at)?.map(|Text(text)| text));
    let list = |at| {
        let list: Option<Vec<Text>> = get(row, at)?;
        Ok::<_, Failure>(list.unwrap_or_default().into_iter().map(|Text(text)| text).collect())
    };
    Ok(RuleRow {
        file: text(0)?,
        line: line(row)?,
        connection: text(2)?.unwrap_or_default(),
        databases: list(3)?,
        users: list(4)?,
        address: text(5)?,
        netmask: text(6)?,
        method: text(7)?.unwrap_or_default(),
        options: list(8)?,
    })
}

fn map(row: &Row) -> Result<MapRow, Failure> {
    let text = |at| Ok::<_, Failure>(get::<Option<Text>>(row, at)?.map(|Text(text)| text));
    Ok(MapRow {
        file: text(0)?,
        line: line(row)?,
        map: text(2)?.unwrap_or_default(),
        system_user: text(3)?.unwrap_or_default(),
        user: text(4)?.unwrap_or_default(),
    })
}

fn line(row: &Row) -> Result<usize, Failure> {
    Ok(usize::try_from(get::<i32>(row, 1)?).unwrap_or_default())
}

/// A text of the files'. What is not UTF-8 there is no name that a client could have.
#[derive(Debug, Clone)]
struct Text(String);

impl<'a> FromSql<'a> for Text {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Failure> {
    row.try_get(at).map_err(|error| Failure::Refused(describe(&error)))
}

/// The views are for superusers, unless somebody says otherwise.
fn failure(error: Error) -> Failure {
    let remedy = "GRANT SELECT ON pg_hba_file_rules, pg_ident_file_mappings, and EXECUTE ON FUNCTION \
                  pg_hba_file_rules(), pg_ident_file_mappings(), to the user of [auth.lookup]";
    // Of the statement itself: nobody may see that, or there is no such view.
    match error.code() {
        Some(code) if code.code().starts_with("42") => Failure::Refused(format!("{}; {remedy}", describe(&error))),
        _ => Failure::Away(describe(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_control::server_auth::ServerAuth;

    use super::*;

    fn rule(user: &str) -> RuleRow {
        RuleRow {
            file: None,
            line: 1,
            connection: "local".to_owned(),
            databases: vec!["all".to_owned()],
            users: vec![user.to_owned()],
            address: None,
            netmask: None,
            method: "trust".to_owned(),
            options: Vec::new(),
        }
    }

    /// A postmaster that started then has loaded its files then, and they let that user in.
    fn reading(started_at: i64, loaded_at: i64, user: Option<&str>) -> Reading {
        Reading {
            started_at,
            loaded_at,
            version: 150_000,
            rules: user.map(|user| vec![rule(user)]).ok_or_else(|| "a mistake".to_owned()),
            maps: Ok(Vec::new()),
            odd_names: Vec::new(),
        }
    }

    fn look_up() -> LookUp {
        LookUp {
            cluster: None,
            address: Address::Tcp("db".to_owned(), 5432),
            tls: None,
            dbname: "postgres".to_owned(),
            user: "asks".to_owned(),
            password: None,
            server_auth: ServerAuth::default(),
            query: "select $1".to_owned(),
            asks_roles: true,
            cache: Duration::ZERO,
        }
    }

    #[test]
    fn what_was_loaded_is_known_of_one_postmaster() {
        let resolver = Arc::new(Resolver::default());
        let mut follower = Follower::new(resolver);
        let mut look = |reading| {
            let rules = follower.take(&look_up(), reading, &mut BTreeSet::new());
            rules.map(|told| (all(&told.rules), told.unloaded.as_ref().map(all)))
        };
        let of = |user| look_alone(reading(1, 1, Some(user)));
        let (one, two, three) = (of("one"), of("two"), of("three"));
        assert_eq!(look(reading(10, 20, Some("one"))), Some((one.clone(), None)));
        let changed = Some((one.clone(), Some(two.clone())));
        assert_eq!(look(reading(10, 20, Some("two"))), changed, "it has not loaded them");
        assert_eq!(look(reading(10, 21, Some("two"))), Some((two.clone(), None)));
        // Another server answers, which has loaded its files before the first one has. So has one that was started anew.
        assert_eq!(look(reading(5, 6, Some("three"))), Some((three.clone(), None)));
        assert_eq!(look(reading(5, 6, Some("one"))), Some((three, Some(one.clone()))));
        assert_eq!(look(reading(30, 30, Some("one"))), Some((one, None)));
        // No postmaster has started with a mistake in them: they were changed since, and what they were nobody knows.
        assert_eq!(look(reading(40, 40, None)), None);
        assert_eq!(look(reading(40, 41, Some("two"))), Some((two, None)));
    }

    #[test]
    fn nobody_is_let_in_where_rules_need_addresses_that_cannot_be_read() {
        let mut follower = Follower::new(Arc::new(Resolver::default()));
        follower.interfaces = || Err(io::ErrorKind::Unsupported.into());
        let here = LookUp { address: Address::Tcp("127.0.0.1".to_owned(), 5432), ..look_up() };
        let mut reading = reading(1, 1, Some("one"));
        assert!(follower.take(&here, reading.clone(), &mut BTreeSet::new()).is_some(), "no rule needs them");
        let same = RuleRow {
            connection: "host".to_owned(),
            address: Some("samehost".to_owned()),
            method: "reject".to_owned(),
            ..rule("one")
        };
        reading.loaded_at = 2;
        reading.rules.as_mut().unwrap().insert(0, same);
        let mut wrong = BTreeSet::new();
        assert!(follower.take(&here, reading.clone(), &mut wrong).is_none());
        assert!(wrong.iter().any(|said| said.contains("nobody is let in: they can't be read")), "{wrong:?}");
        follower.interfaces = sluice_config::interfaces;
        assert!(follower.take(&here, reading, &mut BTreeSet::new()).is_some());
    }

    fn all(rules: &Rules) -> String {
        format!("{:?}", rules.rules())
    }

    /// The rules of a reading, with nothing known before.
    fn look_alone(reading: Reading) -> String {
        let resolver = Arc::new(Resolver::default());
        let mut follower = Follower::new(resolver);
        let rules = follower.take(&look_up(), reading, &mut BTreeSet::new()).expect("there are some");
        all(&rules.rules)
    }
}
