//! The balancers that say where their clients come from.

use super::{Absent, Key};
use crate::kinds::Networks;

pub(crate) static PROXY_PROTOCOL_FROM: Key<Networks> = Key {
    name: "proxy_protocol_from",
    kind: Networks { count_max: 100 },
    absent: Absent::Means("nobody"),
    meaning: "The balancers whose connections begin with a header of the PROXY protocol; see \
              [Balancers](#balancers).",
};
