//! Becoming a member of etcd, and staying one.
//!
//! A host whose etcd has no data never begins a cluster by itself, and never goes on as the member that it was: a
//! member that has forgotten how it voted could vote again. It is taken out and added anew, by the others, without a
//! vote until it has caught up.

use std::{io, path::Path, sync::atomic::Ordering, time::Duration};

use sluice_config::{NodeConfig, NodeMember};

use super::{
    super::{
        error::ClusterError,
        etcd,
        etcd_api::{EtcdClient, EtcdPeer, SERVICE},
        folder::make_tree,
        tls::TlsFiles,
    },
    FAILURES_MAX, Host, Pause, Stage, again, certificates, data,
    members::{etcd_client, lost, strangers, title, url},
    state::NAME,
};
use crate::{diagnosis, event::Event};

/// The pause behind what the others have been asked to change, so that they know each other to be well again.
const AFTER_CHANGE: Duration = Duration::from_millis(500);

/// The time of the lease that is made to have something written: any will do.
const VOTE_LEASE_SECONDS: u32 = 60;

/// The part of the end of etcd's log that is searched for errors, in bytes: a panic of it is long.
const LOG_BYTES: u64 = 64 * 1024;

/// The next step.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Have the others add it.
    Add,
    /// Have them take it out first: its data are gone.
    Remove(u64),
    /// Start it among these, by their names and addresses.
    Start(Vec<(String, String)>),
    /// Another host has its name.
    Namesake(String),
    /// None: there are members that its file does not name, and it would be one too many.
    TooMany(Vec<String>),
}

/// The next step of a host whose etcd has no data, by what the others say of the members.
fn next(members: &[EtcdPeer], config: &NodeConfig) -> Next {
    let own = config.own();
    let url = url(own);
    let is_own = |member: &EtcdPeer| member.peer_urls.contains(&url);
    if let Some(other) = members.iter().find(|member| member.name == own.name && !is_own(member)) {
        return Next::Namesake(other.peer_urls.join(", "));
    }
    let strangers = strangers(members, config);
    match members.iter().find(|member| is_own(member)) {
        Some(member) if member.name.is_empty() => {}
        _ if !strangers.is_empty() => return Next::TooMany(strangers.into_iter().map(title).collect()),
        _ => {}
    }
    match members.iter().find(|member| is_own(member)) {
        None => Next::Add,
        Some(member) if !member.name.is_empty() => Next::Remove(member.id),
        Some(_) => {
            let name = |member: &EtcdPeer| match &*member.name {
                _ if is_own(member) => own.name.clone(),
                // Its name counts for nothing here, but has to be one of its own.
                "" => format!("not-started-{}", member.id),
                name => name.to_owned(),
            };
            let all = members.iter().flat_map(|one| one.peer_urls.iter().map(move |url| (name(one), url.clone())));
            Next::Start(all.collect())
        }
    }
}

/// A cluster that has data, by etcd's keys, where the one of that name has none.
fn other_cluster<'a>(keys: &'a [String], own: &str) -> Option<&'a str> {
    let with_data = keys.iter().filter_map(|key| key.strip_prefix(SERVICE)?.strip_suffix("/initialize"));
    let mut all: Vec<_> = with_data.collect();
    all.sort_unstable();
    if all.contains(&own) { None } else { all.first().copied() }
}

/// Whether these members are of another cluster than the one that begins on this host, or has begun if its etcd has data.
fn is_another(members: &[EtcdPeer], own: &NodeMember, has_begun: bool) -> bool {
    !has_begun || !members.iter().any(|member| member.peer_urls.contains(&url(own)) && member.name == own.name)
}

impl Host {
    /// Starts this host's member of etcd, and waits until it belongs to a majority; false if that was given up.
    pub(super) fn join_etcd(&mut self, pause: Pause<'_>) -> Result<bool, ClusterError> {
        let own = self.config.own();
        let (begins, has_data) = (self.state.stage == Stage::Begins, etcd::has_data(&self.member.data));
        if self.state.stage != Stage::Member {
            self.check_alone(has_data || !begins)?;
        }
        if has_data || begins {
            etcd::set_aside(&self.member.data)?;
            // Its data, if it has any, say among whom.
            self.start_etcd(vec![(own.name.clone(), url(own))], begins && !has_data)?;
        } else if !self.join_anew(pause)? {
            return Ok(false);
        }
        if !self.wait_voting(pause)? {
            return Ok(false);
        }
        if begins {
            self.state.stage = Stage::Begun;
            self.state.write(&self.root)?;
        }
        Ok(true)
    }

    /// Looks after this host's member of etcd while it runs: one whose data are gone joins anew, as after a start without
    /// them. Returns at once where nothing is to be done; false if it was given up, and goes on when it is called again.
    ///
    /// # Errors
    ///
    /// What waiting does not help with. It may be called again nevertheless.
    pub fn mend_etcd(&self, pause: Pause<'_>) -> Result<bool, ClusterError> {
        let has_ended = || self.etcd.is_kept() && self.etcd.pid().is_none();
        if self.has_joined.load(Ordering::Acquire) && has_ended() && !etcd::has_data(&self.member.data) {
            drop(self.etcd.take());
            self.is_voting.store(false, Ordering::Release);
            let name = self.config.own().name.clone();
            self.observer
                .event(Event::EtcdChanged { name, what: "without its data, which are gone: it has to join anew" });
        }
        if self.is_voting.load(Ordering::Acquire) {
            let fails = has_ended() && self.etcd.failures() >= FAILURES_MAX;
            return if fails { Err(self.etcd_fails()) } else { Ok(true) };
        }
        if !self.etcd.is_kept() && !self.join_anew(pause)? {
            return Ok(false);
        }
        self.wait_voting(pause)
    }

    /// Starts a member without data, once the others have added it; false if that was given up.
    fn join_anew(&self, pause: Pause<'_>) -> Result<bool, ClusterError> {
        make_tree(&self.member.data, &self.run_as)?;
        etcd::set_aside(&self.member.data)?;
        let Some(peers) = self.be_added(pause)? else { return Ok(false) };
        // It is another one than before.
        self.has_joined.store(false, Ordering::Release);
        self.start_etcd(peers, false)?;
        Ok(true)
    }

    /// Sees that no cluster runs on the other hosts, beside which another one would begin here: when this one was told to
    /// begin it, they may not have been there to ask.
    fn check_alone(&self, has_begun: bool) -> Result<(), ClusterError> {
        if self.config.members.len() == 1 {
            return Ok(());
        }
        match self.others()?.members() {
            Ok(members) if is_another(&members, self.config.own(), has_begun) => {
                let names: Vec<String> = members.iter().map(title).collect();
                Err(ClusterError::BadFile {
                    path: self.root.join(NAME),
                    why: format!(
                        "this host was told to begin a cluster (sluice node init), and one runs on the other hosts: etcd has {}\n                         to have it join that one, move host.json, etcd and node/pgdata in {} away: it gets a copy of the data. If \
                         it is these data that are wanted, stop the other hosts first",
                        names.join(", "),
                        self.root.display()
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Has the others add this host's member; returns among whom it is started, none if that was given up.
    fn be_added(&self, pause: Pause<'_>) -> Result<Option<Vec<(String, String)>>, ClusterError> {
        let (own, others) = (self.config.own(), self.others()?);
        let mut waiting = self.waiting();
        loop {
            let done = match others.members() {
                Err(_) if self.config.members.len() == 1 => Err(format!(
                    "etcd has no data in {}, and there is no other host that has them\nthe cluster begins by sluice node init; \
                     if it had begun, begin anew with the data of PostgreSQL that are here: sluice node init --again. If \
                     there are other hosts, their [[member]]s are missing in {}",
                    self.member.data.display(),
                    self.config.file.display()
                )),
                Err(error) => Err(self.distrust(&error.to_string()).unwrap_or_else(|| {
                    format!(
                        "no other member of etcd answers ({error})\nare the other hosts started, and their ports open? A new \
                         cluster begins by sluice node init, on one host"
                    )
                })),
                Ok(members) => match self.checked(&others, next(&members, &self.config))? {
                    Err(why) => Err(lost(&members, own, &others.silent()).unwrap_or(why)),
                    Ok(Next::Start(peers)) => return Ok(Some(peers)),
                    Ok(Next::Namesake(url)) => {
                        return Err(ClusterError::BadFile {
                            path: self.config.file.clone(),
                            why: format!(
                                "name: etcd has a member {} already, at {url}\ngive this host a name or the address of its \
                                 own; if that one is gone for good: sluice node remove",
                                own.name
                            ),
                        });
                    }
                    Ok(Next::TooMany(strangers)) => {
                        return Err(ClusterError::BadFile {
                            path: self.config.file.clone(),
                            why: format!(
                                "member: etcd has a member that is not named here: {}\nif this host was replaced by it, this one \
                                 stays off, or gets the file that the others have; if that one is gone for good: sluice node remove",
                                strangers.join(", ")
                            ),
                        });
                    }
                    Ok(Next::Add) => others.add_member(own.etcd_peer).map(|()| "added").map_err(unchanged),
                    Ok(Next::Remove(id)) => {
                        others.remove_member(id).map(|()| "removed, since its data are gone").map_err(unchanged)
                    }
                },
            };
            let is_on = match done {
                Ok(what) => {
                    self.observer.event(Event::EtcdChanged { name: own.name.clone(), what });
                    pause(AFTER_CHANGE)
                }
                Err(why) => waiting.pause(why, pause),
            };
            if !is_on {
                return Ok(None);
            }
        }
    }

    /// Waits until this member has a vote, and a majority is there.
    fn wait_voting(&self, pause: Pause<'_>) -> Result<bool, ClusterError> {
        let (own, others) = (self.config.own(), self.others()?);
        let alone = etcd_client(vec![own.etcd_client], &self.tls)?;
        let mut waiting = self.waiting();
        loop {
            let Err(error) = alone.value("/sluice/majority") else {
                self.has_joined.store(true, Ordering::Release);
                self.is_voting.store(true, Ordering::Release);
                return Ok(true);
            };
            if self.etcd.failures() >= FAILURES_MAX {
                return Err(self.etcd_fails());
            }
            let why = match others.members() {
                Ok(members) => match members.iter().find(|member| member.peer_urls.contains(&url(own))) {
                    // Refused until it has caught up.
                    Some(EtcdPeer { id, is_learner: true, .. }) => match self.promote(&others, *id) {
                        Ok(()) => {
                            let name = own.name.clone();
                            self.observer.event(Event::EtcdChanged { name, what: "given its vote" });
                            continue;
                        }
                        Err(error) => format!("this host's etcd catches up: {error}"),
                    },
                    _ => format!("this host's etcd has no majority ({error})"),
                },
                Err(others) => self.distrust(&others.to_string()).unwrap_or_else(|| {
                    format!(
                        "etcd has no majority: no other member answers\nstart the other hosts; of three members two have to \
                         run, and reach each other at their etcd_peer_port ({error})"
                    )
                }),
            };
            if !waiting.pause(why, pause) {
                return Ok(false);
            }
        }
    }

    /// The error of an etcd that ends by itself, again and again.
    fn etcd_fails(&self) -> ClusterError {
        let (log, data) = (self.member.log.clone(), self.member.data.display());
        let end =
            diagnosis::read_end(&log, 0, LOG_BYTES).unwrap_or_else(|error| format!("(the log can't be read: {error})"));
        let known = self.etcd.log_end().and_then(|end| end.tail.diagnosis);
        let remedy = known.map_or_else(
            || match self.config.members.len() {
                1 => format!(
                    "where the data of etcd are lost, move {data} away, and begin anew with those of PostgreSQL: sluice node init \
                     --again"
                ),
                _ => format!(
                    "where the other hosts have a majority (sluice cluster status there), and this host should rejoin the \
                     cluster, move {data} away and start sluice node again: its etcd joins anew then, and nothing is lost"
                ),
            },
            |cause| cause.remedy().to_owned(),
        );
        ClusterError::EtcdFails { log, said: etcd::errors(&end), remedy }
    }

    /// Has the others give it its vote, which it may cast from that moment on. That it has it is on a member's disk with
    /// the entry of etcd's log behind it: one is made, since Patroni may write nothing for long. Those that are killed
    /// before that would wait for a majority as it was.
    fn promote(&self, others: &EtcdClient, id: u64) -> io::Result<()> {
        etcd::join(&self.member.data, &self.has_joined)?;
        others.promote_member(id)?;
        // Where it fails, whatever is written next does the same. It is ended at once: written later, its end may find a
        // disk that is full by then.
        let _ = others.grant(VOTE_LEASE_SECONDS).and_then(|lease| others.revoke(lease));
        Ok(())
    }

    /// That step, if etcd is this cluster's, and the data and the programs here are, as far as the others can say: for
    /// others this host's place in etcd is not changed, since its own are somewhere else then. `Err` within: etcd does not
    /// say, for what reason.
    fn checked(&self, others: &EtcdClient, next: Next) -> Result<Result<Next, String>, ClusterError> {
        if !matches!(next, Next::Add | Next::Remove(_)) {
            return Ok(Ok(next));
        }
        let system = match self.system(others)? {
            Ok(system) => system,
            Err(error) => return Ok(Err(format!("etcd does not answer: {error}"))),
        };
        let Some((data_dir, _)) = &self.data else { return Ok(Ok(next)) };
        let mark = match again::of_cluster(others, &self.config.cluster) {
            Ok(mark) => mark,
            Err(error) => return Ok(Err(format!("etcd does not answer: {error}"))),
        };
        let is_before = self.is_before(mark.as_ref());
        let is_compared = match &system {
            Some(system) => data::check(&self.config, data_dir, system, &self.api, is_before)?.map(drop),
            None => Err("the cluster has no data yet".to_owned()),
        };
        // What can't be compared yet is, before Patroni is started. But a host that is refused then would be missed among
        // etcd's members: where it may be, it does not become one before.
        if let Err(why) = is_compared
            && is_before
            && data_dir.pgdata().join("PG_VERSION").exists()
        {
            return Ok(Err(why));
        }
        Ok(Ok(next))
    }

    /// The system identifier of the cluster's data, once it has some. That etcd has another cluster's instead is an error:
    /// nobody would ever begin this one there.
    pub(super) fn system(&self, etcd: &EtcdClient) -> Result<io::Result<Option<String>>, ClusterError> {
        match etcd.value(&format!("{SERVICE}{}/initialize", self.config.cluster)) {
            Ok(Some(system)) if !system.is_empty() => return Ok(Ok(Some(system))),
            Err(error) => return Ok(Err(error)),
            Ok(_) => {}
        }
        let keys = match etcd.keys(SERVICE) {
            Ok(keys) => keys,
            Err(error) => return Ok(Err(error)),
        };
        let Some(other) = other_cluster(&keys, &self.config.cluster) else { return Ok(Ok(None)) };
        let (path, ours) = (self.config.file.clone(), &self.config.cluster);
        Err(ClusterError::BadFile {
            path,
            why: format!(
                "cluster: etcd of these hosts has cluster {other:?}, and {ours:?} is said here\nsay cluster = \"{other}\" if this \
                 host is to be one of that; if it is to be one of another cluster, the addresses of its [[member]]s are wrong"
            ),
        })
    }

    /// Words for an error of hosts that do not trust each other.
    fn distrust(&self, error: &str) -> Option<String> {
        distrust(error, &certificates::given(&self.config), &self.config.file)
    }

    /// A client of the other members.
    fn others(&self) -> Result<EtcdClient, ClusterError> {
        etcd_client(super::prepare::others(&self.config), &self.tls)
    }
}

/// Words for an error of others that were to change their number.
fn unchanged(error: io::Error) -> String {
    format!("the other members of etcd can't change their number now: {error}")
}

/// Words for an error of TLS, by which this host and another do not trust each other.
fn distrust(error: &str, given: &TlsFiles, file: &Path) -> Option<String> {
    let is_of_certificate = ["invalid peer certificate", "fatal alert"].iter().any(|words| error.contains(words));
    let dir = given.cert.parent().unwrap_or(&given.cert).display();
    let ca = given.ca.display();
    is_of_certificate.then(|| {
        format!(
            "this host and the other members of etcd do not trust each other's certificates ({error})\nthe files in {dir} are \
             not of the authority that has made the others' ({ca}): copy the folder of this host's name here that sluice node ca \
             has made with theirs, or correct ca_file, cert_file and key_file in {}",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host b of a, b and c.
    fn config() -> NodeConfig {
        let text = r#"
            name = "b"
            tls = { ca_file = "ca.crt", cert_file = "b.crt", key_file = "b.key" }
            member = [{ name = "a", address = "10.0.0.1" }, { name = "b", address = "10.0.0.2" },
                      { name = "c", address = "10.0.0.3" }]
            "#;
        sluice_config::parse_node(text, Path::new("/etc/sluice/node.toml")).unwrap()
    }

    fn peer(id: u64, name: &str, host: u8) -> EtcdPeer {
        let peer_urls = vec![format!("https://10.0.0.{host}:2380")];
        EtcdPeer { id, name: name.to_owned(), peer_urls, client_urls: Vec::new(), is_learner: false }
    }

    #[test]
    fn certificates_of_another_authority_are_named_with_their_folder() {
        let [ca, cert, key] = ["ca.crt", "host.crt", "host.key"].map(|name| Path::new("/etc/sluice/b").join(name));
        let (given, file) = (TlsFiles { ca, cert, key }, Path::new("/etc/sluice/node.toml"));
        let said = distrust("invalid peer certificate: BadSignature", &given, file).unwrap();
        assert!(said.contains("files in /etc/sluice/b are") && said.contains("/etc/sluice/node.toml"), "{said}");
        assert_eq!(distrust("Connection refused (os error 111)", &given, file), None);
    }

    #[test]
    fn a_member_without_data_is_added_anew() {
        let a = || peer(1, "a", 1);
        assert_eq!(next(&[a()], &config()), Next::Add);
        assert_eq!(next(&[a(), peer(2, "b", 2)], &config()), Next::Remove(2));
        let named = |name: &str, host: u8| (name.to_owned(), format!("https://10.0.0.{host}:2380"));
        let started = next(&[a(), peer(2, "", 2), peer(3, "", 3)], &config());
        assert_eq!(started, Next::Start(vec![named("a", 1), named("b", 2), named("not-started-3", 3)]));
        assert_eq!(next(&[a(), peer(2, "b", 9)], &config()), Next::Namesake("https://10.0.0.9:2380".to_owned()));
    }

    #[test]
    fn a_cluster_of_another_name_is_seen_by_its_data() {
        let keys = |names: &[&str]| -> Vec<String> { names.iter().map(|name| format!("/service/{name}")).collect() };
        let main = keys(&["main/config", "main/initialize", "main/members/a"]);
        assert_eq!((other_cluster(&main, "other"), other_cluster(&main, "main")), (Some("main"), None));
        // One that is just beginning has nobody's place.
        assert_eq!(other_cluster(&keys(&["main/members/a"]), "other"), None);
        assert_eq!(other_cluster(&[], "main"), None);
        let two = keys(&["other/initialize", "main/initialize"]);
        assert_eq!((other_cluster(&two, "main"), other_cluster(&two, "third")), (None, Some("main")));
    }

    #[test]
    fn a_cluster_that_others_run_is_another_one() {
        let (config, a, b) = (config(), peer(1, "a", 1), peer(2, "b", 2));
        assert!(is_another(std::slice::from_ref(&a), config.own(), true));
        // They have joined the one that has begun here, and it is started again before that was written down.
        assert!(!is_another(&[a.clone(), b.clone()], config.own(), true));
        // It was one of theirs before its etcd was moved away.
        assert!(is_another(&[a.clone(), b], config.own(), false));
        assert!(is_another(&[a, peer(2, "", 2)], config.own(), true));
    }

    #[test]
    fn nobody_is_added_beside_a_member_that_the_file_does_not_name() {
        // Its successor's.
        let d = peer(4, "d", 4);
        let too_many = || Next::TooMany(vec!["d (https://10.0.0.4:2380)".to_owned()]);
        assert_eq!(next(&[peer(1, "a", 1), peer(3, "c", 3), d.clone()], &config()), too_many());
        assert_eq!(next(&[peer(1, "a", 1), d.clone()], &config()), too_many());
        // It would be removed, and then not be added.
        assert_eq!(next(&[peer(1, "a", 1), peer(2, "b", 2), d.clone()], &config()), too_many());
        assert!(matches!(next(&[peer(1, "a", 1), peer(2, "", 2), d], &config()), Next::Start(_)));
    }
}
