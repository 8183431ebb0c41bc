//! `auth.hba_file` and `auth.ident_file`: the rules by which clients are let in.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sluice_control::access::AccessRules;
use sluice_hba::{ClientCert, ConnectionType, Files, Interface, Method, Place, Rule, Rules};

use crate::{
    files,
    reader::Section,
    report::{Fault, Position, Problem},
    schema,
};

/// The name of the rules that stand for `method = "trust"`.
const BY_METHOD: &str = "auth.method";

/// The largest file that is read, in bytes.
const HBA_BYTES_MAX: u64 = 4 << 20;

/// The files as they stand on disk, and all that was read of them.
#[derive(Default)]
struct OnDisk(RefCell<String>);

impl Files for OnDisk {
    fn read(&self, path: &Path) -> io::Result<String> {
        // One that is not there may be none that has to be.
        fs::metadata(path)?;
        let (bytes, _) = files::read(path, HBA_BYTES_MAX).map_err(|fault| io::Error::other(fault.what))?;
        let text = String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8 text"))?;
        self.0.borrow_mut().push_str(&format!("{}\0{text}\0", path.display()));
        Ok(text)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()) {
                names.push(entry.file_name());
            }
        }
        Ok(names)
    }
}

/// Reads the rules, if `[auth]` names a file of them.
pub(crate) fn read(section: &Section<'_>) -> Option<Arc<AccessRules>> {
    let resolve = |given: Option<(PathBuf, usize)>| given.map(|(path, at)| (section.source().resolve(&path), at));
    let ident = resolve(section.read(&schema::IDENT_FILE).given());
    let Some((hba, _)) = resolve(section.read(&schema::HBA_FILE).given()) else {
        if let Some((_, offset)) = ident {
            let fault = Fault::new("only the rules of hba_file name maps", "leave it out, or add hba_file");
            section.note(&schema::IDENT_FILE, offset, fault);
        }
        return None;
    };
    let disk = OnDisk::default();
    let rules = match Rules::read(&hba, ident.as_ref().map(|(path, _)| path.as_path()), &disk) {
        Ok(rules) => rules,
        Err(problems) => {
            let found = problems.iter().map(|found| at_line(&found.file, found.line, &found.what, &found.remedy));
            section.source().add_elsewhere(found.collect());
            return None;
        }
    };
    if !section.table(&schema::LOOKUP).is_given() {
        let problems: Vec<_> = rules.need_roles().map(without_look_up).collect();
        if !problems.is_empty() {
            section.source().add_elsewhere(problems);
            return None;
        }
    }
    let interfaces = match interfaces_for(&rules, interfaces) {
        Ok(interfaces) => interfaces,
        Err(problems) => {
            section.source().add_elsewhere(problems);
            return None;
        }
    };
    Some(Arc::new(AccessRules { rules, unloaded: None, interfaces, text: disk.0.into_inner() }))
}

/// The mistakes in lines of `pg_hba.conf` for which PostgreSQL would not take the file, each with the place of its line.
/// What only Sluice lacks is none, since PostgreSQL reads them; nor is a file that they name, which is on its host.
pub(crate) fn mistakes(lines: &[String]) -> Vec<(usize, Fault)> {
    struct Text(String);
    impl Files for Text {
        fn read(&self, path: &Path) -> io::Result<String> {
            if path == Path::new(LINES) { Ok(self.0.clone()) } else { Err(io::Error::other(ELSEWHERE)) }
        }

        fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
            Err(io::Error::other(ELSEWHERE))
        }
    }
    const LINES: &str = "pg_hba.conf";
    const ELSEWHERE: &str = "it is not read here";
    // A first rule, so that lines which are all comments are no empty file.
    let text = format!("local all all reject\n{}\n", lines.join("\n"));
    let problems = Rules::read(Path::new(LINES), None, &Text(text)).err().unwrap_or_default();
    let problems =
        problems.into_iter().filter(|it| it.fault == sluice_hba::Fault::File && !it.what.contains(ELSEWHERE));
    // Lines are counted from 1, and the first is none of these.
    problems.map(|it| (it.line.saturating_sub(2).min(lines.len() - 1), Fault::new(it.what, it.remedy))).collect()
}

/// The rules by which everybody is believed.
pub(crate) fn trust() -> Arc<AccessRules> {
    struct Text;
    impl Files for Text {
        fn read(&self, _: &Path) -> io::Result<String> {
            Ok("local all all trust\nhost all all all trust\n".to_owned())
        }

        fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
            Ok(Vec::new())
        }
    }
    #[allow(clippy::expect_used, reason = "the text is ours, and a test reads it")]
    let rules = Rules::read(Path::new(BY_METHOD), None, &Text).expect("the rules are well-formed");
    Arc::new(AccessRules { rules, unloaded: None, interfaces: Vec::new(), text: BY_METHOD.to_owned() })
}

/// The same rules for known users only, where no password is asked for.
pub(crate) fn for_known_users(rules: &AccessRules, known: BTreeSet<String>) -> Arc<AccessRules> {
    let AccessRules { rules, unloaded, interfaces, text } = rules;
    // Rules are equal where this text is: other users are other rules.
    let names: String = known.iter().map(|name| format!("{name}\0")).collect();
    let rules = rules.clone().for_known_users(known);
    let text = format!("{text}\0{names}");
    Arc::new(AccessRules { rules, unloaded: unloaded.clone(), interfaces: interfaces.clone(), text })
}

/// Whether secrets are needed to ask clients as the rules demand.
pub(crate) fn needs_secrets(rules: &AccessRules) -> bool {
    rules.rules.rules().iter().any(|rule| matches!(rule.method(), Method::Md5 | Method::ScramSha256))
}

/// The problem with a line that asks for roles, where nobody can be asked for them.
fn without_look_up(place: &Place) -> Problem {
    let what =
        "members of roles (+role, samerole, samegroup) are looked up on the server, and there is no [auth.lookup]";
    let remedy = "add [auth.lookup] with user and database, in place of users_file; or name the users themselves";
    at_line(&place.file, place.line, what, remedy)
}

/// Notes rules that no client will ever match, and those that will never let one in.
pub(crate) fn warn(root: &Section<'_>, rules: Option<&AccessRules>) {
    let Some(rules) = rules.filter(|_| root.table(&schema::AUTH).has(schema::HBA_FILE.name)) else { return };
    let (has_tls, has_socket) = (root.has(schema::TLS.name()), root.has(schema::UNIX_SOCKET_DIR.name));
    let warnings = rules.rules.rules().iter().filter_map(|rule| {
        let (what, remedy) = match (rule.connection_type(), rule.map()) {
            (ConnectionType::HostSsl, _) if !has_tls => {
                ("no client matches the rule: without [tls], none has TLS", "add [tls], or remove the rule")
            }
            (ConnectionType::HostGssEnc, _) => {
                ("no client matches the rule: none has GSSAPI's encryption", "write hostssl, or remove the rule")
            }
            (ConnectionType::Local, _) if !has_socket => (
                "no client matches the rule: without unix_socket_dir, there is no Unix socket",
                "add unix_socket_dir, or remove the rule",
            ),
            _ if rule.is_for_replication() => (
                "no client matches the rule: replication connections can't go through the pool",
                "remove the rule, and have them connect to the server",
            ),
            (_, Some(map)) if !rules.rules.has_map(map) => {
                ("the rule lets nobody in: there is no map of that name", "add the map to ident_file")
            }
            _ => return None,
        };
        Some(at_line(&rule.place().file, rule.place().line, what, remedy))
    });
    root.source().warn_elsewhere(warnings.collect());
}

pub(crate) fn at_line(file: &Path, line: usize, what: &str, remedy: &str) -> Problem {
    Fault::new(what, remedy).at(file, Some(Position { line, column: 1 }), "")
}

/// Checks that certificates can be verified which rules ask for.
pub(crate) fn check_certificates(root: &Section<'_>, rules: Option<&AccessRules>) {
    let asks = |rule: &&Rule| rule.client_cert() != ClientCert::None;
    let Some(rule) = rules.and_then(|rules| rules.rules.rules().iter().find(asks)) else { return };
    if !root.table(&schema::TLS).has(schema::CLIENT_CA_FILE.name) {
        let what = "it asks for a certificate, and nobody is trusted to give clients one";
        root.source().add_elsewhere(vec![at_line(
            &rule.place().file,
            rule.place().line,
            what,
            "add client_ca_file to [tls]",
        )]);
    }
}

/// This host's own addresses, where rules ask for them. Without them such a rule would match nobody, and a client whom it
/// rejects might be let in by the next one.
fn interfaces_for(
    rules: &Rules,
    read: impl FnOnce() -> io::Result<Vec<Interface>>,
) -> Result<Vec<Interface>, Vec<Problem>> {
    if !rules.needs_interfaces() {
        return Ok(Vec::new());
    }
    read().map_err(|error| {
        let what = format!("samehost and samenet need this host's own addresses, which can't be read: {error}");
        let remedy = "let the process use netlink (RestrictAddressFamilies=… AF_NETLINK in a unit of systemd, and a restart \
                      of that service, since a new process has the rights of the one before), or write the addresses \
                      themselves";
        rules.need_interfaces().map(|place| at_line(&place.file, place.line, &what, remedy)).collect()
    })
}

/// This host's own addresses.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let found = nix::ifaddrs::getifaddrs()?;
    let ip = |address: Option<nix::sys::socket::SockaddrStorage>| {
        let address = address?;
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
    };
    Ok(found.filter_map(|one| Some(Interface { address: ip(one.address)?, netmask: ip(one.netmask)? })).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_need_addresses_are_refused_where_these_cannot_be_read() {
        struct Text(&'static str);
        impl Files for Text {
            fn read(&self, _: &Path) -> io::Result<String> {
                Ok(self.0.to_owned())
            }

            fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
                Ok(Vec::new())
            }
        }
        let refused = || Err(io::Error::from_raw_os_error(nix::libc::EAFNOSUPPORT));
        let of = |text| Rules::read(Path::new("hba.conf"), None, &Text(text)).unwrap();
        let rules = of("local all all trust\nhost all all samehost reject\nhost all all all trust\n");
        let problems = interfaces_for(&rules, refused).unwrap_err();
        assert_eq!(problems.len(), 1);
        let said = problems[0].to_string();
        assert!(said.starts_with("hba.conf:2:") && said.contains("AF_NETLINK"), "{said}");
        assert_eq!(interfaces_for(&of("host all all all trust\n"), refused).unwrap().len(), 0);
        let own = interfaces_for(&rules, interfaces).unwrap();
        assert!(own.iter().any(|one| one.address.is_loopback()), "{own:?}");
    }
}
