//! Much at once: pipelines, portals, COPY, large values.

use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt, TryStreamExt, pin_mut, stream};
use tokio_postgres::Config;
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::{CLIENTS, Outcome, connect, ensure, expect_int, expect_state, expect_usable, in_parallel};

const LARGE: usize = 6 * 1024 * 1024;

/// Futures that are polled together go out as one pipeline, a Sync for each.
pub(super) async fn pipeline_of_futures(config: Config) -> Outcome {
    in_parallel(CLIENTS, |number| {
        let config = config.clone();
        async move {
            let client = connect(&config).await?;
            let number = i64::try_from(number)?;
            let add = client.prepare("select $1::int8 + $2::int8").await?;
            let queries = (0..100_i64).map(|n| {
                let (client, add) = (&client, &add);
                async move { client.query_one(add, &[&number, &n]).await }
            });
            for (n, row) in (0_i64..).zip(join_all(queries).await) {
                let got: i64 = row?.try_get(0)?;
                ensure!(got == number + n, "query {n} gave {got}");
            }
            // Statements prepared, run and closed within the pipeline.
            let texts: Vec<_> = (0..20_i64).map(|n| format!("select $1::int8 * {n}")).collect();
            let queries = texts.iter().map(|text| {
                let client = &client;
                async move { client.query_one(text.as_str(), &[&number]).await }
            });
            for (n, row) in (0_i64..).zip(join_all(queries).await) {
                let got: i64 = row?.try_get(0)?;
                ensure!(got == number * n, "text {n} gave {got}");
            }
            Ok(())
        }
    })
    .await
}

/// Each has its own Sync, so an error takes nothing else with it.
pub(super) async fn pipeline_errors(config: Config) -> Outcome {
    let client = connect(&config).await?;
    let divide = client.prepare("select 60 / $1::int8").await?;
    let queries = (0..60_i64).map(|n| {
        let (client, divide) = (&client, &divide);
        async move { client.query_one(divide, &[&(n % 6)]).await }
    });
    for (n, outcome) in (0_i64..).zip(join_all(queries).await) {
        if n % 6 == 0 {
            expect_state(outcome, &SqlState::DIVISION_BY_ZERO)?;
        } else {
            let got: i64 = outcome?.try_get(0)?;
            ensure!(got == 60 / (n % 6), "query {n} gave {got}");
        }
    }
    expect_usable(&client).await
}

pub(super) async fn portals_by_parts(config: Config) -> Outcome {
    let mut client = connect(&config).await?;
    let series = client.prepare("select i::int8 from generate_series(1, $1::int8) i").await?;
    let transaction = client.transaction().await?;
    let portal = transaction.bind(&series, &[&1000_i64]).await?;
    let other = transaction.bind(&series, &[&30_i64]).await?;
    let mut sum = 0;
    loop {
        let rows = transaction.query_portal(&portal, 90).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            sum += row.try_get::<_, i64>(0)?;
        }
        transaction.query_portal(&other, 1).await?;
    }
    ensure!(sum == 500_500, "the sum is {sum}");
    let rows = transaction.query_portal(&other, 0).await?;
    ensure!(rows.len() == 18, "{} rows left in the other portal", rows.len());
    transaction.commit().await?;
    expect_usable(&client).await
}

pub(super) async fn rows_dropped_early(config: Config) -> Outcome {
    let client = connect(&config).await?;
    for _ in 0..3 {
        let rows =
            client.query_raw("select i, repeat('x', 100) from generate_series(1, $1::int8) i", &[30_000_i64]).await?;
        pin_mut!(rows);
        let first = rows.try_next().await?.ok_or("no row")?;
        ensure!(first.try_get::<_, i64>(0)? == 1, "the first row is another");
    }
    expect_usable(&client).await
}

pub(super) async fn copy_in_out(config: Config) -> Outcome {
    let client = connect(&config).await?;
    client.batch_execute("drop table if exists drv_tokio_copy; create table drv_tokio_copy (id int8, v text)").await?;
    let lines: String = (0..20_000).map(|n| format!("{n}\trow {n}\n")).collect();
    let sink = client.copy_in("copy drv_tokio_copy from stdin").await?;
    pin_mut!(sink);
    for part in lines.as_bytes().chunks(5000) {
        sink.send(Bytes::copy_from_slice(part)).await?;
    }
    let count = sink.finish().await?;
    ensure!(count == 20_000, "{count} rows");
    let out = client.copy_out("copy (select * from drv_tokio_copy order by id) to stdout").await?;
    let back: BytesMut = out.try_collect().await?;
    ensure!(back == lines.as_bytes(), "came back changed, {} bytes", back.len());

    let types = [Type::INT8, Type::TEXT];
    let sink = client.copy_in("copy drv_tokio_copy from stdin (format binary)").await?;
    let writer = BinaryCopyInWriter::new(sink, &types);
    pin_mut!(writer);
    for n in 20_000..21_000_i64 {
        writer.as_mut().write(&[&n, &None::<&str>]).await?;
    }
    writer.finish().await?;
    let out = client
        .copy_out("copy (select id, v from drv_tokio_copy where id >= 19999 order by id) to stdout (format binary)")
        .await?;
    let rows: Vec<_> = BinaryCopyOutStream::new(out, &types).try_collect().await?;
    ensure!(rows.len() == 1001, "{} rows", rows.len());
    ensure!(rows[0].try_get::<&str>(1)? == "row 19999", "the text changed");
    ensure!(rows[1000].try_get::<i64>(0)? == 20_999, "the number changed");
    ensure!(rows[1].try_get::<Option<&str>>(1)?.is_none(), "NULL changed");
    client.batch_execute("drop table drv_tokio_copy").await?;
    Ok(())
}

pub(super) async fn copy_fails(config: Config) -> Outcome {
    let client = connect(&config).await?;
    client.batch_execute("drop table if exists drv_tokio_copy2; create table drv_tokio_copy2 (id int8)").await?;
    // The server refuses while the client still sends.
    let sink = client.copy_in("copy drv_tokio_copy2 from stdin").await?;
    pin_mut!(sink);
    let part = Bytes::from("1\nno number\n".repeat(1000));
    let mut parts = stream::iter((0..200).map(|_| Ok(part.clone())));
    let sent = sink.send_all(&mut parts).await;
    let outcome = match sent {
        Ok(()) => sink.finish().await.map(drop),
        Err(error) => Err(error),
    };
    expect_state(outcome, &SqlState::INVALID_TEXT_REPRESENTATION)?;
    expect_int(&client, 0, "select count(*) from drv_tokio_copy2", &[]).await?;

    // The client gives up: a sink that is dropped sends CopyFail.
    for _ in 0..3 {
        let sink = client.copy_in("copy drv_tokio_copy2 from stdin").await?;
        pin_mut!(sink);
        sink.send(Bytes::from_static(b"1\n")).await?;
    }
    expect_int(&client, 0, "select count(*) from drv_tokio_copy2", &[]).await?;

    // The client no longer wants the rows: the driver reads on and throws them away.
    {
        let query = "copy (select i, repeat('x', 100) from generate_series(1, 50000) i) to stdout";
        let out = client.copy_out(query).await?;
        pin_mut!(out);
        out.next().await.ok_or("no row")??;
    }
    expect_state(client.copy_out("copy drv_tokio_no_such to stdout").await, &SqlState::UNDEFINED_TABLE)?;
    client.batch_execute("drop table drv_tokio_copy2").await?;
    expect_usable(&client).await
}

pub(super) async fn large_values(config: Config) -> Outcome {
    let client = connect(&config).await?;
    let blob: Vec<u8> = (0..LARGE).map(|i| (i.wrapping_mul(7) + i / 4096) as u8).collect();
    let words = "abcdefghijklm".repeat(LARGE / 13);
    let statement = client.prepare("select $1::bytea, $2::text").await?;
    for _ in 0..2 {
        let row = client.query_one(&statement, &[&blob, &words]).await?;
        ensure!(row.try_get::<_, &[u8]>(0)? == blob, "bytes came back changed");
        ensure!(row.try_get::<_, &str>(1)? == words, "text came back changed");
    }
    expect_int(&client, i64::try_from(words.len())?, &format!("select length('{words}')::int8"), &[]).await
}
