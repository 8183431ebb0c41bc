//! The fuzz targets, for a few seconds, on stable Rust: each body over its corpus and over mutations of it, the same
//! ones every time. `scripts/fuzz.sh` runs them for longer, led by coverage.

mod mutator;

use std::{
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
};

use sluice_fuzz::{TARGETS, Target, engine::Reached};

use mutator::Mutator;

/// Mutated inputs for each target: what fits into a few seconds of a debug build.
const INPUTS: usize = 20_000;

/// The same where each input is a handshake.
const HANDSHAKES: usize = 1_000;

/// The inputs of a target that are kept in the repository, by file name.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<(PathBuf, Vec<u8>)> = files
        .map(|file| {
            let path = file.expect("the folder can be read").path();
            let bytes = std::fs::read(&path).expect("the file can be read");
            (path, bytes)
        })
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 3, "{} has hardly any file", folder.display());
    inputs
}

/// Runs one input; if it fails, says how to run it again.
fn check(target: &Target, input: &[u8], origin: &str) {
    if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(|| (target.body)(input))) {
        let file = std::env::temp_dir().join(format!("sluice-fuzz-{}", target.name));
        std::fs::write(&file, input).expect("the input that failed can be written");
        eprintln!(
            "{} fails with {origin}; the input is in {}. Copied to fuzz/corpus/{}, it is run in every test.",
            target.name,
            file.display(),
            target.name
        );
        panic::resume_unwind(cause);
    }
}

fn short_run(name: &str, count: usize) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("it is one of the targets");
    let corpus = corpus(name);
    check(target, &[], "no input");
    for (path, input) in &corpus {
        check(target, input, &path.display().to_string());
    }
    let inputs: Vec<Vec<u8>> = corpus.into_iter().map(|(_, input)| input).collect();
    let mut mutator = Mutator::new(inputs);
    for number in 0..count {
        check(target, &mutator.next_input(), &format!("mutation {number}"));
    }
}

#[test]
fn tls() {
    short_run("tls", HANDSHAKES);
}

#[test]
fn startup() {
    short_run("startup", INPUTS);
}

#[test]
fn proxy() {
    short_run("proxy", INPUTS);
}

#[test]
fn frontend_messages() {
    short_run("frontend_messages", INPUTS);
}

#[test]
fn backend_messages() {
    short_run("backend_messages", INPUTS);
}

#[test]
fn scram() {
    short_run("scram", INPUTS);
}

#[test]
fn engine() {
    short_run("engine", INPUTS);
}

/// A fuzzer that never gets past the login finds nothing behind it.
#[test]
fn the_corpus_reaches_the_depths_of_the_engine() {
    let all: Vec<(PathBuf, Reached)> =
        corpus("engine").into_iter().map(|(path, input)| (path, sluice_fuzz::engine::run(&input))).collect();
    let count = |reached: fn(&Reached) -> bool| all.iter().filter(|(_, r)| reached(r)).count();
    assert!(count(|r| r.servers > 0) >= 15, "{all:#?}");
    assert!(count(|r| r.client_bytes > 90) >= 18, "{all:#?}");
    assert!(count(|r| r.looks > 0) >= 5, "{all:#?}");
    assert!(count(|r| r.pinned > 0) >= 2, "{all:#?}");
    assert!(count(|r| r.cancels > 0) >= 1, "{all:#?}");
    assert!(count(|r| r.handed_over > 0) >= 1, "{all:#?}");
    assert!(count(|r| r.backlog > sluice_core::engine::BACKLOG_HIGH_BYTES) >= 2, "{all:#?}");
}

/// Targets, cargo-fuzz's files and corpora belong together.
#[test]
fn every_target_has_its_file() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("it can be read");
    for target in TARGETS {
        let source = format!("fuzz_targets/{}.rs", target.name);
        assert!(fuzz.join(&source).is_file() && manifest.contains(&source), "{source}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}

/// A client that gives ever more names to a statement that is known, so that no server is needed for any of them.
#[test]
fn a_client_with_too_many_names_meets_an_error() {
    use sluice_fuzz::engine::Op::{Accept, ClientBytes, ClientSays, ClientStarts, Connected, ServerAnswers};
    const NAMES: usize = 65_536 + 100;
    let mut script = vec![0, 0b1010_1010, Accept as u8, 0, ClientStarts as u8, 0, 0, 0, Connected as u8, 0, 0];
    let (parse, sync) = (12, 24);
    script.extend([ServerAnswers as u8, 0, 0, ClientSays as u8, 0, 0, 1, parse, sync, ServerAnswers as u8, 0, 0]);
    for first in (0..NAMES).step_by(10) {
        let mut bytes = Vec::new();
        for number in first..first + 10 {
            sluice_wire::message::Parse::write(&mut bytes, format!("{number:06x}").as_bytes(), b"SELECT 1\0\0\0");
        }
        script.extend([ClientBytes as u8, 0, 0, bytes.len() as u8]);
        script.extend(bytes);
    }
    (0..3).for_each(|_| script.extend([ServerAnswers as u8, 0, 0]));
    let reached = sluice_fuzz::engine::run(&script);
    // A ParseComplete has five bytes.
    assert!(reached.client_bytes > 65_536 * 5 + 100, "{reached:?}");
}
