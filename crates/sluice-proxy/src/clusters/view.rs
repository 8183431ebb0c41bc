//! What members of a cluster answer (Patroni's documentation, "Patroni REST API").

use hyper::StatusCode;
use serde::Deserialize;
use sluice_control::{address::Address, cluster::Rest};
use sluice_tls::ClientTls;

use super::rest;

/// A member, as any member tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) role: Role,
    /// Its REST interface.
    pub(super) rest: Rest,
    /// PostgreSQL's address there.
    pub(super) address: Address,
}

/// The role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It holds the lock by which it is the primary, or is about to be.
    Leader,
    /// Anything else.
    Other,
}

/// A primary's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) timeline: u32,
    pub(super) system: String,
}

/// All members, as one of them tells.
pub(super) async fn members(rest: &Rest, tls: Option<&ClientTls>) -> Result<Vec<Member>, String> {
    match rest::get(rest, tls, "/cluster").await? {
        (StatusCode::OK, body) => read_members(&body),
        (status, _) => Err(format!("it answers {status}")),
    }
}

/// A primary's own answer; any other member has none.
pub(super) async fn own(rest: &Rest, tls: Option<&ClientTls>) -> Result<Own, String> {
    match rest::get(rest, tls, "/primary").await? {
        (StatusCode::OK, body) => read_own(&body),
        (status, _) => Err(format!("it answers {status}")),
    }
}

fn read_members(body: &[u8]) -> Result<Vec<Member>, String> {
    #[derive(Deserialize)]
    struct Body {
        members: Vec<Listed>,
    }
    /// One that is just coming up has not all of them.
    #[derive(Deserialize)]
    struct Listed {
        name: String,
        role: String,
        api_url: Option<String>,
        host: Option<String>,
        port: Option<u16>,
    }
    let Body { members } = serde_json::from_slice(body).map_err(|error| not_patroni(&error))?;
    let members = members.into_iter().filter_map(|Listed { name, role, api_url, host, port }| {
        let role = if role == "leader" { Role::Leader } else { Role::Other };
        Some(Member { name, role, rest: Rest::parse(&api_url?)?, address: Address::Tcp(host?, port?) })
    });
    Ok(members.collect())
}

fn read_own(body: &[u8]) -> Result<Own, String> {
    #[derive(Deserialize)]
    struct Body {
        timeline: u32,
        database_system_identifier: String,
    }
    let body: Body = serde_json::from_slice(body).map_err(|error| not_patroni(&error))?;
    Ok(Own { timeline: body.timeline, system: body.database_system_identifier })
}

fn not_patroni(error: &serde_json::Error) -> String {
    format!("the answer is not Patroni's: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_that_say_where_they_are() {
        let body = br#"{"members": [
            {"name": "a", "role": "leader", "state": "running", "api_url": "http://10.0.0.1:8008/patroni",
             "host": "10.0.0.1", "port": 5432, "timeline": 3},
            {"name": "b", "role": "quorum_standby", "state": "streaming", "api_url": "https://[::1]:8008/patroni",
             "host": "::1", "port": 5433, "timeline": 3, "lag": 0},
            {"name": "c", "role": "replica", "state": "creating replica"}], "scope": "main"}"#;
        let members = read_members(body).unwrap();
        let seen = members.iter().map(|it| (it.name.as_str(), it.role, it.rest.to_string(), it.address.to_string()));
        let expected = [
            ("a", Role::Leader, "http://10.0.0.1:8008".to_owned(), "10.0.0.1:5432".to_owned()),
            ("b", Role::Other, "https://[::1]:8008".to_owned(), "[::1]:5433".to_owned()),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
        assert!(read_members(b"<html>").unwrap_err().starts_with("the answer is not Patroni's"));
    }

    #[test]
    fn a_primary_says_its_timeline() {
        let body = br#"{"state": "running", "role": "primary", "server_version": 150015, "timeline": 7,
            "database_system_identifier": "7430000000000000001", "patroni": {"name": "a", "scope": "main"}}"#;
        assert_eq!(read_own(body), Ok(Own { timeline: 7, system: "7430000000000000001".to_owned() }));
        assert!(read_own(b"{}").is_err());
    }
}
