//! The settings by which literals are read.

use super::{Profile, ROLE, Scope, Settings, put_set_config, put_set_configs};

/// Settings by which a literal is read.
const READ_BY_LITERALS: [&str; 13] = [
    "array_nulls",
    "backslash_quote",
    "client_encoding",
    "datestyle",
    "default_text_search_config",
    "intervalstyle",
    "lc_monetary",
    SEARCH_PATH,
    "standard_conforming_strings",
    "timezone",
    "timezone_abbreviations",
    "transform_null_equals",
    "xmloption",
];

/// Those of them by which the characters of a text are read. PostgreSQL does that once, at the Parse, whatever else it
/// reads anew (`raw_parser`, and the tree that it leaves with the statement).
const READ_ONCE: [&str; 3] = ["backslash_quote", "client_encoding", "standard_conforming_strings"];

/// The setting by whose change PostgreSQL reads literals anew (`RevalidateCachedQuery`).
const SEARCH_PATH: &str = "search_path";

/// The `search_path`, and the role on which depends what it leads to: `$user`, and schemas that it may use. `None`: the
/// server's own, and the user that logged in.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SearchPath {
    list: Option<Box<[u8]>>,
    role: Option<Box<[u8]>>,
}

impl Profile {
    /// The same, with these values of the settings by which a literal is read, those that are the server's own
    /// included.
    pub fn with_literals_read_by<'a>(&self, parameters: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut settings = self.settings().clone();
        let named = parameters.map(|(name, value)| (name.to_ascii_lowercase(), value.as_bytes().into()));
        settings.extend(named.filter(|(name, _)| READ_BY_LITERALS.contains(&name.as_str())));
        Self::new(settings)
    }

    /// The same, where literals are read by those settings, and what is not among them is the server's own.
    #[must_use]
    pub fn with_literals(&self, literals: &Self) -> Self {
        let mut settings = self.settings().clone();
        settings.retain(|name, _| !READ_BY_LITERALS.contains(&name.as_str()));
        settings.extend(literals.settings().iter().map(|(name, value)| (name.clone(), value.clone())));
        Self::new(settings)
    }

    /// Those of them that have another value in `others`.
    #[must_use]
    pub fn differing(&self, others: &Self) -> Self {
        let differing = self.settings().iter().filter(|(name, value)| others.get(name) != Some(&***value));
        Self::new(differing.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// The settings by which PostgreSQL reads literals anew in the place of `self`, where `now` is in place.
    #[must_use]
    pub fn reread_under(&self, now: &Self) -> Self {
        let mut settings: Settings = now.settings().clone();
        for name in READ_ONCE {
            match self.get(name) {
                Some(value) => settings.insert(name.to_owned(), value.into()),
                None => settings.remove(name),
            };
        }
        Self::new(settings)
    }

    /// Whether both have literals mean the same, when they are read anew.
    pub fn rereads_alike(&self, other: &Self) -> bool {
        let matters = |name: &&str| *name != SEARCH_PATH && !READ_ONCE.contains(name);
        READ_BY_LITERALS.iter().filter(|name| matters(name)).all(|name| self.get(name) == other.get(name))
    }

    /// Whether both have the characters of a text mean the same.
    pub fn reads_characters_like(&self, other: &Self) -> bool {
        READ_ONCE.iter().all(|name| self.get(name) == other.get(name))
    }

    /// The same with that `search_path`, and its role.
    #[must_use]
    pub fn with_path(&self, path: &SearchPath) -> Self {
        if self.search_path() == *path {
            return self.clone();
        }
        let mut settings = self.settings().clone();
        for (name, value) in [(SEARCH_PATH, &path.list), (ROLE, &path.role)] {
            match value {
                Some(value) => settings.insert(name.to_owned(), value.clone()),
                None => settings.remove(name),
            };
        }
        Self::new(settings)
    }

    /// Whether both have the same `search_path`, for the same role.
    pub fn has_path_of(&self, other: &Self) -> bool {
        [SEARCH_PATH, ROLE].iter().all(|name| self.get(name) == other.get(name))
    }

    /// Its `search_path`.
    pub fn search_path(&self) -> SearchPath {
        SearchPath { list: self.get(SEARCH_PATH).map(Box::from), role: self.get(ROLE).map(Box::from) }
    }
}

/// The query that makes the settings by which literals are read what they are in a profile, up to the end of the
/// transaction or savepoint, whatever they are now.
pub fn set(profile: &Profile) -> String {
    let mut sql = String::new();
    put_set_configs(&mut sql, READ_BY_LITERALS.map(|name| (name, profile.get(name))), Scope::Transaction);
    sql
}

/// The query for the settings by which literals are read, in one text of ASCII.
pub fn query() -> String {
    let mut sql = "SELECT pg_catalog.concat_ws(','".to_owned();
    for name in READ_BY_LITERALS {
        sql.push_str(",pg_catalog.encode(pg_catalog.convert_to(pg_catalog.current_setting('");
        sql.push_str(name);
        sql.push_str("'),pg_catalog.getdatabaseencoding()),'hex')");
    }
    sql.push(')');
    sql
}

/// The query for the server's own values of them, in the same form.
pub fn defaults_query() -> String {
    let names = READ_BY_LITERALS.join(",");
    format!(
        "SELECT pg_catalog.string_agg(pg_catalog.encode(pg_catalog.convert_to(COALESCE(s.reset_val,''),\
         pg_catalog.getdatabaseencoding()),'hex'),',' ORDER BY n.place) \
         FROM pg_catalog.unnest(pg_catalog.string_to_array('{names}',',')) WITH ORDINALITY n(name,place) \
         LEFT JOIN pg_catalog.pg_settings s ON pg_catalog.lower(s.name) OPERATOR(pg_catalog.=) n.name"
    )
}

/// The settings with these values, in the order of that query; `None` if there are more, or fewer.
pub fn profile_of(values: Vec<Vec<u8>>) -> Option<Profile> {
    let names = READ_BY_LITERALS.map(str::to_owned).into_iter();
    let is_each = values.len() == READ_BY_LITERALS.len();
    is_each.then(|| Profile::new(names.zip(values.into_iter().map(Vec::into_boxed_slice)).collect()))
}

/// The query whether another `search_path` leads to the same schemas as the one in place, `here`: `t` or `f`.
/// PostgreSQL compares what they lead to, and which schema is the one in which objects are made.
pub fn same_path_query(here: &SearchPath, there: &SearchPath) -> String {
    const SCHEMAS: &str = "pg_catalog.array_cat(pg_catalog.current_schemas(true),pg_catalog.current_schemas(false))";
    let has_other_role = here.role != there.role;
    let put_list = |sql: &mut String, path: &SearchPath| {
        put_set_config(sql, SEARCH_PATH, path.list.as_deref(), Scope::Transaction);
    };
    let put_role = |sql: &mut String, path: &SearchPath| {
        put_set_config(sql, ROLE, Some(path.role.as_deref().unwrap_or(b"none")), Scope::Transaction);
    };
    let mut sql = format!("SELECT pg_catalog.left(pg_catalog.concat({SCHEMAS} OPERATOR(pg_catalog.=) CASE WHEN ");
    if has_other_role {
        put_role(&mut sql, there);
        sql.push_str(" IS NOT NULL AND ");
    }
    put_list(&mut sql, there);
    sql.push_str(&format!(" IS NOT NULL THEN {SCHEMAS} END,"));
    put_list(&mut sql, here);
    if has_other_role {
        sql.push(',');
        put_role(&mut sql, here);
    }
    sql.push_str("),1)");
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(pairs: &[(&str, &str)]) -> Profile {
        Profile::new(pairs.iter().map(|(n, v)| (n.to_string(), v.as_bytes().into())).collect())
    }

    #[test]
    fn another_search_path_has_literals_read_anew_but_not_their_characters() {
        let parsed = profile(&[("client_encoding", "LATIN1"), ("datestyle", "ISO"), ("geqo", "off")]);
        let moved = profile(&[("client_encoding", "UTF8"), ("datestyle", "ISO"), ("search_path", "a")]);
        let changed = profile(&[("datestyle", "German"), ("search_path", "a"), ("standard_conforming_strings", "off")]);
        assert!(parsed.rereads_alike(&moved) && !parsed.rereads_alike(&changed));
        let read = profile(&[("client_encoding", "LATIN1"), ("datestyle", "German"), ("search_path", "a")]);
        assert_eq!(parsed.reread_under(&changed), read);
    }
}
