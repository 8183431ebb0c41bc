//! The rules applied to a server's settings: one row each.
//!
//! Pure: the same snapshot and instance give the same report. What is recommended always lies within the setting's own
//! limits.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    formula::{FormulaError, Outcome, Variables},
    instance::{Disk, Instance, Workload},
    remarks::Answer,
    report::{Remark, Report, Row, Status},
    rule::{Advice, Direction, Kind, Level, MAJORS, Risk, Rule, Source, Target},
    rules::Rules,
    snapshot::{SetBy, Setting, Snapshot},
};
use sluice_units::{Quantity, Unit};

/// Operations a second that count as no limit, where nobody told one.
const IOPS_UNLIMITED: f64 = 1e9;

/// A rule that has no value. The fault is the rule's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rule of {name}: {source}")]
pub struct AssessError {
    /// The setting.
    pub name: String,
    /// The formula's error.
    pub source: FormulaError,
}

/// The verdict on a value.
struct Judgement {
    status: Status,
    recommended: String,
}

/// A recommended value.
enum Wanted {
    Number(Quantity),
    Word(String),
}

/// Reviews a server's settings.
///
/// # Errors
///
/// [`AssessError`], which a test over many instances would have found.
pub fn review(
    rules: &Rules,
    answers: &BTreeMap<String, Answer>,
    snapshot: &Snapshot,
    instance: Instance,
) -> Result<Report, AssessError> {
    let connections = snapshot.amount("max_connections").map(|count| count as u32);
    let instance = Instance { connections: instance.connections.or(connections), ..instance };
    let variables = variables(snapshot, &instance);
    let mut settings: Vec<&Setting> = snapshot.settings.iter().collect();
    settings.sort_by_key(|setting| {
        (rules.position(&setting.name, snapshot.major).unwrap_or(usize::MAX), setting.name.as_str())
    });
    let row = |setting: &&Setting| row(rules, answers, snapshot, setting, &variables);
    let rows = settings.iter().map(row).collect::<Result<_, _>>()?;
    Ok(Report {
        origin: snapshot.origin.clone(),
        version: snapshot.version.clone(),
        rules_of: snapshot.major.clamp(*MAJORS.start(), *MAJORS.end()),
        instance,
        notes: notes(rules, snapshot),
        rows,
    })
}

fn variables(snapshot: &Snapshot, instance: &Instance) -> Variables {
    let mut variables = Variables::new();
    variables.known("memory", instance.memory_bytes.map(|bytes| bytes as f64));
    variables.known("cores", instance.cores.map(f64::from));
    variables.known("connections", instance.connections.map(f64::from));
    variables.number("iops", instance.iops.map_or(IOPS_UNLIMITED, f64::from));
    variables.condition("ssd", instance.disk == Disk::Ssd);
    variables.condition("pool", instance.pool);
    for (name, workload) in [
        ("oltp", Workload::Oltp),
        ("web", Workload::Web),
        ("analytics", Workload::Analytics),
        ("mixed", Workload::Mixed),
    ] {
        variables.condition(name, instance.workload == workload);
    }
    let evidence = &snapshot.evidence;
    variables.number("requested_share", evidence.requested_share());
    variables.number("wal_full_share", evidence.wal_full_share());
    variables.number("slots", evidence.replication.map_or(0.0, |replication| replication.slots));
    variables
}

fn notes(rules: &Rules, snapshot: &Snapshot) -> Vec<String> {
    let mut notes = snapshot.notes.clone();
    let (first, last) = (MAJORS.start(), MAJORS.end());
    if !MAJORS.contains(&snapshot.major) {
        notes.push(format!(
            "The rules are written for PostgreSQL {first} to {last}; version {} is reviewed by the nearest.",
            if snapshot.version.is_empty() { "unknown" } else { &snapshot.version }
        ));
    }
    let hidden = |rule: &&Rule| !rule.optional && rule.source != Source::Gate && snapshot.get(&rule.name).is_none();
    let hidden: Vec<&str> = rules.of(snapshot.major).filter(hidden).map(|rule| rule.name.as_str()).collect();
    if snapshot.complete && !hidden.is_empty() {
        notes.push(format!(
            "Not shown to this role, so not reviewed: {}. Members of pg_read_all_settings see all.",
            hidden.join(", ")
        ));
    }
    notes
}

fn row(
    rules: &Rules,
    answers: &BTreeMap<String, Answer>,
    snapshot: &Snapshot,
    setting: &Setting,
    variables: &Variables,
) -> Result<Row, AssessError> {
    let remark = setting.remark.clone().map(|said| Remark { said, today: answers.get(&setting.name).cloned() });
    let Some(rule) = rules.find(&setting.name, snapshot.major) else {
        return Ok(Row { remark, ..without_rule(rules, snapshot.major, setting) });
    };
    let judgement =
        judge(rule, setting, variables).map_err(|source| AssessError { name: rule.name.clone(), source })?;
    let mut evidence: Vec<String> =
        rule.evidence.iter().filter_map(|topic| snapshot.evidence.sentence(*topic)).collect();
    evidence.extend(provenance(setting));
    Ok(Row {
        name: setting.name.clone(),
        category: rule.category.clone(),
        value: setting.display(),
        recommended: judgement.recommended,
        status: judgement.status,
        reason: rule.reason.clone(),
        risk: rule.risk.clone(),
        effect: setting.context.unwrap_or(rule.context).effect(),
        evidence,
        source: Some(rule.source.url(snapshot.major)),
        set_by: setting.set_by(),
        remark,
    })
}

/// Facts about how a value came about.
fn provenance(setting: &Setting) -> Vec<String> {
    let mut words = Vec::new();
    match (setting.set_by(), setting.source.as_str(), setting.source_file.as_str()) {
        (SetBy::CommandLine, "override", _) => {}
        (SetBy::CommandLine, source, _) => words.push(format!("set by the server's {source}, which wins over files")),
        (SetBy::Session, source, _) => words.push(format!("this session's value (set by: {source})")),
        (_, "" | "default", _) => {}
        (_, source, "") => words.push(format!("set by: {source}")),
        (_, _, file) => words.push(format!("set in {file}")),
    }
    if setting.pending_restart {
        words.push("a changed value waits for a restart".to_owned());
    }
    if setting.maybe_cut {
        words.push("ten characters long, so it may have been cut; compared by its beginning".to_owned());
    }
    words
}

fn without_rule(rules: &Rules, major: u32, setting: &Setting) -> Row {
    let (status, category, recommended, reason) = if setting.name.contains('.') {
        let reason = "It belongs to an extension, whose documentation says what it does.".to_owned();
        (Status::Foreign, "Extensions", "not PostgreSQL's own", reason)
    } else if let Some(removed) = rules.removed(&setting.name) {
        let reason = format!("Gone in {}. {}", removed.gone_in, removed.reason);
        (Status::Removed, "Gone", "gone", reason)
    } else {
        let reason = format!("No rule knows it in version {major}: a newer server, a special build, or a fork.");
        (Status::Unknown, "Unknown", "no rule", reason)
    };
    Row {
        name: setting.name.clone(),
        category: category.to_owned(),
        value: setting.display(),
        recommended: recommended.to_owned(),
        status,
        reason,
        risk: Risk { level: Level::None, note: String::new() },
        effect: setting.context.map_or("unknown", |context| context.effect()),
        evidence: provenance(setting),
        source: None,
        set_by: setting.set_by(),
        remark: None,
    }
}

fn leave() -> Judgement {
    Judgement { status: Status::Leave, recommended: "leave it".to_owned() }
}

/// A rule's verdict on a value. A quantity that nobody told becomes [`Status::Needs`]; other errors are the rule's.
fn judge(rule: &Rule, setting: &Setting, variables: &Variables) -> Result<Judgement, FormulaError> {
    match judge_told(rule, setting, variables) {
        Err(needs @ FormulaError::Needs(_)) => Ok(Judgement { status: Status::Needs, recommended: needs.to_string() }),
        other => other,
    }
}

fn judge_told(rule: &Rule, setting: &Setting, variables: &Variables) -> Result<Judgement, FormulaError> {
    let variables = &*with_current(rule, setting, variables);
    if let Some(when) = &rule.when
        && !when.holds(variables)?
    {
        return Ok(leave());
    }
    let is_one_of = |values: &[String]| values.iter().any(|value| setting.is(value));
    match &rule.advice {
        Advice::Leave => Ok(leave()),
        Advice::Words { from, .. } | Advice::Value { from, .. } if !from.is_empty() && !is_one_of(from) => Ok(leave()),
        Advice::Words { words, .. } => Ok(Judgement { status: Status::ByHand, recommended: words.clone() }),
        Advice::Value { target, accept, direction, within, by_hand, .. } => {
            let Some(wanted) = wanted(target, setting, variables)? else { return Ok(leave()) };
            let fine = is_one_of(accept) || satisfies(setting, &wanted, *direction, *within);
            let status = match (fine, by_hand) {
                (true, _) => Status::Fine,
                (false, true) => Status::ByHand,
                (false, false) => Status::Change,
            };
            Ok(Judgement { status, recommended: wanted.text() })
        }
    }
}

/// The setting's unit, or the formula's where a file does not say it.
fn unit_of(setting: &Setting, kind: Kind) -> Unit {
    if setting.unit.is_empty() { kind.unit() } else { setting.unit() }
}

/// The variables with the setting's own value, where a formula may ask for it.
fn with_current<'a>(rule: &Rule, setting: &Setting, variables: &'a Variables) -> Cow<'a, Variables> {
    let kind = match &rule.advice {
        Advice::Value { target: Target::Formula { kind, .. }, .. } => *kind,
        _ if rule.when.is_some() => Kind::Count,
        _ => return Cow::Borrowed(variables),
    };
    let current = Quantity::parse(&setting.value, unit_of(setting, kind));
    let mut variables = variables.clone();
    variables.number("current", current.map_or(0.0, |quantity| quantity.amount_in(kind.unit())));
    Cow::Owned(variables)
}

/// The value that a rule wants, within the setting's limits; nothing where the server knows none of its words.
fn wanted(target: &Target, setting: &Setting, variables: &Variables) -> Result<Option<Wanted>, FormulaError> {
    match target {
        Target::Literals(values) => {
            let known = |value: &&String| setting.words.is_empty() || setting.words.contains(value);
            let value = values.iter().find(|value| known(value) || setting.is(value));
            Ok(value.map(|value| match (setting.quantity(), Quantity::parse(value, setting.unit())) {
                (Some(_), Some(number)) => Wanted::Number(number),
                _ => Wanted::Word(value.clone()),
            }))
        }
        Target::Formula { formula, kind } => {
            let unit = unit_of(setting, *kind);
            Ok(match formula.eval(variables)? {
                Outcome::Number(number) => {
                    let number = match kind {
                        Kind::Real => Quantity::new((number * 100.0).round() / 100.0, unit),
                        _ => Quantity::new(number, kind.unit()).sensible(unit),
                    };
                    Some(Wanted::Number(limited(number, unit, setting)))
                }
                Outcome::Word(word) => Some(Wanted::Word(word)),
                Outcome::Condition(condition) => Some(Wanted::Word(if condition { "on" } else { "off" }.to_owned())),
            })
        }
    }
}

fn limited(number: Quantity, unit: Unit, setting: &Setting) -> Quantity {
    let amount = number.amount_in(unit);
    let least = setting.min.map_or(amount, |min| amount.max(min));
    let limited = setting.max.map_or(least, |max| least.min(max));
    if limited == amount { number } else { Quantity::new(limited, unit) }
}

/// Whether a value is as good as the one that is wanted.
fn satisfies(setting: &Setting, wanted: &Wanted, direction: Direction, within: f64) -> bool {
    let number = match wanted {
        Wanted::Word(word) => return setting.is(word),
        Wanted::Number(number) => number,
    };
    let unit = if setting.unit.is_empty() { Unit { size: 1.0, dimension: number.dimension } } else { setting.unit() };
    let Some(current) = Quantity::parse(&setting.value, unit) else { return false };
    let (current, wanted) = (current.amount, number.amount);
    // A negative number is a word in disguise, and nothing is near to zero.
    if current < 0.0 || wanted <= 0.0 {
        return current == wanted;
    }
    let enough = direction == Direction::AtMost || current >= wanted / within;
    let not_too_much = direction == Direction::AtLeast || current <= wanted * within;
    enough && not_too_much
}

impl Wanted {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Word(word) => word.clone(),
        }
    }
}
