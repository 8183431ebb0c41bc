//! Startup packets: parameters, and `options`.

use super::Category;
use crate::generate::Maker;

/// Each with a value, among which empty names are left out.
#[rustfmt::skip]
const PARAMETERS: &[(&str, &[&str])] = &[
    ("client_encoding", &["UTF8", "LATIN1", "SJIS", "utf-8"]),
    ("DateStyle", &["ISO", "German", "SQL, DMY", "Postgres, MDY", "DMY"]),
    ("TimeZone", &["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"]),
    ("IntervalStyle", &["postgres", "sql_standard", "iso_8601"]),
    ("application_name", &["twin", "client {k}", ""]),
    ("extra_float_digits", &["0", "3", "-2"]),
    ("search_path", &["tenant_{x}, public", "c{k}, public", "c{k}, tenant_{x}"]),
    ("bytea_output", &["escape", "hex"]),
    ("options", &["-c geqo=off", "-c DateStyle=German", "-c DateStyle=SQL --datestyle=DMY", "-e -S 6MB", "-c DateStyle=no -c work_mem=no", "-c geqo", "foo", "-c search_path=c{k},tenant_{x} -c work_mem=5MB", "-c app.tenant={x}", "--DateStyle=SQL", "-c TimeZone=UTC -c TimeZone=Asia/Tokyo", "-c work_mem=no"]),
    ("standard_conforming_strings", &["off", "on"]),
    ("app.tenant", &["a", "b"]),
    ("no_such_parameter", &["1"]),
];

/// The options that are refused.
const REFUSED: &[&str] = &["-c work_mem=no", "-c DateStyle=no -c work_mem=no", "-c geqo", "foo"];

/// The chance, in percent, that a parameter is given; one that is refused comes far less often.
const OFTEN: usize = 15;

pub(crate) fn parameters(maker: &mut Maker, categories: &[&'static Category]) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    if categories.iter().all(|category| category.name == "messages") {
        return super::messages::parameters(maker);
    }
    if !categories.iter().any(|category| category.name == "startup") {
        // Without that the client finds its own tables by their short names.
        return vec![("search_path".to_owned(), maker.fill("c{k}, tenant_{x}, public"))];
    }
    for (name, values) in PARAMETERS {
        let chance = if *name == "no_such_parameter" { 1 } else { OFTEN };
        if maker.random.percent(chance) {
            let value = maker.one_of(values);
            let is_refused = REFUSED.contains(&value.as_str()) && !maker.random.percent(10);
            parameters.extend((!is_refused).then(|| ((*name).to_owned(), value)));
        }
    }
    if parameters.iter().all(|(name, value)| name != "search_path" && !value.contains("search_path")) {
        parameters.push(("search_path".to_owned(), maker.fill("c{k}, tenant_{x}, public")));
    }
    parameters
}
