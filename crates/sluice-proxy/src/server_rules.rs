//! Following the access rules of the server where secrets are looked up (`auth.hba = "server"`).
//!
//! `pg_hba_file_rules` shows what the files say now, and what counts is what the server has loaded. So they are read when
//! it has loaded its configuration (`pg_conf_load_time`), and where a line is wrong those of before go on to count, as
//! they do in the server.

use std::{sync::Arc, time::Duration};

use sluice_control::{
    access::{AccessRules, LookUp, Policy, Users},
    address::Address,
};
use sluice_core::hub::Hub;
use sluice_hba::{MapRow, Questions, RuleRow, Rules, ServerRules};
use tokio::{sync::mpsc, time::timeout};
use tokio_postgres::{Client, Row};

use crate::{
    lookup::{connect, describe},
    net::sockets::Target,
    resolver::Resolver,
};

/// The interval at which the server is asked whether it has loaded others.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time limit for reading them, the connect included.
const TIMEOUT: Duration = Duration::from_secs(5);

const LOADED_AT: &str = "SELECT pg_catalog.pg_conf_load_time()::text, \
    pg_catalog.current_setting('server_version_num')::int";

/// The rules of the server at that address, for the control thread.
pub(crate) type Told = (Address, Arc<AccessRules>);

/// The connection by which one server is asked.
struct Asked {
    look_up: LookUp,
    client: Client,
    /// The time at which the server loaded the rules that were read last.
    loaded_at: Option<String>,
}

/// The news from a server.
enum News {
    /// None: it has loaded nothing since.
    None,
    /// These rules.
    Rules(Arc<AccessRules>),
    /// What is wrong with its files, so that it keeps its rules of before.
    Mistake(String),
}

/// Tells the rules of the server that is to be asked, and again whenever it has loaded others.
pub(crate) async fn follow(hub: Arc<Hub>, resolver: Arc<Resolver>, told: mpsc::Sender<Told>) {
    let (mut asked, mut last_error) = (None, String::new());
    loop {
        let access = hub.snapshot().access.clone();
        let (Policy::ServerRules(known), Users::LookedUp(look_up)) = (&access.policy, &access.users) else {
            asked = None;
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        };
        let read = timeout(TIMEOUT, look(&mut asked, look_up, &resolver, known.is_some())).await;
        let error = match read.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs()))) {
            Ok(News::None) => last_error.clone(),
            Ok(News::Rules(rules)) => {
                if told.send((look_up.address.clone(), rules)).await.is_err() {
                    return;
                }
                String::new()
            }
            Ok(News::Mistake(mistake)) => mistake,
            Err(error) => {
                asked = None;
                error
            }
        };
        if !error.is_empty() && error != last_error {
            let goes_on = if known.is_some() { "those of before count" } else { "nobody is let in" };
            tracing::error!("the access rules of {} can't be read, and {goes_on}: {error}", look_up.address);
        }
        last_error = error;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Asks the server, if it has loaded its configuration since the last time.
async fn look(
    asked: &mut Option<Asked>,
    look_up: &LookUp,
    resolver: &Resolver,
    are_known: bool,
) -> Result<News, String> {
    asked.take_if(|asked| asked.look_up != *look_up || asked.client.is_closed());
    if asked.is_none() {
        let client = connect(look_up, resolver).await?;
        *asked = Some(Asked { look_up: look_up.clone(), client, loaded_at: None });
    }
    let Some(Asked { client, loaded_at, .. }) = asked else { return Ok(News::None) };
    let row = client.query_one(LOADED_AT, &[]).await.map_err(|error| describe(&error))?;
    let (at, version): (String, i32) = (row.get(0), row.get(1));
    if are_known && loaded_at.as_ref() == Some(&at) {
        return Ok(News::None);
    }
    let is_on_this_host = match resolver.target(&look_up.address).map_err(|error| error.to_string())? {
        Target::Unix(_) => true,
        Target::Tcp(address) => address.ip().is_loopback(),
    };
    let told = ask(client, version.unsigned_abs(), is_on_this_host).await.map_err(readable)?;
    *loaded_at = Some(at);
    let read = told.and_then(|told| {
        let text = format!("{told:?}");
        let (rules, refused) = Rules::of_server(&told)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        Ok((rules, refused, text))
    });
    let (rules, refused, text) = match read {
        Ok(read) => read,
        Err(mistake) => return Ok(News::Mistake(mistake)),
    };
    for problem in refused {
        tracing::warn!("a line of the server's rules turns away whoever it is for: {problem}");
    }
    let interfaces = if is_on_this_host { sluice_config::interfaces() } else { Vec::new() };
    Ok(News::Rules(Arc::new(AccessRules { rules, interfaces, text })))
}

/// The server's rules, or what PostgreSQL says is wrong with a line of them.
async fn ask(
    client: &Client,
    version: u32,
    is_on_this_host: bool,
) -> Result<Result<ServerRules, String>, tokio_postgres::Error> {
    let questions = Questions::of(version);
    let rules = client.query(questions.rules, &[]).await?;
    let maps = match questions.maps {
        Some(maps) => client.query(maps, &[]).await?,
        None => Vec::new(),
    };
    let names = client.query(questions.odd_names, &[]).await?;
    let names_of =
        |roles: bool| names.iter().filter(|row| row.get::<_, bool>(0) == roles).map(|row| row.get(1)).collect();
    let rows =
        || Ok((rules.iter().map(rule).collect::<Result<_, _>>()?, maps.iter().map(map).collect::<Result<_, _>>()?));
    Ok(rows().map(|(rules, maps)| ServerRules {
        rules,
        maps,
        odd_databases: names_of(false),
        odd_roles: names_of(true),
        version,
        is_on_this_host,
    }))
}

/// The views are for superusers, unless somebody says otherwise.
fn readable(error: tokio_postgres::Error) -> String {
    let remedy = "GRANT SELECT ON pg_hba_file_rules, pg_ident_file_mappings, and EXECUTE ON FUNCTION \
                  pg_hba_file_rules(), pg_ident_file_mappings(), to the user of [auth.lookup]";
    match error.code() {
        Some(code) if *code == tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE => {
            format!("{}; {remedy}", describe(&error))
        }
        _ => describe(&error),
    }
}

fn rule(row: &Row) -> Result<RuleRow, String> {
    Ok(RuleRow {
        file: row.get(0),
        line: line(row, 9)?,
        connection: row.get(2),
        databases: row.get(3),
        users: row.get(4),
        address: row.get(5),
        netmask: row.get(6),
        method: row.get(7),
        options: row.get::<_, Option<_>>(8).unwrap_or_default(),
    })
}

fn map(row: &Row) -> Result<MapRow, String> {
    Ok(MapRow { file: row.get(0), line: line(row, 5)?, map: row.get(2), system_user: row.get(3), user: row.get(4) })
}

/// The number of a line, unless PostgreSQL says in that column what is wrong with it.
fn line(row: &Row, error: usize) -> Result<usize, String> {
    let line: i32 = row.get(1);
    match row.get::<_, Option<String>>(error) {
        Some(error) => {
            let file = row.get::<_, Option<String>>(0);
            let file = file.map(|file| format!("{file}:")).unwrap_or_default();
            Err(format!("{file}{line}: {error}; the server keeps its rules of before, too"))
        }
        None => Ok(usize::try_from(line).unwrap_or_default()),
    }
}
