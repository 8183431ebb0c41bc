//! The file of `sluice node`: a host of a cluster, and the others.

use super::{Absent, Key, Table};
use crate::kinds::{FilePath, Flag, Integer, Ip, Lines, Networks, Text, Word};

/// Patroni makes a replication slot of it.
const NODE_NAME: Word = Word { bytes_max: 32 };

const fn port(name: &'static str, absent: &'static str, meaning: &'static str) -> Key<Integer> {
    Key { name, kind: Integer { min: 1, max: 65_535 }, absent: Absent::Default(absent), meaning }
}

pub(crate) static NODE: Table = Table {
    path: "",
    many: false,
    meaning: "Keys before the first table. But for `name` and paths the file is the same on each host.",
    keys: &[
        &OWN_NAME,
        &CLUSTER_SCOPE,
        &NODE_DATA,
        &PG_BIN,
        &RUN_AS,
        &PATRONI_DIR,
        &CLIENT_NETWORKS,
        &NODE_HBA,
        &FAST_FAILOVER,
    ],
    tables: &[&NODE_TLS, &MEMBER],
};

pub(crate) static OWN_NAME: Key<Word> = Key {
    name: "name",
    kind: NODE_NAME,
    absent: Absent::Required,
    meaning: "This host, by its name among the `[[member]]` entries.",
};

pub(crate) static CLUSTER_SCOPE: Key<Word> = Key {
    name: "cluster",
    kind: Word { bytes_max: 32 },
    absent: Absent::Default("\"main\""),
    meaning: "The cluster's name, in etcd and to Patroni; the same on all hosts, and never changed.",
};

pub(crate) static NODE_DATA: Key<FilePath> = Key {
    name: "data",
    kind: FilePath,
    absent: Absent::Default("\"/var/lib/sluice\""),
    meaning: "Where everything is kept: PostgreSQL's data, etcd's, logs. It is created if it is missing.",
};

pub(crate) static PG_BIN: Key<FilePath> = Key {
    name: "pg_bin",
    kind: FilePath,
    absent: Absent::Means("`pg_config`'s, else the newest in `/usr/lib/postgresql`, else `PATH`"),
    meaning: "The folder of PostgreSQL's programs; of the same major version on all hosts. A witness needs none.",
};

pub(crate) static RUN_AS: Key<Text> = Key {
    name: "run_as",
    kind: super::NAME,
    absent: Absent::Means("for root `postgres`, on a witness `etcd`; anybody else is it themselves"),
    meaning: "The system user that runs PostgreSQL, Patroni and etcd.",
};

pub(crate) static PATRONI_DIR: Key<FilePath> = Key {
    name: "patroni_dir",
    kind: FilePath,
    absent: Absent::Means("`/var/cache/sluice` for root, else `~/.cache/sluice`"),
    meaning: "Where Patroni's Python packages are kept, which pip fetches once.",
};

pub(crate) static CLIENT_NETWORKS: Key<Networks> = Key {
    name: "client_networks",
    kind: Networks { count_max: 64 },
    absent: Absent::Means("only the lines of `hba`"),
    meaning: "From where any user may log in to any database, by TLS and SCRAM: the pools, mostly.",
};

pub(crate) static NODE_HBA: Key<Lines> = Key {
    name: "hba",
    kind: Lines { count_max: 256 },
    absent: Absent::Means("only `client_networks`"),
    meaning: "Further lines of `pg_hba.conf`, which Sluice writes: they come after those of the hosts among themselves, \
              and before those of `client_networks`.",
};

pub(crate) static FAST_FAILOVER: Key<Flag> = Key {
    name: "fast_failover",
    kind: Flag,
    absent: Absent::Default("true"),
    meaning: "With three hosts that have data: whether the two that are left end a lost primary's lease, instead of \
              waiting for its end ([the survivors](../nodes.md#the-survivors)).",
};

pub(crate) static NODE_TLS: Table = Table {
    path: "tls",
    many: false,
    meaning: "The certificates by which hosts know each other, in PEM: those that `sluice node ca` makes, or your own. \
              Whoever has one of this authority is trusted with everything.",
    keys: &[&NODE_CA, &NODE_CERT, &NODE_KEY],
    tables: &[],
};

pub(crate) static NODE_CA: Key<FilePath> = Key {
    name: "ca_file",
    kind: FilePath,
    absent: Absent::Required,
    meaning: "The authority that all hosts' certificates come from: one of this cluster's own.",
};

pub(crate) static NODE_CERT: Key<FilePath> = Key {
    name: "cert_file",
    kind: FilePath,
    absent: Absent::Required,
    meaning: "This host's certificate, for servers and for clients: its common name is the host's `name`, and it is for \
              its `address`.",
};

pub(crate) static NODE_KEY: Key<FilePath> = Key {
    name: "key_file",
    kind: FilePath,
    absent: Absent::Required,
    meaning: "Its private key, without a passphrase.",
};

pub(crate) static MEMBER: Table = Table {
    path: "member",
    many: true,
    meaning: "A host of the cluster, this one included: three, of which one may be a witness.",
    keys: &[
        &MEMBER_NAME,
        &MEMBER_ADDRESS,
        &WITNESS,
        &SYNC_PRIORITY,
        &POSTGRES_PORT,
        &PATRONI_PORT,
        &ETCD_CLIENT_PORT,
        &ETCD_PEER_PORT,
    ],
    tables: &[],
};

pub(crate) static MEMBER_NAME: Key<Word> = Key {
    name: "name",
    kind: NODE_NAME,
    absent: Absent::Required,
    meaning: "Its name, which is its certificate's common name.",
};

pub(crate) static MEMBER_ADDRESS: Key<Ip> = Key {
    name: "address",
    kind: Ip,
    absent: Absent::Required,
    meaning: "The address at which the other hosts and the pools reach it, and at which it listens.",
};

pub(crate) static WITNESS: Key<Flag> = Key {
    name: "witness",
    kind: Flag,
    absent: Absent::Default("false"),
    meaning: "Whether it only votes (etcd), and has no data: the third voice of two hosts.",
};

pub(crate) static SYNC_PRIORITY: Key<Integer> = Key {
    name: "sync_priority",
    kind: Integer { min: 1, max: 100 },
    absent: Absent::Default("1"),
    meaning: "Its rank among the standbys that commits may wait for, with `synchronous_mode=on`: they wait for the highest \
              that is there ([the nearest one](../nodes.md#the-nearest-standby)).",
};

pub(crate) static POSTGRES_PORT: Key<Integer> = port("postgres_port", "5432", "PostgreSQL's port there.");

pub(crate) static PATRONI_PORT: Key<Integer> = port("patroni_port", "8008", "The port of Patroni's REST API there.");

pub(crate) static ETCD_CLIENT_PORT: Key<Integer> =
    port("etcd_client_port", "2379", "The port at which its etcd answers Patroni and the other hosts.");

pub(crate) static ETCD_PEER_PORT: Key<Integer> =
    port("etcd_peer_port", "2380", "The port at which its etcd answers other members.");
