//! Literals that mean the time at which their statement was parsed, compared with the transaction's, so that nobody sees
//! what time it was. Each is parsed and run at once: a Flush behind a Parse ends the transaction that the server had
//! begun, and with it what `now()` says; and a statement with such a literal that is kept by a name may be read again on
//! another server (decision 0014, "What remains").

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT 'now'::timestamptz = transaction_timestamp() AS at, 'today'::date = current_date AS day",
    "SELECT timestamptz 'now' = now() AS at", "SELECT 'tomorrow'::date - 'yesterday'::date AS days", "SELECT now() = statement_timestamp() AS first",
];

pub(crate) fn act(maker: &mut Maker) {
    let text = maker.one_of(TEXTS);
    maker.at_once(&text);
}
