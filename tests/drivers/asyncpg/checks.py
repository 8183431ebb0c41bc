"""asyncpg by its ordinary API: every query becomes a named statement, __asyncpg_stmt_N__, described once and kept.

It prepares by Parse, Describe and Flush, and leaves the Sync to the first execution, whenever that comes.
"""

import asyncio
import datetime
import decimal
import hashlib
import io
import uuid

import asyncpg

from frame import check, run

CLIENTS = 30
LARGE = 6 * 1024 * 1024


class connect:
    """`async with connect() as conn`: asyncpg's own connection is no context manager."""

    def __init__(self, **options):
        options.setdefault("server_settings", {"application_name": "drv_asyncpg"})
        self.options = options

    async def __aenter__(self):
        self.conn = await asyncpg.connect(timeout=60, **self.options)
        return self.conn

    async def __aexit__(self, *_):
        await self.conn.close(timeout=30)


async def fails(error, awaitable):
    try:
        await awaitable
    except error as caught:
        return caught
    raise AssertionError(f"no error, wanted {error.__name__}")


@check
async def prepared_30_clients_same_names():
    # Names of our own stand for other texts in each client; the driver's own are unique in the process.
    texts = [
        ("select 'a' || $1::int", lambda n: f"a{n}"),
        ("select 'b' || ($1::int + 1)", lambda n: f"b{n + 1}"),
        ("select 'c' || ($1::int * 2)", lambda n: f"c{n * 2}"),
    ]

    async def client(number):
        async with connect() as conn:
            statements = [await conn.prepare(texts[(number + i) % 3][0], name=f"s{i}") for i in range(3)]
            for turn in range(15):
                argument = number * 1000 + turn
                block = conn.transaction() if turn % 3 == 0 else None
                if block:
                    await block.start()
                for i in range(3):
                    text, expected = texts[(number + i) % 3]
                    assert await statements[i].fetchval(argument) == expected(argument)
                    assert await conn.fetchval(text, argument) == expected(argument)
                if block:
                    await (block.commit() if turn % 2 else block.rollback())

    await asyncio.gather(*(client(n) for n in range(CLIENTS)))


@check
async def prepared_and_then_idle():
    # All have prepared before any goes on: a preparation without its Sync must hold up nobody else.
    clients = [await asyncpg.connect(timeout=60) for _ in range(CLIENTS)]
    statements = [await asyncio.wait_for(conn.prepare(f"select $1::int + {n}"), 10) for n, conn in enumerate(clients)]
    async with connect() as other:
        assert await other.fetchval("select 'usable'") == "usable"
    for n, statement in reversed(list(enumerate(statements))):
        assert await statement.fetchval(1) == n + 1
    for conn in clients:
        await conn.close()


@check
async def driver_pool():
    # On release the driver resets the session: a simple query of several statements.
    async with asyncpg.create_pool(min_size=10, max_size=20) as pool:

        async def task(number):
            for turn in range(5):
                async with pool.acquire() as conn:
                    assert await conn.fetchval("select $1::int * 1000 + $2::int", number, turn) == number * 1000 + turn
            assert await pool.fetchval("select $1::text", f"task {number}") == f"task {number}"

        await asyncio.gather(*(task(n) for n in range(60)))


@check
async def prepared_statement_api():
    async with connect() as conn:
        statement = await conn.prepare("select $1::int8 as big, $2::text as words", name="drv_named")
        assert [t.name for t in statement.get_parameters()] == ["int8", "text"]
        assert [(a.name, a.type.name) for a in statement.get_attributes()] == [("big", "int8"), ("words", "text")]
        for n in range(5):
            assert tuple(await statement.fetchrow(n, "w")) == (n, "w")
        assert await statement.fetchmany([(1, "a"), (2, "b")]) == [(1, "a"), (2, "b")]
        async with conn.transaction():
            assert tuple(await statement.fetchrow(6, None)) == (6, None)


@check
async def prepared_evicted():
    async with connect(statement_cache_size=5) as conn:
        for turn in range(3):
            for n in range(12):
                assert await conn.fetchval(f"select $1::int + {n}", turn) == turn + n
    async with connect(statement_cache_size=0) as conn:
        for n in range(10):
            assert await conn.fetchval("select $1::int", n) == n


@check
async def prepared_unknown():
    async with connect() as conn:
        await conn.fetchval("select 1 + $1::int", 1)
        # Behind the driver's back; what it knows by name is then unknown to the server.
        await conn.execute("deallocate all")
        await fails(asyncpg.InvalidSQLStatementNameError, conn.fetchval("select 1 + $1::int", 1))
        assert await conn.fetchval("select 2 + $1::int", 1) == 3
        await fails(asyncpg.InvalidSQLStatementNameError, conn.execute("execute drv_asyncpg_unknown"))
        assert await conn.fetchval("select 'usable'") == "usable"


@check
async def commit_rollback():
    async with connect() as one, connect() as two:
        await two.execute("drop table if exists drv_asyncpg_tx; create table drv_asyncpg_tx (id int primary key)")
        block = one.transaction()
        await block.start()
        assert await one.execute("insert into drv_asyncpg_tx values ($1)", 1) == "INSERT 0 1"
        assert one.is_in_transaction()
        assert await two.fetchval("select count(*) from drv_asyncpg_tx") == 0
        await block.commit()
        assert not one.is_in_transaction()
        assert await two.fetchval("select count(*) from drv_asyncpg_tx") == 1
        block = one.transaction(isolation="serializable")
        await block.start()
        assert await one.fetchval("show transaction_isolation") == "serializable"
        await one.execute("delete from drv_asyncpg_tx")
        await block.rollback()
        assert await two.fetchval("select count(*) from drv_asyncpg_tx") == 1
        await two.execute("drop table drv_asyncpg_tx")


@check
async def nested_transactions():
    async with connect() as conn:
        await conn.execute("drop table if exists drv_asyncpg_nest; create table drv_asyncpg_nest (id int primary key)")
        put = await conn.prepare("insert into drv_asyncpg_nest values ($1)")
        async with conn.transaction():
            await put.fetch(1)
            try:
                async with conn.transaction():
                    await put.fetch(2)
                    await put.fetch(1)
                raise AssertionError("no error")
            except asyncpg.UniqueViolationError:
                pass
            async with conn.transaction():
                await put.fetch(3)
        assert [r[0] for r in await conn.fetch("select id from drv_asyncpg_nest order by id")] == [1, 3]
        await conn.execute("drop table drv_asyncpg_nest")


@check
async def errors():
    async with connect() as conn:
        await fails(asyncpg.PostgresSyntaxError, conn.fetch("selec 1"))
        await fails(asyncpg.PostgresSyntaxError, conn.execute("selec 1"))
        await fails(asyncpg.UndefinedTableError, conn.prepare("select * from drv_asyncpg_no_such"))
        await fails(asyncpg.DivisionByZeroError, conn.fetchval("select 1 / $1::int", 0))
        assert await conn.fetchval("select 1 / $1::int", 1) == 1
        await conn.execute("drop table if exists drv_asyncpg_err")
        await conn.execute("create table drv_asyncpg_err (id int constraint drv_asyncpg_positive check (id > 0))")
        error = await fails(asyncpg.CheckViolationError, conn.execute("insert into drv_asyncpg_err values ($1)", -1))
        assert error.constraint_name == "drv_asyncpg_positive"
        block = conn.transaction()
        await block.start()
        await fails(asyncpg.DivisionByZeroError, conn.fetchval("select 1 / $1::int", 0))
        await fails(asyncpg.InFailedSQLTransactionError, conn.fetchval("select 1 / $1::int", 1))
        await fails(asyncpg.InFailedSQLTransactionError, conn.fetchval("select 'new text'"))
        await block.rollback()
        assert await conn.fetchval("select 1 / $1::int", 1) == 1
        await conn.execute("drop table drv_asyncpg_err")


@check
async def executemany():
    async with connect() as conn:
        await conn.execute("drop table if exists drv_asyncpg_many")
        await conn.execute("create table drv_asyncpg_many (id int primary key, v text)")
        query = "insert into drv_asyncpg_many values ($1, $2)"
        await conn.executemany(query, [(n, f"v{n}" * 20) for n in range(5000)])
        assert await conn.fetchval("select count(*) from drv_asyncpg_many") == 5000
        # All or nothing, though the driver sends it in many parts.
        rows = [(n, "x" * 100) for n in range(10000, 14000)] + [(1, "taken")] + [(n, "y") for n in range(20000, 22000)]
        await fails(asyncpg.UniqueViolationError, conn.executemany(query, rows))
        assert await conn.fetchval("select count(*) from drv_asyncpg_many") == 5000
        async with conn.transaction():
            await conn.executemany(query, [(30000, "z"), (30001, None)])
            assert await conn.fetchval("select count(*) from drv_asyncpg_many") == 5002
        await conn.execute("drop table drv_asyncpg_many")


@check
async def copy_in_out():
    async with connect() as conn:
        await conn.execute("drop table if exists drv_asyncpg_copy")
        await conn.execute("create table drv_asyncpg_copy (id int, v text, at timestamptz)")
        now = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
        records = [(n, f"row {n}" if n % 3 else None, now) for n in range(20000)]
        assert await conn.copy_records_to_table("drv_asyncpg_copy", records=records) == "COPY 20000"
        source = io.BytesIO(b"".join(b"%d,csv,\n" % n for n in range(20000, 21000)))
        assert await conn.copy_to_table("drv_asyncpg_copy", source=source, format="csv") == "COPY 1000"
        out = io.BytesIO()
        result = await conn.copy_from_query(
            "select id, v from drv_asyncpg_copy where id >= $1 order by id", 1, output=out, format="csv"
        )
        lines = out.getvalue().splitlines()
        assert result == "COPY 20999" and len(lines) == 20999 and lines[3] == b"4,row 4" and lines[2] == b"3,"
        await conn.execute("drop table drv_asyncpg_copy")


@check
async def copy_fails():
    async with connect() as conn:
        await conn.execute("drop table if exists drv_asyncpg_copy2; create table drv_asyncpg_copy2 (id int)")
        # The server refuses while the client still sends.
        bad = io.BytesIO(b"1\nno number\n" * 100000)
        await fails(
            asyncpg.InvalidTextRepresentationError, conn.copy_to_table("drv_asyncpg_copy2", source=bad, format="csv")
        )

        # The client gives up.
        def records():
            yield (1,)
            raise KeyError("gave up")

        await fails(KeyError, conn.copy_records_to_table("drv_asyncpg_copy2", records=records()))
        # The client no longer wants the rows.
        query = "select i, repeat('x', 500) from generate_series(1, 1000000) i"

        class Full(Exception):
            pass

        async def sink(_):
            raise Full

        await fails(Full, conn.copy_from_query(query, output=sink))
        assert await conn.fetchval("select count(*) from drv_asyncpg_copy2") == 0
        await conn.execute("drop table drv_asyncpg_copy2")


@check
async def cancel_only_that_query():
    async with connect() as target, connect() as a, connect() as b, connect() as c:
        sleepers = [asyncio.create_task(x.fetchval("select 'slept' from pg_sleep(0.8)")) for x in (a, b, c)]
        # A query that times out makes the driver send a CancelRequest, and wait until it has worked.
        await fails(asyncio.TimeoutError, target.fetchval("select pg_sleep(20)", timeout=0.3))
        assert await target.fetchval("select 'usable'") == "usable"
        task = asyncio.create_task(target.fetchval("select pg_sleep($1)", 20))
        await asyncio.sleep(0.2)
        task.cancel()
        await fails(asyncio.CancelledError, task)
        assert await target.fetchval("select 'usable'") == "usable"
        assert await asyncio.gather(*sleepers) == ["slept"] * 3


@check
async def cancel_in_transaction():
    async with connect() as conn:
        block = conn.transaction()
        await block.start()
        await fails(asyncio.TimeoutError, conn.execute("select pg_sleep(20)", timeout=0.2))
        await fails(asyncpg.InFailedSQLTransactionError, conn.fetchval("select 1"))
        await block.rollback()
        assert await conn.fetchval("select 'usable'") == "usable"


@check
async def cursors():
    # Portals with a row limit, which live as long as their transaction; between fetches other statements run.
    async with connect() as conn:
        async with conn.transaction():
            total = 0
            async for row in conn.cursor("select i from generate_series(1, $1::int) i", 2000, prefetch=90):
                total += row[0]
                if row[0] % 500 == 0:
                    assert await conn.fetchval("select $1::int", row[0]) == row[0]
            assert total == 2000 * 2001 // 2
            cursor = await conn.cursor("select i from generate_series(1, 100) i")
            assert await cursor.forward(10) == 10
            assert [r[0] for r in await cursor.fetch(3)] == [11, 12, 13]
            assert (await cursor.fetchrow())[0] == 14


@check
async def large_values():
    text = "".join(chr(97 + i % 23) for i in range(1000)) * (LARGE // 1000)
    blob = hashlib.sha256(b"seed").digest() * (LARGE // 32)
    async with connect() as conn:
        for _ in range(2):
            assert await conn.fetchval("select $1::text", text) == text
            assert await conn.fetchval("select $1::bytea", blob) == blob
        assert await conn.fetchval("select length('" + text + "')") == len(text)


@check
async def notices():
    got, not_mine = [], []
    async with connect() as conn, connect() as other:
        conn.add_log_listener(lambda _, m: got.append((m.severity, m.message)))
        other.add_log_listener(lambda _, m: not_mine.append(m.message))
        await conn.execute("do $$ begin for i in 1..50 loop raise notice 'note %', i; end loop; end $$")
        await other.execute("select 1")
        await asyncio.sleep(0.05)
    assert len(got) == 50 and got[-1] == ("NOTICE", "note 50"), got[-1:]
    assert not_mine == []


@check
async def types_and_nulls():
    # For types that it does not know the driver asks the catalogs by statements of its own.
    async with connect() as conn:
        await conn.execute("drop type if exists drv_asyncpg_pair, drv_asyncpg_mood")
        await conn.execute("create type drv_asyncpg_mood as enum ('good', 'bad')")
        await conn.execute("create type drv_asyncpg_pair as (id int, mood drv_asyncpg_mood)")
    key = uuid.UUID(int=12345678901234567890)
    values = [
        None, True, 2**40, 1.5, decimal.Decimal("12345678901234567890.123456789"), "ünïcødé \\ ' \"", b"\x00\xff\x00",
        datetime.date(2026, 2, 3), datetime.datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=datetime.timezone.utc), key,
        [1, None, 3], "good", (7, "bad"), asyncpg.Range(1, 5),
    ]
    types = (
        "text bool int8 float8 numeric text bytea date timestamptz uuid int4[] drv_asyncpg_mood drv_asyncpg_pair int4range"
    ).split()
    query = "select " + ", ".join(f"${i + 1}::{t} as c{i}" for i, t in enumerate(types))

    async def client(_):
        async with connect() as conn:
            for _ in range(3):
                row = await conn.fetchrow(query, *values)
                assert list(row.values()) == values, row

    await asyncio.gather(*(client(n) for n in range(8)))
    async with connect() as conn:
        await conn.execute("drop type drv_asyncpg_pair; drop type drv_asyncpg_mood")


@check
async def schema_change():
    # The driver asks for a statement's columns once. A row of another shape than it was told is an error to it; only
    # PostgreSQL's own refusal (0A000) makes it prepare anew, by itself, when no transaction is open.
    async with connect() as other:
        await other.execute("drop table if exists drv_asyncpg_shape")
        await other.execute("create table drv_asyncpg_shape (id int, v int)")
        await other.execute("insert into drv_asyncpg_shape values (1, 10)")
        clients = [await asyncpg.connect() for _ in range(8)]
        query = "select * from drv_asyncpg_shape where id = $1"

        async def all_see(*expected):
            for conn in clients:
                for _ in range(2):
                    assert tuple(await conn.fetchrow(query, 1)) == expected

        await all_see(1, 10)
        await other.execute("alter table drv_asyncpg_shape add column extra text default 'more'")
        await all_see(1, 10, "more")
        await other.execute("alter table drv_asyncpg_shape alter column v type text using 'v' || v")
        await all_see(1, "v10", "more")
        await other.execute("alter table drv_asyncpg_shape drop column extra")
        await all_see(1, "v10")
        # At the same moment everywhere.
        await other.execute("alter table drv_asyncpg_shape add column again int default 5")
        rows = await asyncio.gather(*(conn.fetchrow(query, 1) for conn in clients))
        assert [tuple(row) for row in rows] == [(1, "v10", 5)] * len(clients)

        # Within a transaction it can't be healed: an error, and afterwards all is well.
        await other.execute("alter table drv_asyncpg_shape drop column again")
        block = clients[0].transaction()
        await block.start()
        await fails(asyncpg.InvalidCachedStatementError, clients[0].fetchrow(query, 1))
        await fails(asyncpg.InFailedSQLTransactionError, clients[0].fetchval("select 1"))
        await block.rollback()
        await all_see(1, "v10")
        for conn in clients:
            await conn.close()
        await other.execute("drop table drv_asyncpg_shape")


@check
async def dropped_and_made_again():
    async with connect() as conn, connect() as other:
        for turn in range(3):
            await other.execute("drop table if exists drv_asyncpg_made")
            await other.execute(f"create table drv_asyncpg_made as select {turn} as id")
            assert await conn.fetchval("select id from drv_asyncpg_made") == turn
        await other.execute("drop table drv_asyncpg_made")
        await fails(asyncpg.UndefinedTableError, conn.fetchval("select id from drv_asyncpg_made"))


@check
async def left_in_transaction():
    async with connect() as keeper:
        await keeper.execute("drop table if exists drv_asyncpg_left; create table drv_asyncpg_left (id int)")
        for turn in range(8):
            conn = await asyncpg.connect()
            await conn.transaction().start()
            await conn.execute("insert into drv_asyncpg_left values (1); lock table drv_asyncpg_left")
            if turn % 2:
                conn.terminate()
            else:
                await conn.close()
        async with keeper.transaction():
            await keeper.execute("set local lock_timeout = '5s'; lock table drv_asyncpg_left")
        assert await keeper.fetchval("select count(*) from drv_asyncpg_left") == 0
        await keeper.execute("drop table drv_asyncpg_left")


run()
