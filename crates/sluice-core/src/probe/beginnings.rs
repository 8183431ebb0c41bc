//! The settings that sessions begin with by their role and their database (`ALTER ROLE … SET`, `ALTER DATABASE … SET`),
//! where PostgreSQL does not say what RESET goes back to: roles, and custom settings.

use std::collections::BTreeMap;

use crate::holding::Holding;

/// The value of `role` where none is set.
pub(super) const NO_ROLE: &[u8] = b"none";

/// The settings that a session begins with.
#[derive(Debug)]
pub(super) struct Beginnings {
    /// Its role.
    role: Vec<u8>,
    /// The custom settings that it has then, by their lower-case names.
    customs: BTreeMap<String, Vec<u8>>,
}

impl Default for Beginnings {
    fn default() -> Self {
        Self { role: NO_ROLE.to_vec(), customs: BTreeMap::new() }
    }
}

impl Beginnings {
    /// Reads `name=value` each, of which the first of a name counts.
    pub(super) fn read(list: &[u8]) -> Self {
        let mut begun = Self::default();
        let mut has_role = false;
        for entry in list.split(|byte| *byte == 1) {
            let mut parts = entry.splitn(2, |byte| *byte == b'=');
            let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
            if name.eq_ignore_ascii_case(b"role") && !has_role {
                has_role = true;
                begun.role = value.to_vec();
            } else if name.contains(&b'.') {
                let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                begun.customs.entry(name).or_insert_with(|| value.to_vec());
            }
        }
        begun
    }

    /// The custom settings, by their lower-case names.
    pub(super) fn customs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.customs.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Gives what a session holds, by its role and the custom settings that are empty: one that it has reset is back at
    /// what it began with, so an empty one that began otherwise was set.
    pub(super) fn complete(&self, holding: Holding, role: Option<&[u8]>, empty: &[String]) -> Holding {
        let role = role.filter(|role| *role != self.role);
        let mut empty = empty.iter().filter(|name| self.customs.contains_key(*name)).peekable();
        if role.is_none() && empty.peek().is_none() {
            return holding;
        }
        let mut settings = holding.profile.settings().clone();
        settings.extend(role.map(|role| ("role".to_owned(), role.into())));
        settings.extend(empty.map(|name| (name.clone(), [].into())));
        holding.with(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_began_with_is_not_its_own() {
        let begun = Beginnings::read(b"role=r1\x01App.Tenant=v\x01role=r2\x01work_mem=1MB");
        let held = |role: &[u8], empty: &[&str]| {
            let empty: Vec<String> = empty.iter().map(|name| (*name).to_owned()).collect();
            let holding = begun.complete(Holding::read("").expect("it is one"), Some(role), &empty);
            let settings = holding.profile.settings().iter();
            let shown = settings.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)));
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(held(b"r1", &["app.other"]), "");
        assert_eq!(held(b"none", &["app.tenant", "app.other"]), "app.tenant= role=none");
        assert_eq!(Beginnings::read(b"").role, NO_ROLE);
    }
}
