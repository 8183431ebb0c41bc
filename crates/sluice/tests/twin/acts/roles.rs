//! Roles, and rows that only some of them see.

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SET ROLE twin_a", "SET ROLE twin_b", "SET LOCAL ROLE twin_a", "SET SESSION ROLE twin_b", "SELECT set_config('role', 'twin_a', false)", "RESET ROLE", "SET ROLE NONE", "SET ROLE no_such_role", "SET ROLE postgres",
    "SET SESSION AUTHORIZATION app", "SET SESSION AUTHORIZATION twin_a", "SET SESSION AUTHORIZATION DEFAULT",
];

#[rustfmt::skip]
const LOOKS: &[&str] = &[
    "SELECT content FROM owned_rows ORDER BY 1", "SELECT content FROM owned_rows ORDER BY 1", "SELECT current_user, session_user", "SELECT current_user", "SHOW ROLE", "SHOW is_superuser", "SELECT count(*) FROM owned_rows WHERE owner = $$twin_b$$",
    "SELECT * FROM c{k}.t ORDER BY id LIMIT 1", "SELECT content FROM tenant_rows ORDER BY 1",
];

pub(crate) fn act(maker: &mut Maker) {
    let text = maker.one_of(TEXTS);
    maker.sql(&text);
    for _ in 0..1 + maker.random.below(3) {
        let text = maker.one_of(LOOKS);
        maker.sql(&text);
    }
}
