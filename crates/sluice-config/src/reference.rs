//! Writes `docs/reference/configuration.md` from the schema and the rules. A test compares it with the file.

use std::fmt::Write as _;

use crate::{
    admin, auth, cluster, credentials, database, limits, listen, node, pool,
    schema::{self, Absent, Table},
    tls,
};

const INTRODUCTION: &str = "\
<!-- Generated from crates/sluice-config/src by a test; do not edit. SLUICE_BLESS=1 cargo test -p sluice-config \
--test config writes it again. -->

# Configuration

`sluice serve -c sluice.toml` runs with this file; `sluice check -c sluice.toml` only checks it. It is
[TOML](https://toml.io). `examples/` holds files to start from.

- An unknown key, a bad value and settings that can't stand together stop the start. All problems are reported at once,
  each with its file, line, column and remedy. No bad value becomes a default.
- Durations are a number and a unit in quotes, in whole milliseconds: `\"250ms\"`, `\"30s\"`, `\"10min\"`, `\"1h\"`,
  `\"7d\"` (and `us`; the minimum is `1000us`).
- Sizes are a number and a unit in quotes, as PostgreSQL writes them, 1MB being 1024kB: `\"512B\"`, `\"64kB\"`,
  `\"16MB\"`, `\"1GB\"`.
- Relative paths start at the folder of the configuration file.

## The log

It goes to standard error. `RUST_LOG` in the environment says how much: `info` by default; `warn` for less, `debug` for
more, and by part, as in `RUST_LOG=warn,sluice::stats=info`. `sluice serve --log-format json`, or `SLUICE_LOG_FORMAT=json`
in the environment, makes each line of a running pool a JSON object. Nobody waits for a reader who does not read: lines
that can't be written are lost, and a warning says how many as soon as one can be. Startup errors are always plain text,
but for those of a new process that is to take over from a running one: that one's log has them.

## The admin console

With [`[admin]`](#admin), `psql -h … -p … -U … pgbouncer` talks to the pool itself, by the simple query protocol.

| command | |
|---|---|
| `SHOW DATABASES`, `POOLS`, `STATS`, `STATS_TOTALS`, `STATS_AVERAGES`, `TOTALS`, `LISTS`, `USERS`, `CONFIG`, `VERSION` | the columns of PgBouncer 1.18, and their types: a number that does not fit an `int4` is shown as the largest one. Times are in microseconds, and averages over the last whole minute. What the pool answers without a server is no query (a BEGIN, up to the statement after it), and the wait for a server is no part of a query's time, unlike PgBouncer, which includes it |
| `SHOW CONFIG` | settings of the whole pool under PgBouncer's names, with Sluice's values and defaults (times in seconds, 0 where there is no limit), and whether a reload changes them. `pool_mode`, `default_pool_size`, `query_wait_timeout` and the like are those of [`[pool]`](#pool); `SHOW DATABASES` has a `pool_mode` where a database has another one. `server_login_retry` is `backoff_max`, `max_prepared_statements` is `prepared_per_server`; `max_db_connections` is always 0, since only databases have such a limit (`max_connections` of `SHOW DATABASES`) |
| `SHOW CLIENTS`, `SHOW SERVERS` | each client and each server connection, with PgBouncer's columns: `ptr` is its own name, `link` that of the server or the client it has, `remote_pid` the process number of a server, or the one that a client was told, `local_addr` and `local_port` this side's of the connection. A server that is being put in order for the next client is `tested` |
| `SHOW SOCKETS`, `SHOW ACTIVE_SOCKETS` | clients and servers together, with PgBouncer's columns and states (`cl_active`, `sv_idle`, …); those alone that have not been sent all that is for them, in `send_avail` bytes. The other columns on buffers are always 0. Clients that are logging in are not listed |
| `SHOW DNS_HOSTS`, `SHOW DNS_ZONES` | the host names of servers with their addresses (none where the name did not resolve) and the seconds until each is resolved again; of zones there are none |
| `SHOW NODES` | the nodes of clusters that have readers, as they were seen last: role, timeline, how far they are behind, the `databases` whose readers go there, and why others' do not (`unfit`) |
| `SHOW CLUSTERS` | each cluster with its primary and what is held: `held_us` is the length of the hold that is under way, or of the last one, `hold_ended` the way in which that ended, `sv_busy` the transactions that are open |
| `SHOW WAITS` | the clients that wait for a server, the one that comes next first |
| `SHOW STATEMENTS` | the statements that clients share (prepared ones, and unnamed ones that come again): how often each was run, the rows that it gave or changed, the time that servers took, and that for which clients waited for a server to run it on first; in microseconds, those that have taken most first. Of each text the first 2 kB are shown, with `?` for each constant and without comments, as in the log of slow ones, and what stands after a string with a backslash is left out (`…`); statements that are the same then are counted as one. Answers to a pipeline may come together: its first statement has all of their time then; and where a client pauses between its Execute and its Sync, PostgreSQL keeps the answer until the Sync, and the pause counts. What is run by a portal with a name is not counted, nor by the simple protocol, nor the first use of an unnamed statement. A pool keeps some 8,000 texts; those that no client holds and nobody has used for longest go first, with their counts |
| `SHOW PINS` | the clients of each pool that keep servers between transactions, and why |
| `SHOW HELP` | the commands |
| `SET` of `client_encoding`, `datestyle`, `default_transaction_isolation`, `standard_conforming_strings` or `timezone` | is ignored, with a notice: drivers send such. `SHOW` of one has a constant, as PgBouncer's (`UTF-8`, `ISO`, …) |
| `RELOAD` | as SIGHUP; an error says what is wrong |
| `PAUSE [db]` | no server is given out; answers when the transactions under way have ended and all servers are closed. Clients wait meanwhile, and no `wait_timeout` counts. In session mode that takes until they leave. A cancel of that wait (Ctrl-C in `psql`) takes the command back, and clients go on; where another `PAUSE` of the same waits as well, or was given before, that goes on. A `RESUME` in another session ends it, and the `PAUSE` that waits gets an error (55000) |
| `RESUME [db]` | ends a pause: that of a database which was paused by its name, or all of them; an error where there is none |
| `DISABLE db`, `ENABLE db` | no new client is let in to a database (55000), also not behind a reload; those that it has stay. Or again |
| `RECONNECT [db]` | each server is closed when it falls idle, and others are opened as they are needed |
| `WAIT_CLOSE [db]` | answers when all servers of a database, or of all, are closed that a `RECONNECT` or a reload has called in. It may take until the clients leave that keep them. A cancel ends the wait, and nothing else |
| `HOLD cluster [wait [all]]` | the clients of a cluster are held before its primary changes: transactions finish, others wait. Answers when none is open; after `wait` seconds (10) with an error, and holds all the same; a cancel of the wait takes it back, unless another `HOLD` waits as well, or was given before. Ends with another primary, with the primary's restart, or after `all` seconds (30, or 20 more than `wait`; it has to be more than `wait`, else nobody is held, 22023); that, or a `RELEASE`, before transactions have ended is an error (55000), and nobody is held then. For [`sluice cluster`](../nodes.md#another-primary) |
| `RELEASE cluster` | ends a hold |
| `DRAIN` | no new client is let in (57P03) and `/readyz` says 503; clients are disconnected (57P01) as soon as they have no transaction open; one that has sent nothing but its BEGIN has none. Answers when none is left; `RESUME` ends it, and so does a cancel of the wait, as for a `PAUSE`. For taking this process out of a balancer |
| `KILL db` | disconnects all clients of a database (57P01), and pauses it |
| `SHUTDOWN` | as SIGTERM |

Write a name as clients do, or in double quotes. `stats_users` may only `SHOW`. The log says who gave a command that
changes something.

## Reloading

On SIGHUP (`kill -HUP`, or `systemctl reload` with `ExecReload=kill -HUP $MAINPID`) the file is read again, with the
users file and the password files that it names, and applied as a whole. If anything in it is wrong, nothing changes.
The log says which of the two happened, and lists what has changed, without secrets.

- Limits, times and sizes of pools, users, authentication and look-ups take effect at once. No connection is closed for
  them, except servers beyond a smaller `size` or limit, as they fall idle, and clients that have been idle for longer
  than a new `idle_client_timeout` or `idle_transaction_timeout`.
- Another `host`, `port`, `password`, `auto_prepare`, `lazy_begin` or `pins` of a database makes new pools: clients go
  on with these from their next transaction, with their settings and prepared statements, and the old servers are closed
  when the transactions there have ended. In session mode a client keeps its server for as long as it stays, and so does
  one whose session holds what can't follow it (`SHOW PINS`). A waiting client's `wait_timeout` starts anew
  there. The figures of these pools begin anew, and those of the old ones are not shown.
- Clients of a database that is removed, or has another `dbname`, `user` or `mode`, are disconnected (SQLSTATE 57P01),
  as soon as they have no transaction open. A BEGIN with nothing after it does not count as one.
- Of the keys at the top of the file, `proxy_protocol_from`, `log_connections` and `log_disconnections` take effect at
  once. The others need a restart; a warning names those that differ.

In a terminal, SIGHUP means that the terminal was closed, and ends the service.
";

const USERS_FILE: &str = "
## The users file

`auth.users_file` has one line for each user, as PgBouncer's `auth_file`:

```
; name      secret
\"app\"       \"SCRAM-SHA-256$4096:…\"
\"reports\"   \"md5…\"
\"legacy\"    \"a plain password\"
```

The secret is a SCRAM verifier or an MD5 hash, as in PostgreSQL's `pg_authid.rolpassword`, or a plain password. A SCRAM
verifier must be exactly the server's own: the pool logs in there with what the client's own log-in has shown. Name and
secret are in double quotes; a quote inside them is doubled. Lines that begin with `;` or `#` are comments. What stands in
quotes after the secret is ignored, and of several lines for one user the last one counts, of which `sluice check` warns. A
user whose secret is empty can't log in by password. The file must be closed to others: `chmod 600`, or 640 if its group is
the service's.
";

const CLUSTERS: &str = "
## Clusters

A `[[database]]` with `cluster` in the place of `host` and `port` is wherever the primary of that cluster is. Sluice asks
the members, by Patroni's REST interface, each second, and at once when a connection to the primary is lost.

```toml
[[cluster]]
name = \"main\"
patroni = [\"http://10.0.0.1:8008\", \"http://10.0.0.2:8008\", \"http://10.0.0.3:8008\"]

[[database]]
name = \"*\"
cluster = \"main\"
```

- Only a node that says itself that it holds the leader's lock and is out of recovery is the primary, and none that is on
  an older timeline than has been seen.
- When another node is the primary, clients without an open transaction go on there, with their settings and prepared
  statements. All connections to the node before are closed at once. It is the same when the primary is at another
  address without a promotion (its `listen` and `connect_address` were changed, and it was restarted in its place): it
  is followed once it says so itself, PostgreSQL takes connections there, and no member that answers names another node
  as the leader.
- A client with a transaction block open gets an error with SQLSTATE 40001, at once or for its next statement, and stays
  connected: the transaction has failed, and can be run again after its ROLLBACK.
- A client that waits for the answer to a COMMIT hears what has become of it, as soon as there is a primary: `COMMIT`, or
  40001 if it was not done. That takes Sluice's extension on all nodes (`shared_preload_libraries = 'sluice'`, PostgreSQL
  15 or later), and a block that has written something before, in a request of its own
  ([how](../decisions/0027-a-commit-is-known-by-its-own-record.md)). If that block has changed the session, the
  session ends after the answer (08006).
- Where something else was under way that may have been committed (a statement outside of a block, a text of several
  statements), or it can't be found out, the client is disconnected with 08007; one that keeps its server (`SHOW PINS`)
  or is in session mode, with 08006 or 08007. Where PostgreSQL has said itself why it ends a session (57P01), the client
  hears that.
- While no primary can be connected to, clients wait, log-ins as well: for `failover_timeout`, and neither
  `connect_timeout`, `wait_timeout` nor `login_timeout` counts. Then they get SQLSTATE 57P03 or 08001.
- A cluster that is initialised anew under a pool that runs has other data, by another system identifier, and nobody is
  to work with them unawares. As soon as its primary, at the address of the one before, says so, all connections to it are
  closed, and clients wait as above; the error's detail then has both identifiers. Where they are to work with those data,
  restart the pool. A member that says nothing changes nothing.
- A planned switchover or restart is no error to anybody where Patroni runs
  [`sluice cluster hold`](../nodes.md#a-cluster-of-your-own) before it stops PostgreSQL: transactions finish, and the next
  ones wait. One that keeps its server is not held.
- Patroni's `restapi.authentication` is not needed, since Sluice only reads. It connects to PostgreSQL by the addresses
  that members announce (`postgresql.connect_address`).

### Reading from standbys

A second name of a database leads to standbys. Whoever says `app:ro` reads there; `\"*:ro\"` in the place of `\"app:ro\"`
and `dbname` has a second name for each database.

```toml
[[database]]
name = \"app:ro\"
dbname = \"app\"
cluster = \"main\"
target_session_attrs = \"prefer-standby\"
max_lag = \"10s\"
```

- All members are asked each second. A standby will do that is on the primary's timeline, streams, replays, and is no
  more than `max_lag` (and `max_lag_bytes`) behind; Patroni's tag `noloadbalance` keeps readers away, and so
  does a Patroni that does not answer. How far a standby is
  behind is measured by what the primary had written when it was asked, so no clocks are compared. Between two looks it
  may fall behind by another second. One that was too far behind is taken again at half of the bound.
- While no primary answers, standbys go on serving readers up to `max_lag`.
- A client has its place at one standby, so it never sees time go backwards between its transactions there: that with the
  fewest clients, when it logs in. It leaves it where that standby will not do any more, or another one has come that is to have
  its share: between two transactions, with its settings and prepared statements, as with a primary that changes.
- Each node has a pool of its own: `size` and the others count for each of them, `servers` for all together.
- Where no standby will do, clients wait for `failover_timeout`, and then get SQLSTATE 57P03 with the reason for each node;
  with `prefer-standby` they go to the primary, and back when there is a standby.
- A connection is taken only if PostgreSQL itself says that it is in recovery (or, where readers go to the primary, that it
  is not). A standby that is promoted ends no connection: what is open there ends with its transaction.
- PostgreSQL refuses what writes (25006), and may cancel a query for what it has to replay (40001): clients hear its own
  words. Sessions begin with `default_transaction_read_only`, so that the same is refused where readers go to the primary.
  What says itself that it writes (`BEGIN READ WRITE`, `SET default_transaction_read_only = off`) is let write there: to
  forbid that, give readers a role without such rights.
- A snapshot is one server's: `pg_export_snapshot()` is of use to clients of the same standby only, so `pg_dump -j N` needs
  a connection straight to a standby, or the primary's name.
- A block that is lost with its standby fails with 40001, also where its COMMIT alone was under way, and the client stays. A
  statement outside of a block whose answer was lost ends its client's connection (08007), as above.
- In session mode, and with what can't follow it (`SHOW PINS`), a client stays where it is as long as its server lives.
- Users and secrets are looked up at the primary, so log-ins need one where `[auth.lookup]` is used.
  Errors of the query's own refuse a log-in at once: only those that a missing primary may have caused are waited out.
- What is committed at the primary is seen at a standby a moment later, by whoever has committed it as well, unless
  `causal_reads` says otherwise. A standby's catalogs change by replay, of which no extension tells: statements
  see that within a second.

[The decision](../decisions/0024-a-primary-is-one-that-says-so.md) has the reasons.

### Causal reads

With `causal_reads`, a transaction at a standby finds what was committed before it began: its server is asked how far it has
replayed, before anything of the client's goes there. Where that is not far enough within `causal_reads_timeout`, the
transaction is run at the primary.

```toml
[[database]]
name = \"app:ro\"
dbname = \"app\"
cluster = \"main\"
target_session_attrs = \"prefer-standby\"
causal_reads = \"global\"
```

- `\"global\"`: what any client of this pool's process was told to be committed. What others commit (another process, a
  connection past the pool) is found a second later, as well as what was committed before this process began. Where the
  primary's log can't be looked at for 5 seconds (its Patroni does not answer), transactions are run at the primary until
  it can; readers stay where they are while no primary is known.
  A client was told of a commit when its request has ended, with ReadyForQuery. If the server is lost between
  CommandComplete and that, or if the client reads CommandComplete amid a pipeline, it counts as a commit of others.
- `\"local\"`, for [read-only transactions](#read-only-transactions-at-standbys): what the client itself has committed.
  A client that has written nothing waits for nothing.
- The primary says with each commit where that is in its log, by [Sluice's extension](../session-report.md). Without the
  extension, readers of `\"global\"` are at the primary (the log says so), and so are read-only transactions.
- A standby that has replayed so much by itself costs one question, and none if it is known to have. A server that waits is
  one of the standby's pool.
- A reader that keeps its server (`SHOW PINS`) does not wait: it finds what that server has.
- A transaction that was run at the primary, since its standby took too long, may see what the next one, at the standby, does
  not see yet: others' commits since, of which this process's clients were not told.
- Where a reload gives a cluster its first database with causal reads, servers that clients keep over it do not say where their
  commits are: those clients read at the primary up to their next commit, and `\"global\"` does not wait for what is
  committed there.

### Read-only transactions at standbys

With `read_only_transactions = \"standby\"`, a transaction that a client begins with `BEGIN READ ONLY` or `START TRANSACTION READ
ONLY` runs at a standby; all others, and what is outside of transaction blocks, at the primary.

```toml
[[database]]
name = \"app\"
cluster = \"main\"
read_only_transactions = \"standby\"
```

- The BEGIN has to stand alone, and what comes first after it has to be one query (`SELECT`, `WITH`, `VALUES`, `TABLE`) of
  tables and of PostgreSQL's own functions, without what tells of the server itself (`pg_…`, `txid_…`, `inet_…`). From
  then on PostgreSQL answers at a standby what it answers in a read-only transaction at its primary, but for the list
  below. Everything else stays at the primary: other first statements, sessions that keep their server (`SHOW PINS`) or have
  set a role, and `SERIALIZABLE`, be it the default of the session, its role or its database.
- Settings and prepared statements go along, both ways. What the client has committed, DDL as well, is there
  ([Causal reads](#causal-reads)).
- Standbys are chosen as for readers, by `max_lag` and `max_lag_bytes`. All transactions of a client go to the same one as
  long as the same ones will do. A pool for each standby has the database's `size`.
- A transaction that is lost with its standby fails with 40001, and the client stays; where its COMMIT and another answer
  were owed, the client is disconnected (08007), though nothing was to be committed.

What may differ from the primary:

- Others' commits are seen a moment later (with `\"global\"`, those that they were told of are not), or a moment earlier:
  a commit that waits for its standbys is visible there before it is at the primary, and gone again if both of those nodes
  are lost before it is acknowledged.
- The clock (`now()`), collations and the files' settings are those of the standby's host. A sequence that is read as a
  table (`SELECT last_value FROM s`) may be 32 values ahead: PostgreSQL logs so many at once.
- PostgreSQL may cancel a query for what it has to replay (40001), and refuses some of what a read-only transaction may do at
  a primary, by its own words (\"… during recovery\"): `LISTEN`, `NOTIFY`, `LOCK TABLE` in the stronger modes,
  `PREPARE TRANSACTION`, `REINDEX`, `ANALYZE`, `pg_export_snapshot()`, transaction ids, unlogged tables, and on
  PostgreSQL 15, where a read-only transaction may make large objects, `lo_create()` and `lo_from_bytea()`.
- A transaction can't leave anything in its session that can't follow it: SQL's `PREPARE`, a cursor `WITH HOLD`, a session's
  advisory lock. The client is disconnected (0A000) at its end. What has failed has left nothing, but for the seed of a
  statement that failed after its `setseed()`, which is forgotten. Advisory locks in a statement's text are refused by the
  same code; one that a function takes is a lock at that standby alone.
- What stands after the COMMIT in the same text, or before the Sync of the same batch, is still the standby's: what writes is
  refused (25006), and anything where the session's default isolation is SERIALIZABLE (0A000). So is what `COMMIT AND CHAIN`
  begins, which can't be made a transaction that writes (0A000).
- `ALTER ROLE … SET` and `ALTER DATABASE … SET` count for a standby's connections that are opened after it has replayed them.

[The decision](../decisions/0032-a-read-waits-for-the-commits-that-it-has-to-find.md) has the reasons.
";

const ACCESS_RULES: &str = "
## Access rules

`auth.hba_file` names a `pg_hba.conf` in PostgreSQL's syntax (its documentation on client authentication, as of version
18): the first rule that matches a client's kind of connection, address, user and database says how it is to be
authenticated, and a client that matches none is rejected, with PostgreSQL's error. Includes, quotes, lists, `@` files,
regular expressions, `samehost` and `samenet`, `clientcert`, and `map` with an `auth.ident_file` mean what they mean
there.

| method | |
|---|---|
| `trust`, `reject` | as in PostgreSQL; `trust_anyone` is for `method` only. With `known_users_only`, a rule of `trust`, `cert` or `peer` turns away whoever is not in `users_file` or `users_without_secret`, as PgBouncer does |
| `md5`, `scram-sha-256` | by the secrets of `users_file` or `[auth.lookup]` |
| `cert` | the certificate's common name is the user, or a map's; needs `[tls]` with `client_ca_file` |
| `peer` | the system's user who has connected to the Unix socket is the user, or a map's |

After `trust`, `cert` and `peer` the pool has seen no password: unless the server lets the role in without one, give its
secret in `users_file`, or the database a `user` of its own.

`+role`, `samerole` and `samegroup` mean the members of a role as the server knows them, by whatever way, and a
superuser no more than others. They need `[auth.lookup]`, which asks for them together with the secret (everybody may
read `pg_roles` and `pg_auth_members`). A membership is trusted for its `cache`; a user who is refused is looked up
again the next time.

Rules that the pool could not enforce are refused when the file is read, by line:

- other methods;
- host names as addresses, since no DNS is asked while somebody logs in;
- `clientname=DN`, and expressions with back references, characters by number (`\\x41`), look-around, comments
  (`(?#…)`), options other than `(?i)` (`***=` and the other directors among them), collating elements (`[[.a.]]`),
  equivalence classes (`[[=a=]]`), or the bounds of words `[[:<:]]` and `[[:>:]]`;
- members of roles where there is no `[auth.lookup]`.

`sluice check` and the log warn of rules that no client of the pool can match (`hostssl` without `[tls]`, `local` without
`unix_socket_dir`, `replication`), of those that let nobody in because their map does not exist, and of `trust` for `all`
users of a database that has a `user`: whoever comes is that role. When a rule turns a client
away, the log names its file and line. A file has at most 4 MB, and so has each that it includes.

The addresses for `samehost` and `samenet` are read with the file: after this host has got another one, reload (PostgreSQL
reads them at each log-in). Where they can't be read, a file with such rules is refused; systemd's
`RestrictAddressFamilies` has to name `AF_NETLINK`, as the package's units do.

`required` and `client_certificates` of `[tls]` apply in addition to the rules. A reload reads the files again, all or nothing;
clients that are there stay.

### The server's own rules

With `auth.hba = \"server\"` the pool lets a client in if the server itself would, from the client's address. It reads the
rules and maps of the server that `[auth.lookup]` asks, and checks once a second whether the server has loaded new
ones; if reading them takes longer than 200 ms, it waits five times as long before the next check. The look-up's user
needs the right to see them:

```sql
GRANT SELECT ON pg_hba_file_rules, pg_ident_file_mappings TO lookup;
GRANT EXECUTE ON FUNCTION pg_hba_file_rules(), pg_ident_file_mappings() TO lookup;
```

- Until the rules are known, nobody is let in; log-ins wait meanwhile. While the server can't be asked, the previous
  rules stay in force; when the user of the look-up may no longer see them, nobody is let in. If a file has a line that
  PostgreSQL refuses, its previous version stays in force, as in the server. The log says so.
- PostgreSQL shows what its files say, not what it has loaded. If they have changed since the server's last known
  reload, a client whom both versions treat alike is let in or turned away accordingly, and everybody else is turned
  away (28000) until the server reloads. The files' contents at the first check are taken to be loaded: when the pool
  starts, and when a different postmaster answers, be it after a restart or after a failover behind the same address. So
  are those at the first check after a reload; of two reloads between two checks, the first goes unnoticed.
- Rules match the database's name on the server. A role that does not exist there, or may not log in, is turned away
  whatever the rule, as by the server; the answer is trusted for the look-up's `cache`.
- A rule that the pool could not enforce (see above) turns away everyone it applies to, and the log names it. The same
  goes for `samehost` and `samenet` if the server is on another host, and for expressions and names that begin with `/`
  before PostgreSQL 16.
- PostgreSQL shows names without their quotes. While a database or role named `all`, `sameuser`, `samerole`,
  `samegroup`, `replication` or `+…` exists, a rule with that word turns away everyone it might apply to: mind who may
  create databases. If none exists, `\"all\"` or `\"+group\"` in quotes is taken for the keyword; so is `\"all\"`,
  `\"samehost\"` or `\"samenet\"` as a host name.
- `clientname=DN` is not shown: the common name is used.
- The look-up's database has to be in UTF-8. Names that are not valid UTF-8 match no one.
- A server reached by a Unix socket or loopback is assumed to have this host's addresses, which is wrong if it runs in
  another network namespace. They are read anew at each check, if a rule asks for them; where they can't be, nobody is let
  in.
- A client that is answering a challenge while the rules change may be turned away (28P01), and can try again.
- Maps can be read from PostgreSQL 15 on; before that, a rule that names a map lets nobody in.
";

const BALANCERS: &str = "
## Balancers

Behind a balancer that passes connections on by TCP, all clients seem to come from the balancer. Have it send their
addresses (HAProxy's `send-proxy-v2` or `send-proxy`, nginx's `proxy_protocol on`, \"Proxy protocol\" of a cloud's
balancer), and list its addresses:

```toml
proxy_protocol_from = [\"192.0.2.7\", \"10.20.0.0/16\", \"2001:db8::/64\"]
```

A connection from there has to begin with a header of the PROXY protocol, version 1 or 2, before anything else, TLS
included. The address in it is the client's from then on: for the access rules, the limits, the log, and the server that
is told (`client_address_secret_file`). Have the balancer pass TLS through: what it decrypts itself comes in clear, and
its word on certificates is not taken.

- From anyone else such a header is a malformed startup packet, as for PostgreSQL: nobody can claim an address. List
  balancers only, and no network from which clients come by themselves.
- What a balancer sends in its own name (`LOCAL`, `UNKNOWN`), or for a client that reached it by a Unix socket, keeps
  the balancer's address.
- A connection from there with no header, or with a malformed one, is closed without a word; the log says what is wrong
  with it. A header has to arrive within `login_timeout`, in at most 107 bytes (version 1) or 4096 bytes (version 2),
  including its extensions, which are ignored.
- Unix sockets have no such header. A reload applies to new connections.
";

const STATISTICS: &str = "
## Statistics

With `stats_period`, each pool writes a line of figures to the log (standard error), under the name \
`sluice::stats`. Totals are since the start, here and everywhere. The pool of a database that only a name with `*` stands
for is forgotten, with its totals, when nobody has used it for an hour, as with PgBouncer's `autodb_idle_timeout`; others
are when there would be more than `limits.pools` otherwise, those first that nobody has used for longest.

```
INFO pool database=\"app\" user=\"web\" up_s=60.0 waiting=44 longest_wait_s=0.012 active=20 idle=0 connecting=0 pinned=2 \
pins=\"temp=2 lock=1\" served=81234 waited_s=702.5
```

| figure | |
|---|---|
| `up_s` | seconds since the start |
| `waiting`, `longest_wait_s` | clients that wait for a server, and for how long the next one has |
| `active`, `idle`, `connecting` | server connections that a client is using, that are free, and that are being opened |
| `pinned`, `pins` | servers that clients keep between transactions, and why: temporary objects, session-level advisory locks, `LISTEN`, … |
| `served` | times that a client was given a server: transactions, in transaction mode |
| `waited_s` | how long these clients had waited, together |
";

const METRICS: &str = "
## Metrics

With `http_listen`, the process answers three paths by HTTP, in clear and without a password, on up to 64 connections at
once for up to 5 s each:

| path | |
|---|---|
| `/metrics` | the figures for Prometheus, always as OpenMetrics 1.0; totals are since the start |
| `/healthz` | 200 while the process answers at all |
| `/readyz` | 200, and 503 once a shutdown has begun, or while a `DRAIN` at the console lasts: a sign for load balancers to send clients elsewhere. It does not check PostgreSQL: clients wait for that |

| metric | type | |
|---|---|---|
| `sluice_build_info` | info | the version that runs |
| `sluice_configuration_version` | gauge | the number of the configuration in force: a reload that changes something adds one |
| `sluice_connections` | gauge | connections to the pool, logged in or not |
| `sluice_clients`, `sluice_servers` | gauge | clients that are logged in, server connections |
| `sluice_pool_clients`, `sluice_pool_waiting_clients` | gauge | clients of a pool, and those of them that wait for a server |
| `sluice_pool_servers` | gauge | server connections by `state`: `active`, `idle`, `connecting` |
| `sluice_pool_pinned_servers` | gauge | servers that clients keep between transactions, because of what their sessions hold |
| `sluice_pool_paused` | gauge | 1 while the pool is paused |
| `sluice_pool_longest_wait_seconds` | gauge | how long the client that comes next has waited |
| `sluice_pool_wait_seconds` | histogram | waits for a server: one for each server that was given to a client, which is one for each transaction in transaction mode, and one for some log-ins |
| `sluice_pool_transaction_seconds` | histogram | how long transactions had a server, idle in them or not, also those that end because their client is gone |
| `sluice_pool_query_seconds` | histogram | queries and batches, from the first message that a server gets to the end of the answer, a client's pause before its Sync included; the wait for the server is not in it, and what the pool answers itself is not counted |
| `sluice_pool_received_bytes_total`, `sluice_pool_sent_bytes_total` | counter | bytes that clients have sent, and that servers have answered; not what the pool answers itself, nor what it asks itself |
| `sluice_node_readers` | gauge | of a cluster with readers, by `cluster` and `node`: readers that have their place at a node |
| `sluice_node_fit_for_readers` | gauge | whether readers of any database are led there |
| `sluice_node_lag_seconds`, `sluice_node_lag_bytes` | gauge | how far a standby is behind |

`docs/grafana/sluice.json` (in the package, `/usr/share/doc/sluice/grafana/sluice.json`) is a dashboard for Grafana that shows them.

Those of pools have the labels `database`, as clients say it, and `user`, the role on the server; where clients read from
standbys there is a pool for each node, and `server` is its address. Histograms have 22 buckets, from 64 µs to 67 s, each
twice as long as the one before it.
";

/// The reference page, in Markdown.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    write_table(&schema::FILE, &mut page);
    page.push_str(CLUSTERS);
    page.push_str(BALANCERS);
    page.push_str(ACCESS_RULES);
    page.push_str(STATISTICS);
    page.push_str(METRICS);
    page.push_str(USERS_FILE);
    write_rules(&mut page);
    page
}

const NODE_INTRODUCTION: &str = "\
<!-- Generated from crates/sluice-config/src by a test; do not edit. SLUICE_BLESS=1 cargo test -p sluice-config \
--test config writes it again. -->

# The file of a node

`sluice node -c node.toml` runs with this file, and `sluice node check -c node.toml` only checks it; the guide is
[Three hosts](../hosts.md). It is [TOML](https://toml.io). All problems are reported at once, each with its file, line,
column and remedy. Relative paths start at the folder of the file.

It is read at the start. SIGHUP (`systemctl reload sluice-node`) has `sluice node` read the other members, this
host's `sync_priority`, `hba` and `client_networks` again; all else counts when it is started again. Settings that all
nodes share are in the cluster instead, once it has begun: [`sluice cluster
config`](../nodes.md#restarts-settings-maintenance).
";

/// The reference page of `sluice node`'s file, in Markdown.
pub fn node_reference() -> String {
    let mut page = NODE_INTRODUCTION.to_owned();
    write_table(&schema::NODE, &mut page);
    page.push_str("\n## What can't stand together\n\n");
    for rule in node::RULES {
        // Writing to a string can't fail.
        let _ = writeln!(page, "- {rule}");
    }
    page
}

fn write_table(table: &Table, page: &mut String) {
    let heading =
        if table.path.is_empty() { "The top of the file".to_owned() } else { format!("`{}`", table.header()) };
    // Writing to a string can't fail.
    let _ = write!(
        page,
        "\n## {heading}\n\n{}\n\n| key | value | if absent | meaning |\n|---|---|---|---|\n",
        table.meaning
    );
    for key in table.keys {
        let absent = match key.absent() {
            _ if std::ptr::eq(table, &schema::DATABASE_POOL) => "as in `[pool]`".to_owned(),
            Absent::Default(value) => format!("`{value}`"),
            Absent::Means(meaning) => meaning.to_owned(),
            Absent::Required => "required".to_owned(),
        };
        let _ = writeln!(page, "| `{}` | {} | {absent} | {} |", key.name(), key.values(), key.meaning());
    }
    if std::ptr::eq(table, &schema::LOOKUP) {
        let query = schema::LOOKUP_QUERY.replace(" AND ", "\n  AND ");
        let _ = write!(page, "\nThe query, if none is given:\n\n```sql\n{query}\n```\n");
    }
    for table in table.tables {
        write_table(table, page);
    }
}

fn write_rules(page: &mut String) {
    page.push_str("\n## What can't stand together\n\n");
    for rule in [
        listen::RULES,
        auth::RULES,
        tls::RULES,
        admin::RULES,
        credentials::RULES,
        pool::RULES,
        cluster::RULES,
        database::RULES,
        limits::RULES,
    ]
    .concat()
    {
        let _ = writeln!(page, "- {rule}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::parse;

    const DATABASE: &str = "[[database]]\nname = \"*\"\n";
    const ADMIN: &str = "[admin]\nusers = [\"boss\"]\n";
    const SECRETS: &str = "[auth.lookup]\nuser = \"sluice\"\ndatabase = \"postgres\"\n";

    /// A file that writes out every default of the reference.
    fn written_out(table: &Table, file: &mut String) {
        if table.path == "tls" {
            // It asks for files; without it there is no TLS.
            return;
        }
        let _ = writeln!(file, "{}", table.header());
        for key in table.keys {
            match (table.path, key.name(), key.absent()) {
                // It means nothing but with trust, and the default method is another.
                ("auth", "trust_anyone", _) => {}
                (_, name, Absent::Default(value)) => {
                    let _ = writeln!(file, "{name} = {value}");
                }
                (_, name, Absent::Required) => {
                    let value = if name == "name" { "*" } else { "sluice" };
                    let _ = writeln!(file, "{name} = \"{value}\"");
                }
                (_, _, Absent::Means(_)) => {}
            }
        }
        if table.path == "admin" {
            // Without somebody who may use it, it is none.
            file.push_str("users = [\"boss\"]\n");
        }
        // There is no cluster unless somebody names one.
        table.tables.iter().filter(|table| table.path != "cluster").for_each(|table| written_out(table, file));
    }

    #[test]
    fn the_defaults_of_the_reference_are_those_of_the_program() {
        let file = Path::new("sluice.toml");
        let mut text = String::new();
        written_out(&schema::FILE, &mut text);
        let written = parse(&text, file).unwrap_or_else(|report| panic!("{text}\n{report}"));
        let secrets = SECRETS.replace("\"postgres\"", "\"sluice\"");
        let absent = parse(&format!("{secrets}{ADMIN}{DATABASE}"), file).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(format!("{written:?}"), format!("{absent:?}"), "{text}");
    }
}
