//! Transactions, savepoints, errors, notices, cancel.

use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, IsolationLevel, NoTls};

use super::{Outcome, connect, connect_all, ensure, expect_int, expect_state, expect_usable};

pub(super) async fn commit_rollback(config: Config) -> Outcome {
    let mut one = connect(&config).await?;
    let two = connect(&config).await?;
    two.batch_execute("drop table if exists drv_tokio_tx; create table drv_tokio_tx (id int8 primary key)").await?;
    let count = "select count(*) from drv_tokio_tx";

    let transaction = one.build_transaction().isolation_level(IsolationLevel::Serializable).start().await?;
    transaction.execute("insert into drv_tokio_tx values ($1)", &[&1_i64]).await?;
    let level: String = transaction.query_one("show transaction_isolation", &[]).await?.try_get(0)?;
    ensure!(level == "serializable", "isolation is {level}");
    expect_int(&two, 0, count, &[]).await?;
    transaction.commit().await?;
    expect_int(&two, 1, count, &[]).await?;

    let transaction = one.transaction().await?;
    transaction.execute("delete from drv_tokio_tx", &[]).await?;
    transaction.rollback().await?;
    expect_int(&two, 1, count, &[]).await?;

    // A transaction that is dropped is rolled back by the driver, in the order of its messages.
    let transaction = one.transaction().await?;
    transaction.execute("delete from drv_tokio_tx", &[]).await?;
    drop(transaction);
    expect_int(&one, 1, count, &[]).await?;
    two.batch_execute("drop table drv_tokio_tx").await?;
    Ok(())
}

pub(super) async fn savepoints(config: Config) -> Outcome {
    let mut client = connect(&config).await?;
    client.batch_execute("drop table if exists drv_tokio_sp; create table drv_tokio_sp (id int8 primary key)").await?;
    let put = client.prepare("insert into drv_tokio_sp values ($1)").await?;
    let mut outer = client.transaction().await?;
    outer.execute(&put, &[&1_i64]).await?;
    let inner = outer.savepoint("here").await?;
    expect_state(inner.execute(&put, &[&1_i64]).await, &SqlState::UNIQUE_VIOLATION)?;
    expect_state(inner.execute(&put, &[&2_i64]).await, &SqlState::IN_FAILED_SQL_TRANSACTION)?;
    inner.rollback().await?;
    let inner = outer.transaction().await?;
    inner.execute(&put, &[&3_i64]).await?;
    inner.commit().await?;
    outer.commit().await?;
    expect_int(&client, 4, "select sum(id)::int8 from drv_tokio_sp", &[]).await?;
    client.batch_execute("drop table drv_tokio_sp").await?;
    Ok(())
}

pub(super) async fn errors(config: Config) -> Outcome {
    let mut client = connect(&config).await?;
    client
        .batch_execute(
            "drop table if exists drv_tokio_err;
             create table drv_tokio_err (id int8 constraint drv_tokio_positive check (id > 0))",
        )
        .await?;
    let divide = client.prepare("select 1 / $1::int8").await?;
    expect_state(client.query(&divide, &[&0_i64]).await, &SqlState::DIVISION_BY_ZERO)?;
    client.query_one(&divide, &[&1_i64]).await?;
    expect_state(client.batch_execute("selec 1").await, &SqlState::SYNTAX_ERROR)?;
    let violated = client.execute("insert into drv_tokio_err values ($1)", &[&-1_i64]).await;
    let constraint =
        violated.as_ref().err().and_then(|e| e.as_db_error()).and_then(|e| e.constraint()).unwrap_or_default();
    ensure!(constraint == "drv_tokio_positive", "the constraint's name is {constraint:?}");
    expect_state(violated, &SqlState::CHECK_VIOLATION)?;

    let transaction = client.transaction().await?;
    expect_state(transaction.query(&divide, &[&0_i64]).await, &SqlState::DIVISION_BY_ZERO)?;
    expect_state(transaction.query(&divide, &[&1_i64]).await, &SqlState::IN_FAILED_SQL_TRANSACTION)?;
    transaction.rollback().await?;
    client.query_one(&divide, &[&1_i64]).await?;

    let messages = client.simple_query("select 1 as a; select 2 as b").await?;
    ensure!(messages.len() == 6, "{} messages for two statements: {messages:?}", messages.len());
    expect_state(client.simple_query("select 1; select 1/0; select 3").await, &SqlState::DIVISION_BY_ZERO)?;
    client.batch_execute("drop table drv_tokio_err").await?;
    expect_usable(&client).await
}

pub(super) async fn left_in_transaction(config: Config) -> Outcome {
    let keeper = connect(&config).await?;
    keeper.batch_execute("drop table if exists drv_tokio_left; create table drv_tokio_left (id int8)").await?;
    for turn in 0..8 {
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(connection);
        client.batch_execute("begin; insert into drv_tokio_left values (1); lock table drv_tokio_left").await?;
        if turn % 2 == 0 {
            // The socket alone goes, without a Terminate.
            connection.abort();
        }
    }
    keeper.batch_execute("begin; set local lock_timeout = '5s'; lock table drv_tokio_left").await?;
    expect_int(&keeper, 0, "select count(*) from drv_tokio_left", &[]).await?;
    keeper.batch_execute("commit; drop table drv_tokio_left").await?;
    Ok(())
}

pub(super) async fn notices(config: Config) -> Outcome {
    let other = connect(&config).await?;
    let (client, mut connection) = config.connect(NoTls).await?;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notice(notice) = message {
                let _ = sender.send(notice.message().to_owned());
            }
        }
    });
    client.batch_execute("do $$ begin for i in 1..50 loop raise notice 'note %', i; end loop; end $$").await?;
    expect_usable(&other).await?;
    drop(client);
    let mut got = Vec::new();
    while let Some(message) = receiver.recv().await {
        got.push(message);
    }
    ensure!(got.len() == 50 && got[49] == "note 50", "{} notices, last {:?}", got.len(), got.last());
    Ok(())
}

async fn slept(client: Client) -> Outcome {
    let row = client.query_one("select 'slept' from pg_sleep(0.8)", &[]).await?;
    ensure!(row.try_get::<_, &str>(0)? == "slept", "the sleep gave something else");
    Ok(())
}

pub(super) async fn cancel_only_that_query(config: Config) -> Outcome {
    let client = connect(&config).await?;
    let others: Vec<_> = connect_all(&config, 3).await?.into_iter().map(|other| tokio::spawn(slept(other))).collect();
    for by_statement in [false, true] {
        let token = client.cancel_token();
        let canceller = tokio::spawn(async move {
            // One that comes before the query has begun is lost by right.
            loop {
                sleep(Duration::from_millis(100)).await;
                if token.cancel_query(NoTls).await.is_err() {
                    return;
                }
            }
        });
        let cancelled = if by_statement {
            client.query("select pg_sleep($1)", &[&20_f64]).await.map(drop)
        } else {
            client.batch_execute("select pg_sleep(20)").await
        };
        canceller.abort();
        expect_state(cancelled, &SqlState::QUERY_CANCELED)?;
        // The last cancel may be under way still.
        sleep(Duration::from_millis(50)).await;
        expect_usable(&client).await?;
    }
    for other in others {
        other.await??;
    }
    Ok(())
}

/// The session that cancels runs nothing; its last server may serve somebody else by now.
pub(super) async fn cancel_idle_hits_nobody(config: Config) -> Outcome {
    let idle = connect(&config).await?;
    expect_usable(&idle).await?;
    let others: Vec<_> = connect_all(&config, 4).await?.into_iter().map(|other| tokio::spawn(slept(other))).collect();
    for _ in 0..10 {
        sleep(Duration::from_millis(30)).await;
        idle.cancel_token().cancel_query(NoTls).await?;
    }
    for other in others {
        other.await??;
    }
    expect_usable(&idle).await
}
