//! Prepared statements: whose they are, how long they live, what a schema change does to them.

use std::time::SystemTime;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Kind, Type};
use tokio_postgres::{Client, Config, Statement};

use super::{CLIENTS, Outcome, connect, connect_all, ensure, expect_int, expect_state, expect_usable, in_parallel};

const TEXTS: [&str; 3] = ["select 'a' || $1::int4", "select 'b' || ($1::int4 + 1)", "select 'c' || ($1::int4 * 2)"];

fn wanted(text: usize, argument: i32) -> String {
    format!("{}{}", ["a", "b", "c"][text], [argument, argument + 1, argument * 2][text])
}

/// Every client prepares the same texts in another order, so that its statements get other names.
pub(super) async fn many_clients(config: Config) -> Outcome {
    in_parallel(CLIENTS, |number| one_client(config.clone(), number)).await
}

async fn one_client(config: Config, number: usize) -> Outcome {
    let mut client = connect(&config).await?;
    let mut statements = Vec::new();
    for i in 0..TEXTS.len() {
        statements.push(client.prepare(TEXTS[(number + i) % 3]).await?);
    }
    for turn in 0..20 {
        let argument = i32::try_from(number)? * 1000 + turn;
        let transaction = client.transaction().await?;
        for (i, statement) in statements.iter().enumerate() {
            let got: String = transaction.query_one(statement, &[&argument]).await?.try_get(0)?;
            let want = wanted((number + i) % 3, argument);
            ensure!(got == want, "wanted {want}, got {got}");
        }
        if turn % 2 == 0 {
            transaction.commit().await?
        } else {
            transaction.rollback().await?
        }
        let got: String = client.query_one(&statements[0], &[&argument]).await?.try_get(0)?;
        ensure!(got == wanted(number % 3, argument), "outside a transaction: got {got}");
    }
    Ok(())
}

pub(super) async fn outlives_transaction(config: Config) -> Outcome {
    let mut client = connect(&config).await?;
    let transaction = client.transaction().await?;
    let statement = transaction.prepare("select $1::int8 + 1").await?;
    transaction.rollback().await?;
    for n in 0..3_i64 {
        let got: i64 = client.query_one(&statement, &[&n]).await?.try_get(0)?;
        ensure!(got == n + 1, "got {got} for {n}");
    }
    Ok(())
}

/// A statement that is dropped is closed on the server, under whatever else is under way.
pub(super) async fn closed_on_drop(config: Config) -> Outcome {
    let client = connect(&config).await?;
    for n in 0..200_i64 {
        let statement = client.prepare(&format!("select $1::int8 + {}", n % 7)).await?;
        let got: i64 = client.query_one(&statement, &[&n]).await?.try_get(0)?;
        ensure!(got == n + n % 7, "got {got} for {n}");
    }
    expect_usable(&client).await
}

pub(super) async fn unknown_and_discarded(config: Config) -> Outcome {
    let client = connect(&config).await?;
    let other = connect(&config).await?;
    let mine = client.prepare("select $1::int8 + 5").await?;
    let theirs = other.prepare("select $1::int8 + 5").await?;
    for command in ["deallocate all", "discard all"] {
        client.batch_execute(command).await?;
        expect_state(client.query(&mine, &[&1_i64]).await, &SqlState::INVALID_SQL_STATEMENT_NAME)?;
        let got: i64 = other.query_one(&theirs, &[&1_i64]).await?.try_get(0)?;
        ensure!(got == 6, "the other session got {got}");
    }
    expect_state(
        client.batch_execute("execute drv_tokio_unknown").await.map(drop),
        &SqlState::INVALID_SQL_STATEMENT_NAME,
    )?;
    // A Parse that fails takes nothing with it.
    expect_state(client.prepare("selec 1").await, &SqlState::SYNTAX_ERROR)?;
    expect_state(client.prepare("select * from drv_tokio_no_such").await, &SqlState::UNDEFINED_TABLE)?;
    expect_usable(&client).await
}

/// `query_typed` goes by the unnamed statement, in one round trip.
pub(super) async fn typed_queries(config: Config) -> Outcome {
    in_parallel(CLIENTS, |number| {
        let config = config.clone();
        async move {
            let client = connect(&config).await?;
            let number = i64::try_from(number)?;
            for turn in 0..20_i64 {
                let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                    [(&number, Type::INT8), (&turn, Type::INT8)];
                let rows = client.query_typed("select $1 * 1000 + $2", &arguments).await?;
                let got: i64 = rows[0].try_get(0)?;
                ensure!(rows.len() == 1 && got == number * 1000 + turn, "turn {turn}: {} rows, {got}", rows.len());
            }
            Ok(())
        }
    })
    .await
}

/// For types of one's own the driver asks the catalogs, by statements that it keeps.
pub(super) async fn types_and_nulls(config: Config) -> Outcome {
    let client = connect(&config).await?;
    client
        .batch_execute(
            "drop type if exists drv_tokio_mood; create type drv_tokio_mood as enum ('good', 'bad');
             drop domain if exists drv_tokio_small; create domain drv_tokio_small as int check (value < 100)",
        )
        .await?;
    let statement = client
        .prepare(
            "select $1::text, $2::bool, $3::int8, $4::float8, $5::text, $6::bytea, $7::timestamptz, $8::int4[],
             'bad'::drv_tokio_mood, 7::drv_tokio_small, array['good']::drv_tokio_mood[]",
        )
        .await?;
    let mood = statement.columns()[8].type_();
    ensure!(matches!(mood.kind(), Kind::Enum(labels) if labels == &["good", "bad"]), "the enum is {mood:?}");
    let words = "ünïcødé \\ ' \"";
    let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(1_769_999_999_123_456);
    let list = vec![Some(1_i32), None, Some(3)];
    for _ in 0..3 {
        let row = client
            .query_one(
                &statement,
                &[&None::<String>, &true, &(1_i64 << 40), &1.5_f64, &words, &&[0_u8, 255, 0][..], &now, &list],
            )
            .await?;
        ensure!(row.try_get::<_, Option<String>>(0)?.is_none(), "NULL came back as a value");
        ensure!(row.try_get::<_, bool>(1)? && row.try_get::<_, i64>(2)? == 1 << 40, "bool or int8 changed");
        ensure!(row.try_get::<_, String>(4)? == words, "text changed");
        ensure!(row.try_get::<_, Vec<u8>>(5)? == [0, 255, 0], "bytea changed");
        ensure!(row.try_get::<_, SystemTime>(6)? == now, "timestamptz changed");
        ensure!(row.try_get::<_, Vec<Option<i32>>>(7)? == list, "int4[] changed");
    }
    client.batch_execute("drop type drv_tokio_mood; drop domain drv_tokio_small").await?;
    Ok(())
}

const SHAPE: &str = "select * from drv_tokio_shape where id = $1";

/// The driver asks for a statement's columns once, and has no healing of its own: PostgreSQL's refusal (0A000) is the
/// only right answer to a statement whose columns have changed, since the driver would misread other rows.
pub(super) async fn schema_change(config: Config) -> Outcome {
    let other = connect(&config).await?;
    other
        .batch_execute(
            "drop table if exists drv_tokio_shape; create table drv_tokio_shape (id int4, v int4);
             insert into drv_tokio_shape values (1, 10)",
        )
        .await?;
    let clients = connect_all(&config, 8).await?;
    let mut statements = Vec::new();
    for client in &clients {
        let statement = client.prepare(SHAPE).await?;
        let steady = client.prepare("select v::text from drv_tokio_shape where id = $1").await?;
        client.query_one(&statement, &[&1_i32]).await?;
        client.query_one(&steady, &[&1_i32]).await?;
        statements.push((statement, steady));
    }
    let changes = [
        ("add column extra text default 'more'", 3, "10"),
        ("alter column v type text using 'v' || v", 3, "v10"),
        ("drop column extra", 2, "v10"),
    ];
    for (change, columns, v) in changes {
        other.batch_execute(&format!("alter table drv_tokio_shape {change}")).await?;
        for (client, (statement, steady)) in clients.iter().zip(&mut statements) {
            prepared_again(client, statement, columns).await.map_err(|problem| format!("{change}: {problem}"))?;
            let got: String = client.query_one(&*steady, &[&1_i32]).await?.try_get(0)?;
            ensure!(got == v, "{change}: the statement whose columns stay gave {got}");
        }
    }
    // Without a statement that is kept there is nothing to heal.
    expect_int(&clients[0], 1, "select id::int8 from drv_tokio_shape", &[]).await?;
    other.batch_execute("drop table drv_tokio_shape").await?;
    expect_state(clients[0].query(&statements[0].0, &[&1_i32]).await, &SqlState::UNDEFINED_TABLE)
}

async fn prepared_again(client: &Client, statement: &mut Statement, columns: usize) -> Outcome {
    expect_state(client.query_one(&*statement, &[&1_i32]).await, &SqlState::FEATURE_NOT_SUPPORTED)?;
    *statement = client.prepare(SHAPE).await?;
    for _ in 0..2 {
        let row = client.query_one(&*statement, &[&1_i32]).await?;
        ensure!(row.len() == columns, "{} columns", row.len());
    }
    Ok(())
}
