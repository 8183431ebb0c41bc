//! PgBouncer's settings for TLS. Sluice has those for clients in a table of their own, and those for servers with each
//! database.

use toml_edit::{Table, value};

use super::ini::Entry;

/// The settings of one side: `client_tls_…` or `server_tls_…`.
#[derive(Default)]
pub(super) struct Side {
    sslmode: Option<(String, usize)>,
    cert_file: Option<String>,
    key_file: Option<String>,
    ca_file: Option<String>,
}

/// An obstacle to a side's conversion: its line, the setting, and what about it.
pub(super) type Complaint = (Option<usize>, &'static str, &'static str);

/// The modes that PgBouncer knows.
const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

impl Side {
    /// Takes a setting by the end of its name; `false` if it is another one.
    pub(super) fn take(&mut self, end: &str, entry: &Entry) -> Result<bool, String> {
        let text = (!entry.value.is_empty()).then(|| entry.value.clone());
        match end {
            // In any case of letters, as with PgBouncer.
            "sslmode" => {
                let mode = entry.value.to_ascii_lowercase();
                if !MODES.contains(&mode.as_str()) {
                    return Err(format!("{:?} is no sslmode", entry.value));
                }
                self.sslmode = Some((mode, entry.line));
            }
            "cert_file" => self.cert_file = text,
            "key_file" => self.key_file = text,
            "ca_file" => self.ca_file = text,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn mode(&self) -> Option<&str> {
        self.sslmode.as_ref().map(|(mode, _)| mode.as_str())
    }

    /// `[tls]`, which is empty where PgBouncer offers clients none.
    pub(super) fn for_clients(&self) -> (Table, Vec<Complaint>) {
        let (mut table, mut complaints) = (Table::new(), Vec::new());
        let Some(mode) = self.mode().filter(|mode| *mode != "disable") else { return (table, complaints) };
        let line = self.sslmode.as_ref().map(|(_, line)| *line);
        let (Some(cert), Some(key)) = (&self.cert_file, &self.key_file) else {
            let what = "without client_tls_cert_file and client_tls_key_file there is nothing to offer: set cert_file and \
                        key_file under [tls]";
            complaints.push((line, "client_tls_sslmode", what));
            return (table, complaints);
        };
        table.insert("cert_file", value(cert.as_str()));
        table.insert("key_file", value(key.as_str()));
        if !matches!(mode, "allow" | "prefer") {
            table.insert("required", value(true));
        }
        let demands = matches!(mode, "verify-ca" | "verify-full");
        if demands {
            // The latter asks no more of clients than the former.
            table.insert("client_certificates", value("verify-ca"));
        }
        match &self.ca_file {
            // In other modes, too, a certificate that a client shows is checked, by either, and rules of cert need it.
            Some(authority) => _ = table.insert("client_ca_file", value(authority.as_str())),
            None if demands => {
                complaints.push((line, "client_tls_sslmode", "names no authority: set client_ca_file under [tls]"));
            }
            None => {}
        }
        (table, complaints)
    }

    /// The keys of a database on another host.
    pub(super) fn for_server(&self) -> (Table, Vec<Complaint>) {
        let (mut table, mut complaints) = (Table::new(), Vec::new());
        // By either, PgBouncer encrypts wherever the server can; libpq and Sluice do not by allow.
        let mode = self.mode().filter(|mode| *mode != "allow").unwrap_or("prefer");
        if mode != "prefer" {
            table.insert("sslmode", value(mode));
        }
        if mode == "disable" {
            return (table, complaints);
        }
        // In other modes PgBouncer does not verify the server; Sluice would, as libpq does.
        if let "verify-ca" | "verify-full" = mode {
            match &self.ca_file {
                Some(authority) => _ = table.insert("sslrootcert", value(authority.as_str())),
                None => {
                    let line = self.sslmode.as_ref().map(|(_, line)| *line);
                    complaints.push((
                        line,
                        "server_tls_sslmode",
                        "names no authority: set sslrootcert for each database",
                    ));
                }
            }
        }
        if let (Some(cert), Some(key)) = (&self.cert_file, &self.key_file) {
            table.insert("sslcert", value(cert.as_str()));
            table.insert("sslkey", value(key.as_str()));
        }
        (table, complaints)
    }
}
