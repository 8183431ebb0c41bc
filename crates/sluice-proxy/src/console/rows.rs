//! A table as PostgreSQL's protocol has it: RowDescription and DataRows, in text.

use sluice_wire::message::{framed, put_cstr};

/// The type of a column, by PostgreSQL's names: what drivers make of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    /// A larger number is shown as the largest one: PgBouncer's would come out negative.
    Int4,
    Int8,
    Numeric,
}

impl Type {
    fn oid(self) -> u32 {
        match self {
            Self::Text => 25,
            Self::Int4 => 23,
            Self::Int8 => 20,
            Self::Numeric => 1700,
        }
    }

    fn size(self) -> i16 {
        match self {
            Self::Text | Self::Numeric => -1,
            Self::Int4 => 4,
            Self::Int8 => 8,
        }
    }

    /// A number as the column shows it.
    fn show(self, number: u64) -> String {
        let most = if self == Self::Int4 { i32::MAX as u64 } else { u64::MAX };
        number.min(most).to_string()
    }
}

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Null,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, T::into)
    }
}

/// A table: the names of its columns, and rows of as many values.
#[derive(Debug)]
pub(super) struct Table {
    columns: &'static [&'static str],
    /// Those of the columns that hold texts; the others hold numbers.
    texts: &'static [&'static str],
    /// The type of the others.
    numbers: Type,
    /// Those of them that have eight bytes whatever that is.
    long: &'static [&'static str],
    rows: Vec<Vec<Value>>,
}

impl Table {
    /// An empty one, whose numbers have eight bytes.
    pub(super) fn new(columns: &'static [&'static str], texts: &'static [&'static str]) -> Self {
        Self::of(columns, texts, Type::Int8)
    }

    /// An empty one, whose numbers are of that type.
    pub(super) fn of(columns: &'static [&'static str], texts: &'static [&'static str], numbers: Type) -> Self {
        Self { columns, texts, numbers, long: &[], rows: Vec::new() }
    }

    /// The same, with these numbers of eight bytes.
    pub(super) fn with_long(self, long: &'static [&'static str]) -> Self {
        Self { long, ..self }
    }

    fn kind(&self, column: &str) -> Type {
        if self.texts.contains(&column) {
            Type::Text
        } else if self.long.contains(&column) {
            Type::Int8
        } else {
            self.numbers
        }
    }

    /// The number of its rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds a row.
    pub(super) fn push<const N: usize>(&mut self, row: [Value; N]) {
        debug_assert_eq!(N, self.columns.len(), "a row has all columns");
        self.rows.push(row.into());
    }

    /// Adds a row that is put together elsewhere.
    pub(super) fn append(&mut self, row: Vec<Value>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a row has all columns");
        self.rows.push(row);
    }

    /// Appends it to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        framed(out, b'T', |out| {
            out.extend_from_slice(&(self.columns.len() as u16).to_be_bytes());
            for column in self.columns {
                let kind = self.kind(column);
                put_cstr(out, column.as_bytes());
                // Of no table; no modifier; as text.
                out.extend_from_slice(&[0; 6]);
                out.extend_from_slice(&kind.oid().to_be_bytes());
                out.extend_from_slice(&kind.size().to_be_bytes());
                out.extend_from_slice(&(-1_i32).to_be_bytes());
                out.extend_from_slice(&0_u16.to_be_bytes());
            }
        });
        for row in &self.rows {
            framed(out, b'D', |out| {
                out.extend_from_slice(&(row.len() as u16).to_be_bytes());
                for (column, value) in self.columns.iter().zip(row) {
                    let text = match value {
                        Value::Null => {
                            out.extend_from_slice(&(-1_i32).to_be_bytes());
                            continue;
                        }
                        Value::Text(text) => text.clone(),
                        Value::Number(number) => self.kind(column).show(*number),
                    };
                    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
                    out.extend_from_slice(text.as_bytes());
                }
            });
        }
    }
}
