//! Messages that say less than they should, or what nobody may say.

use sluice_testkit::Script;
use sluice_wire::message::frontend;

use crate::{generate::Maker, wire};

/// Each before a Sync.
#[rustfmt::skip]
pub(super) const BODIES: &[(u8, &[u8])] = &[
    (frontend::CLOSE, b""), (frontend::CLOSE, b"Sname"), (frontend::CLOSE, b"Xname\0"), (frontend::DESCRIBE, b"S"), (frontend::DESCRIBE, b"Zname\0"), (frontend::DESCRIBE, b"Pq\0more"),
    (frontend::BIND, b""), (frontend::BIND, b"\0"), (frontend::BIND, b"\0\0\0"), (frontend::BIND, b"\0\0\0\0\0\x01\0\0\0\x05ab"), (frontend::BIND, b"\0\0\0\0\0\0\0\x01\0\x07"),
    (frontend::PARSE, b""), (frontend::PARSE, b"a\0SELECT 1"), (frontend::PARSE, b"a\0SELECT 1\0\0\x01"), (frontend::PARSE, b"a\0SELECT 1\0\0\0more"), (frontend::EXECUTE, b"\0\0"), (frontend::EXECUTE, b""),
];

pub(crate) fn act(maker: &mut Maker) {
    let (tag, body) = *maker.random.of(BODIES);
    let bad = wire::message(tag, |out| out.extend_from_slice(body));
    let script = if maker.random.percent(50) { Script::new().unnamed("SELECT 1 AS one", &[]) } else { Script::new() };
    maker.say(script.then(&bad).unnamed("SELECT 2 AS two", &[]).sync());
    maker.sql("SELECT 3 AS three");
}
