//! The cluster that a command means, and how its members are asked.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde_json::Value;
use sluice_config::Cluster;
use sluice_instance::cluster::{self, Known, KnownEtcd, Reach, Votes, rest::USER};
use sluice_patroni::{Answer, AskError, Credentials, Member, Members, Method, Own, Question};
use sluice_tls::{ClientFiles, ClientTls, SslMode};

use super::pools::PoolArgs;

/// The URL of a member's REST API.
type Rest = sluice_config::Rest;

/// The time for a question: a member answers at once, or not soon.
const ASK_TIME: Duration = Duration::from_secs(2);

/// The time for an answer of a member that waits for etcd first: more than its `retry_timeout` usually is.
const LATE_TIME: Duration = Duration::from_secs(15);

/// The time for what a member answers when it is done: Patroni itself waits for a switchover for twice its `loop_wait`.
const DO_TIME: Duration = Duration::from_secs(120);

/// The interval at which members are looked at while something is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The number of times that settings are sent which others change at the same moment.
const SHARE_TRIES: usize = 3;

/// What is the matter without a majority, and the remedy.
const NO_MAJORITY: &str = "\
etcd has no majority: Patroni can change nothing without one, and makes its primary a standby after some seconds
start the members of etcd that are down, or Sluice where it was stopped (sluice up --nodes, or its unit), and see that they \
reach each other (of three, two have to); their logs, log/etcd*.log in the data directory, say what is the matter";

/// The same, where each member is on a host of its own.
const LOST_MAJORITY: &str = "\
where two of three hosts have lost etcd's data (their logs say that it has to join anew), none of them can come back by itself: \
stop all, and begin again with PostgreSQL's data (sluice node init --again; docs/hosts.md, \"etcd is lost on all hosts\")";

/// The cluster, and the pools before it. Global, for `config`, which takes them before its `set` and behind it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which cluster")]
pub(crate) struct Where {
    /// That of "sluice up --nodes" or of "sluice node", by its data directory here [default: the one that sluice up takes]
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// The REST API of one of its members, as in http://10.0.0.1:8008; more of them in case that one is down
    #[arg(long, value_name = "URL", value_parser = parse_rest, global = true)]
    rest: Vec<Rest>,
    /// The configuration file of a pool before it
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Its name in the pools' configuration, where that has several
    #[arg(long, value_name = "NAME", global = true)]
    cluster: Option<String>,
    /// The user for what changes something (restapi.authentication in patroni.yml)
    #[arg(long, value_name = "USER", env = "PATRONI_RESTAPI_USERNAME", global = true)]
    user: Option<String>,
    /// A file whose only line is the password for that [default: PATRONI_RESTAPI_PASSWORD]
    #[arg(long, value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,
    /// The authorities of members by HTTPS, in PEM [default: those that this host trusts]
    #[arg(long, value_name = "FILE", global = true)]
    ca_file: Option<PathBuf>,
    /// The certificate to show them, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    cert_file: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    pools: PoolArgs,
}

impl Where {
    /// What excludes each other or belongs together, of options of which some may stand before `set` and some behind it.
    fn check(&self) -> Result<()> {
        let ways = [self.data.is_some(), !self.rest.is_empty(), self.config.is_some()];
        if ways.into_iter().filter(|is_given| *is_given).count() > 1 {
            bail!("--data, --rest and --config each name the cluster\nleave all but one of them out");
        }
        if self.rest.is_empty() && (self.ca_file.is_some() || self.cert_file.is_some() || self.key_file.is_some()) {
            bail!("--ca-file, --cert-file and --key-file are for --rest\nname a member by it, or leave them out");
        }
        if self.cert_file.is_some() != self.key_file.is_some() {
            bail!("--cert-file and --key-file belong together\ngive both of them, or none");
        }
        Ok(())
    }
}

/// Asks members at the same moment, since each may take some seconds to be silent. A question that ends in a panic, which
/// its thread reports, has the answer that is made of an error.
pub(super) fn at_once<'a, T: Send>(
    members: impl IntoIterator<Item = &'a Member>,
    ask: impl Fn(&'a Member) -> T + Sync,
    unasked: impl Fn(io::Error) -> T,
) -> Vec<(&'a Member, T)> {
    let ask = &ask;
    thread::scope(|scope| {
        let asked: Vec<_> = members.into_iter().map(|member| (member, scope.spawn(move || ask(member)))).collect();
        let unasked = || unasked(io::Error::other("it was not asked"));
        asked.into_iter().map(|(member, thread)| (member, thread.join().unwrap_or_else(|_| unasked()))).collect()
    })
}

fn parse_rest(url: &str) -> Result<Rest, &'static str> {
    Rest::parse(url).ok_or("a URL with a port is needed, as in http://10.0.0.1:8008")
}

/// A cluster.
#[derive(Debug)]
pub(super) struct Target {
    members: Vec<Rest>,
    tls: Option<Arc<ClientTls>>,
    credentials: Option<Credentials>,
    /// Whether members were named one by one, and the first of them is the one beside whoever asks.
    pub(super) is_by_member: bool,
    /// Its name in the pools' configuration, if it was said.
    pub(super) cluster: Option<String>,
    pub(super) pools: PoolArgs,
    /// The data directories of its nodes that are here, by name.
    data: Vec<(String, PathBuf)>,
    /// Warnings of this host's certificates.
    certificates: Vec<String>,
    /// Those of them that have ended.
    expired: Vec<String>,
    /// The members of etcd, where they are known.
    etcd: Option<KnownEtcd>,
}

impl Target {
    /// Finds it; nobody is asked yet.
    pub(super) fn find(at: Where) -> Result<Self> {
        at.check()?;
        if let Some(file) = &at.config {
            let config = sluice_config::load(file).map_err(|report| anyhow!("{report}"))?;
            let cluster = chosen(config.clusters, at.cluster.as_deref(), file)?;
            let credentials = credentials(at.user, at.password_file.as_deref())?;
            let mut pools = at.pools;
            if pools.is_empty()
                && let (Some(admin), Some(listen)) = (config.admin, config.listen.first())
                && let Some(user) = admin.users.first()
            {
                pools.add(format!(
                    "host='{}' port={} user='{user}' dbname='{}'",
                    reachable(listen.ip()),
                    listen.port(),
                    admin.database
                ));
            }
            let name = Some(cluster.name.to_string());
            return Ok(Self {
                members: cluster.members,
                tls: cluster.tls,
                credentials,
                is_by_member: false,
                cluster: name,
                pools,
                data: Vec::new(),
                certificates: Vec::new(),
                expired: Vec::new(),
                etcd: None,
            });
        }
        if !at.rest.is_empty() {
            let tls = at.rest.iter().any(|rest| rest.is_encrypted).then(|| {
                let root_cert = Some(at.ca_file.unwrap_or_else(|| PathBuf::from(sluice_tls::SYSTEM)));
                let files = ClientFiles { root_cert, own: at.cert_file.zip(at.key_file) };
                ClientTls::load(SslMode::VerifyFull, &files).map(Arc::new).map_err(|error| anyhow!("{error}"))
            });
            let credentials = credentials(at.user, at.password_file.as_deref())?;
            return Ok(Self {
                members: at.rest,
                tls: tls.transpose()?,
                credentials,
                is_by_member: true,
                cluster: at.cluster,
                pools: at.pools,
                data: Vec::new(),
                certificates: Vec::new(),
                expired: Vec::new(),
                etcd: None,
            });
        }
        let data = at.data.map_or_else(crate::up::usual_data, Ok)?;
        let known = Known::read(&data)?.ok_or_else(|| {
            anyhow!(
                "there is no cluster in {}\nsluice up --nodes 3 makes one there, sluice node a host of one; name another directory with --data, or \
                 the cluster of somebody else with --rest or --config",
                data.display()
            )
        })?;
        if at.password_file.is_some() {
            bail!(
                "the directory {} says by itself how its cluster is asked\nleave --user and --password-file out, or name \
                 another cluster with --rest or --config",
                data.display()
            );
        }
        let mut pools = at.pools;
        if pools.is_empty() {
            pools.add_file(known.pools);
        }
        let password = known.password.map(|password| password.expose().to_owned());
        let credentials = password.map(|password| Credentials { user: USER.to_owned(), password });
        let cluster = at.cluster.or(Some(known.scope));
        let (members, tls, data, etcd) = (known.members, known.tls, known.data, known.etcd);
        let (certificates, expired) = (known.certificates, known.expired);
        Ok(Self { members, tls, credentials, is_by_member: false, cluster, pools, data, certificates, expired, etcd })
    }

    fn question<'a>(&'a self, rest: &'a Rest, time_max: Duration) -> Question<'a> {
        Question { rest, addresses: &[], tls: self.tls.as_deref(), credentials: self.credentials.as_ref(), time_max }
    }

    /// The members, as the first one tells that answers.
    pub(super) fn look(&self) -> Result<Members> {
        let mut faults = Vec::new();
        for rest in &self.members {
            match self.look_at(rest, ASK_TIME) {
                Ok(members) => return Ok(members),
                Err(fault) => faults.push(fault),
            }
        }
        Err(self.unheard(&faults))
    }

    /// The same, with the time that a member takes which waits for etcd; with whether any of them took it.
    pub(super) fn look_patiently(&self) -> Result<(Members, bool)> {
        if let Ok(members) = self.look() {
            return Ok((members, false));
        }
        let answers: Vec<_> = thread::scope(|scope| {
            let asked: Vec<_> =
                self.members.iter().map(|rest| scope.spawn(move || self.look_at(rest, LATE_TIME))).collect();
            asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let faults: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err().cloned()).collect();
        answers.into_iter().find_map(Result::ok).map(|members| (members, true)).ok_or_else(|| self.unheard(&faults))
    }

    /// Words for a cluster of which no member tells anything.
    fn unheard(&self, faults: &[Fault]) -> anyhow::Error {
        self.expired().map_or_else(|| unheard(faults), |expired| anyhow!("{expired}"))
    }

    /// The reason why nobody answers this host, where its certificates have expired.
    fn expired(&self) -> Option<String> {
        (!self.expired.is_empty()).then(|| {
            format!(
                "{}\nuntil then neither etcd nor Patroni lets this host in, and how they are can't be told from here",
                self.expired.join("\n")
            )
        })
    }

    /// What is the matter where etcd says nothing, and the remedy.
    pub(super) fn no_majority(&self) -> anyhow::Error {
        let lost = match self.etcd {
            Some(KnownEtcd::Hosts(_)) => format!("\n{LOST_MAJORITY}"),
            _ => String::new(),
        };
        anyhow!("{}", self.expired().unwrap_or_else(|| format!("{NO_MAJORITY}{lost}")))
    }

    fn look_at(&self, rest: &Rest, time_max: Duration) -> Result<Members, Fault> {
        match Members::ask(&self.question(rest, time_max)) {
            Ok(members) if members.members.is_empty() => {
                Err(Fault { words: format!("{rest} knows no member"), is_silent: false })
            }
            Ok(members) => Ok(members),
            Err(error) => {
                let is_silent = matches!(error, AskError::Silent(_) | AskError::Cut);
                Err(Fault { words: format!("{rest}: {error}"), is_silent })
            }
        }
    }

    /// The votes by which the next primary is elected, where etcd can be asked for them.
    pub(super) fn votes(&self, scope: &str) -> Option<Votes> {
        self.etcd.as_ref()?.votes(scope)
    }

    /// Nodes that are known to be part of it, and are not among its members now.
    pub(super) fn missing(&self, members: &Members) -> Vec<&str> {
        let names = self.data.iter().map(|(name, _)| &**name);
        names.filter(|name| members.named(name).is_none()).collect()
    }

    /// Each member's words about its own PostgreSQL, in the members' order.
    pub(super) fn own_words(&self, members: &Members) -> Vec<Result<Own, AskError>> {
        let ask = |member: &Member| match member.rest() {
            Some(rest) => Own::ask(&self.question(&rest, ASK_TIME)),
            None => {
                let words = "etcd has no word of it: its Patroni has just begun, or has not renewed its lease";
                Err(AskError::Io(std::io::Error::other(words)))
            }
        };
        let told = at_once(&members.members, ask, |why| Err(AskError::Io(why)));
        told.into_iter().map(|(_, told)| told).collect()
    }

    /// A member's words about its own PostgreSQL.
    pub(super) fn own(&self, member: &Member) -> Result<Own, AskError> {
        let rest = member.rest().ok_or_else(|| AskError::Io(std::io::Error::other("it has no REST API yet")))?;
        Own::ask(&self.question(&rest, ASK_TIME))
    }

    /// The member that has been asked for first, by its own words: who asks for a hold names the one beside it.
    pub(super) fn first(&self) -> Result<(Own, Members), AskError> {
        let Some(rest) = self.members.first() else {
            return Err(AskError::Io(std::io::Error::other("no member is named")));
        };
        // A member that can't reach etcd does not answer this in time, or not at all.
        let members = Members::ask(&self.question(rest, ASK_TIME))?;
        Ok((Own::ask(&self.question(rest, ASK_TIME))?, members))
    }

    /// A member's answer to a question that it answers by itself.
    pub(super) fn ask(&self, member: &Member, path: &str) -> Result<Answer> {
        self.command_within(member, (Method::Get, path), "", ASK_TIME)
    }

    /// The settings that all share, by the primary's words or, where that does not answer, another member's; and whose
    /// they are.
    pub(super) fn settings<'a>(&self, members: &'a Members) -> Result<(&'a Member, Value)> {
        let known: Vec<_> = members.members.iter().filter(|member| member.rest().is_some()).collect();
        if known.is_empty() {
            leader(members)?;
        }
        let ask = |member: &Member| -> Result<Value> {
            let answer = self.ask(member, "/config")?.good()?;
            serde_json::from_slice(&answer.body).map_err(|error| anyhow!("the answer is not Patroni's: {error}"))
        };
        let mut told = at_once(known, ask, |why| Err(why.into()));
        told.sort_by_key(|(member, told)| (told.is_err(), !member.is_leader()));
        let (member, told) =
            told.into_iter().next().ok_or_else(|| anyhow!("no member has said where its REST API is"))?;
        Ok((member, told?))
    }

    /// Has a member do something, and waits until it says that it has.
    pub(super) fn command(&self, member: &Member, method: Method, path: &str, body: &str) -> Result<Answer> {
        self.command_within(member, (method, path), body, DO_TIME)
    }

    /// The same, for so long.
    pub(super) fn command_within(
        &self,
        member: &Member,
        (method, path): (Method, &str),
        body: &str,
        time_max: Duration,
    ) -> Result<Answer> {
        let rest = member.rest().ok_or_else(|| {
            anyhow!("node {} has not said where its REST API is\nwait until it runs, and try again", member.name)
        })?;
        let answer = self.question(&rest, time_max.min(DO_TIME)).ask(method, path, body);
        let answer = answer.map_err(|error| anyhow!("node {} at {rest} does not answer: {error}", member.name))?;
        if answer.status == 401 || answer.status == 403 {
            bail!("{}", self.refused(&rest, &answer));
        }
        Ok(answer)
    }

    /// Whether etcd has no majority, as far as it can be asked: then what members tell is what they knew last.
    pub(super) fn lacks_majority(&self) -> bool {
        self.etcd.as_ref().is_some_and(|etcd| !etcd.has_majority())
    }

    /// Faults of etcd's membership, as far as it can be asked, certificates that end soon, and disks here that are full.
    pub(super) fn notes(&self) -> Vec<String> {
        let etcd = self.etcd.as_ref().map_or_else(Vec::new, KnownEtcd::doubts);
        let disks = self.data.iter().filter_map(|(_, data)| sluice_instance::full_disk(data));
        etcd.into_iter().chain(self.certificates.iter().cloned()).chain(disks).collect()
    }

    /// Sees that etcd has a majority, as far as it can be asked: nothing can be changed without one.
    pub(super) fn check_majority(&self) -> Result<()> {
        if self.lacks_majority() {
            return Err(self.no_majority());
        }
        Ok(())
    }

    /// Changes settings that all members share.
    pub(super) fn share(&self, member: &Member, change: &Value) -> Result<Answer> {
        let body = change.to_string();
        for _ in 0..SHARE_TRIES {
            let answer = self.command(member, Method::Patch, "/config", &body)?;
            match answer.status {
                200..300 => return Ok(answer),
                // It could not write, or somebody else has written in between.
                409 | 502 | 503 => self.check_majority()?,
                _ => bail!("Patroni does not take that: {}", answer.text()),
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!(
            "nothing is changed: {} can't write the configuration to the place where the cluster is kept (etcd)\nits members \
             have no majority, or do not answer in time: their logs say why, and Patroni's",
            member.name
        )
    }

    /// The data directory of a node whose data are here.
    pub(super) fn data_of(&self, node: &str) -> Option<&Path> {
        self.data.iter().find(|(name, _)| name == node).map(|(_, data)| &**data)
    }

    /// Whether it is kept from here: its nodes, or this host's, have their data on this machine.
    pub(super) fn is_ours(&self) -> bool {
        !self.data.is_empty()
    }

    /// The way to a node's PostgreSQL: its data are here, or it is on another host that this host's certificate lets in.
    /// There is none otherwise.
    pub(super) fn reach<'a>(&'a self, member: &'a Member) -> Option<Reach<'a>> {
        if let Some(data) = self.data_of(&member.name) {
            return Some(Reach::Here(data));
        }
        let tls = self.tls.as_deref().filter(|_| self.is_ours())?;
        Some(Reach::Host { host: member.host.as_ref()?, port: member.port?, tls })
    }

    /// Has a primary whose data are here make a checkpoint, so that Patroni's own is short while clients are held. It is for
    /// speed only: where it can't be had, that is said.
    pub(super) fn checkpoint(&self, primary: &Member) {
        let Some(data) = self.data_of(&primary.name) else { return };
        let begun = Instant::now();
        match cluster::checkpoint(data) {
            Ok(true) => {
                say!("{} has made a checkpoint first, in {:.2} s", primary.name, begun.elapsed().as_secs_f64())
            }
            Ok(false) => {}
            Err(error) => say!("no checkpoint first: {error}"),
        }
    }

    /// Sees that this command may change something, before anything is.
    pub(super) fn check_rights(&self, member: &Member) -> Result<()> {
        // A role that there is not: whoever may restart is told so, and nothing is restarted.
        let answer = self.command(member, Method::Post, "/restart", r#"{"role": "none"}"#)?;
        match answer.status {
            400 => Ok(()),
            status => bail!("node {} answers {status} where Patroni refuses a role: {}", member.name, answer.text()),
        }
    }

    fn refused(&self, rest: &Rest, answer: &Answer) -> String {
        let words = answer.text();
        match &self.credentials {
            None if answer.status == 403 => format!(
                "{rest} refuses this host: {words}\nit wants a certificate of its authority: on a host of sluice node, --data \
                 and as root; elsewhere --cert-file and --key-file, or cert_file and key_file of [[cluster]]. Where it has an \
                 allowlist, this host has to be in it"
            ),
            None => format!(
                "{rest} wants a user and a password: {words}\nthose of restapi.authentication in patroni.yml: --user, and \
                 --password-file or PATRONI_RESTAPI_PASSWORD"
            ),
            Some(Credentials { user, .. }) => format!(
                "{rest} does not take the password of {user:?}: {words}\nrestapi.authentication in patroni.yml has the \
                 right one; where it has an allowlist, this host has to be in it"
            ),
        }
    }

    /// Looks at the members until something is so; each look that fails is one in vain.
    pub(super) fn wait<T>(
        &self,
        time_max: Duration,
        mut done: impl FnMut(&Members) -> Option<T>,
    ) -> Result<T, Option<Members>> {
        let deadline = Instant::now() + time_max;
        let mut last = None;
        loop {
            if let Ok(members) = self.look() {
                if let Some(found) = done(&members) {
                    return Ok(found);
                }
                last = Some(members);
            }
            if Instant::now() >= deadline {
                return Err(last);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until a node other than that is the primary, by its own words.
    pub(super) fn wait_primary(&self, time_max: Duration, is_meant: impl Fn(&Member) -> bool) -> Result<String> {
        let found = self.wait(time_max, |members| {
            let leader = members.holder().filter(|leader| is_meant(leader))?;
            let own = self.own(leader).ok()?;
            (own.role == "primary" && own.state == "running").then(|| leader.name.clone())
        });
        found.map_err(|last| {
            let said = last.map_or_else(|| "no member answers".to_owned(), |members| members.to_string());
            anyhow!("there is no new primary after {} s ({said})\nPatroni's logs say why", time_max.as_secs())
        })
    }
}

/// The reason why a member tells nothing.
#[derive(Debug, Clone)]
struct Fault {
    words: String,
    /// It has not answered in time, or not to the end, as a Patroni does that waits for etcd.
    is_silent: bool,
}

/// Words for a cluster of which no member tells anything.
fn unheard(faults: &[Fault]) -> anyhow::Error {
    let words: Vec<_> = faults.iter().map(|fault| &*fault.words).collect();
    const LATE: &str =
        " One that runs answers late, or not at all, where etcd does not answer it: etcd may have no majority";
    let late = if faults.iter().any(|fault| fault.is_silent) { LATE } else { "" };
    anyhow!(
        "no member of the cluster can be asked\n  {}\ndoes Patroni run there, and is that its restapi.connect_address?{late}",
        words.join("\n  ")
    )
}

/// The member of that name.
pub(super) fn named<'a>(members: &'a Members, name: &str) -> Result<&'a Member> {
    members.named(name).ok_or_else(|| {
        let names: Vec<_> = members.members.iter().map(|member| &*member.name).collect();
        anyhow!(
            "there is no node {name:?} in the cluster\nits nodes are {}; one whose Patroni stops answering is dropped from this \
             list when its lease expires, and is listed again once it answers",
            names.join(", ")
        )
    })
}

/// The primary.
pub(super) fn leader(members: &Members) -> Result<&Member> {
    members.holder().ok_or_else(|| {
        anyhow!("the cluster has no primary now ({members})\nwait until there is one: sluice cluster status")
    })
}

/// The entry that is meant.
fn chosen(mut clusters: Vec<Cluster>, name: Option<&str>, file: &Path) -> Result<Cluster> {
    let names: Vec<_> = clusters.iter().map(|cluster| cluster.name.to_string()).collect();
    let place = match name {
        Some(name) => clusters.iter().position(|cluster| *cluster.name == *name),
        None if clusters.len() > 1 => {
            bail!("{} has several clusters: {}\nname one with --cluster", file.display(), names.join(", "))
        }
        None => (!clusters.is_empty()).then_some(0),
    };
    match (place, name) {
        (Some(place), _) => Ok(clusters.swap_remove(place)),
        (None, Some(name)) if !names.is_empty() => {
            bail!("{} has no cluster {name:?}\nit has {}", file.display(), names.join(", "))
        }
        (None, _) => bail!("{} has no [[cluster]]\nname a member of one with --rest", file.display()),
    }
}

fn credentials(user: Option<String>, file: Option<&Path>) -> Result<Option<Credentials>> {
    let Some(user) = user else {
        if let Some(file) = file {
            bail!("the password in {} is whose?\nname the user with --user", file.display());
        }
        return Ok(None);
    };
    let password = match file {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|error| anyhow!("cannot read {}: {error}", file.display()))?;
            text.trim_end_matches(['\r', '\n']).to_owned()
        }
        None => std::env::var("PATRONI_RESTAPI_PASSWORD").map_err(|_| {
            anyhow!("the password of {user:?} is missing\nput it into a file of one line, and name that with --password-file")
        })?,
    };
    Ok(Some(Credentials { user, password }))
}

/// An address that the pool of this host can be reached at.
fn reachable(listens: std::net::IpAddr) -> std::net::IpAddr {
    match listens {
        it if !it.is_unspecified() => it,
        std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    }
}
