//! The verdict on a run, in sentences: first what is wrong with the run itself, then what it found.

use super::{
    columns::{self, Column},
    number::{clients, count, figure, milliseconds, trimmed},
    outline::{Load, Outline, label},
    stalls::Stalled,
};
use crate::result::{BRIEF, CaseKey, Outcome, RunResult};

/// The sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Reasons why figures are missing, or not to be trusted: interrupted, broken, skipped.
    pub warnings: Vec<String>,
    /// The findings, in sentences.
    pub findings: Vec<String>,
}

/// Sentences of one kind; more are counted.
const SENTENCES_MAX: usize = 4;
/// A ratio between these says nothing.
const SAME: std::ops::RangeInclusive<f64> = 0.97..=1.03;
/// A time has to differ by so many times to be worth a word.
const WORTH_A_WORD: f64 = 1.2;

/// Works it out.
pub fn verdict(result: &RunResult) -> Verdict {
    let outline = Outline::of(result);
    let mut findings = match outline.targets.len() {
        0 | 1 => alone(&outline),
        _ => compared(&outline),
    };
    if findings.is_empty() {
        findings.push("Nothing was measured.".to_owned());
    } else {
        findings.extend(by_chance(&outline));
        findings.extend(stalled(&outline));
        findings.extend(lost(&outline));
    }
    Verdict { warnings: warnings(result), findings }
}

fn warnings(result: &RunResult) -> Vec<String> {
    let mut warnings: Vec<String> =
        result.cut_short.iter().map(|why| format!("The run was cut short: {why}.")).collect();
    let of = |sentence: fn(&CaseKey, &Outcome) -> Option<String>| {
        let mut sentences: Vec<String> = Vec::new();
        for sentence in result.turns.iter().filter_map(|turn| sentence(&turn.case, &turn.outcome)) {
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        few(sentences)
    };
    warnings.extend(of(|case, outcome| match outcome {
        Outcome::Broken(what) => Some(format!("It broke ({}): {}.", label(case), what.trim_end_matches('.'))),
        _ => None,
    }));
    warnings.extend(of(|case, outcome| match outcome {
        Outcome::Skipped(why) => Some(format!("It was not taken ({}): {}.", label(case), why.trim_end_matches('.'))),
        _ => None,
    }));
    warnings.extend(doubts(result));
    warnings
}

/// Reasons to doubt figures that are all there.
fn doubts(result: &RunResult) -> Vec<String> {
    let brief = result.remarks.iter().find(|remark| *remark == BRIEF).cloned();
    result.machine.warning().into_iter().chain(brief).collect()
}

/// The run's remarks without those that stand beside the verdict, what the sampler took, and which latencies can't be
/// right.
pub(super) fn remarks(result: &RunResult) -> Vec<String> {
    let doubts = doubts(result);
    let own = result.remarks.iter().filter(|remark| !doubts.contains(remark)).cloned();
    own.chain(sampler_cost(result)).chain(understated(result)).collect()
}

/// The first ones, and how many there are besides.
fn few(mut sentences: Vec<String>) -> Vec<String> {
    let more = sentences.len().saturating_sub(SENTENCES_MAX);
    sentences.truncate(SENTENCES_MAX);
    if more > 0 {
        sentences.push(format!("So it went {more} times more; the table below says where."));
    }
    sentences
}

/// Each variant of the only target.
fn alone(outline: &Outline<'_>) -> Vec<String> {
    let of_variant = |variant: &&str| {
        let load = outline.largest(variant)?;
        let case = *outline.cases_of(load).first()?;
        let time = |column: Column| match outline.median(case, column) {
            Some(value) if column.is_below_resolution(value) => format!("{} ms", columns::below_resolution()),
            value => value.map_or_else(|| figure(None), milliseconds),
        };
        let sentence = format!(
            "{} tps with {}; half of the transactions took no longer than {}, 99 % no longer than {}.",
            figure(outline.median(case, columns::TPS)),
            clients(load.clients),
            time(columns::P50),
            time(columns::P99),
        );
        Some(if outline.variants.len() > 1 { format!("{variant}: {sentence}") } else { sentence })
    };
    outline.variants.iter().filter_map(of_variant).take(SENTENCES_MAX).collect()
}

/// Each target against the first: at the largest load of each variant, and at the smallest of the first variant.
fn compared(outline: &Outline<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    for (nth, variant) in outline.variants.iter().enumerate() {
        let Some(largest) = outline.largest(variant) else { continue };
        for target in &outline.targets[1..] {
            let Some(sentence) = against_the_first(outline, largest, target) else { continue };
            let sentence = match outline.loads(variant).first() {
                Some(smallest) if *smallest != largest && nth == 0 => {
                    format!("{sentence}{}", at_the_smallest(outline, *smallest, target).unwrap_or_default())
                }
                _ => sentence,
            };
            let sentence =
                if outline.variants.len() > 1 { format!("{variant}: {sentence}.") } else { format!("{sentence}.") };
            sentences.push(sentence);
        }
    }
    if sentences.is_empty() {
        return alone(outline);
    }
    sentences.truncate(SENTENCES_MAX);
    sentences
}

/// A warning that a comparison of single turns may be chance.
fn by_chance(outline: &Outline<'_>) -> Option<String> {
    let is_compared = outline.targets.len() > 1 && outline.has_single_turns();
    is_compared.then(|| {
        "Each case had one turn, so a difference may be chance; several (--turns 3) show how far the figures wander."
            .to_owned()
    })
}

/// "The gate did 2.1 times what PostgreSQL did alone at 1,000 clients (2,737 against 1,284 tps), and a transaction's SQL
/// took 17 ms instead of 690 ms".
fn against_the_first(outline: &Outline<'_>, load: Load<'_>, target: &str) -> Option<String> {
    let case = outline.case(load, target)?;
    let first = outline.first_of(case)?;
    let ratio = outline.result.ratio(case, first, columns::TPS.of)?;
    let (own, other) = (outline.median(case, columns::TPS)?, outline.median(first, columns::TPS)?);
    let (name, other_name) = (called(target), called(&first.target));
    let did = match SAME.contains(&ratio) {
        true => format!("did as much as {other_name}"),
        false => format!("did {} times what {other_name} did", trimmed(ratio, if ratio < 10.0 { 2 } else { 0 })),
    };
    let sentence = format!(
        "{} {did} at {} ({} against {} tps)",
        capital(&name),
        clients(load.clients),
        figure(Some(own)),
        figure(Some(other)),
    );
    Some(format!("{sentence}{}", time_against(outline, case, first).unwrap_or_default()))
}

/// The SQL inside if it is known, or else the slowest percent. Times that can't be right are not compared.
fn time_against(outline: &Outline<'_>, case: &CaseKey, first: &CaseKey) -> Option<String> {
    if understated_ms(outline, case).or_else(|| understated_ms(outline, first)).is_some() {
        return None;
    }
    let both = |column| Some((outline.median(case, column)?, outline.median(first, column)?));
    let differ = |(own, other): &(f64, f64)| own.max(*other) >= WORTH_A_WORD * own.min(*other);
    let shown = |(own, other): (f64, f64)| format!("{} instead of {}", milliseconds(own), milliseconds(other));
    if let Some(times) = both(columns::SQL).filter(differ) {
        return Some(format!(", and a transaction's SQL took {}", shown(times)));
    }
    let times = both(columns::P99).filter(differ)?;
    Some(format!(", and 99 % of the transactions took no longer than {}", shown(times)))
}

fn at_the_smallest(outline: &Outline<'_>, load: Load<'_>, target: &str) -> Option<String> {
    let case = outline.case(load, target)?;
    let ratio = outline.result.ratio(case, outline.first_of(case)?, columns::TPS.of)?;
    Some(format!("; at {}, {} times", clients(load.clients), trimmed(ratio, 2)))
}

/// "It stalled for 86 of 300 s: checkpoint writes, then full-page images (not confirmed)."
fn stalled(outline: &Outline<'_>) -> Option<String> {
    let cases: Vec<_> = outline.result.cases().into_iter().filter(|case| outline.is_measured(case)).collect();
    let mut stalled: Vec<_> = cases.iter().map(|case| (*case, Stalled::of(outline, case))).collect();
    stalled.retain(|(_, stalled)| stalled.count > 0);
    stalled.sort_by(|(_, a), (_, b)| b.share().total_cmp(&a.share()));
    let Some((case, worst)) = stalled.first() else { return Some("Nothing stalled.".to_owned()) };
    let place = if cases.len() == 1 { String::new() } else { format!(" ({})", label(case)) };
    let others = match stalled.len() - 1 {
        0 => String::new(),
        1 => " One other case stalled too.".to_owned(),
        others => format!(" {others} other cases stalled too."),
    };
    Some(format!("It stalled for {}{place}: {}.{others}", worst.time(), worst.reasons()))
}

/// Transactions without a good end.
fn lost(outline: &Outline<'_>) -> Option<String> {
    let sum = |of: fn(&crate::result::Figures) -> u64| -> u64 {
        outline.result.measured().map(|(_, measured)| of(&measured.figures)).sum()
    };
    let (failed, skipped) = (sum(|figures| figures.failed), sum(|figures| figures.skipped));
    match (failed, skipped) {
        (0, 0) => None,
        (failed, 0) => Some(format!("{} transactions failed.", count(failed))),
        (0, skipped) => Some(format!("{} transactions were too late to be begun.", count(skipped))),
        (failed, skipped) => {
            Some(format!("{} transactions failed, {} were too late to be begun.", count(failed), count(skipped)))
        }
    }
}

/// The sampler's own share of the processors that it observed.
fn sampler_cost(result: &RunResult) -> Option<String> {
    let percents = result.measured().filter_map(|(_, measured)| measured.figures.sampler_cpu_percent);
    let most = percents.reduce(f64::max)?;
    Some(format!("The samples took {} % of the machine's processor time at most.", trimmed(most, 2)))
}

/// The share of the time between two transactions of a client that its latency has to make up.
const LATENCY_SHARE_MIN: f64 = 0.85;

/// A remark on cases whose latencies, as pgbench tells them, can't be right: without a rate, each client has a
/// transaction under way at any time, so their mean is clients / tps (Little's law). pgbench's mean is too low if it
/// had to wait for a processor itself, since it does not look at the clock for each of its steps.
fn understated(result: &RunResult) -> Option<String> {
    let outline = Outline::of(result);
    let of_case = |case: &&CaseKey| {
        let (due_ms, mean_ms) = understated_ms(&outline, case)?;
        Some(format!("for {}, {} ms instead of {} ms", label(case), figure(Some(due_ms)), figure(Some(mean_ms))))
    };
    let cases: Vec<String> = result.cases().iter().filter_map(of_case).collect();
    (!cases.is_empty()).then(|| {
        format!(
            "pgbench states latencies that are too low, by its own count of transactions: it had to wait for a processor \
             itself. By that count the mean should be: {}. Percentiles and the times of single statements are too low as \
             well there.",
            cases.join("; ")
        )
    })
}

/// The mean that a case's latencies should have, and the one that pgbench states, if that is too low.
fn understated_ms(outline: &Outline<'_>, case: &CaseKey) -> Option<(f64, f64)> {
    if outline.result.conditions.contains_key("rate") {
        return None;
    }
    let (tps, mean_ms) = (outline.median(case, columns::TPS)?, outline.median(case, columns::MEAN)?);
    let due_ms = 1000.0 * f64::from(case.clients) / tps;
    (mean_ms < LATENCY_SHARE_MIN * due_ms).then_some((due_ms, mean_ms))
}

/// A target in a sentence.
fn called(target: &str) -> String {
    match target {
        "straight" => "PostgreSQL alone".to_owned(),
        "gate" | "pool" => format!("the {target}"),
        other => other.to_owned(),
    }
}

/// At the beginning of one. Names stay as they are.
fn capital(called: &str) -> String {
    called.strip_prefix("the ").map_or_else(|| called.to_owned(), |name| format!("The {name}"))
}
