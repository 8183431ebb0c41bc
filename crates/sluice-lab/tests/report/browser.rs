//! Pages in a real browser: on a phone, on a desk, on paper, in the light and in the dark. With `SLUICE_PICTURES=1`
//! pictures are taken, for people to look at: `target/tmp/report/browser`.

use std::{fs, path::Path};

use serde_json::Value;
use sluice_lab::{
    compare::{Named, compare},
    report::html,
    result::{Outcome, RunResult, Turn},
};

use super::{
    super::folder,
    chromium::{Chromium, View},
    sample::{ladder, session_log, small},
};

const VIEWS: [View; 5] = [
    View { name: "phone", width_px: 390, is_phone: true, is_dark: false, is_print: false },
    View { name: "phone-dark", width_px: 390, is_phone: true, is_dark: true, is_print: false },
    View { name: "desk", width_px: 1280, is_phone: false, is_dark: false, is_print: false },
    View { name: "desk-dark", width_px: 1280, is_phone: false, is_dark: true, is_print: false },
    // A sheet of the narrower kind, Letter, across and less its margins. Paper is white, whatever the reader's screen is.
    View { name: "print", width_px: 960, is_phone: false, is_dark: true, is_print: true },
];

/// A script that tells how a page looks from inside, as far as a program can tell.
const LOOK: &str = r#"(() => {
    const seen = element => element.getClientRects().length > 0;
    const box = element => element.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const said = element => `${element.tagName} ${element.getAttribute('class')}: ${element.textContent.slice(0, 60)}`;
    const texts = [...document.querySelectorAll('svg text')].filter(seen);
    const crossing = [...document.querySelectorAll('svg.plot')].filter(seen).flatMap(plot => {
        const ticks = [...plot.querySelectorAll('text.x')].filter(seen);
        return ticks.slice(1).filter((tick, nth) => box(tick).left < box(ticks[nth]).right);
    });
    const outside = [...document.querySelectorAll('main *')].filter(element =>
        seen(element) && !element.parentElement.closest('.scroll') && !element.closest('svg')
        && (box(element).right > width + 1 || box(element).left < -1));
    return {
        scrolls: document.documentElement.scrollWidth > width,
        outside: outside.map(said),
        cut: texts.filter(text => box(text).left < -1 || box(text).right > width + 1).map(said),
        crossing: crossing.map(said),
        flat: [...document.querySelectorAll('svg.plot')].filter(seen)
            .filter(plot => box(plot).width < 100 || box(plot).height < 10).map(said),
        plots: [...document.querySelectorAll('svg.plot')].filter(seen).length,
        untitled: [...document.querySelectorAll('svg.plot')]
            .filter(plot => !plot.querySelector(':scope > title') || !plot.querySelector(':scope > desc')).length,
        paper: getComputedStyle(document.body).backgroundColor,
        format: JSON.parse(document.getElementById('result')?.textContent ?? '{"format": 1}').format,
    };
})()"#;

fn look_at(browser: &mut Chromium, folder: &Path, name: &str, page: &str, plots_min: u64) {
    let file = folder.join(format!("{name}.html"));
    fs::write(&file, page).expect("the page");
    for view in VIEWS {
        let events = browser.open(&file, view);
        let what = format!("{name} on {}", view.name);
        for event in events {
            quiet(&what, &file, &event);
        }
        if std::env::var_os("SLUICE_PICTURES").is_some() {
            fs::write(folder.join(format!("{name}-{}.png", view.name)), browser.picture()).expect("the picture");
        }
        let seen = browser.evaluate(LOOK);
        assert_eq!(seen["scrolls"], false, "{what} scrolls sideways: {seen:#}");
        for list in ["outside", "cut", "crossing", "flat"] {
            assert_eq!(seen[list].as_array().map(Vec::len), Some(0), "{what}: {list}: {:#}", seen[list]);
        }
        assert!(seen["plots"].as_u64() >= Some(plots_min), "{what}: {} plots", seen["plots"]);
        assert_eq!((&seen["untitled"], &seen["format"]), (&Value::from(0), &Value::from(1)), "{what}");
        let is_light = seen["paper"].as_str().is_some_and(|paper| paper.starts_with("rgb(25"));
        assert_eq!(is_light, !view.is_dark || view.is_print, "{what}: {}", seen["paper"]);
    }
}

/// Nothing is asked for but the file, and nothing is complained of.
fn quiet(what: &str, file: &Path, event: &Value) {
    let parameters = &event["params"];
    match event["method"].as_str() {
        Some("Network.requestWillBeSent") => {
            let url = parameters["request"]["url"].as_str().unwrap_or_default();
            assert!(url == format!("file://{}", file.display()), "{what} asks for {url}");
        }
        Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => {
            panic!("{what} complains: {parameters:#}")
        }
        _ => {}
    }
}

#[test]
fn pages_read_everywhere() {
    let folder = folder("browser");
    let mut browser = Chromium::start();
    look_at(&mut browser, &folder, "unruly", &html(&unruly()), 4);
    look_at(&mut browser, &folder, "small", &html(&small()), 4);
    look_at(&mut browser, &folder, "session-log", &html(&session_log()), 12);
    look_at(&mut browser, &folder, "ladder", &html(&ladder()), 15);
    look_at(&mut browser, &folder, "compared", &compared(), 3);
}

fn compared() -> String {
    let (before, mut after) = (ladder(), ladder());
    after.machine.cpu = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".to_owned();
    after.turns.retain(|turn| turn.case.clients != 128);
    let is_measured = |turn: &&mut Turn| matches!(turn.outcome, Outcome::Measured(_));
    for turn in after.turns.iter_mut().filter(is_measured) {
        super::sample::measured(turn).figures.tps *= 1.15;
    }
    let runs = [Named { name: "2026-01-01", result: &before }, Named { name: "2026-02-01", result: &after }];
    compare(&runs).expect("a comparison").html()
}

/// Long words, where they come from outside.
fn unruly() -> RunResult {
    let long = "unbreakable".repeat(20);
    let mut result = small();
    result.scenario.title = long.clone();
    result.scenario.description = long.clone();
    result.command = format!("sluice bench {long} {long}");
    result.cut_short = Some(long.clone());
    result.remarks = vec![long.clone()];
    result.machine.cpu = long.clone();
    for server in result.servers.values_mut() {
        server.settings.insert(long.clone(), long.clone());
        server.reached = long.clone();
    }
    for turn in &mut result.turns {
        let measured = super::sample::measured(turn);
        measured.statements[0].text = long.clone();
        measured.commands = vec![long.clone()];
    }
    result
}
