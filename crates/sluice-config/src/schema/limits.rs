//! Limits: `[limits]`, `[[user]]`, and those of a `[[database]]`.

use crate::kinds::{Integer, Size, Text, Time};

use super::{Absent, DAY, HOUR, Key, NAME, Table, ms, seconds};

pub(crate) static LIMITS: Table = Table {
    path: "limits",
    many: false,
    meaning: "Limits of the process as a whole, and of what several pools share. Where pools compete for servers under \
              one of them, each that needs them gets its share: one with more gives up a server that falls free to one \
              with fewer.",
    keys: &[
        &CLIENTS,
        &CLIENTS_PER_ADDRESS,
        &CLIENTS_PER_USER,
        &SERVERS,
        &SERVERS_PER_HOST,
        &SERVERS_PER_USER,
        &POOLS,
        &LOGIN_TIMEOUT,
        &CLIENT_MESSAGE_TIMEOUT,
        &IDLE_TRANSACTION_TIMEOUT,
        &IDLE_CLIENT_TIMEOUT,
        &QUERY_TIMEOUT,
        &REWRITTEN_MESSAGE,
    ],
    tables: &[],
};

pub(crate) static CLIENTS: Key<Integer> = Key {
    name: "clients",
    kind: Integer { min: 1, max: 1_000_000 },
    absent: Absent::Default("10000"),
    meaning: "Clients connected at once. One more is refused with SQLSTATE 53300. The admin console has places of its \
              own besides: ten, and three more for its `users`. However many TCP connections strangers open, it can \
              be reached by the Unix socket; by TCP it can't while they hold 100 connections more than `clients` \
              ([what holds](../security.md#getting-to-the-console)).",
};

pub(crate) static CLIENTS_PER_ADDRESS: Key<Integer> = Key {
    name: "clients_per_address",
    kind: Integer { min: 1, max: 1_000_000 },
    absent: Absent::Means("as many as `clients`"),
    meaning: "Clients connected at once from one IP address, log-ins that are under way and clients of the console among \
              them, and ten connections more that have not said what they want. One more is refused with SQLSTATE 53300.",
};

pub(crate) static CLIENTS_PER_USER: Key<Integer> = Key {
    name: "clients_per_user",
    kind: Integer { min: 1, max: 1_000_000 },
    absent: Absent::Means("as many as `clients`"),
    meaning: "Clients logged in at once as one user, unless its [`[[user]]`](#user) says otherwise. One more is refused \
              with SQLSTATE 53300.",
};

pub(crate) static SERVERS: Key<Integer> = Key {
    name: "servers",
    kind: Integer { min: 1, max: 100_000 },
    absent: Absent::Default("500"),
    meaning: "Connections to PostgreSQL at once, over all pools. Keep it below the servers' `max_connections`.",
};

pub(crate) static SERVERS_PER_HOST: Key<Integer> = Key {
    name: "servers_per_host",
    kind: Integer { min: 1, max: 100_000 },
    absent: Absent::Means("as many as `servers`"),
    meaning: "Connections at once to one PostgreSQL server, that is one `host` and `port`, over all pools.",
};

pub(crate) static SERVERS_PER_USER: Key<Integer> = Key {
    name: "servers_per_user",
    kind: Integer { min: 1, max: 100_000 },
    absent: Absent::Means("as many as `servers`"),
    meaning: "Connections to PostgreSQL at once as one role, over all databases, unless its [`[[user]]`](#user) says \
              otherwise.",
};

pub(crate) static POOLS: Key<Integer> = Key {
    name: "pools",
    kind: Integer { min: 1, max: 100_000 },
    absent: Absent::Default("1000"),
    meaning: "Pools at once, that is pairs of database and role whose clients are logged in or whose servers are open. \
              A client of one more is refused with SQLSTATE 53300.",
};

pub(crate) static LOGIN_TIMEOUT: Key<Time> = Key {
    name: "login_timeout",
    kind: Time { min: ms(100), max: seconds(HOUR) },
    absent: Absent::Default("\"30s\""),
    meaning: "How long a client may take from connecting to being logged in.",
};

pub(crate) static CLIENT_MESSAGE_TIMEOUT: Key<Time> = Key {
    name: "client_message_timeout",
    kind: Time { min: ms(100), max: seconds(DAY) },
    absent: Absent::Default("\"20s\""),
    meaning: "How long a client that has a server, or has sent more than 64 kB of a message that Sluice collects, \
              may leave that message unfinished before it is disconnected (SQLSTATE 08P01); every 64 kB that come \
              begin the time anew. No working network takes that long, and as long as this is shorter than \
              `wait_timeout`, clients waiting for that server still get it. A transaction, or a session that keeps its server, \
              goes on being idle until the message has come whole, as in PostgreSQL, and its own limit may come first.",
};

pub(crate) static IDLE_TRANSACTION_TIMEOUT: Key<Time> = Key {
    name: "idle_transaction_timeout",
    kind: Time { min: ms(100), max: seconds(DAY) },
    absent: Absent::Means("there is no limit"),
    meaning: "How long a client may say nothing inside a transaction, a batch without its Sync, or a COPY, whether it \
              has a server or has only begun, before it is sent away with SQLSTATE 25P03. It is PostgreSQL's `idle_in_transaction_session_timeout` \
              for the pool's clients. Where a batch asks for no answers, neither by a Sync nor by a Flush, the pool \
              does after a second, and the time begins with the last of them.",
};

pub(crate) static IDLE_CLIENT_TIMEOUT: Key<Time> = Key {
    name: "idle_client_timeout",
    kind: Time { min: ms(100), max: seconds(365 * DAY) },
    absent: Absent::Means("there is no limit"),
    meaning: "How long a client may ask for nothing between transactions before it is disconnected with SQLSTATE 57P05. \
              It is PostgreSQL's `idle_session_timeout` for the pool's clients, whose own, where they set one, counts \
              as well.",
};

pub(crate) static QUERY_TIMEOUT: Key<Time> = Key {
    name: "query_timeout",
    kind: Time { min: ms(100), max: seconds(365 * DAY) },
    absent: Absent::Means("there is no limit"),
    meaning: "How long a server may take for a request (a Query, or a batch up to its Sync or Flush) before it is sent a \
              cancel, which the client hears of as PostgreSQL says it, SQLSTATE 57014. The time in which the server \
              waits for its client, amid a batch or for the data of a COPY, is not counted; that in which \
              the client does not read its answer is. Where the cancel has not \
              helped 5 seconds later, the client is disconnected with SQLSTATE 08007, since what has become of its \
              request is open (it may be a commit that waits for a standby), and the server connection is closed. \
              PostgreSQL's `statement_timeout` is more exact, since it counts each statement: this one is for a server \
              or a network that does not answer.",
};

pub(crate) static REWRITTEN_MESSAGE: Key<Size> = Key {
    name: "rewritten_message",
    kind: Size { min: 16 << 10, max: 1 << 30 },
    absent: Absent::Default("\"16MB\""),
    meaning: "The largest client message that must be collected whole because Sluice changes it (a statement to \
              prepare, for one). Messages that only pass through have no limit but PostgreSQL's own.",
};

pub(crate) static DATABASE_CLIENTS: Key<Integer> = Key {
    name: "clients",
    kind: Integer { min: 1, max: 1_000_000 },
    absent: Absent::Means("as many as `limits.clients`"),
    meaning: "Clients logged in at once to this database. One more is refused with SQLSTATE 53300. Under `\"*\"`, each name \
              counts by itself.",
};

pub(crate) static DATABASE_SERVERS: Key<Integer> = Key {
    name: "servers",
    kind: Integer { min: 1, max: 100_000 },
    absent: Absent::Means("as many as `limits.servers`"),
    meaning: "Connections to PostgreSQL at once for this database, over the pools of all its users; `size` is for each of \
              these. Under `\"*\"`, each name counts by itself.",
};

pub(crate) static USER: Table = Table {
    path: "user",
    many: true,
    meaning: "Limits of a single user, where they differ from those of `[limits]`. It says nothing of whether there is \
              such a user.",
    keys: &[&USER_NAME, &USER_CLIENTS, &USER_SERVERS],
    tables: &[],
};

pub(crate) static USER_NAME: Key<Text> =
    Key { name: "name", kind: NAME, absent: Absent::Required, meaning: "The user's name." };

pub(crate) static USER_CLIENTS: Key<Integer> = Key {
    name: "clients",
    kind: Integer { min: 1, max: 1_000_000 },
    absent: Absent::Means("as many as `limits.clients_per_user`"),
    meaning: "Clients logged in at once as this user.",
};

pub(crate) static USER_SERVERS: Key<Integer> = Key {
    name: "servers",
    kind: Integer { min: 1, max: 100_000 },
    absent: Absent::Means("as many as `limits.servers_per_user`"),
    meaning: "Connections to PostgreSQL at once as the role of this name, over all databases.",
};
