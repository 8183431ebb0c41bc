"""psycopg 3 by its ordinary API: it prepares by itself what it sees five times, and drops what it no longer needs."""

import asyncio
import datetime
import decimal
import hashlib
import logging
import threading
import time
import uuid

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from frame import check, run

CLIENTS = 30
LARGE = 6 * 1024 * 1024


# It warns of what an error in a pipeline leaves behind; the checks look for themselves.
logging.getLogger("psycopg").setLevel(logging.ERROR)


def connect(**options):
    return psycopg.connect(application_name="drv_psycopg", connect_timeout=60, **options)


def one(conn, query, arguments=None, **options):
    return conn.execute(query, arguments, **options).fetchone()[0]


def fails(sqlstate, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except psycopg.Error as error:
        assert error.sqlstate == sqlstate, f"wanted {sqlstate}, got {error.sqlstate}: {error}"
        return error
    raise AssertionError(f"no error, wanted {sqlstate}")


def in_threads(count, function):
    problems = []

    def guarded(number):
        try:
            function(number)
        except Exception as error:  # noqa: BLE001
            problems.append((number, error))

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(25)
    assert not any(t.is_alive() for t in threads), "a client hangs"
    if problems:
        raise AssertionError(f"{len(problems)} of {count} clients failed; client {problems[0][0]}: {problems[0][1]}")


@check
def prepared_30_clients_same_names():
    # The driver names its statements _pg3_0, _pg3_1, ...: the same names for other texts in each client.
    texts = [
        ("select 'a' || %s::int", lambda n: f"a{n}"),
        ("select 'b' || (%s::int + 1)", lambda n: f"b{n + 1}"),
        ("select 'c' || (%s::int * 2)", lambda n: f"c{n * 2}"),
    ]

    def client(number):
        with connect() as conn:
            for turn in range(12):
                for i in range(3):
                    text, expected = texts[(number + i) % 3]
                    argument = number * 1000 + turn
                    assert one(conn, text, (argument,), prepare=True) == expected(argument)
                if turn % 2:
                    conn.commit()
                elif turn % 4:
                    conn.rollback()

    in_threads(CLIENTS, client)


@check
def prepared_by_itself_after_five():
    with connect(autocommit=True) as conn:
        for n in range(20):
            assert one(conn, "select %s::int8 + 1", (n,)) == n + 1


@check
def prepared_evicted():
    # More texts than the driver keeps: it closes the oldest one each time.
    with connect(autocommit=True) as conn:
        conn.prepared_max = 5
        for turn in range(3):
            for n in range(12):
                assert one(conn, f"select %s::int + {n}", (turn,), prepare=True) == turn + n


@check
def prepared_after_rollback_and_drop():
    # The driver sends DEALLOCATE ALL after a ROLLBACK and after any DROP.
    with connect() as conn:
        conn.execute("drop table if exists drv_psycopg_drop")
        conn.execute("create table drv_psycopg_drop (id int)")
        conn.commit()
        for n in range(4):
            conn.execute("insert into drv_psycopg_drop values (%s)", (n,), prepare=True)
            assert one(conn, "select count(*) from drv_psycopg_drop", prepare=True) == 1
            conn.rollback()
        conn.execute("drop table drv_psycopg_drop")
        conn.execute("create table drv_psycopg_drop (id int, v text)")
        conn.execute("insert into drv_psycopg_drop values (%s)", (1,), prepare=True)
        assert one(conn, "select count(*) from drv_psycopg_drop", prepare=True) == 1
        conn.execute("drop table drv_psycopg_drop")
        conn.commit()


@check
def commit_rollback():
    with connect() as first, connect(autocommit=True) as second:
        second.execute("drop table if exists drv_psycopg_tx")
        second.execute("create table drv_psycopg_tx (id int primary key, v text)")
        first.execute("insert into drv_psycopg_tx values (1, 'x')")
        assert first.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        assert one(second, "select count(*) from drv_psycopg_tx") == 0
        first.commit()
        assert one(second, "select count(*) from drv_psycopg_tx") == 1
        first.execute("delete from drv_psycopg_tx")
        first.rollback()
        assert one(second, "select count(*) from drv_psycopg_tx") == 1
        second.execute("drop table drv_psycopg_tx")


@check
def nested_transactions():
    with connect(autocommit=True) as conn:
        conn.execute("drop table if exists drv_psycopg_nest")
        conn.execute("create table drv_psycopg_nest (id int primary key)")
        with conn.transaction():
            conn.execute("insert into drv_psycopg_nest values (1)")
            try:
                with conn.transaction():
                    conn.execute("insert into drv_psycopg_nest values (2)")
                    conn.execute("insert into drv_psycopg_nest values (1)")
                raise AssertionError("no error")
            except psycopg.errors.UniqueViolation:
                pass
            with conn.transaction():
                conn.execute("insert into drv_psycopg_nest values (3)")
                raise psycopg.Rollback
            conn.execute("insert into drv_psycopg_nest values (4)")
        rows = conn.execute("select id from drv_psycopg_nest order by id").fetchall()
        assert rows == [(1,), (4,)], rows
        conn.execute("drop table drv_psycopg_nest")


@check
def isolation_level():
    with connect() as conn:
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        conn.read_only = True
        assert one(conn, "select current_setting('transaction_isolation')") == "serializable"
        fails("25006", conn.execute, "create table drv_psycopg_never (id int)")
        conn.rollback()
    with connect() as conn:
        assert one(conn, "select current_setting('transaction_isolation')") == "read committed"


@check
def errors():
    with connect() as conn:
        fails("42601", conn.execute, "selec 1")
        # Within the transaction that the driver began, all else is refused until the rollback.
        fails("25P02", conn.execute, "select 1")
        conn.rollback()
        assert one(conn, "select 'usable'") == "usable"
        conn.rollback()
    with connect(autocommit=True) as conn:
        fails("42P01", conn.execute, "select * from drv_psycopg_no_such")
        fails("22012", conn.execute, "select 1 / %s::int", (0,), prepare=True)
        fails("22P02", conn.execute, "select %s::int", ("many",), prepare=True)
        fails("26000", conn.execute, "execute drv_psycopg_unknown")
        assert one(conn, "select 1 / %s::int", (1,), prepare=True) == 1
        conn.execute("drop table if exists drv_psycopg_err")
        conn.execute("create table drv_psycopg_err (id int constraint drv_psycopg_positive check (id > 0))")
        error = fails("23514", conn.execute, "insert into drv_psycopg_err values (%s)", (-1,))
        assert error.diag.constraint_name == "drv_psycopg_positive", error.diag.constraint_name
        conn.execute("drop table drv_psycopg_err")
        assert not conn.closed


@check
def executemany():
    with connect() as conn, conn.cursor() as cursor:
        cursor.execute("drop table if exists drv_psycopg_many")
        cursor.execute("create table drv_psycopg_many (id int primary key, v text)")
        cursor.executemany("insert into drv_psycopg_many values (%s, %s)", [(n, f"v{n}") for n in range(1000)])
        assert cursor.rowcount == 1000, cursor.rowcount
        cursor.executemany("select %s::int * 2", [(1,), (2,)], returning=True)
        assert cursor.fetchone() == (2,) and cursor.nextset() and cursor.fetchone() == (4,)
        conn.commit()
        fails("23505", cursor.executemany, "insert into drv_psycopg_many values (%s, 'x')", [(5000,), (1,), (5001,)])
        conn.rollback()
        assert one(conn, "select count(*) from drv_psycopg_many") == 1000
        conn.execute("drop table drv_psycopg_many")


@check
def pipeline():
    with connect(autocommit=True) as conn:
        conn.execute("drop table if exists drv_psycopg_pipe")
        conn.execute("create table drv_psycopg_pipe (id int primary key)")
        with conn.pipeline() as pipe:
            cursors = [conn.execute("select %s::int + 1", (n,), prepare=n % 2 == 0) for n in range(300)]
            pipe.sync()
            with conn.transaction():
                conn.execute("insert into drv_psycopg_pipe values (1)")
                inside = conn.execute("select count(*) from drv_psycopg_pipe")
            assert inside.fetchone() == (1,)
            last = conn.execute("select 'last'")
        assert [c.fetchone()[0] for c in cursors] == [n + 1 for n in range(300)]
        assert last.fetchone() == ("last",)
        conn.execute("drop table drv_psycopg_pipe")


@check
def pipeline_error():
    with connect(autocommit=True) as conn:
        conn.execute("drop table if exists drv_psycopg_pipe2")
        conn.execute("create table drv_psycopg_pipe2 (id int primary key)")

        def broken():
            with conn.pipeline():
                for n in (1, 1, 2):
                    # Never prepared: the driver would count on a Parse that the error has skipped.
                    conn.execute("insert into drv_psycopg_pipe2 values (%s)", (n,), prepare=False)

        # The driver shows the error as soon as it has read it: at the end, or at a statement before.
        for _ in range(3):
            fails("23505", broken)
            # What went before the error has gone with it, and the next pipeline is a new one.
            with conn.pipeline() as pipe:
                count = conn.execute("select count(*) from drv_psycopg_pipe2")
                pipe.sync()
                assert count.fetchone() == (0,)
        with conn.pipeline():
            conn.execute("insert into drv_psycopg_pipe2 values (3)")
        assert conn.execute("select id from drv_psycopg_pipe2").fetchall() == [(3,)]
        conn.execute("drop table drv_psycopg_pipe2")


@check
def copy_in_out():
    with connect() as conn, conn.cursor() as cursor:
        cursor.execute("drop table if exists drv_psycopg_copy")
        cursor.execute("create table drv_psycopg_copy (id int, v text, at timestamptz)")
        now = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
        with cursor.copy("copy drv_psycopg_copy from stdin") as copy:
            for n in range(20000):
                copy.write_row((n, f"a\tb\n{n}", now if n % 2 else None))
        with cursor.copy("copy drv_psycopg_copy from stdin (format binary)") as copy:
            copy.set_types(["int4", "text", "timestamptz"])
            for n in range(20000, 21000):
                copy.write_row((n, None, now))
        with cursor.copy("copy (select id, v from drv_psycopg_copy order by id) to stdout (format binary)") as copy:
            copy.set_types(["int4", "text"])
            rows = list(copy.rows())
        assert len(rows) == 21000 and rows[12345] == (12345, "a\tb\n12345") and rows[20500] == (20500, None)
        conn.commit()
        conn.execute("drop table drv_psycopg_copy")


@check
def copy_fails():
    with connect() as conn, conn.cursor() as cursor:
        cursor.execute("drop table if exists drv_psycopg_copy2")
        cursor.execute("create table drv_psycopg_copy2 (id int)")
        conn.commit()

        def give_up():
            with cursor.copy("copy drv_psycopg_copy2 from stdin") as copy:
                copy.write_row((1,))
                raise KeyError("gave up")

        def bad_row():
            with cursor.copy("copy drv_psycopg_copy2 from stdin") as copy:
                for _ in range(20000):
                    copy.write("no number\n")

        def leave_early():
            with cursor.copy("copy (select i, repeat('x', 500) from generate_series(1, 100000) i) to stdout") as copy:
                copy.read()
                raise KeyError("had enough")

        # On an exception the driver sends CopyFail, or cancels the query whose rows it no longer wants.
        for leave in (give_up, leave_early, give_up):
            try:
                leave()
                raise AssertionError("no error")
            except KeyError:
                conn.rollback()
        fails("22P02", bad_row)
        conn.rollback()
        assert one(conn, "select count(*) from drv_psycopg_copy2") == 0
        conn.execute("drop table drv_psycopg_copy2")


@check
def cancel_only_that_query():
    slept = []

    def sleeper(_):
        with connect() as conn:
            slept.append(one(conn, "select 'slept' from pg_sleep(0.8)"))

    others = [threading.Thread(target=sleeper, args=(n,), daemon=True) for n in range(3)]
    for thread in others:
        thread.start()
    with connect() as conn:
        stop = threading.Event()

        def canceller():
            # One by the old call and then by the new one, until the query has ended.
            conn_cancel = [conn.cancel, conn.cancel_safe]
            for turn in range(40):
                if stop.wait(0.1):
                    return
                conn_cancel[turn % 2]()

        helper = threading.Thread(target=canceller, daemon=True)
        helper.start()
        began = time.monotonic()
        fails("57014", conn.execute, "select pg_sleep(20)")
        stop.set()
        helper.join()
        assert time.monotonic() - began < 10
        fails("25P02", conn.execute, "select 1")
        conn.rollback()
        assert one(conn, "select 'usable'") == "usable"
    for thread in others:
        thread.join(10)
    assert slept == ["slept"] * 3, slept


@check
async def cancel_by_task():
    # A task that is cancelled makes the driver send a CancelRequest.
    async with await psycopg.AsyncConnection.connect(autocommit=True) as conn:
        for _ in range(3):
            try:
                await asyncio.wait_for(conn.execute("select pg_sleep(20)"), 0.2)
                raise AssertionError("no time-out")
            except (asyncio.TimeoutError, psycopg.errors.QueryCanceled):
                pass
            row = await (await conn.execute("select 'usable'")).fetchone()
            assert row == ("usable",)


@check
def large_values():
    text = "".join(chr(97 + i % 23) for i in range(1000)) * (LARGE // 1000)
    blob = hashlib.sha256(b"seed").digest() * (LARGE // 32)
    with connect() as conn:
        for prepare in (False, True):
            assert one(conn, "select %s::text", (text,), prepare=prepare) == text
            assert one(conn, "select %b::bytea", (blob,), prepare=prepare, binary=True) == blob
        assert one(conn, "select length(%s::bytea)", (blob,)) == len(blob)


@check
def server_cursor_and_stream():
    with connect() as conn:
        with conn.cursor(name="drv_cursor") as cursor:
            cursor.execute("select i from generate_series(1, %s) i", (5000,))
            cursor.itersize = 700
            assert sum(row[0] for row in cursor) == 5000 * 5001 // 2
        conn.commit()
        with conn.cursor() as cursor:
            assert sum(r[0] for r in cursor.stream("select i from generate_series(1, 5000) i")) == 5000 * 5001 // 2
            # Left before its end: the driver must read, or cancel, the rest.
            for row in cursor.stream("select i from generate_series(1, 50000) i"):
                if row[0] == 10:
                    break
        conn.rollback()
        assert one(conn, "select 'usable'") == "usable"


@check
def notices():
    got, not_mine = [], []
    with connect(autocommit=True) as conn, connect(autocommit=True) as other:
        conn.add_notice_handler(lambda d: got.append((d.severity, d.message_primary)))
        other.add_notice_handler(lambda d: not_mine.append(d.message_primary))
        conn.execute("do $$ begin for i in 1..50 loop raise notice 'note %', i; end loop; end $$")
        other.execute("select 1")
    assert got[-1] == ("NOTICE", "note 50") and len(got) == 50, got[-1:]
    assert not_mine == []


@check
def types_and_nulls():
    key = uuid.UUID(int=12345678901234567890)
    values = [
        None, True, 2**40, 1.5, decimal.Decimal("12345678901234567890.123456789"), "ünïcødé \\ ' \"", b"\x00\xff\x00",
        datetime.date(2026, 2, 3), datetime.datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=datetime.timezone.utc), key,
        [1, None, 3], ["a,b", None, ""],
    ]
    types = "text bool int8 float8 numeric text bytea date timestamptz uuid int4[] text[]".split()
    query = "select " + ", ".join(f"%s::{t} as c{i}" for i, t in enumerate(types))
    with connect() as conn:
        for binary in (False, True):
            for prepare in (False, True, True):
                cursor = conn.cursor(binary=binary, row_factory=dict_row)
                row = cursor.execute(query, values, prepare=prepare).fetchone()
                assert list(row.values()) == values, row
        assert one(conn, "select %s", (Jsonb({"a": [1, None]}),)) == {"a": [1, None]}


def after_change(connect_again, conn, query, expected):
    """The right rows, or PostgreSQL's own refusal (0A000) and then the right rows by a fresh statement."""
    try:
        assert conn.execute(query, prepare=True).fetchone() == expected
        return
    except psycopg.errors.FeatureNotSupported as error:
        assert "cached plan" in str(error)
    if conn.autocommit:
        conn = connect_again()
    else:
        # With the rollback the driver forgets its statements.
        conn.rollback()
    got = conn.execute(query, prepare=True).fetchone()
    assert got == expected, got


@check
def schema_change():
    with connect(autocommit=True) as other:
        other.execute("drop table if exists drv_psycopg_shape")
        other.execute("create table drv_psycopg_shape (id int, v int)")
        other.execute("insert into drv_psycopg_shape values (1, 10)")
        query = "select * from drv_psycopg_shape"
        clients = [connect(autocommit=n % 2 == 0) for n in range(6)]

        def all_see(expected):
            for number, conn in enumerate(clients):
                def again(number=number):
                    clients[number].close()
                    clients[number] = connect(autocommit=True)
                    return clients[number]

                after_change(again, conn, query, expected)
                if not clients[number].autocommit:
                    clients[number].commit()

        all_see((1, 10))
        all_see((1, 10))
        other.execute("alter table drv_psycopg_shape add column extra text default 'more'")
        all_see((1, 10, "more"))
        other.execute("alter table drv_psycopg_shape alter column v type text using 'v' || v")
        all_see((1, "v10", "more"))
        other.execute("alter table drv_psycopg_shape drop column extra")
        all_see((1, "v10"))
        for conn in clients:
            conn.close()
        other.execute("drop table drv_psycopg_shape")


@check
def left_in_transaction():
    with connect(autocommit=True) as keeper:
        keeper.execute("drop table if exists drv_psycopg_left")
        keeper.execute("create table drv_psycopg_left (id int)")
        for _ in range(8):
            conn = connect()
            conn.execute("insert into drv_psycopg_left values (1)")
            conn.execute("lock table drv_psycopg_left")
            conn.close()
        with keeper.transaction():
            keeper.execute("set local lock_timeout = '5s'")
            keeper.execute("lock table drv_psycopg_left")
        assert one(keeper, "select count(*) from drv_psycopg_left") == 0
        keeper.execute("drop table drv_psycopg_left")


run()
