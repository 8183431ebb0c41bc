//! Custom settings (`app.tenant`) that a session has ever made. PostgreSQL keeps their names to the session's end: once
//! made, such a setting is an empty string where it was nothing before, and no RESET or DISCARD takes that away. So a
//! server that has one goes only to clients that have made it too (docs/decisions/0014).

use std::{collections::BTreeSet, sync::Arc};

/// Their lower-case names. Shared and immutable; cheap to clone.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Customs(Option<Arc<BTreeSet<String>>>);

impl Customs {
    /// None.
    pub const NONE: Self = Self(None);

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|names| names.iter()).map(String::as_str)
    }

    /// Whether that is one of them.
    pub fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|names| names.contains(name))
    }

    /// Whether all of `others` are among them.
    pub fn cover(&self, others: &Self) -> bool {
        match (&self.0, &others.0) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(names), Some(others)) => Arc::ptr_eq(names, others) || names.is_superset(others),
        }
    }

    /// These, too.
    pub fn add<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let new: Vec<&str> = names.into_iter().filter(|name| !self.has(name)).collect();
        if new.is_empty() {
            return;
        }
        let mut all = self.0.as_deref().cloned().unwrap_or_default();
        all.extend(new.into_iter().map(str::to_owned));
        self.0 = Some(Arc::new(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Customs {
        let mut customs = Customs::default();
        customs.add(names.iter().copied());
        customs
    }

    #[test]
    fn names_cover_their_like_and_fewer() {
        let (none, one, two) = (of(&[]), of(&["a.b"]), of(&["a.b", "c.d"]));
        assert!(none.is_empty() && !one.is_empty());
        assert!(two.cover(&one) && two.cover(&two.clone()) && one.cover(&none) && none.cover(&none));
        assert!(!one.cover(&two) && !none.cover(&one));
    }
}
