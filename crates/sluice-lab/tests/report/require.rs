//! Requirements, held against a run.

use std::{fs, path::Path};

use sluice_lab::{
    plan::{Choices, Plan},
    require::Requirements,
    result::Figures,
    scenario::{self, Scenario},
};

use super::sample;

const REQUIRED: &str = r#"
[[ratio]]
figure = "tps"
of = "pool"
clients = 1000
to_clients = 64
at_least = 0.8

[[limit]]
figure = "pool_rss_kb"
of = "pool"
clients = 1000
at_most = 60000
"#;

#[test]
fn a_ratio_to_fewer_clients_and_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("require.toml");
    fs::write(&file, REQUIRED).unwrap();
    let required = Requirements::read(&file).unwrap();
    let judged = |cases: &[(u32, f64)]| {
        let mut run = sample::empty("peers", "Peers");
        run.turns.extend(cases.iter().map(|(clients, tps)| {
            let figures = Figures { pool_rss_kb: Some(50_000), ..sample::figures(*tps, 1.0) };
            sample::turn(("select", *clients, "pool"), 1, figures)
        }));
        let judgement = required.judge(&run);
        (judgement.missed(), judgement.text())
    };
    let (missed, text) = judged(&[(64, 100.0), (1000, 90.0)]);
    assert_eq!(missed, 0, "{text}");
    assert!(text.contains("64 clients") && text.contains("0.90") && text.contains("at most 60"), "{text}");
    assert_eq!(judged(&[(64, 100.0), (1000, 70.0)]).0, 1);
    // What was not measured is not met.
    assert_eq!(judged(&[(64, 100.0)]).0, 2);
}

/// Requirements of scenarios that are shipped are about turns that those take, and figures that they have.
#[test]
fn requirements_that_are_shipped_can_be_met() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = scenario::names().map(|name| (name, folder.join(name).join("require.toml")));
    let files: Vec<_> = files.filter(|(_, file)| file.exists()).collect();
    assert!(files.len() >= 3, "{files:?}");
    for (name, file) in files {
        let plan = Plan::new(Scenario::find(name).unwrap(), Choices::default()).unwrap();
        let mut run = sample::empty(name, name);
        run.turns.extend(plan.turns().iter().map(|turn| {
            let case = plan.case(turn);
            let figures = Figures {
                pool_cpu_us_per_tx: Some(10.0),
                pool_cpu_us_per_login: Some(90.0),
                pool_rss_kb: Some(20_000),
                flood_failed_percent: Some(0.1),
                ..sample::figures(1000.0, 1.0)
            };
            sample::turn((&case.variant, case.clients, &case.target), turn.round, figures)
        }));
        let text = Requirements::read(&file).unwrap().judge(&run).text();
        assert!(!text.contains("not measured"), "{name}: {text}");
    }
}
