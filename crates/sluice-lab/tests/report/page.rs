//! The page as text: a small one whole, others by what must be in them.

use std::{fs, path::Path};

use sluice_lab::{report::html, result::RunResult};

use super::sample::{empty, ladder, session_log, small};

/// Compares with `small.html`; `SLUICE_BLESS=1` writes it anew. The style sheet is left out: it has no logic.
#[test]
fn a_small_page() {
    let page = html(&small());
    let (head, rest) = page.split_once("<style>").expect("a style");
    let (_, body) = rest.split_once("</style>").expect("its end");
    // One element a line, so that changes can be read.
    let page = format!("{head}<style></style>{body}").replace("><", ">\n<");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/small.html");
    if std::env::var_os("SLUICE_BLESS").is_some() {
        fs::write(&path, &page).expect("the page");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "tests/report/small.html differs; SLUICE_BLESS=1 cargo test -p sluice-lab writes it again"
    );
}

#[test]
fn nothing_refers_to_the_outside_and_nothing_runs() {
    for result in [small(), session_log(), ladder(), empty("one", "One")] {
        let page = html(&result);
        for forbidden in ["http://", "https://", " src=", "url(", "@import", "<link", "<img", "<script>", " onclick"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert_eq!(page.matches("<script").count(), 1);
        for (_, href) in page.match_indices("href=\"").map(|(at, found)| page.split_at(at + found.len())) {
            assert!(href.starts_with('#'), "{}", &href[..40]);
        }
    }
}

#[test]
fn what_comes_from_outside_is_escaped() {
    const EVIL: &str = "<script>alert('\"&')</script>";
    let mut result = small();
    let mut text = serde_json::to_string(&result).expect("JSON");
    for name in ["straight", "PostgreSQL 15.14 (Debian 15.14-0+deb12u1)", "work_mem", "4MB", "Unix socket"] {
        text = text.replace(&format!("\"{name}\""), &serde_json::to_string(EVIL).expect("JSON"));
    }
    result = serde_json::from_str::<RunResult>(&text).unwrap_or(result);
    result.scenario.title = EVIL.to_owned();
    result.scenario.description = EVIL.to_owned();
    result.command = EVIL.to_owned();
    result.remarks = vec![EVIL.to_owned()];
    result.cut_short = Some(EVIL.to_owned());
    result.machine.cpu = EVIL.to_owned();
    let page = html(&result);
    let (shown, data) = page.split_once("<script type=\"application/json\"").expect("data");
    assert!(!shown.contains("<script") && !shown.contains("alert('"), "markup came through");
    assert_eq!((data.matches("<script").count(), data.matches("</script>").count()), (0, 1));
    assert!(shown.matches("&lt;script&gt;alert(&#39;&quot;&amp;&#39;)").count() >= 10);
}

#[test]
fn the_page_has_its_parts_in_order() {
    let page = html(&session_log());
    let parts = [
        "<h1>The session log",
        "class=\"verdict\"",
        "class=\"strip\"",
        "id=\"figures\"",
        "id=\"series\"",
        "id=\"stalls\"",
        "id=\"statements\"",
        "id=\"reference\"",
        "id=\"where\"",
        "id=\"repeat\"",
        "id=\"remarks\"",
        "id=\"result\"",
    ];
    let places: Vec<Option<usize>> = parts.iter().map(|part| page.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    for told in [
        "I/O limit reached",
        "confirmed: with checkpoint_timeout = 1h it stalled for 0 % of the time instead of 29 %",
        "Allow more requests a second",
        "was not enforced",
        "control groups of version 1",
        "pgbench -n -M prepared -c 16",
        "2 cores",
    ] {
        assert!(page.contains(told), "{told}");
    }
}

#[test]
fn many_cases_are_folded_and_drawn_sparingly() {
    let page = html(&ladder());
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
    let loads = page.matches("<details class=\"load\">").count();
    assert!(loads >= 2 * 8, "{loads} are folded");
    assert!(page.contains("Throughput by clients") && page.contains("What the gate gains: logged"));
    assert!(page.contains("It broke (logged, 16,384 clients, straight): FATAL: sorry, too many clients already."));
}

#[test]
fn a_result_without_turns_still_has_a_page() {
    let page = html(&empty("one", "One"));
    assert!(page.contains("Nothing was measured.") && page.contains("AMD EPYC") && !page.contains("id=\"stalls\""));
}
