//! From the text of a file of rules to checked [`Rule`]s.
//!
//! The first fault ends it, with file, line and remedy: the files are the program's own, so a fault is a programmer's,
//! and a test finds it. Advice that may lose data is refused here, whatever a file says.

use std::{collections::BTreeMap, str::FromStr};

use toml_edit::{Document, Item, Table, Value};

use super::{
    formula::{Formula, FormulaError},
    rule::{Advice, Kind, Removed, Rule, Source, Target},
};

/// Values that are never recommended: each loses data, or lets a server run on with damaged ones.
pub const NEVER: [(&str, &str); 8] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
    ("track_counts", "off"),
    ("data_sync_retry", "on"),
    ("zero_damaged_pages", "on"),
    ("ignore_checksum_failure", "on"),
    ("ignore_invalid_pages", "on"),
];

/// A fault in a file of rules. The fault is this program's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct RuleError {
    /// The file.
    pub file: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// The fault, and the remedy.
    pub what: RuleFault,
}

/// The kinds of faults.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// No TOML.
    #[error("no TOML: {0}")]
    Toml(String),
    /// A key that no rule has.
    #[error("{0} is no key of a rule; remove it or correct its name")]
    UnknownKey(String),
    /// A key that must be there.
    #[error("{0} is missing; add it")]
    Missing(&'static str),
    /// A value of another type.
    #[error("{0} must be {1}")]
    Type(String, &'static str),
    /// A word that is not known.
    #[error("{0}: {1}")]
    Word(&'static str, String),
    /// A formula.
    #[error(transparent)]
    Formula(#[from] FormulaError),
    /// Not exactly one of them.
    #[error("one of recommend, formula and advice must be given, and only one")]
    Advice,
    /// A setting that can't be changed has a value recommended.
    #[error("an internal setting can't be set; leave it, or give advice in words")]
    Internal,
    /// Advice that loses data.
    #[error("{0} = {1} is never recommended")]
    Dangerous(String, String),
}

const KEYS: [&str; 20] = [
    "versions",
    "context",
    "recommend",
    "formula",
    "kind",
    "advice",
    "accept",
    "from",
    "direction",
    "within",
    "when",
    "by_hand",
    "optional",
    "evidence",
    "page",
    "page_18",
    "anchor",
    "risk",
    "reason",
    "gone_in",
];

/// One table, with what is needed to say where it is.
struct Section<'a> {
    file: &'static str,
    text: &'a str,
    table: &'a Table,
}

/// The values that a file gives for all of its rules.
struct Head {
    category: String,
    page: String,
    page_18: String,
    gate: bool,
}

/// Reads a file of rules.
///
/// # Errors
///
/// The first fault.
pub(super) fn read_rules(file: &'static str, text: &str) -> Result<Vec<Rule>, RuleError> {
    let document = parse(file, text)?;
    let root = Section { file, text, table: document.as_table() };
    let page = root.string("page")?.ok_or_else(|| root.fault(RuleFault::Missing("page")))?;
    let head = Head {
        category: root.string("category")?.ok_or_else(|| root.fault(RuleFault::Missing("category")))?,
        page_18: root.string("page_18")?.unwrap_or_else(|| page.clone()),
        page,
        gate: root.boolean("sluice")?,
    };
    let mut rules = Vec::new();
    for (name, item) in root.table {
        if matches!(name, "category" | "page" | "page_18" | "sluice") {
            continue;
        }
        let tables = item.as_array_of_tables();
        let tables = tables.ok_or_else(|| root.fault(RuleFault::Type(name.to_owned(), "tables: [[name]]")))?;
        for table in tables {
            rules.push(Section { file, text, table }.rule(name, &head)?);
        }
    }
    Ok(rules)
}

/// Reads the file of settings that are gone.
///
/// # Errors
///
/// The first fault.
pub(super) fn read_removed(file: &'static str, text: &str) -> Result<BTreeMap<String, Removed>, RuleError> {
    let document = parse(file, text)?;
    let root = Section { file, text, table: document.as_table() };
    let mut removed = BTreeMap::new();
    for (name, item) in root.table {
        let table = item.as_table().ok_or_else(|| root.fault(RuleFault::Type(name.to_owned(), "a table: [name]")))?;
        let section = Section { file, text, table };
        section.check_keys()?;
        let gone_in = section.required("gone_in")?;
        removed.insert(name.to_owned(), Removed { gone_in, reason: section.required("reason")? });
    }
    Ok(removed)
}

fn parse<'a>(file: &'static str, text: &'a str) -> Result<Document<&'a str>, RuleError> {
    Document::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        RuleError { file, line, what: RuleFault::Toml(error.message().to_owned()) }
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

impl Section<'_> {
    fn rule(&self, name: &str, head: &Head) -> Result<Rule, RuleError> {
        self.check_keys()?;
        let rule = Rule {
            name: name.to_owned(),
            category: head.category.clone(),
            versions: self.word("versions", self.string("versions")?.unwrap_or_else(|| "15-".to_owned()))?,
            context: self.word("context", self.required("context")?)?,
            advice: self.advice()?,
            when: self.formula("when")?,
            reason: self.required("reason")?,
            risk: self.word("risk", self.string("risk")?.unwrap_or_else(|| "none".to_owned()))?,
            evidence: self
                .strings("evidence")?
                .into_iter()
                .map(|topic| self.word("evidence", topic))
                .collect::<Result<_, _>>()?,
            source: self.source(name, head)?,
            optional: self.boolean("optional")?,
        };
        self.check(&rule)?;
        Ok(rule)
    }

    fn advice(&self) -> Result<Advice, RuleError> {
        let recommend = self.one_or_more("recommend")?;
        let from = self.strings("from")?;
        let target = match (recommend, self.formula("formula")?, self.string("advice")?) {
            (Some(values), None, None) if values == ["leave"] => return Ok(Advice::Leave),
            (Some(values), None, None) => Target::Literals(values),
            (None, Some(formula), None) => Target::Formula { formula, kind: self.kind()? },
            (None, None, Some(words)) => return Ok(Advice::Words { words, from }),
            _ => return Err(self.fault(RuleFault::Advice)),
        };
        Ok(Advice::Value {
            target,
            accept: self.strings("accept")?,
            from,
            direction: match self.string("direction")? {
                Some(direction) => self.word("direction", direction)?,
                None => Default::default(),
            },
            within: self.number("within")?.unwrap_or(1.0),
            by_hand: self.boolean("by_hand")?,
        })
    }

    fn kind(&self) -> Result<Kind, RuleError> {
        self.word("kind", self.required("kind")?)
    }

    fn source(&self, name: &str, head: &Head) -> Result<Source, RuleError> {
        if head.gate {
            return Ok(Source::Gate);
        }
        let own = self.string("page")?;
        let page = own.clone().unwrap_or_else(|| head.page.clone());
        let page_18 = self.string("page_18")?.or(own).unwrap_or_else(|| head.page_18.clone());
        let anchor = format!("GUC-{}", name.to_uppercase().replace('_', "-"));
        Ok(Source::PostgreSql { page, page_18, anchor: self.string("anchor")?.unwrap_or(anchor) })
    }

    /// Checks that take more than a single key.
    fn check(&self, rule: &Rule) -> Result<(), RuleError> {
        let Advice::Value { target, accept, .. } = &rule.advice else { return Ok(()) };
        if rule.context == super::rule::SettingContext::Internal {
            return Err(self.fault(RuleFault::Internal));
        }
        let literals: &[String] = if let Target::Literals(values) = target { values } else { &[] };
        let dangerous = |value: &&String| NEVER.contains(&(rule.name.as_str(), value.as_str()));
        let is_formula = matches!(target, Target::Formula { .. });
        let guarded = is_formula && NEVER.iter().any(|(name, _)| *name == rule.name);
        match literals.iter().chain(accept).find(dangerous) {
            Some(value) => Err(self.fault(RuleFault::Dangerous(rule.name.clone(), value.clone()))),
            None if guarded => Err(self.fault(RuleFault::Dangerous(rule.name.clone(), "a formula".to_owned()))),
            None => Ok(()),
        }
    }

    fn check_keys(&self) -> Result<(), RuleError> {
        match self.table.iter().find(|(key, _)| !KEYS.contains(key)) {
            Some((key, _)) => Err(self.fault_at(key, RuleFault::UnknownKey(key.to_owned()))),
            None => Ok(()),
        }
    }

    fn fault(&self, what: RuleFault) -> RuleError {
        let line = self.table.span().map_or(1, |span| line_of(self.text, span.start));
        RuleError { file: self.file, line, what }
    }

    fn fault_at(&self, key: &str, what: RuleFault) -> RuleError {
        let span = self.table.key(key).and_then(toml_edit::Key::span);
        let line = span.map(|span| line_of(self.text, span.start));
        let whole = self.fault(what);
        RuleError { line: line.unwrap_or(whole.line), ..whole }
    }

    fn get<T>(
        &self,
        key: &str,
        wanted: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, RuleError> {
        let Some(item) = self.table.get(key) else { return Ok(None) };
        match item.as_value().and_then(read) {
            Some(value) => Ok(Some(value)),
            None => Err(self.fault_at(key, RuleFault::Type(key.to_owned(), wanted))),
        }
    }

    /// A text; lines that were broken for the file's sake are joined.
    fn string(&self, key: &str) -> Result<Option<String>, RuleError> {
        self.get(key, "a string", |value| value.as_str().map(joined))
    }

    fn required(&self, key: &'static str) -> Result<String, RuleError> {
        self.string(key)?.ok_or_else(|| self.fault(RuleFault::Missing(key)))
    }

    fn boolean(&self, key: &str) -> Result<bool, RuleError> {
        Ok(self.get(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, RuleError> {
        self.get(key, "a number with a point", Value::as_float)
    }

    fn strings(&self, key: &str) -> Result<Vec<String>, RuleError> {
        let all = |value: &Value| value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        Ok(self.get(key, "a list of strings", all)?.unwrap_or_default())
    }

    fn one_or_more(&self, key: &str) -> Result<Option<Vec<String>>, RuleError> {
        match self.table.get(key).and_then(Item::as_str) {
            Some(one) => Ok(Some(vec![one.to_owned()])),
            None if self.table.contains_key(key) => self.strings(key).map(Some),
            None => Ok(None),
        }
    }

    fn formula(&self, key: &'static str) -> Result<Option<Formula>, RuleError> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        Formula::parse(&text).map(Some).map_err(|error| self.fault_at(key, error.into()))
    }

    fn word<T: FromStr<Err: ToString>>(&self, key: &'static str, text: String) -> Result<T, RuleError> {
        text.parse().map_err(|error: T::Err| self.fault_at(key, RuleFault::Word(key, error.to_string())))
    }
}

fn joined(text: &str) -> String {
    if text.contains('\n') { text.split_whitespace().collect::<Vec<_>>().join(" ") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "category = \"Test\"\npage = \"runtime-config-test\"\n\n";

    fn error(rule: &str) -> String {
        read_rules("test.toml", &format!("{HEAD}{rule}")).unwrap_err().to_string()
    }

    #[test]
    fn faults_name_file_line_and_remedy() {
        let sound = "context = \"sighup\"\nreason = \"Because it is so.\"\n";
        for (rule, expected) in [
            ("[[a]]\ncontext = \"sighup\nreason = 1", "test.toml:5: no TOML"),
            ("[[a]]\nrecomend = \"on\"", "test.toml:5: recomend is no key of a rule; remove it"),
            ("[a]\nrecommend = \"on\"", "a must be tables: [[name]]"),
            ("[[a]]\nrecommend = \"on\"", "test.toml:4: context is missing; add it"),
            (&format!("[[a]]\n{sound}"), "test.toml:4: one of recommend, formula and advice"),
            (&format!("[[a]]\n{sound}recommend = true"), "test.toml:7: recommend must be a list of strings"),
            (&format!("[[a]]\n{sound}formula = \"1 +\"\nkind = \"s\""), "test.toml:7: the formula \"1 +\" is wrong"),
            (
                &format!("[[a]]\n{sound}formula = \"ram / 4\"\nkind = \"s\""),
                "test.toml:7: the formula \"ram / 4\" names ram",
            ),
            (
                &format!("[[a]]\n{sound}formula = \"1\"\nkind = \"days\""),
                "test.toml:8: kind: \"days\" is none of: bytes",
            ),
            (&format!("[[a]]\n{sound}recommend = \"1\"\nversions = \"18-15\""), "test.toml:8: versions: \"18-15\""),
            (&format!("[[fsync]]\n{sound}recommend = \"off\""), "test.toml:4: fsync = off is never recommended"),
            (&format!("[[fsync]]\n{sound}recommend = \"on\"\naccept = [\"off\"]"), "fsync = off is never recommended"),
            (&format!("[[fsync]]\n{sound}formula = \"1\"\nkind = \"word\""), "fsync = a formula is never recommended"),
            (
                "[[a]]\ncontext = \"internal\"\nreason = \"So.\"\nrecommend = \"on\"",
                "test.toml:4: an internal setting can't be set",
            ),
        ] {
            let error = error(rule);
            assert!(error.contains(expected), "{error}\nwanted {expected}");
        }
    }

    #[test]
    fn a_rule_by_version() {
        let text = format!(
            "{HEAD}[[a]]\nversions = \"15-16\"\ncontext = \"user\"\nrecommend = \"leave\"\nreason = \"\"\"\nTwo\n lines.\"\"\"\n\
             [[a]]\nversions = \"17-\"\ncontext = \"user\"\nrecommend = [\"lz4\", \"on\"]\nrisk = \"low: slow\"\nreason = \"x\""
        );
        let rules = read_rules("test.toml", &text).unwrap();
        assert_eq!(rules[0].reason, "Two lines.");
        assert_eq!((rules[0].is_for(9), rules[0].is_for(17), rules[1].is_for(20)), (true, false, true));
        assert_eq!(rules[1].source.url(17), "https://www.postgresql.org/docs/17/runtime-config-test.html#GUC-A");
        assert_eq!(rules[1].risk.note, "slow");
    }
}
