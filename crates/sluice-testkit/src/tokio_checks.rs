//! Checks of `tokio-postgres` by its ordinary API, against whatever server a [`Config`] names.
//!
//! They stand here rather than under `tests/drivers`, since the driver is a dependency of the workspace already. They
//! must see no difference between PostgreSQL and a pool in transaction mode, and know nothing of either: no check
//! starts a server, and each drops the tables that it makes.

mod statements;
mod transactions;
mod transfers;

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls};

/// A check that hangs must fail under its own name, before the whole program is given up.
const CHECK_TIME_MAX: Duration = Duration::from_secs(120);

/// More clients than any pool under test has servers.
const CLIENTS: usize = 30;

type Problem = Box<dyn Error + Send + Sync>;
type Outcome<T = ()> = Result<T, Problem>;
type Check = fn(Config) -> Running;
type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Ends a check with a reason unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err(format!($($reason)+).into());
        }
    };
}
use ensure;

/// Runs every check in turn and gives each one's name with its outcome: nothing, or why it failed.
pub async fn run(config: Config) -> Vec<(String, Result<(), String>)> {
    let mut outcomes = Vec::new();
    for (name, check) in checks() {
        let outcome = match tokio::time::timeout(CHECK_TIME_MAX, check(config.clone())).await {
            Ok(outcome) => outcome.map_err(|problem| describe(&*problem)),
            Err(_) => Err(format!("not done after {CHECK_TIME_MAX:?}")),
        };
        outcomes.push((name.to_owned(), outcome));
    }
    outcomes
}

fn checks() -> Vec<(&'static str, Check)> {
    vec![
        ("prepared_30_clients", |c| Box::pin(statements::many_clients(c))),
        ("prepared_outlives_its_transaction", |c| Box::pin(statements::outlives_transaction(c))),
        ("prepared_closed_on_drop", |c| Box::pin(statements::closed_on_drop(c))),
        ("prepared_unknown_and_discarded", |c| Box::pin(statements::unknown_and_discarded(c))),
        ("typed_queries_without_names", |c| Box::pin(statements::typed_queries(c))),
        ("types_and_nulls", |c| Box::pin(statements::types_and_nulls(c))),
        ("schema_change", |c| Box::pin(statements::schema_change(c))),
        ("commit_rollback", |c| Box::pin(transactions::commit_rollback(c))),
        ("savepoints", |c| Box::pin(transactions::savepoints(c))),
        ("errors", |c| Box::pin(transactions::errors(c))),
        ("left_in_transaction", |c| Box::pin(transactions::left_in_transaction(c))),
        ("notices", |c| Box::pin(transactions::notices(c))),
        ("cancel_only_that_query", |c| Box::pin(transactions::cancel_only_that_query(c))),
        ("cancel_idle_hits_nobody", |c| Box::pin(transactions::cancel_idle_hits_nobody(c))),
        ("pipeline_of_futures", |c| Box::pin(transfers::pipeline_of_futures(c))),
        ("pipeline_errors", |c| Box::pin(transfers::pipeline_errors(c))),
        ("portals_by_parts", |c| Box::pin(transfers::portals_by_parts(c))),
        ("rows_dropped_early", |c| Box::pin(transfers::rows_dropped_early(c))),
        ("copy_in_out", |c| Box::pin(transfers::copy_in_out(c))),
        ("copy_fails", |c| Box::pin(transfers::copy_fails(c))),
        ("large_values", |c| Box::pin(transfers::large_values(c))),
    ]
}

/// The driver's own text for a server's error is only "db error"; the cause has the rest.
fn describe(problem: &(dyn Error + 'static)) -> String {
    let mut text = problem.to_string();
    let mut cause = problem.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text.replace('\n', " ")
}

/// A connection whose other half runs until the client is dropped.
async fn connect(config: &Config) -> Outcome<Client> {
    let mut config = config.clone();
    config.application_name("drv_tokio_postgres").connect_timeout(Duration::from_secs(60));
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn connect_all(config: &Config, count: usize) -> Outcome<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(connect(config).await?);
    }
    Ok(clients)
}

/// Runs `work` for `0..count` at the same time, as tasks of their own.
async fn in_parallel<F>(count: usize, work: impl Fn(usize) -> F) -> Outcome
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|number| tokio::spawn(work(number))).collect();
    for (number, task) in tasks.into_iter().enumerate() {
        task.await?.map_err(|problem| format!("client {number}: {}", describe(&*problem)))?;
    }
    Ok(())
}

/// The outcome must be a server's error with this SQLSTATE.
fn expect_state<T>(outcome: Result<T, tokio_postgres::Error>, state: &SqlState) -> Outcome {
    match outcome {
        Ok(_) => Err(format!("no error, wanted {}", state.code()).into()),
        Err(error) if error.code() == Some(state) => Ok(()),
        Err(error) => Err(format!("wanted {}, got {}", state.code(), describe(&error)).into()),
    }
}

async fn expect_int(client: &Client, want: i64, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Outcome {
    let got: i64 = client.query_one(sql, values).await?.try_get(0)?;
    ensure!(got == want, "{sql}: wanted {want}, got {got}");
    Ok(())
}

async fn expect_usable(client: &Client) -> Outcome {
    expect_int(client, 42, "select 40 + $1::int8", &[&2_i64]).await
}
