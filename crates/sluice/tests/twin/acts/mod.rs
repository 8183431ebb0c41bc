//! Acts of clients, by category: the list of categories, how often each comes, and those left out for now.

mod batches;
pub(crate) mod blocks;
mod calls;
mod cancels;
mod catalogue;
mod copy;
mod cursors;
mod ddl;
mod encodings;
mod errors;
mod functions;
mod literals;
mod locks;
mod malformed;
pub(crate) mod messages;
mod notify;
mod prepared;
mod roles;
mod sequences;
mod settings;
mod sqlprepared;
pub(crate) mod startup;
mod temp;
mod tenants;
mod times;
mod views;

use crate::generate::Maker;

/// A kind of act.
pub(crate) struct Category {
    /// As in `SLUICE_TWIN_ONLY`.
    pub(crate) name: &'static str,
    /// Its weight in the random choice among the categories.
    pub(crate) weight: usize,
    /// Whether something may stay behind in the session for which a pool may have to keep the server for the client.
    pub(crate) pins: bool,
    /// The reason why it is left out where none are named; empty if it is not.
    pub(crate) out: &'static str,
    pub(crate) act: fn(&mut Maker),
}

const fn category(name: &'static str, weight: usize, pins: bool, out: &'static str, act: fn(&mut Maker)) -> Category {
    Category { name, weight, pins, out, act }
}

// Why categories are left out.
const ON: &str = "";
const APART: &str = "it takes longer, and has tests of its own";
const SHOWN: &str = "PostgreSQL's views show the pool's own statements and settings";

/// All of them.
#[rustfmt::skip]
pub(crate) static CATEGORIES: &[Category] = &[
    category("literals",    20, false, ON,        literals::act),
    category("settings",    12, false, ON,  settings::act),
    category("startup",      0, false, ON, |_| ()),
    category("tenants",      9, false, ON,  tenants::act),
    category("times",        2, false, ON, times::act),
    category("encodings",    5, false, ON, encodings::act),
    category("prepared",    10, false, ON, prepared::act),
    category("batches",      6, false, ON, batches::act),
    category("blocks",       4, false, ON, blocks::act),
    category("errors",       6, false, ON, errors::act),
    category("copy",         4, false, ON,        copy::act),
    category("ddl",          6, false, ON, ddl::act),
    category("malformed",    1, false, ON, malformed::act),
    category("messages",    10, false, APART, messages::act),
    category("cancels",     16, false, APART, cancels::act),
    category("views",        2, false, ON, views::act),
    category("catalogue",    1, false, SHOWN,     catalogue::act),
    category("roles",        3, true,  ON, roles::act),
    category("functions",    3, true,  ON, functions::act),
    category("sqlprepared",  3, true,  ON,         sqlprepared::act),
    category("sequences",    2, true,  ON, sequences::act),
    category("locks",        2, true,  ON, locks::act),
    category("notify",       2, true,  ON, notify::act),
    category("cursors",      3, true,  ON, cursors::act),
    category("calls",        2, true,  ON, calls::act),
    category("temp",         4, true,  ON, temp::act),
];

/// Those that `SLUICE_TWIN_ONLY` names, separated by commas; without it, those that are not left out.
pub(crate) fn chosen() -> Vec<&'static Category> {
    let Ok(only) = std::env::var("SLUICE_TWIN_ONLY") else {
        return CATEGORIES.iter().filter(|category| category.out.is_empty()).collect();
    };
    if only == "all" {
        return CATEGORIES.iter().collect();
    }
    named(&only.split(',').map(str::trim).collect::<Vec<_>>())
}

/// Those that [`chosen`] gives, and this one.
pub(crate) fn chosen_and(name: &str) -> Vec<&'static Category> {
    let mut categories = chosen();
    if categories.iter().all(|category| category.name != name) {
        categories.extend(named(&[name]));
    }
    categories
}

/// Those of these names.
pub(crate) fn named(names: &[&str]) -> Vec<&'static Category> {
    let find = |name: &&str| {
        let known = || CATEGORIES.iter().map(|category| category.name).collect::<Vec<_>>().join(", ");
        let found = CATEGORIES.iter().find(|category| category.name == *name);
        found.unwrap_or_else(|| panic!("SLUICE_TWIN_ONLY: {name:?} is none of {}", known()))
    };
    names.iter().map(find).collect()
}
