//! Methods of authentication, and the options behind them.

use crate::{connection::ConnectionType, lines::Field, problem::Flaw};

/// A method of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `trust`: nothing is asked.
    Trust,
    /// `reject`: nobody is let in.
    Reject,
    /// `md5`: a password by MD5, or by SCRAM where the role has a secret of SCRAM's.
    Md5,
    /// `scram-sha-256`: a password by SCRAM only.
    ScramSha256,
    /// `cert`: a certificate whose common name is the user, or mapped to it.
    Cert,
    /// `peer`: the system's user at the other end of a Unix socket, or mapped to it.
    Peer,
}

impl Method {
    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Reject => "reject",
            Self::Md5 => "md5",
            Self::ScramSha256 => "scram-sha-256",
            Self::Cert => "cert",
            Self::Peer => "peer",
        }
    }
}

/// The client certificate that a rule asks for besides its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCert {
    /// None.
    #[default]
    None,
    /// `verify-ca`: one that an authority has signed which the server trusts.
    VerifyCa,
    /// `verify-full`: the same, and its common name must be the user. Always so with [`Method::Cert`].
    VerifyFull,
}

impl ClientCert {
    /// The value of the option `clientcert`, if there is one.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::VerifyCa => Some("verify-ca"),
            Self::VerifyFull => Some("verify-full"),
        }
    }
}

/// Methods that PostgreSQL has and Sluice doesn't.
const MISSING: [&str; 9] = ["password", "ident", "gss", "sspi", "pam", "bsd", "ldap", "radius", "oauth"];

/// Options that belong to methods of [`MISSING`], with those methods as PostgreSQL names them.
const OPTIONS: [(&str, &str); 26] = [
    ("pamservice", "pam"),
    ("pam_use_hostname", "pam"),
    ("ldapurl", "ldap"),
    ("ldaptls", "ldap"),
    ("ldapscheme", "ldap"),
    ("ldapserver", "ldap"),
    ("ldapport", "ldap"),
    ("ldapbinddn", "ldap"),
    ("ldapbindpasswd", "ldap"),
    ("ldapsearchattribute", "ldap"),
    ("ldapsearchfilter", "ldap"),
    ("ldapbasedn", "ldap"),
    ("ldapprefix", "ldap"),
    ("ldapsuffix", "ldap"),
    ("krb_realm", "gssapi and sspi"),
    ("include_realm", "gssapi and sspi"),
    ("compat_realm", "sspi"),
    ("upn_username", "sspi"),
    ("radiusservers", "radius"),
    ("radiusports", "radius"),
    ("radiussecrets", "radius"),
    ("radiusidentifiers", "radius"),
    ("issuer", "oauth"),
    ("scope", "oauth"),
    ("validator", "oauth"),
    ("delegate_ident_mapping", "oauth"),
];

/// Reads the method.
pub(crate) fn parse(name: &str, connection: ConnectionType) -> Result<Method, Flaw> {
    let method = match name {
        "trust" => Method::Trust,
        "reject" => Method::Reject,
        "md5" => Method::Md5,
        "scram-sha-256" => Method::ScramSha256,
        "cert" => Method::Cert,
        "peer" => Method::Peer,
        // Its old name on Unix sockets.
        "ident" if connection == ConnectionType::Local => Method::Peer,
        _ if MISSING.contains(&name) => {
            let instead = match connection {
                ConnectionType::Local => "peer, scram-sha-256 or reject",
                ConnectionType::HostSsl => "scram-sha-256, cert or reject",
                _ => "scram-sha-256 or reject",
            };
            return Err(Flaw::unsupported(format!("Sluice has no {name} authentication"), format!("use {instead}")));
        }
        _ => {
            return Err(Flaw::mistake(
                format!("invalid authentication method \"{name}\""),
                "use trust, reject, md5, scram-sha-256, cert or peer",
            ));
        }
    };
    match method {
        Method::Peer if connection != ConnectionType::Local => {
            Err(Flaw::mistake("peer authentication is only supported on local sockets", "use scram-sha-256 or reject"))
        }
        Method::Cert if connection != ConnectionType::HostSsl => Err(Flaw::mistake(
            "cert authentication is only supported on hostssl connections",
            "begin the line with hostssl, or use scram-sha-256",
        )),
        method => Ok(method),
    }
}

/// The method of a rule, while its options are read.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) connection: ConnectionType,
    pub(crate) method: Method,
    pub(crate) client_cert: ClientCert,
    pub(crate) map: Option<String>,
    /// `clientname=DN`.
    pub(crate) names_dn: bool,
}

impl Draft {
    /// Reads the options of a field.
    pub(crate) fn options(&mut self, field: &Field) -> Result<(), Flaw> {
        for token in field.tokens() {
            let (name, value) = token.text.split_once('=').ok_or_else(|| {
                Flaw::mistake(
                    format!("authentication option not in name=value format: {}", token.text),
                    "write options as name=value, without spaces around the sign",
                )
            })?;
            self.option(name, value)?;
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), Flaw> {
        let is_of_tls = matches!(name, "clientcert" | "clientname");
        if is_of_tls && self.connection != ConnectionType::HostSsl {
            return Err(Flaw::mistake(
                format!("{name} can only be configured for \"hostssl\" rows"),
                format!("begin the line with hostssl, or remove {name}"),
            ));
        }
        match name {
            "map" if !matches!(self.method, Method::Peer | Method::Cert) => {
                return Err(misplaced("map", "ident, peer, gssapi, sspi, cert, and oauth"));
            }
            "map" => self.map = Some(value.to_owned()).filter(|map| !map.is_empty()),
            "clientcert" => self.client_cert = self.client_cert(value)?,
            "clientname" => match value {
                "CN" => self.names_dn = false,
                "DN" => self.names_dn = true,
                _ => return Err(invalid(name, value, "use CN, or leave the option out")),
            },
            _ => {
                let methods = OPTIONS.iter().find(|(option, _)| *option == name).map(|(_, methods)| *methods);
                return Err(methods.map_or_else(|| unknown(name), |methods| misplaced(name, methods)));
            }
        }
        Ok(())
    }

    fn client_cert(&self, value: &str) -> Result<ClientCert, Flaw> {
        match value {
            "verify-full" => Ok(ClientCert::VerifyFull),
            "verify-ca" if self.method == Method::Cert => Err(Flaw::mistake(
                "clientcert only accepts \"verify-full\" when using \"cert\" authentication",
                "remove clientcert: cert implies verify-full",
            )),
            "verify-ca" => Ok(ClientCert::VerifyCa),
            _ => Err(invalid("clientcert", value, "use verify-ca or verify-full")),
        }
    }
}

fn misplaced(option: &str, methods: &str) -> Flaw {
    Flaw::mistake(
        format!("authentication option \"{option}\" is only valid for authentication methods {methods}"),
        format!("remove {option}"),
    )
}

fn invalid(option: &str, value: &str, remedy: &str) -> Flaw {
    Flaw::mistake(format!("invalid value for {option}: \"{value}\""), remedy)
}

fn unknown(option: &str) -> Flaw {
    Flaw::mistake(
        format!("unrecognized authentication option name: \"{option}\""),
        "use map, clientcert or clientname, or remove the option",
    )
}
