//! Runs compared.

use sluice_lab::{
    compare::{CompareError, Comparison, Named, compare},
    result::{Figures, RunResult},
};

use super::super::folder;
use super::sample::{empty, figures, ladder, small, turn};

/// Two runs: the second has other rates, and one case more.
fn two() -> (RunResult, RunResult) {
    let mut before = empty("tpcb", "TPC-B");
    let mut after = before.clone();
    for round in 1..=3 {
        let nth = f64::from(round);
        before.turns.push(turn(("", 64, "gate"), round, figures(1_000.0 + 10.0 * nth, 64.0)));
        after.turns.push(turn(("", 64, "gate"), round, figures(2_000.0 + 10.0 * nth, 32.0)));
        before.turns.push(turn(("", 64, "pool"), round, figures(1_000.0 + 10.0 * nth, 64.0)));
        let pool = Figures { pool_cpu_us_per_tx: Some(90.0), ..figures(1_005.0 + 10.0 * nth, 63.0) };
        after.turns.push(turn(("", 64, "pool"), round, pool));
    }
    after.turns.push(turn(("", 128, "pool"), 1, figures(900.0, 140.0)));
    (before, after)
}

fn of<'a>(before: &'a RunResult, after: &'a RunResult) -> Comparison<'a> {
    let runs = [Named { name: "before", result: before }, Named { name: "after", result: after }];
    compare(&runs).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn shared_cases_get_ratios_and_others_are_named() {
    let (before, after) = two();
    let text = of(&before, &after).text();
    let row = |target: &str| {
        let mut rows = text.lines().skip_while(|line| !line.contains(&format!("64 clients, {target}")));
        let cells: Vec<String> = rows.nth(1).expect("a row").split('|').map(|cell| cell.trim().to_owned()).collect();
        cells
    };
    assert_eq!(row("gate")[2..6], ["after", "2020", "1.98×", "32.0"].map(|cell| cell.replace("2020", "2,020")));
    assert!(row("pool").contains(&"≈ 1.00×".to_owned()), "{text}");
    assert!(row("pool").contains(&"1.29×".to_owned()), "CPU is PostgreSQL's and the pool's: {text}");
    assert!(text.contains("- only after has 128 clients, pool"), "{text}");
    assert!(text.contains("after did 1.00× to 1.98× the transactions a second of before, in 2 cases."), "{text}");
    assert!(text.contains("From the same kind of machine."), "{text}");
}

#[test]
fn another_machine_is_said_first() {
    let (before, mut after) = two();
    after.machine.cpu = "Intel Xeon".to_owned();
    after.machine.cores = 64;
    after.cut_short = Some("interrupted".to_owned());
    after.scenario.data = "scale 100".to_owned();
    let comparison = of(&before, &after);
    for output in [comparison.text(), comparison.html()] {
        let place = |needle: &str| output.find(needle).unwrap_or_else(|| panic!("{needle} in {output}"));
        assert!(place("From different machines (processor, cores)") < place("Not the same either: data."), "{output}");
        assert!(place("after was cut short: interrupted.") < place("1.98×"), "{output}");
        assert!(output.contains("AMD EPYC") && output.contains("Intel Xeon"), "{output}");
    }
}

#[test]
fn other_loads_and_disks_are_said() {
    let (before, mut after) = two();
    after.conditions.insert("class".to_owned(), "iops 400".to_owned());
    let disk = |result: &mut RunResult, factor: f64| {
        result.machine.disk.as_mut().expect("a disk").rows.iter_mut().for_each(|row| row.iops *= factor);
    };
    disk(&mut after, 0.5);
    let differences = of(&before, &after).differences;
    assert_eq!(differences.iter().map(|one| one.what.as_str()).collect::<Vec<_>>(), ["class"]);
    assert_eq!(differences[0].values, ["–", "iops 400"]);
    disk(&mut after, 0.5);
    let differences = of(&before, &after).differences;
    let disks = differences.iter().find(|one| one.is_of_machine).expect("disks that differ by a factor of four");
    assert_eq!(disks.what, "random reads a second of the disk");
}

#[test]
fn servers_differ_by_version_and_settings() {
    let before = small();
    let mut after = small();
    let gate = after.servers.get_mut("gate").expect("a server");
    gate.versions = vec!["PostgreSQL 18.1".to_owned()];
    gate.settings.insert("sluice.transaction_limit".to_owned(), "64".to_owned());
    gate.settings.remove("work_mem");
    let comparison = of(&before, &after);
    let differences: Vec<(&str, Vec<&str>)> = comparison
        .differences
        .iter()
        .map(|difference| (difference.what.as_str(), difference.values.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(
        differences,
        [
            ("versions (gate)", vec!["PostgreSQL 15.14 (Debian 15.14-0+deb12u1)", "PostgreSQL 18.1"]),
            ("sluice.transaction_limit (gate)", vec!["32", "64"]),
            ("work_mem (gate)", vec!["4MB", "default"]),
        ]
    );
    assert!(
        comparison.text().contains("Not the same: versions (gate), sluice.transaction_limit (gate), work_mem (gate).")
    );
}

#[test]
fn what_can_not_be_compared() {
    let (before, _) = two();
    let other = ladder();
    let named = |name, result| Named { name, result };
    assert_eq!(compare(&[named("a", &before)]).expect_err("one"), CompareError::TooFew);
    let error = compare(&[named("a", &before), named("b", &other)]).expect_err("nothing in common");
    assert_eq!(error, CompareError::NothingShared);
}

#[test]
fn names_of_files_are_escaped() {
    let (before, after) = two();
    let runs = [Named { name: "<b>", result: &before }, Named { name: "a&b", result: &after }];
    let comparison = compare(&runs).expect("a comparison");
    let file = folder("compare").join("compare.html");
    comparison.write(&file).expect("the page");
    let page = std::fs::read_to_string(&file).expect("the page");
    assert!(!page.contains("<b></b>") && page.contains("&lt;b&gt; against a&amp;b"), "{page}");
}
