//! Formulas in rules: arithmetic over the instance, the workload and what the server tells of itself.
//!
//! A formula is checked when its rule is read: its syntax, and that it names only [`VARIABLES`]. It does no I/O and has
//! no memory.

use std::collections::BTreeMap;

use evalexpr::{Context, ContextWithMutableVariables, HashMapContext, Node, Value, build_operator_tree};

/// Variables that a formula may name, each with its meaning.
pub const VARIABLES: [(&str, &str); 18] = [
    ("memory", "main memory in bytes"),
    ("cores", "processors"),
    ("connections", "connections at once"),
    ("iops", "operations a second that the disk does; a billion where nobody told"),
    ("ssd", "whether the data lie on an SSD"),
    ("pool", "whether clients come through a connection pool"),
    ("oltp", "whether the workload is oltp"),
    ("web", "whether the workload is web"),
    ("analytics", "whether the workload is analytics"),
    ("mixed", "whether the workload is mixed"),
    ("current", "the setting's value now, in the rule's kind; 0 if it is no number"),
    ("requested_share", "share of checkpoints that were forced, of at least 20; else 0"),
    ("wal_full_share", "WAL writes because wal_buffers was full, for each 8 kB of WAL; 0 where unknown"),
    ("slots", "replication slots"),
    ("kB", "1024"),
    ("MB", "1024 kB"),
    ("GB", "1024 MB"),
    ("TB", "1024 GB"),
];

/// The option by which a missing variable is told.
const OPTIONS: [(&str, &str); 3] = [("memory", "--memory"), ("cores", "--cpus"), ("connections", "--connections")];

/// A formula that parses and names only what there is.
#[derive(Debug, Clone)]
pub struct Formula {
    text: String,
    tree: Node,
}

/// Values of variables. One that is absent is asked for by the option that tells it.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    values: BTreeMap<&'static str, Value>,
}

/// The result of a formula.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A number.
    Number(f64),
    /// A word.
    Word(String),
    /// A condition.
    Condition(bool),
}

/// Reasons why a formula has no value. A rule's fault, unless it is [`FormulaError::Needs`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// It does not parse, or has no value whatever the variables are.
    #[error("the formula {text:?} is wrong: {why}")]
    Syntax {
        /// The formula.
        text: String,
        /// The parser's words.
        why: String,
    },
    /// It names what there is not.
    #[error("the formula {text:?} names {name}; there are: {}", names())]
    Unknown {
        /// The formula.
        text: String,
        /// The name that it uses.
        name: String,
    },
    /// It needs what nobody told.
    #[error("needs {}", .0.join(" and "))]
    Needs(Vec<&'static str>),
    /// It comes to nothing that can be used.
    #[error("the formula {text:?} has no value: {why}")]
    Value {
        /// The formula.
        text: String,
        /// The reason.
        why: String,
    },
}

fn names() -> String {
    VARIABLES.map(|(name, _)| name).join(", ")
}

impl Formula {
    /// Reads a formula.
    ///
    /// # Errors
    ///
    /// [`FormulaError::Syntax`], [`FormulaError::Unknown`].
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        let syntax =
            |why: evalexpr::EvalexprError| FormulaError::Syntax { text: text.to_owned(), why: why.to_string() };
        let tree = build_operator_tree(text).map_err(syntax)?;
        let unknown = tree.iter_variable_identifiers().find(|name| VARIABLES.iter().all(|(known, _)| known != name));
        if let Some(name) = unknown {
            return Err(FormulaError::Unknown { text: text.to_owned(), name: name.to_owned() });
        }
        let formula = Self { text: text.to_owned(), tree };
        // The parser leaves a missing operand, or a number for a condition, to the evaluation.
        match formula.eval(&Variables::sample()) {
            Err(FormulaError::Value { text, why }) => Err(FormulaError::Syntax { text, why }),
            Err(error) => Err(error),
            Ok(_) => Ok(formula),
        }
    }

    /// As it stands in the rule.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its value.
    ///
    /// # Errors
    ///
    /// [`FormulaError::Needs`], [`FormulaError::Value`].
    pub fn eval(&self, variables: &Variables) -> Result<Outcome, FormulaError> {
        let needs = variables.missing(&self.tree);
        if !needs.is_empty() {
            return Err(FormulaError::Needs(needs));
        }
        let fault = |why: String| FormulaError::Value { text: self.text.clone(), why };
        let context = variables.context().map_err(|error| fault(error.to_string()))?;
        match self.tree.eval_with_context(&context).map_err(|error| fault(error.to_string()))? {
            Value::Float(number) if number.is_finite() => Ok(Outcome::Number(number)),
            Value::Int(number) => Ok(Outcome::Number(number as f64)),
            Value::String(word) => Ok(Outcome::Word(word)),
            Value::Boolean(condition) => Ok(Outcome::Condition(condition)),
            other => Err(fault(format!("{other} is neither a number, a word nor a condition"))),
        }
    }

    /// Its value, which must be a condition.
    ///
    /// # Errors
    ///
    /// As [`Formula::eval`].
    pub fn holds(&self, variables: &Variables) -> Result<bool, FormulaError> {
        match self.eval(variables)? {
            Outcome::Condition(condition) => Ok(condition),
            other => {
                let why = format!("{other:?} is no condition");
                Err(FormulaError::Value { text: self.text.clone(), why })
            }
        }
    }
}

impl Variables {
    /// With the units.
    pub fn new() -> Self {
        let mut variables = Self::default();
        for (power, name) in ["kB", "MB", "GB", "TB"].into_iter().enumerate() {
            variables.number(name, 1024_f64.powi(power as i32 + 1));
        }
        variables
    }

    /// Every variable with some value of its type.
    fn sample() -> Self {
        let mut variables = Self::new();
        for (name, meaning) in VARIABLES {
            match meaning.starts_with("whether ") {
                true => variables.condition(name, true),
                false => variables.number(name, 1.0),
            }
        }
        variables
    }

    /// A number.
    pub fn number(&mut self, name: &'static str, value: f64) {
        self.values.insert(name, Value::Float(value));
    }

    /// A number, if it is known.
    pub fn known(&mut self, name: &'static str, value: Option<f64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// A condition.
    pub fn condition(&mut self, name: &'static str, holds: bool) {
        self.values.insert(name, Value::Boolean(holds));
    }

    /// The options by which a formula's missing variables are told, each once.
    fn missing(&self, tree: &Node) -> Vec<&'static str> {
        let mut needs = Vec::new();
        for (name, option) in OPTIONS {
            if !self.values.contains_key(name) && tree.iter_variable_identifiers().any(|used| used == name) {
                needs.push(option);
            }
        }
        needs
    }

    fn context(&self) -> Result<impl Context, evalexpr::EvalexprError> {
        let mut context = HashMapContext::new();
        for (name, value) in &self.values {
            context.set_value((*name).to_owned(), value.clone())?;
        }
        Ok(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let mut variables = Variables::new();
        variables.number("memory", 1024.0 * 1024.0 * 1024.0);
        variables.number("iops", 400.0);
        variables.condition("analytics", true);
        variables.condition("ssd", false);
        variables
    }

    #[test]
    fn values() {
        for (text, expected) in [
            ("memory / 4", Outcome::Number(268_435_456.0)),
            ("min(memory / 16, 2 * GB)", Outcome::Number(67_108_864.0)),
            ("max(10, iops / 20)", Outcome::Number(20.0)),
            ("if(ssd, 1.1, 4)", Outcome::Number(4.0)),
            ("if(ssd, 1, -1)", Outcome::Number(-1.0)),
            ("if(analytics, \"off\", \"on\")", Outcome::Word("off".to_owned())),
            ("!analytics || iops < 500", Outcome::Condition(true)),
        ] {
            assert_eq!(Formula::parse(text).unwrap().eval(&variables()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = Formula::parse("memory / (4").unwrap_err();
        assert!(matches!(error, FormulaError::Syntax { .. }), "{error}");
        let error = Formula::parse("memroy / 4").unwrap_err().to_string();
        assert!(error.contains("names memroy; there are: memory"), "{error}");
        let error = Formula::parse("memory / cores / connections").unwrap().eval(&variables()).unwrap_err();
        assert_eq!(error.to_string(), "needs --cpus and --connections");
        for text in ["1 +", "min(1, ssd)", "if(memory, 1, 2)", "memory / 0"] {
            let error = Formula::parse(text).unwrap_err();
            assert!(matches!(error, FormulaError::Syntax { .. }), "{error}");
        }
        let error = Formula::parse("memory / 4").unwrap().holds(&variables()).unwrap_err();
        assert!(error.to_string().contains("no condition"), "{error}");
    }
}
