//! `auth.hba_file` and `auth.ident_file`: the rules by which clients are let in.

use std::{
    cell::RefCell,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sluice_control::access::AccessRules;
use sluice_hba::{ClientCert, Files, Interface, Method, Rule, Rules};

use crate::{
    files,
    reader::Section,
    report::{Fault, Position, Problem},
    schema,
};

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
    let Some((hba, offset)) = resolve(section.read(&schema::HBA_FILE).given()) else {
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
    let problems: Vec<_> = rules.rules().iter().filter_map(unenforceable).collect();
    if !problems.is_empty() {
        section.source().add_elsewhere(problems);
        return None;
    }
    if rules.needs_roles() {
        let what = "a map names the members of a role (+role), which the pool does not know";
        let (key, at) = ident.map_or((&schema::HBA_FILE, offset), |(_, offset)| (&schema::IDENT_FILE, offset));
        section.note(key, at, Fault::new(what, "name the users themselves"));
        return None;
    }
    let interfaces = if rules.needs_interfaces() { interfaces() } else { Vec::new() };
    Some(Arc::new(AccessRules { rules, interfaces, text: disk.0.into_inner() }))
}

/// Whether secrets are needed to ask clients as the rules demand.
pub(crate) fn needs_secrets(rules: &AccessRules) -> bool {
    rules.rules.rules().iter().any(|rule| matches!(rule.method(), Method::Md5 | Method::ScramSha256))
}

/// The problem with a rule that PostgreSQL could enforce and the pool can't.
fn unenforceable(rule: &Rule) -> Option<Problem> {
    let (what, remedy) = if rule.needs_roles() {
        ("members of roles (+role, samerole, samegroup) are not known to the pool", "name the users themselves")
    } else if rule.method() == Method::Peer {
        ("peer asks who runs the client, which the pool does not know", "use scram-sha-256, or reject")
    } else {
        return None;
    };
    Some(at_line(rule.file(), rule.line(), what, remedy))
}

fn at_line(file: &Path, line: usize, what: &str, remedy: &str) -> Problem {
    Fault::new(what, remedy).at(file, Some(Position { line, column: 1 }), "")
}

/// Checks that certificates can be verified which rules ask for.
pub(crate) fn check_certificates(root: &Section<'_>, rules: Option<&AccessRules>) {
    let asks = |rule: &&Rule| rule.client_cert() != ClientCert::None;
    let Some(rule) = rules.and_then(|rules| rules.rules.rules().iter().find(asks)) else { return };
    if !root.table(&schema::TLS).has(schema::CLIENT_CA_FILE.name) {
        let what = "it asks for a certificate, and nobody is trusted to give clients one";
        root.source().add_elsewhere(vec![at_line(rule.file(), rule.line(), what, "add client_ca_file to [tls]")]);
    }
}

/// This host's own addresses.
fn interfaces() -> Vec<Interface> {
    let Ok(found) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let ip = |address: Option<nix::sys::socket::SockaddrStorage>| {
        let address = address?;
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
    };
    found.filter_map(|one| Some(Interface { address: ip(one.address)?, netmask: ip(one.netmask)? })).collect()
}
