//! `[[cluster]]`, and the key of a `[[database]]` that names one.

use sluice_control::reading::{Scope, Target};

use super::{Absent, DAY, HOUR, Key, NAME, Table, ms, seconds};
use crate::kinds::{FilePath, RestUrls, Size, Text, Time, Words};

pub(crate) static CLUSTER: Table = Table {
    path: "cluster",
    many: true,
    meaning: "A cluster that Patroni keeps, whoever runs it; see [Clusters](#clusters).",
    keys: &[&CLUSTER_NAME, &PATRONI, &FAILOVER_TIMEOUT, &CLUSTER_CA_FILE, &CLUSTER_CERT_FILE, &CLUSTER_KEY_FILE],
    tables: &[],
};

pub(crate) static CLUSTER_NAME: Key<Text> = Key {
    name: "name",
    kind: NAME,
    absent: Absent::Required,
    meaning: "The name by which `[[database]]` entries refer to it.",
};

pub(crate) static PATRONI: Key<RestUrls> = Key {
    name: "patroni",
    kind: RestUrls { count_max: 32 },
    absent: Absent::Required,
    meaning: "The REST interfaces of its members. Each knows the others, so one is enough as long as it lives: list all \
              that you know.",
};

pub(crate) static FAILOVER_TIMEOUT: Key<Time> = Key {
    name: "failover_timeout",
    kind: Time { min: ms(100), max: seconds(HOUR) },
    absent: Absent::Default("\"45s\""),
    meaning: "How long a client waits while the cluster has no primary that can be connected to, before it gets \
              SQLSTATE 57P03 or 08001.",
};

pub(crate) static CLUSTER_CA_FILE: Key<FilePath> = Key {
    name: "ca_file",
    kind: FilePath,
    absent: Absent::Means("those that this host trusts"),
    meaning: "The authorities that members' certificates have to come from where `patroni` says `https`, in PEM. \
              Patroni's `ctl.cacert`.",
};

pub(crate) static CLUSTER_CERT_FILE: Key<FilePath> = Key {
    name: "cert_file",
    kind: FilePath,
    absent: Absent::Means("members are shown no certificate"),
    meaning: "The certificate that members are shown, in PEM. Patroni's `ctl.certfile`.",
};

pub(crate) static CLUSTER_KEY_FILE: Key<FilePath> = Key {
    name: "key_file",
    kind: FilePath,
    absent: Absent::Means("members are shown no certificate"),
    meaning: "Its private key, in PEM and without a passphrase. Patroni's `ctl.keyfile`.",
};

pub(crate) static DATABASE_CLUSTER: Key<Text> = Key {
    name: "cluster",
    kind: NAME,
    absent: Absent::Means("the server at `host` and `port`"),
    meaning: "The cluster whose primary is the server, whichever node that is; with `target_session_attrs`, standbys of \
              it.",
};

pub(crate) static TARGET: Key<Words<Option<Target>>> = Key {
    name: "target_session_attrs",
    kind: Words(&[
        ("primary", None),
        ("standby", Some(Target::Standby)),
        ("prefer-standby", Some(Target::PreferStandby)),
        ("any", Some(Target::Any)),
    ]),
    absent: Absent::Default("\"primary\""),
    meaning: "The nodes of the cluster that clients of this name are led to, by libpq's words. `\"standby\"`: standbys \
              only; where none will do, clients wait for `failover_timeout`. `\"prefer-standby\"`: the primary then. \
              `\"any\"`: standbys and the primary alike. See [Reading from standbys](#reading-from-standbys).",
};

pub(crate) static MAX_LAG: Key<Time> = Key {
    name: "max_lag",
    kind: Time { min: seconds(1), max: seconds(DAY) },
    absent: Absent::Means("`\"30s\"` where `target_session_attrs` leads to standbys"),
    meaning: "How far a standby may be behind for clients to be led there.",
};

pub(crate) static MAX_LAG_BYTES: Key<Size> = Key {
    name: "max_lag_bytes",
    kind: Size { min: 1 << 10, max: 1 << 31 },
    absent: Absent::Means("`max_lag` alone"),
    meaning: "The same in bytes of log that it has not replayed.",
};

pub(crate) static READ_ONLY_TRANSACTIONS: Key<Words<bool>> = Key {
    name: "read_only_transactions",
    kind: Words(&[("primary", false), ("standby", true)]),
    absent: Absent::Default("\"primary\""),
    meaning: "Where a transaction runs that a client begins with `BEGIN READ ONLY` (or `START TRANSACTION READ ONLY`, with \
              an isolation level or without). `\"standby\"`: at a standby where its first statement shows that this makes \
              no difference; see [Read-only transactions at standbys](#read-only-transactions-at-standbys).",
};

pub(crate) static CAUSAL_READS: Key<Words<Option<Scope>>> = Key {
    name: "causal_reads",
    kind: Words(&[("none", None), ("local", Some(Scope::Local)), ("global", Some(Scope::Global))]),
    absent: Absent::Means("`\"local\"` with `read_only_transactions = \"standby\"`, and otherwise `\"none\"`"),
    meaning: "The commits that a transaction finds at a standby, however far that is behind. `\"none\"`: those that it has. \
              `\"local\"`: the client's own. `\"global\"`: all that clients of this pool were told of before the transaction \
              began. Servers need Sluice's extension; see [Causal reads](#causal-reads).",
};

pub(crate) static CAUSAL_READS_TIMEOUT: Key<Time> = Key {
    name: "causal_reads_timeout",
    kind: Time { min: ms(1), max: seconds(HOUR) },
    absent: Absent::Means("`\"1s\"` where `causal_reads` is not `\"none\"`"),
    meaning: "How long a transaction waits for its standby to have those; then it is run at the primary.",
};
