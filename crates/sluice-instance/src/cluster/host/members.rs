//! etcd's members beside those of the file: who is too many, who is missing, and taking one out.
//!
//! Each member has a vote. One that the files do not name makes a majority larger than the hosts are that anybody looks
//! after: of four, three have to run.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use sluice_config::{NodeConfig, NodeMember};

use super::{
    super::{
        error::ClusterError,
        etcd_api::{EtcdClient, EtcdPeer},
        tls::TlsFiles,
    },
    certificates,
};

/// A program that runs takes a connection at once, or its host is not there.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// A client of members of etcd.
pub(super) fn etcd_client(addresses: Vec<SocketAddr>, tls: &TlsFiles) -> Result<EtcdClient, ClusterError> {
    EtcdClient::new(addresses, tls).map_err(ClusterError::io("read the certificate of etcd in", &tls.ca))
}

/// The URL of a member for the others.
pub(super) fn url(member: &NodeMember) -> String {
    format!("https://{}", member.etcd_peer)
}

/// Members of etcd that the file does not name.
pub(super) fn strangers<'a>(members: &'a [EtcdPeer], config: &NodeConfig) -> Vec<&'a EtcdPeer> {
    let is_named = |peer: &EtcdPeer| config.members.iter().any(|member| peer.peer_urls.contains(&url(member)));
    members.iter().filter(|peer| !is_named(peer)).collect()
}

/// Whether a member is at one of these addresses.
fn is_at(peer: &EtcdPeer, known: &[SocketAddr]) -> bool {
    match &*peer.client_urls {
        // It says them when it is started.
        [] => addresses(&peer.peer_urls).any(|address| known.iter().any(|known| known.ip() == address.ip())),
        urls => addresses(urls).any(|address| known.contains(&address)),
    }
}

/// The addresses among these that the file does not name.
pub(super) fn unnamed(known: &[SocketAddr], config: &NodeConfig) -> Vec<SocketAddr> {
    let is_named = |address: &&SocketAddr| config.members.iter().any(|member| member.etcd_client == **address);
    known.iter().filter(|address| !is_named(address)).copied().collect()
}

/// Sees that the file names all members of etcd that are at addresses which it had named before: one that was cut off, or
/// edited by half, would have PostgreSQL refuse them.
pub(super) fn check_named(
    members: &[EtcdPeer],
    before: &[SocketAddr],
    config: &NodeConfig,
) -> Result<(), ClusterError> {
    let dropped = strangers(members, config).into_iter().filter(|peer| is_at(peer, before));
    let dropped: Vec<String> = dropped.map(title).collect();
    if dropped.is_empty() {
        return Ok(());
    }
    Err(ClusterError::BadFile {
        path: config.file.clone(),
        why: format!(
            "member: this file does not name members of etcd that it had named before: {}\nit has to name all hosts, as the \
             files of the others do; one that is gone for good is taken out of etcd before (sluice node remove)",
            dropped.join(", ")
        ),
    })
}

/// A member, as it is told of.
pub(super) fn title(peer: &EtcdPeer) -> String {
    let name = if peer.name.is_empty() { "one that was never started" } else { &peer.name };
    format!("{name} ({})", peer.peer_urls.join(", "))
}

/// Faults of etcd's membership, each with the remedy, where members are known to be at these addresses, of which some do
/// not answer.
pub(in super::super) fn doubts(members: &[EtcdPeer], known: &[SocketAddr], silent: &[SocketAddr]) -> Vec<String> {
    let strange = members.iter().filter(|peer| !is_at(peer, known)).map(|peer| {
        format!(
            "etcd has a member that this host's file does not name: {}. Its [[member]] belongs in the files of all hosts \
             (systemctl reload sluice-node); only where that host is gone for good: sluice node remove",
            title(peer)
        )
    });
    let is_there = |address: &SocketAddr| {
        members.iter().any(|peer| match &*peer.client_urls {
            [] => addresses(&peer.peer_urls).any(|peer| peer.ip() == address.ip()),
            urls => addresses(urls).any(|peer| peer == *address),
        })
    };
    let missing = known.iter().filter(|address| !is_there(address)).map(|address| {
        format!(
            "etcd has no member at {address}: that host has not joined yet, or was taken out. Start sluice node there, or on its \
             successor"
        )
    });
    let learners = members.iter().filter(|peer| peer.is_learner);
    let learners = learners.map(|peer| format!("etcd's member {} has no vote yet: it catches up", title(peer)));
    let is_silent = |peer: &EtcdPeer| addresses(&peer.client_urls).any(|address| silent.contains(&address));
    let gone = members.iter().filter(|peer| is_silent(peer));
    let gone =
        gone.map(|peer| format!("etcd's member {} does not answer: does sluice node run on that host?", title(peer)));
    let mut all: Vec<String> = strange.chain(missing).chain(learners).chain(gone).collect();
    let (voters, there) = members
        .iter()
        .filter(|peer| !peer.is_learner)
        .fold((0, 0), |(voters, there), peer| (voters + 1, there + usize::from(!is_silent(peer))));
    if !all.is_empty() {
        let needed = voters / 2 + 1;
        let votes = if voters == 1 { "1 vote".to_owned() } else { format!("{voters} votes") };
        all.push(match there {
            _ if needed == voters => format!("etcd has {votes}: none of these hosts may be lost now"),
            there if there <= needed => {
                format!("etcd has {votes}, of which {needed} have to be there: none of the others may be lost now")
            }
            _ => format!("etcd has {votes}, of which {needed} have to be there"),
        });
    }
    all
}

/// Words for an etcd that has no majority any more, as a host sees it whose member has lost its data: too many others do
/// not answer either, at these addresses.
pub(super) fn lost(members: &[EtcdPeer], own: &NodeMember, silent: &[SocketAddr]) -> Option<String> {
    let voters: Vec<_> = members.iter().filter(|peer| !peer.is_learner).collect();
    let is_own = |peer: &EtcdPeer| peer.peer_urls.contains(&url(own));
    let gone = |peer: &&&EtcdPeer| !is_own(peer) && addresses(&peer.client_urls).any(|it| silent.contains(&it));
    let gone: Vec<String> = voters.iter().filter(gone).map(|peer| title(peer)).collect();
    let there = voters.len() - gone.len() - usize::from(voters.iter().any(|peer| is_own(peer)));
    if gone.is_empty() || there > voters.len() / 2 {
        return None;
    }
    Some(format!(
        "etcd has lost its majority: its data are gone on this host, and {} does not answer\nstart sluice node there. Where its \
         data of etcd are gone as well (its log says that it has to join anew), nobody can take either in: the cluster begins \
         again with PostgreSQL's data (sluice node init --again; docs/hosts.md, \"etcd is lost on all hosts\")",
        gone.join(", ")
    ))
}

fn addresses(urls: &[String]) -> impl Iterator<Item = SocketAddr> {
    urls.iter().filter_map(|url| url.strip_prefix("https://")?.trim_end_matches('/').parse().ok())
}

/// Takes the member of that name out of etcd: its host is gone for good, or gets another address. One that answers is not
/// gone, and is taken out by `force` only.
///
/// # Errors
///
/// There is none of that name, its host answers, or the members can't change their number now.
pub fn remove(config: &NodeConfig, name: &str, force: bool) -> Result<(), ClusterError> {
    certificates::check(config)?;
    let addresses: Vec<SocketAddr> = config.members.iter().map(|member| member.etcd_client).collect();
    let etcd = etcd_client(addresses.clone(), &certificates::given(config))?;
    let bad = |why: String| ClusterError::BadFile { path: config.file.clone(), why };
    let members = etcd.members().map_err(|error| bad(unanswered(&addresses, &certificates::given(config), &error)))?;
    let Some(member) = find(&members, name, config) else {
        let names: Vec<String> = members.iter().map(title).collect();
        return Err(bad(format!("etcd has no member {name}; its members are {}", names.join(", "))));
    };
    if !force && let Some((what, address)) = running(member, config) {
        return Err(bad(format!(
            "{name} is not gone: its {what} answers at {address}\nIf you remove it, its etcd stops, its PostgreSQL accepts no \
             more writes, and the rest can survive one failure fewer. Stop it for good first (systemctl disable --now \
             sluice-node there); a primary hands over then. Or --force, if it has to be removed as it is"
        )));
    }
    etcd.remove_member(member.id).map_err(|error| {
        bad(format!("etcd does not let go of {name}: {error}\na majority of the members has to run: see its logs"))
    })
}

/// Words for an etcd of which no member answers.
fn unanswered(addresses: &[SocketAddr], tls: &TlsFiles, error: &io::Error) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!(
        "no member of etcd answers at {}: {error}\na majority has to run (sluice node on those hosts), with certificates by an \
         authority in {}, as {} is",
        addresses.join(", "),
        tls.ca.display(),
        tls.cert.display()
    )
}

/// The member of that name. One that was never started has none to etcd, and is found by its address.
fn find<'a>(members: &'a [EtcdPeer], name: &str, config: &NodeConfig) -> Option<&'a EtcdPeer> {
    let named = || config.members.iter().find(|member| member.name == name);
    let is_unnamed =
        |peer: &&EtcdPeer| peer.name.is_empty() && named().is_some_and(|it| peer.peer_urls.contains(&url(it)));
    members.iter().find(|peer| !name.is_empty() && peer.name == name).or_else(|| members.iter().find(is_unnamed))
}

/// A program of a member's host that answers, and where.
fn running(peer: &EtcdPeer, config: &NodeConfig) -> Option<(&'static str, SocketAddr)> {
    let mut all: Vec<_> =
        addresses(&peer.client_urls).chain(addresses(&peer.peer_urls)).map(|it| ("etcd", it)).collect();
    // Not at the address that it will have next.
    if let Some(member) =
        config.members.iter().find(|member| peer.peer_urls.contains(&url(member)) && !member.is_witness)
    {
        all.extend([("Patroni", member.patroni), ("PostgreSQL", member.postgres)]);
    }
    all.into_iter().find(|(_, address)| TcpStream::connect_timeout(address, CONNECT_TIME_MAX).is_ok())
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpListener},
        path::Path,
    };

    use super::*;

    fn config() -> NodeConfig {
        let text = r#"
            name = "a"
            tls = { ca_file = "ca.crt", cert_file = "a.crt", key_file = "a.key" }
            member = [{ name = "a", address = "10.0.0.1" }, { name = "b", address = "10.0.0.2" },
                      { name = "c", address = "10.0.0.3", witness = true }]
            "#;
        sluice_config::parse_node(text, Path::new("/etc/sluice/node.toml")).unwrap()
    }

    fn peer(name: &str, host: u8) -> EtcdPeer {
        EtcdPeer {
            id: host.into(),
            name: name.to_owned(),
            peer_urls: vec![format!("https://10.0.0.{host}:2380")],
            client_urls: if name.is_empty() { Vec::new() } else { vec![format!("https://10.0.0.{host}:2379")] },
            is_learner: false,
        }
    }

    #[test]
    fn an_etcd_that_does_not_answer_is_named_with_its_remedy() {
        let known: Vec<_> = config().members.iter().map(|member| member.etcd_client).collect();
        let said = unanswered(&known, &certificates::given(&config()), &io::Error::other("BadSignature"));
        assert!(said.starts_with("no member of etcd answers at 10.0.0.1:2379, 10.0.0.2:2379, 10.0.0.3:2379: BadSig"));
        assert!(said.ends_with("authority in /etc/sluice/ca.crt, as /etc/sluice/a.crt is"), "{said}");
    }

    #[test]
    fn members_that_are_too_many_or_missing_are_said() {
        let known: Vec<_> = config().members.iter().map(|member| member.etcd_client).collect();
        let of = |members: &[EtcdPeer]| doubts(members, &known, &[]).join("\n");
        let whole = [peer("a", 1), peer("b", 2), peer("c", 3)];
        assert_eq!(of(&whole), "");
        assert!(strangers(&whole, &config()).is_empty());
        // One that is added, and has not been started yet.
        assert_eq!(of(&[peer("a", 1), peer("", 2), peer("c", 3)]), "");

        let said = of(&[peer("a", 1), peer("c", 3)]);
        assert!(
            said.contains("no member at 10.0.0.2:2379") && said.contains("2 votes: none of these hosts may be"),
            "{said}"
        );
        let four = [&whole[..], &[peer("d", 4)]].concat();
        let said = of(&four);
        assert!(
            said.contains("does not name: d (https://10.0.0.4:2380)") && said.contains("4 votes, of which 3"),
            "{said}"
        );
        assert_eq!(strangers(&four, &config()), [&four[3]]);
        // The file was cut off; or it is a stranger that it had not named before.
        assert_eq!(
            unnamed(&[known[0], "10.0.0.4:2379".parse().unwrap()], &config()),
            ["10.0.0.4:2379".parse().unwrap()]
        );
        let before = [known[0], "10.0.0.4:2379".parse().unwrap()];
        let said = check_named(&four, &before, &config()).unwrap_err().to_string();
        assert!(said.contains("had named before: d (https://10.0.0.4:2380)\n"), "{said}");
        assert!(check_named(&four, &known, &config()).is_ok() && check_named(&whole, &before, &config()).is_ok());
        let said = of(&whole[..1]);
        assert!(said.ends_with("\netcd has 1 vote: none of these hosts may be lost now"), "{said}");
        let learner = EtcdPeer { is_learner: true, ..peer("b", 2) };
        let said = of(&[peer("a", 1), learner, peer("c", 3)]);
        assert!(said.starts_with("etcd's member b (https://10.0.0.2:2380) has no vote yet"), "{said}");

        let silent = |silent| doubts(&whole, &known, silent).join("\n");
        let said = silent(&known[1..2]);
        assert!(said.starts_with("etcd's member b (https://10.0.0.2:2380) does not answer"), "{said}");
        assert!(said.ends_with("3 votes, of which 2 have to be there: none of the others may be lost now"), "{said}");
    }

    #[test]
    fn a_majority_that_is_lost_with_its_data_is_said() {
        let whole = [peer("a", 1), peer("b", 2), peer("c", 3)];
        let known: Vec<_> = config().members.iter().map(|member| member.etcd_client).collect();
        let of = |silent| lost(&whole, config().own(), silent);
        let said = of(&known[1..2]).unwrap();
        assert!(said.contains("b (https://10.0.0.2:2380) does not answer") && said.contains("init --again"), "{said}");
        assert_eq!(of(&[]), None);
        // It was taken out before.
        assert_eq!(lost(&whole[1..], config().own(), &[]), None);
        assert!(lost(&whole[1..], config().own(), &known[1..2]).is_some());
    }

    #[test]
    fn a_member_is_found_by_its_name_or_by_its_address_before_it_has_one() {
        let members = [peer("a", 1), peer("", 2), peer("", 9)];
        let found = |name: &str| find(&members, name, &config()).map(|peer| peer.id);
        assert_eq!([found("a"), found("b"), found("c"), found("")], [Some(1), Some(2), None, None]);
    }

    #[test]
    fn a_host_that_answers_is_not_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let at = |address: SocketAddr| EtcdPeer {
            client_urls: vec![format!("https://{address}")],
            peer_urls: Vec::new(),
            ..peer("d", 4)
        };
        assert_eq!(running(&at(address), &config()), Some(("etcd", address)));
        // Nobody listens there, nor takes it meanwhile.
        assert_eq!(running(&at((Ipv4Addr::LOCALHOST, 1).into()), &config()), None);
    }
}
