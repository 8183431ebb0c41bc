//! Rules: the lines of `pg_hba.conf`.

use std::{net::IpAddr, sync::Arc};

use crate::{
    address::{self, Address, Interface},
    connection::{Connection, ConnectionType, Transport},
    lines::{Field, Line},
    method::{self, ClientCert, Draft, Method},
    name::{Answer, Name, Roles, have_database, have_user},
    place::Place,
    problem::{Fault, Flaw, Problem},
    token::Token,
};

/// A line of `pg_hba.conf`.
#[derive(Debug, Clone)]
pub struct Rule {
    place: Arc<Place>,
    databases: Vec<Name>,
    users: Vec<Name>,
    address: Option<Address>,
    end: Draft,
}

impl Rule {
    /// Its place.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The kind of connection that it is for.
    pub fn connection_type(&self) -> ConnectionType {
        self.end.connection
    }

    /// Its databases as the file writes them, without quotes.
    pub fn databases(&self) -> impl Iterator<Item = &str> {
        self.databases.iter().map(|name| name.token.text.as_str())
    }

    /// Its users as the file writes them, without quotes.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(|name| name.token.text.as_str())
    }

    /// Its addresses. None for a Unix socket.
    pub fn address(&self) -> Option<Address> {
        self.address
    }

    /// The method by which a client proves who it is.
    pub fn method(&self) -> Method {
        self.end.method
    }

    /// The certificate that a client must show besides. Its common name counts where a name does.
    pub fn client_cert(&self) -> ClientCert {
        self.end.client_cert
    }

    /// The map of `pg_ident.conf` that says which users a system's user or a certificate may be.
    pub fn map(&self) -> Option<&str> {
        self.end.map.as_deref()
    }

    /// True if the user's roles may decide about it.
    pub fn needs_roles(&self) -> bool {
        self.databases.iter().any(Name::is_group_of_databases)
            || self.users.iter().any(|name| name.token.group().is_some())
    }

    /// True if it is for connections of physical replication, and no others.
    pub fn is_for_replication(&self) -> bool {
        self.databases.iter().all(|name| name.token.is_keyword("replication"))
    }

    pub(crate) fn needs_interfaces(&self) -> bool {
        matches!(self.address, Some(Address::SameHost | Address::SameNet))
    }

    /// The answer for a connection.
    pub(crate) fn has(&self, connection: &Connection<'_>, roles: Option<&Roles>, interfaces: &[Interface]) -> Answer {
        if !self.has_transport(connection.transport, interfaces) {
            return Answer::No;
        }
        have_database(&self.databases, connection, roles).and(|| have_user(&self.users, connection.user, roles))
    }

    fn has_transport(&self, transport: Transport, interfaces: &[Interface]) -> bool {
        let (client, is_encrypted) = match transport {
            Transport::Local => return self.end.connection == ConnectionType::Local,
            Transport::Tcp { address, is_encrypted } => (address.to_canonical(), is_encrypted),
        };
        let is_right = match self.end.connection {
            ConnectionType::Local | ConnectionType::HostGssEnc => false,
            ConnectionType::Host | ConnectionType::HostNoGssEnc => true,
            ConnectionType::HostSsl => is_encrypted,
            ConnectionType::HostNoSsl => !is_encrypted,
        };
        is_right && self.address.is_some_and(|address| address.has(client, interfaces))
    }
}

/// Reads a line. A mistake that PostgreSQL sees as well goes before anything that only Sluice refuses.
pub(crate) fn parse(line: &Line) -> Result<Rule, Problem> {
    let fields = line.fields.as_ref().map_err(Clone::clone);
    fields.and_then(|fields| parse_fields(line, fields)).map_err(|flaw| flaw.at(&line.file, line.number))
}

fn parse_fields(line: &Line, fields: &[Field]) -> Result<Rule, Flaw> {
    let mut rest = Rest { fields: fields.iter(), refused: None };
    let connection = rest.single(
        ("connection type", "connection type"),
        "begin the line with one connection type, such as local or host",
    )?;
    let connection = ConnectionType::parse(&connection.text)?;
    let databases = rest.names("database")?;
    let users = rest.names("role")?;
    let address = if connection == ConnectionType::Local { None } else { rest.address()? };
    let method =
        rest.single(("authentication method", "authentication type"), "end the line with one method, such as reject")?;
    let method = method::parse(&method.text, connection)?;
    let mut end = Draft { connection, method, client_cert: ClientCert::None, map: None, names_dn: false };
    for field in rest.fields {
        end.options(field)?;
    }
    if method == Method::Cert {
        end.client_cert = ClientCert::VerifyFull;
    }
    if end.names_dn {
        let what = "Sluice does not compare distinguished names";
        rest.refused.get_or_insert(Flaw::unsupported(what, "remove clientname=DN: the common name counts then"));
    }
    match rest.refused {
        Some(refused) => Err(refused),
        None => Ok(Rule { place: Place::of(line), databases, users, address, end }),
    }
}

/// The fields that have not been read yet.
struct Rest<'a> {
    fields: std::slice::Iter<'a, Field>,
    /// The first thing that PostgreSQL has and Sluice doesn't.
    refused: Option<Flaw>,
}

impl<'a> Rest<'a> {
    /// A field of one word; PostgreSQL has one name for it where it is missing, and one where it is a list.
    fn single(&mut self, (missing, list): (&str, &str), remedy: &str) -> Result<&'a Token, Flaw> {
        let field = self.fields.next().ok_or_else(|| Flaw::mistake(format!("end-of-line before {missing}"), remedy))?;
        field.single().ok_or_else(|| Flaw::mistake(format!("multiple values specified for {list}"), remedy))
    }

    fn names(&mut self, what: &str) -> Result<Vec<Name>, Flaw> {
        let field = self.fields.next().ok_or_else(|| {
            Flaw::mistake(
                format!("end-of-line before {what} specification"),
                format!("write a {what}, a list of them or all"),
            )
        })?;
        let mut names = Vec::new();
        for token in field.tokens() {
            match Name::compile(token) {
                Ok(name) => names.push(name),
                Err(flaw) => self.refuse(flaw)?,
            }
        }
        Ok(names)
    }

    /// Keeps a flaw that only Sluice sees.
    fn refuse(&mut self, flaw: Flaw) -> Result<(), Flaw> {
        match flaw.fault {
            Fault::File => Err(flaw),
            Fault::Sluice => {
                self.refused.get_or_insert(flaw);
                Ok(())
            }
        }
    }

    /// The addresses, if they are not a host's name.
    fn address(&mut self) -> Result<Option<Address>, Flaw> {
        const REMEDY: &str = "write all, samehost, samenet, or an address with its mask, such as 10.0.0.0/8";
        let token = self.single(("IP address specification", "host address"), REMEDY)?;
        let keywords = [("all", Address::All), ("samehost", Address::SameHost), ("samenet", Address::SameNet)];
        if let Some((_, address)) = keywords.iter().find(|(keyword, _)| token.is_keyword(keyword)) {
            return Ok(Some(*address));
        }
        let text = token.text.as_str();
        let (host, suffix) = text.split_once('/').map_or((text, None), |(host, suffix)| (host, Some(suffix)));
        match (address::parse(host), suffix) {
            (None, Some(_)) => {
                Err(Flaw::mistake(format!("specifying both host name and CIDR mask is invalid: \"{text}\""), REMEDY))
            }
            (None, None) => {
                self.refuse(Flaw::unsupported(
                    format!("Sluice asks no DNS at a log-in, so it can't tell who \"{host}\" is"),
                    REMEDY,
                ))?;
                Ok(None)
            }
            (Some(address), Some(suffix)) => match address::mask(suffix, address) {
                Some(mask) => Ok(Some(Address::Range { address, mask })),
                None => Err(Flaw::mistake(
                    format!("invalid CIDR mask in address \"{text}\""),
                    "write 0 to 32 after the slash for IPv4, 0 to 128 for IPv6",
                )),
            },
            (Some(address), None) => self.mask(address).map(Some),
        }
    }

    /// The mask in a field of its own.
    fn mask(&mut self, address: IpAddr) -> Result<Address, Flaw> {
        const REMEDY: &str = "write the address as in 10.0.0.0/8, or a mask such as 255.0.0.0 after it";
        let text = &self.single(("netmask specification", "netmask"), REMEDY)?.text;
        let mask = address::parse(text)
            .ok_or_else(|| Flaw::mistake(format!("invalid IP mask \"{text}\": Name or service not known"), REMEDY))?;
        if mask.is_ipv4() != address.is_ipv4() {
            return Err(Flaw::mistake("IP address and mask do not match", "write both for IPv4, or both for IPv6"));
        }
        Ok(Address::Range { address, mask })
    }
}
