//! Notifications, of the client to itself.

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "LISTEN mine_{k}", "LISTEN mine_{k}", "LISTEN also_{k}", "UNLISTEN mine_{k}", "UNLISTEN *", "NOTIFY mine_{k}", "NOTIFY mine_{k}, 'with words'",
    "SELECT pg_notify('also_{k}', 'by function')", "SELECT pg_listening_channels()", "SELECT runs('LISTEN by_function_{k}')", "NOTIFY by_function_{k}",
    "BEGIN; LISTEN mine_{k}; NOTIFY mine_{k}, 'inside'; COMMIT", "BEGIN; NOTIFY mine_{k}, 'never'; ROLLBACK", "LISTEN mine_{k}; NOTIFY mine_{k}; NOTIFY mine_{k}, 'two'",
];

pub(crate) fn act(maker: &mut Maker) {
    for _ in 0..2 + maker.random.below(3) {
        let text = maker.one_of(TEXTS);
        if text.contains(';') {
            maker.simple(&text);
            maker.in_block = false;
        } else {
            maker.sql(&text);
        }
    }
}
