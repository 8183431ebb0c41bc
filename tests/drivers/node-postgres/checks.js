'use strict'
// node-postgres by its ordinary API. A query with a name is parsed once a connection; one with values but no name goes
// by the unnamed statement each time; one without values goes by the simple protocol.

const assert = require('node:assert/strict')
const { pipeline } = require('node:stream/promises')
const { Readable, Writable } = require('node:stream')
const { Client, Pool } = require('pg')
const { from: copyFrom, to: copyTo } = require('pg-copy-streams')
const Cursor = require('pg-cursor')
const { connect, fails, value, pause, run } = require('./frame.js')

const CLIENTS = 30
const LARGE = 6 * 1024 * 1024

const numbers = Array.from({ length: CLIENTS }, (_, n) => n)

async function prepared_30_clients_same_names() {
  const texts = [
    ["select 'a' || $1::int as v", (n) => `a${n}`],
    ["select 'b' || ($1::int + 1) as v", (n) => `b${n + 1}`],
    ["select 'c' || ($1::int * 2) as v", (n) => `c${n * 2}`],
  ]
  await Promise.all(
    numbers.map(async (number) => {
      const client = await connect()
      for (let turn = 0; turn < 20; turn++) {
        const block = turn % 3 === 0
        if (block) await client.query('BEGIN')
        for (let i = 0; i < 3; i++) {
          const [text, expected] = texts[(number + i) % 3]
          const argument = number * 1000 + turn
          const { rows } = await client.query({ name: `s${i}`, text, values: [argument] })
          assert.deepEqual(rows, [{ v: expected(argument) }])
        }
        if (block) await client.query(turn % 2 ? 'COMMIT' : 'ROLLBACK')
      }
    }),
  )
}

async function unnamed_and_simple() {
  await Promise.all(
    numbers.map(async (number) => {
      const client = await connect()
      for (let turn = 0; turn < 20; turn++) {
        assert.equal(await value(client, 'select $1::int + $2::int', [number, turn]), number + turn)
        assert.equal(await value(client, `select ${number} * 2`), number * 2)
      }
    }),
  )
}

async function queued_queries() {
  // The driver takes many at once and keeps their order.
  const client = await connect()
  const all = []
  for (let n = 0; n < 200; n++) {
    all.push(n % 10 === 9 ? fails('22012', client.query('select 1 / $1::int', [0])) : value(client, 'select $1::int', [n]))
  }
  const got = await Promise.all(all)
  got.forEach((result, n) => n % 10 === 9 || assert.equal(result, n))
}

async function pipeline_mode() {
  // All is sent at once, a Sync for each query.
  await Promise.all(
    numbers.map(async (number) => {
      const client = await connect({ pipeline: true })
      const all = []
      for (let n = 0; n < 60; n++) {
        const named = { name: `p${n % 3}`, text: `select $1::int + ${number + (n % 3)}`, values: [n], rowMode: 'array' }
        if (n % 10 === 9) all.push(fails('22012', client.query('select 1 / $1::int', [0])))
        else if (n % 4 === 3) all.push(value(client, 'select $1::int', [n]))
        else all.push(client.query(named).then(({ rows }) => rows[0][0] - number - (n % 3)))
      }
      const got = await Promise.all(all)
      got.forEach((result, n) => n % 10 === 9 || assert.equal(result, n))
      const block = [client.query('begin'), fails('22012', client.query('select 1/0')), fails('25P02', client.query('select 1'))]
      await Promise.all([...block, client.query('rollback')])
      assert.equal(await value(client, "select 'usable'"), 'usable')
    }),
  )
}

async function driver_pool() {
  const pool = new Pool({ max: 20, application_name: 'drv_node' })
  try {
    await Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        const { rows } = await pool.query({ name: 'pooled', text: 'select $1::int as v', values: [n] })
        assert.equal(rows[0].v, n)
        const client = await pool.connect()
        try {
          await client.query('BEGIN')
          assert.equal(await value(client, 'select $1::text', [`task ${n}`]), `task ${n}`)
          await client.query('COMMIT')
        } finally {
          client.release()
        }
      }),
    )
  } finally {
    await pool.end()
  }
}

async function prepared_unknown_and_deallocate() {
  const one = await connect()
  const two = await connect()
  const query = { name: 'known', text: 'select $1::int + 1 as v', values: [1] }
  await one.query(query)
  await two.query(query)
  // Behind the driver's back: it binds the name that it knows.
  await one.query('DEALLOCATE known')
  await fails('26000', one.query(query))
  assert.equal((await two.query(query)).rows[0].v, 2)
  await two.query('DISCARD ALL')
  await fails('26000', two.query(query))
  await fails('26000', one.query('execute drv_node_unknown'))
  assert.equal(await value(one, "select 'usable'"), 'usable')
  // A Parse that fails leaves the name free.
  await fails('42601', one.query({ name: 'bad', text: 'selec 1' }))
  assert.equal((await one.query({ name: 'bad', text: 'select 8 as v' })).rows[0].v, 8)
}

async function commit_rollback() {
  const one = await connect()
  const two = await connect()
  await two.query('drop table if exists drv_node_tx; create table drv_node_tx (id int primary key)')
  await one.query('BEGIN')
  await one.query({ name: 'put', text: 'insert into drv_node_tx values ($1)', values: [1] })
  assert.equal(await value(two, 'select count(*)::int from drv_node_tx'), 0)
  await one.query('COMMIT')
  assert.equal(await value(two, 'select count(*)::int from drv_node_tx'), 1)
  await one.query('BEGIN')
  await one.query('delete from drv_node_tx')
  await one.query('ROLLBACK')
  assert.equal(await value(two, 'select count(*)::int from drv_node_tx'), 1)
  await two.query('drop table drv_node_tx')
}

async function savepoints() {
  const client = await connect()
  await client.query('drop table if exists drv_node_sp; create table drv_node_sp (id int primary key)')
  const put = (id) => client.query({ name: 'put', text: 'insert into drv_node_sp values ($1)', values: [id] })
  await client.query('BEGIN')
  await put(1)
  await client.query('SAVEPOINT a')
  await fails('23505', put(1))
  await fails('25P02', put(2))
  await client.query('ROLLBACK TO a')
  await put(3)
  await client.query('RELEASE a')
  await client.query('COMMIT')
  const { rows } = await client.query({ text: 'select id from drv_node_sp order by id', rowMode: 'array' })
  assert.deepEqual(rows, [[1], [3]])
  await client.query('drop table drv_node_sp')
}

async function errors() {
  const client = await connect()
  await fails('42601', client.query('selec 1'))
  await fails('42601', client.query('selec $1', [1]))
  await fails('42P01', client.query('select * from drv_node_no_such'))
  await fails('22012', client.query({ name: 'divide', text: 'select 1 / $1::int as v', values: [0] }))
  assert.equal((await client.query({ name: 'divide', text: 'select 1 / $1::int as v', values: [1] })).rows[0].v, 1)
  await fails('22P02', client.query({ name: 'divide', text: 'select 1 / $1::int as v', values: ['many'] }))
  await client.query('drop table if exists drv_node_err')
  await client.query('create table drv_node_err (id int constraint drv_node_positive check (id > 0))')
  const error = await fails('23514', client.query('insert into drv_node_err values ($1)', [-1]))
  assert.equal(error.constraint, 'drv_node_positive')
  await client.query('BEGIN')
  await fails('22012', client.query('select 1/0'))
  await fails('25P02', client.query('select $1::int', [1]))
  assert.equal((await client.query('COMMIT')).command, 'ROLLBACK')
  assert.equal(await value(client, "select 'usable'"), 'usable')
  await client.query('drop table drv_node_err')
}

async function several_statements() {
  const client = await connect()
  const results = await client.query("select 1 as a; select 2 as b; select 'c' as c")
  assert.deepEqual(results.map((r) => r.rows[0]), [{ a: 1 }, { b: 2 }, { c: 'c' }])
  await fails('22012', client.query('select 1; select 1/0; select 3'))
  assert.deepEqual((await client.query('')).rows, [])
  assert.deepEqual((await client.query('', [])).rows, [])
  assert.equal(await value(client, "select 'usable'"), 'usable')
}

async function collect(stream) {
  const parts = []
  for await (const part of stream) parts.push(part)
  return Buffer.concat(parts).toString()
}

async function copy_in_out() {
  const client = await connect()
  await client.query('drop table if exists drv_node_copy; create table drv_node_copy (id int, v text)')
  function* rows() {
    for (let n = 0; n < 30000; n++) yield `${n}\trow ${n}\n`
  }
  const into = client.query(copyFrom('copy drv_node_copy from stdin'))
  await pipeline(Readable.from(rows()), into)
  assert.equal(into.rowCount, 30000)
  const text = await collect(client.query(copyTo('copy (select * from drv_node_copy order by id) to stdout')))
  assert.equal(text, [...rows()].join(''))
  assert.equal(await value(client, 'select count(*)::int from drv_node_copy'), 30000)
  await client.query('drop table drv_node_copy')
}

async function copy_fails() {
  const client = await connect()
  await client.query('drop table if exists drv_node_copy2; create table drv_node_copy2 (id int)')
  function* bad() {
    for (let n = 0; n < 50000; n++) yield n === 10 ? 'no number\n' : `${n}\n`
  }
  await fails('22P02', pipeline(Readable.from(bad()), client.query(copyFrom('copy drv_node_copy2 from stdin'))))
  assert.equal(await value(client, 'select count(*)::int from drv_node_copy2'), 0)
  // The client gives up: the driver sends CopyFail.
  function* givesUp() {
    yield '1\n'
    throw new Error('gave up')
  }
  await assert.rejects(pipeline(Readable.from(givesUp()), client.query(copyFrom('copy drv_node_copy2 from stdin'))))
  assert.equal(await value(client, 'select count(*)::int from drv_node_copy2'), 0)
  await fails('42P01', collect(client.query(copyTo('copy drv_node_no_such to stdout'))))
  assert.equal(await value(client, "select 'usable'"), 'usable')
  await client.query('drop table drv_node_copy2')
}

async function cursor_by_parts() {
  // A portal with a row limit: Execute and Flush, again and again, and a Sync at the end only.
  const client = await connect()
  for (const block of [false, true]) {
    if (block) await client.query('BEGIN')
    const cursor = client.query(new Cursor('select i::int from generate_series(1, $1::int) i', [1000]))
    let sum = 0
    let seen = 0
    for (;;) {
      const rows = await cursor.read(90)
      if (rows.length === 0) break
      seen += rows.length
      sum += rows.reduce((total, row) => total + row.i, 0)
    }
    assert.equal(seen, 1000)
    assert.equal(sum, 500500)
    await cursor.close()
    if (block) await client.query('COMMIT')
  }
  const early = client.query(new Cursor('select i from generate_series(1, 100000) i'))
  assert.equal((await early.read(5)).length, 5)
  await early.close()
  assert.equal(await value(client, "select 'usable'"), 'usable')
  const wrong = client.query(new Cursor('select 1 / (5 - i) from generate_series(1, 100) i'))
  assert.equal((await wrong.read(3)).length, 3)
  await fails('22012', wrong.read(10))
  assert.equal(await value(client, "select 'usable'"), 'usable')
}

async function cancel_only_that_query() {
  const target = await connect()
  const others = await Promise.all([1, 2, 3].map(() => connect()))
  const slept = others.map((client) => value(client, "select 'slept' from pg_sleep(0.8)"))
  for (const values of [undefined, [20]]) {
    const query = target.query(values ? 'select pg_sleep($1)' : 'select pg_sleep(20)', values)
    let done = false
    const ended = fails('57014', query).finally(() => (done = true))
    // One that comes before the query has begun is lost by right.
    for (let tries = 0; tries < 50 && !done; tries++) {
      await pause(100)
      if (!done) new Client().cancel(target, target._getActiveQuery())
      await pause(50)
    }
    await ended
    assert.equal(await value(target, "select 'usable'"), 'usable')
  }
  assert.deepEqual(await Promise.all(slept), ['slept', 'slept', 'slept'])
}

async function large_values() {
  const client = await connect()
  const words = 'abcdefghijklm'.repeat(LARGE / 13)
  const bytes = Buffer.alloc(LARGE)
  for (let i = 0; i < LARGE; i++) bytes[i] = i * 7 + (i >> 12)
  for (let turn = 0; turn < 2; turn++) {
    const named = { name: 'large', text: 'select $1::text as t, $2::bytea as b', values: [words, bytes] }
    const { rows } = await client.query(named)
    assert.ok(rows[0].t === words, 'text came back changed')
    assert.ok(rows[0].b.equals(bytes), 'bytes came back changed')
  }
  assert.equal(await value(client, `select length('${words}')`), words.length)
}

async function notices() {
  const client = await connect()
  const other = await connect()
  const got = []
  const notMine = []
  client.on('notice', (n) => got.push(`${n.severity} ${n.message}`))
  other.on('notice', (n) => notMine.push(n.message))
  await client.query("do $$ begin for i in 1..50 loop raise notice 'note %', i; end loop; end $$")
  await other.query('select 1')
  assert.equal(got.length, 50)
  assert.equal(got[49], 'NOTICE note 50')
  assert.deepEqual(notMine, [])
}

async function types_and_nulls() {
  const client = await connect()
  const values = [null, true, '1099511627776', 1.5, '1234567890.12345678901234567890', 'ünïcødé \\ \' "', Buffer.from([0, 255, 0])]
  values.push(new Date('2026-02-03T04:05:06.789Z'), { a: [1, null] }, [1, null, 3], ['a,b', null, ''])
  const types = 'text bool int8 float8 numeric text bytea timestamptz jsonb int4[] text[]'.split(' ')
  const text = 'select ' + types.map((type, i) => `$${i + 1}::${type} as c${i}`).join(', ')
  for (const name of [undefined, 'types', 'types']) {
    const { rows, fields } = await client.query({ name, text, values, rowMode: 'array' })
    assert.deepEqual(rows[0], values)
    assert.equal(fields[8].dataTypeID, 3802)
  }
}

async function schema_change() {
  // The driver asks for the columns with each execution, so a pool may heal the statement; PostgreSQL itself refuses
  // it (0A000) for as long as the connection lives.
  const query = { name: 'shape', text: 'select * from drv_node_shape where id = $1', values: [1] }
  const other = await connect()
  await other.query('drop table if exists drv_node_shape; create table drv_node_shape (id int, v int)')
  await other.query('insert into drv_node_shape values (1, 10)')
  const clients = await Promise.all(numbers.slice(0, 8).map(() => connect()))

  async function allSee(expected) {
    for (let i = 0; i < clients.length; i++) {
      let rows
      try {
        rows = (await clients[i].query(query)).rows
      } catch (error) {
        assert.equal(error.code, '0A000', error.message)
        clients[i] = await connect()
        rows = (await clients[i].query(query)).rows
      }
      assert.deepEqual(rows, [expected])
      assert.deepEqual((await clients[i].query(query)).rows, [expected])
      // Unnamed: parsed each time, so always right.
      assert.deepEqual((await clients[i].query(query.text, [1])).rows, [expected])
    }
  }

  await allSee({ id: 1, v: 10 })
  await other.query("alter table drv_node_shape add column extra text default 'more'")
  await allSee({ id: 1, v: 10, extra: 'more' })
  await other.query("alter table drv_node_shape alter column v type text using 'v' || v")
  await allSee({ id: 1, v: 'v10', extra: 'more' })
  await other.query('alter table drv_node_shape drop column extra')
  await allSee({ id: 1, v: 'v10' })
  await other.query('drop table drv_node_shape')
  await fails('42P01', clients[0].query(query.text, [1]))
}

async function left_in_transaction() {
  const keeper = await connect()
  await keeper.query('drop table if exists drv_node_left; create table drv_node_left (id int)')
  for (let turn = 0; turn < 8; turn++) {
    const client = await connect()
    await client.query('begin')
    await client.query('insert into drv_node_left values (1)')
    await client.query('lock table drv_node_left')
    // By a Terminate, or by the socket alone.
    if (turn % 2) client.connection.stream.destroy()
    else await client.end()
  }
  await keeper.query('begin')
  await keeper.query("set local lock_timeout = '5s'")
  await keeper.query('lock table drv_node_left')
  assert.equal(await value(keeper, 'select count(*)::int from drv_node_left'), 0)
  await keeper.query('commit')
  await keeper.query('drop table drv_node_left')
}

// A sink that takes its time: the rows must wait, and nobody else.
async function slow_reader() {
  const slow = await connect()
  const quick = await connect()
  let bytes = 0
  const sink = new Writable({
    highWaterMark: 1024,
    write(part, _, done) {
      bytes += part.length
      setTimeout(done, bytes < 200000 ? 5 : 0)
    },
  })
  const query = "copy (select repeat('x', 999) from generate_series(1, 8000)) to stdout"
  const reading = pipeline(slow.query(copyTo(query)), sink)
  for (let n = 0; n < 50; n++) assert.equal(await value(quick, 'select $1::int', [n]), n)
  await reading
  assert.equal(bytes, 8000 * 1000)
}

run([
  prepared_30_clients_same_names,
  unnamed_and_simple,
  queued_queries,
  pipeline_mode,
  driver_pool,
  prepared_unknown_and_deallocate,
  commit_rollback,
  savepoints,
  errors,
  several_statements,
  copy_in_out,
  copy_fails,
  cursor_by_parts,
  slow_reader,
  cancel_only_that_query,
  large_values,
  notices,
  types_and_nulls,
  schema_change,
  left_in_transaction,
])
