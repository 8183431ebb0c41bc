//! Runs a suite on both sides, compares, and says what came of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use sluice_testkit::Case;

use crate::{
    ignored::{Known, without_ignored},
    meanwhile::meanwhile,
    program::{self, Output},
    side::Side,
    suite::Suite,
};

/// Fails where the outputs of two sides differ.
pub(crate) fn compare(suite: Suite, case: Case, extension: bool) {
    let names = suite.chosen();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("regress/{suite:?}-{}", if extension { "with" } else { "without" }));
    let _ = fs::remove_dir_all(&kept);
    let [straight, pooled] = thread::scope(|scope| {
        let straight = scope.spawn(|| run(suite, Side::straight(case, suite), &names, &kept.join("straight")));
        let pooled = run(suite, Side::pooled(case, suite, extension), &names, &kept.join("pooled"));
        [straight.join().unwrap(), pooled]
    });
    let (mut known, mut differing) = (0, Vec::new());
    for ((name, one), two) in names.iter().zip(&straight).zip(&pooled) {
        println!("{name}: {:.2} s straight, {:.2} s pooled", one.time.as_secs_f64(), two.time.as_secs_f64());
        for (side, output) in [("straight", one), ("pooled", two)] {
            if let Some(stuck) = &output.stuck {
                println!("{name}, {side}, did not end:\n{stuck}");
            }
        }
        if one.stuck.is_none() && two.stuck.is_none() && one.text == two.text {
            continue;
        }
        let diff = diff(&kept, name);
        fs::write(kept.join(format!("{name}.diff")), &diff).unwrap();
        match Known::of(suite, name).filter(|known| differs_only_there(known, &diff)) {
            Some(why) => {
                println!("{name} can't be the same: {}", why.why);
                known += 1;
            }
            None => {
                println!("{}", diff.lines().take(60).collect::<Vec<_>>().join("\n"));
                differing.push(name.as_str());
            }
        }
    }
    let expected = names.iter().zip(&straight).filter(|(name, output)| is_expected(suite, name, output)).count();
    println!(
        "of {}: {} the same, {known} differ as they must, {} differ otherwise; {expected} straight as expected",
        names.len(),
        names.len() - known - differing.len(),
        differing.len(),
    );
    assert!(differing.is_empty(), "through the pool these print something else, see {}: {differing:?}", kept.display());
}

/// Each file's output, in their order.
fn run(suite: Suite, side: Side, names: &[String], kept: &Path) -> Vec<Output> {
    fs::create_dir_all(kept).unwrap();
    meanwhile(&side, suite, || {
        names.iter().map(|name| program::run(suite, &side, name, &kept.join(format!("{name}.out")))).collect()
    })
}

fn diff(kept: &Path, name: &str) -> String {
    let paths: [PathBuf; 2] = ["straight", "pooled"].map(|side| kept.join(format!("{side}/{name}.out")));
    let diff = Command::new("diff").args(["-a", "-U6"]).args(paths).output().unwrap();
    String::from_utf8_lossy(&diff.stdout).into_owned()
}

fn differs_only_there(known: &Known, diff: &str) -> bool {
    // Behind the two names.
    diff.lines().skip(2).filter_map(|line| line.strip_prefix(['-', '+'])).all(|line| known.covers(line))
}

/// Whether it is what PostgreSQL's own driver of the tests would accept.
fn is_expected(suite: Suite, name: &str, output: &Output) -> bool {
    let expected = suite.folder().join("expected");
    let variants = [format!("{name}.out")].into_iter().chain((0..10).map(|number| format!("{name}_{number}.out")));
    let texts = variants.filter_map(|variant| fs::read(expected.join(variant)).ok());
    texts.into_iter().any(|text| output.text == without_ignored(suite, &String::from_utf8_lossy(&text)))
}
