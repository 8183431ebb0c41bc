//! Walks a parsed TOML document along the schema: each value becomes its type once, each problem is noted with its
//! place, and the walk goes on.
//!
//! It knows neither what the values are for nor which may stand together.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use toml_edit::{Item, Key as TomlKey, TableLike};

use crate::{
    files::Access,
    kinds::{self, Kind},
    names,
    report::{self, Fault, Position, Problem},
    schema::{Key, Table},
};

/// The file that is read, and the problems noted so far.
pub(crate) struct Source<'a> {
    file: &'a Path,
    schema: &'static Table,
    text: &'a str,
    access: Access,
    problems: RefCell<Vec<Problem>>,
    /// Problems inside the files that this one names.
    elsewhere: RefCell<Vec<Problem>>,
    /// Things here and there that are worth a word, and no more.
    warnings: RefCell<Vec<Problem>>,
}

/// One table of the document, with its part of the schema. A table that is not there reads as an empty one.
pub(crate) struct Section<'a> {
    source: &'a Source<'a>,
    schema: &'static Table,
    table: Option<&'a dyn TableLike>,
    /// The offset in the file at which the table begins.
    offset: Option<usize>,
}

/// The finding for a key.
pub(crate) enum Read<T> {
    Absent,
    /// A problem has been noted.
    Bad,
    Given(T, usize),
}

/// A value and where it comes from, for rules about several values.
#[derive(Clone, Copy)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// The origin of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The program.
    Default,
    /// The table of defaults in the file, at this offset.
    Inherited(usize),
    /// The table itself, at this offset.
    Given(usize),
    /// A value that can't be read, for which the default stands in: no rule may look at it.
    Bad,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a Path, schema: &'static Table, text: &'a str, access: Access) -> Self {
        Self {
            file,
            schema,
            text,
            access,
            problems: RefCell::default(),
            elsewhere: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &'a Path {
        self.file
    }

    /// The users who may read the file.
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// A path as the file means it: relative ones start at its folder.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }

    /// Notes a problem; no offset means the file as a whole.
    pub(crate) fn add(&self, offset: Option<usize>, key: impl Into<String>, fault: Fault) {
        let position = offset.map(|offset| Position::of(self.text, offset));
        self.problems.borrow_mut().push(fault.at(self.file, position, key));
    }

    /// The line of an offset, for a remedy that names another place.
    pub(crate) fn line(&self, offset: usize) -> usize {
        Position::of(self.text, offset).line
    }

    /// Notes problems inside a file that this one names.
    pub(crate) fn add_elsewhere(&self, problems: Vec<Problem>) {
        self.elsewhere.borrow_mut().extend(problems);
    }

    /// Notes what is worth a word.
    pub(crate) fn warn(&self, offset: usize, key: impl Into<String>, fault: Fault) {
        self.warnings.borrow_mut().push(fault.at(self.file, Some(Position::of(self.text, offset)), key));
    }

    /// Notes what is worth a word in the files that this one names.
    pub(crate) fn warn_elsewhere(&self, warnings: Vec<Problem>) {
        self.warnings.borrow_mut().extend(warnings);
    }

    /// Takes what was worth a word.
    pub(crate) fn take_warnings(&self) -> Vec<Problem> {
        self.warnings.take()
    }

    /// All problems: this file's in order, then the others'.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        report::in_order(&mut problems);
        problems.append(&mut self.elsewhere.into_inner());
        problems
    }
}

impl<'a> Section<'a> {
    /// The top of the file.
    pub(crate) fn root(source: &'a Source<'a>, table: &'a dyn TableLike) -> Self {
        Self::new(source, source.schema, Some(table), None)
    }

    fn new(
        source: &'a Source<'a>,
        schema: &'static Table,
        table: Option<&'a dyn TableLike>,
        offset: Option<usize>,
    ) -> Self {
        let section = Self { source, schema, table, offset };
        section.note_unknown();
        section
    }

    /// The file that the table is in.
    pub(crate) fn source(&self) -> &'a Source<'a> {
        self.source
    }

    /// Its part of the schema.
    pub(crate) fn schema(&self) -> &'static Table {
        self.schema
    }

    /// Whether the table stands in the file.
    pub(crate) fn is_given(&self) -> bool {
        self.table.is_some()
    }

    /// Whether something stands under this name, good or bad.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The offset in the file at which the table begins.
    pub(crate) fn offset(&self) -> Option<usize> {
        self.offset
    }

    /// Reads the value of a key.
    pub(crate) fn read<K: Kind>(&self, key: &Key<K>) -> Read<K::Value> {
        let Some((toml_key, item)) = self.get(key.name) else {
            return Read::Absent;
        };
        let offset = offset_of(toml_key, item);
        let Some(value) = item.as_value() else {
            self.note_table(key, offset);
            return Read::Bad;
        };
        match key.kind.read(value) {
            Ok(value) => Read::Given(value, offset),
            Err(fault) => self.bad(key, offset, fault),
        }
    }

    /// Reads a value that must be there; `None` has been noted.
    pub(crate) fn read_required<K: Kind>(&self, key: &Key<K>) -> Option<(K::Value, usize)> {
        match self.read(key) {
            Read::Given(value, offset) => Some((value, offset)),
            Read::Bad => None,
            Read::Absent => {
                let remedy = match &*self.schema.header() {
                    "" => format!("add {} = … at the top of the file, before any table", key.name),
                    header => format!("add {} = … to {header}", key.name),
                };
                self.source.add(self.offset, self.path_of(key), Fault::new("missing", remedy));
                None
            }
        }
    }

    /// Reads a list, of which the key's kind is one element; each comes with its own offset.
    pub(crate) fn read_list<K: Kind>(&self, key: &Key<K>, count_max: usize) -> Read<Vec<(K::Value, usize)>> {
        let Some((toml_key, item)) = self.get(key.name) else {
            return Read::Absent;
        };
        let offset = offset_of(toml_key, item);
        let Some(list) = item.as_array() else {
            let what = format!("a list was expected, but this is {}", kinds::found_item(item));
            let remedy = format!("write a list in brackets: {} = [\"…\"]", key.name);
            return self.bad(key, offset, Fault::new(what, remedy));
        };
        if list.is_empty() || list.len() > count_max {
            let remedy = format!("give at least 1 and at most {count_max}");
            return self.bad(key, offset, Fault::new(format!("a list of {}", list.len()), remedy));
        }
        let mut elements = Vec::with_capacity(list.len());
        for element in list {
            let offset = element.span().map_or(offset, |span| span.start);
            match key.kind.read(element) {
                Ok(value) => elements.push((value, offset)),
                Err(fault) => self.source.add(Some(offset), self.path_of(key), fault),
            }
        }
        if elements.len() == list.len() { Read::Given(elements, offset) } else { Read::Bad }
    }

    /// A table inside this one.
    pub(crate) fn table(&self, schema: &'static Table) -> Section<'a> {
        let Some((toml_key, item)) = self.get(schema.name()) else {
            return Section::new(self.source, schema, None, None);
        };
        let offset = offset_of_table(toml_key, item);
        let table = item.as_table_like();
        if table.is_none() {
            let what = format!("a table was expected, but this is {}", kinds::found_item(item));
            let remedy = format!("write {}, once, and its keys below it", schema.header());
            self.source.add(Some(offset), schema.path, Fault::new(what, remedy));
        }
        Section::new(self.source, schema, table, Some(offset))
    }

    /// The tables of a list inside this one.
    pub(crate) fn tables(&self, schema: &'static Table) -> Vec<Section<'a>> {
        let Some((toml_key, item)) = self.get(schema.name()) else {
            return Vec::new();
        };
        let section = |table: &'a dyn TableLike, offset| Section::new(self.source, schema, Some(table), Some(offset));
        let list_offset = offset_of_table(toml_key, item);
        if let Some(tables) = item.as_array_of_tables() {
            let offset = |span: Option<std::ops::Range<usize>>| span.map_or(list_offset, |span| span.start);
            return tables.iter().map(|table| section(table, offset(table.span()))).collect();
        }
        let inline = item.as_array().filter(|list| !list.is_empty()).and_then(|list| {
            let table = |value: &'a toml_edit::Value| {
                let offset = value.span().map_or(list_offset, |span| span.start);
                value.as_inline_table().map(|table| (table, offset))
            };
            list.iter().map(table).collect::<Option<Vec<_>>>()
        });
        if let Some(inline) = inline {
            return inline.into_iter().map(|(table, offset)| section(table, offset)).collect();
        }
        let what = format!("tables were expected, but this is {}", kinds::found_item(item));
        let remedy = format!("write {} before the keys of each", schema.header());
        self.source.add(Some(list_offset), schema.path, Fault::new(what, remedy));
        Vec::new()
    }

    /// The path of a key in this table.
    pub(crate) fn path_of<K>(&self, key: &Key<K>) -> String {
        self.schema.path_of(key.name)
    }

    /// Notes a problem with a key of this table.
    pub(crate) fn note<K>(&self, key: &Key<K>, offset: usize, fault: Fault) {
        self.source.add(Some(offset), self.path_of(key), fault);
    }

    fn get(&self, name: &str) -> Option<(&'a TomlKey, &'a Item)> {
        self.table?.get_key_value(name)
    }

    fn bad<K, T>(&self, key: &Key<K>, offset: usize, fault: Fault) -> Read<T> {
        self.note(key, offset, fault);
        Read::Bad
    }

    fn note_table<K: Kind>(&self, key: &Key<K>, offset: usize) {
        let remedy = format!("write {} = … with: {}", key.name, key.kind.describe());
        self.note(key, offset, Fault::new("a value was expected, but this is a table", remedy));
    }

    fn note_unknown(&self) {
        for (name, item) in self.table.into_iter().flat_map(TableLike::iter) {
            if names::holds(self.schema, name) {
                continue;
            }
            let toml_key = self.table.and_then(|table| table.key(name));
            let offset = toml_key.and_then(|key| key.span()).or_else(|| item.span()).map(|span| span.start);
            let path = self.schema.path_of(&name.escape_debug().to_string());
            self.source.add(offset, path, names::unknown(self.source.schema, self.schema, name, item));
        }
    }
}

/// A value's place, or its key's where the value has none.
fn offset_of(key: &TomlKey, item: &Item) -> usize {
    item.span().or_else(|| key.span()).map_or(0, |span| span.start)
}

/// A table's place: that of its header, or of its name where the header is only implied.
fn offset_of_table(key: &TomlKey, item: &Item) -> usize {
    let header = item.as_table().filter(|table| !table.is_implicit()).and_then(toml_edit::Table::span);
    header.or_else(|| key.span()).or_else(|| item.span()).map_or(0, |span| span.start)
}

impl<T> Read<T> {
    /// The value with its origin, or the program's default.
    pub(crate) fn or_default(self, default: T) -> Setting<T> {
        match self {
            Read::Given(value, offset) => Setting { value, origin: Origin::Given(offset) },
            Read::Absent => Setting { value: default, origin: Origin::Default },
            Read::Bad => Setting { value: default, origin: Origin::Bad },
        }
    }

    /// The value with its origin, or what the table of defaults says.
    pub(crate) fn or_inherit(self, parent: Setting<T>) -> Setting<T> {
        match (self, parent.origin) {
            (Read::Given(value, offset), _) => Setting { value, origin: Origin::Given(offset) },
            (Read::Absent, Origin::Given(offset)) => Setting { origin: Origin::Inherited(offset), ..parent },
            (Read::Absent, _) => parent,
            (Read::Bad, _) => Setting { origin: Origin::Bad, ..parent },
        }
    }

    /// The value and its offset, if there is one.
    pub(crate) fn given(self) -> Option<(T, usize)> {
        match self {
            Read::Given(value, offset) => Some((value, offset)),
            Read::Absent | Read::Bad => None,
        }
    }

    /// The value alone, if there is one.
    pub(crate) fn value(self) -> Option<T> {
        self.given().map(|(value, _)| value)
    }
}
