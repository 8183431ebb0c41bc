//! Another primary. Clients are held first, and only then is Patroni asked: what is in the way is found while nothing has
//! happened yet, and calling it off costs nobody more than a wait.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use sluice_instance::cluster::Votes;
use sluice_patroni::{Member, Members, Method};

use super::{
    Holding, judged,
    moment::since,
    pools::Pools,
    slots,
    target::{Target, leader, named},
};

/// The time for another node to say that it is the primary, once Patroni says that it is.
pub(super) const PRIMARY_TIME: Duration = Duration::from_secs(60);

/// The time for somebody to be ready to take over: some loops of Patroni's, after another switchover for one.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Patroni's own `loop_wait`.
const LOOP_WAIT: Duration = Duration::from_secs(10);

/// The time for pools to let their clients go on by themselves then.
const PICK_UP_TIME: Duration = Duration::from_secs(5);

/// The reason why Patroni makes a node no primary, and the remedy.
const NO_FAILOVER: &str = "\
its tag nofailover, or failover_priority of 0, keeps it from that: name another node, or take the tag out of its patroni.yml and \
have Patroni read that again (patronictl reload)";

/// `sluice cluster switchover`.
pub(super) fn command(target: &Target, to: Option<&str>, how: Holding) -> Result<()> {
    target.check_majority()?;
    let mut members = settled(target, to)?;
    Plan::make(&members, to)?;
    judged::check(target, &members, how.force)?;
    if slots::check(target, &members, to, how.force)? {
        members = settled(target, to)?;
    }
    let plan = Plan::make(&members, to)?;
    target.check_rights(plan.leader)?;
    let pools = Held::reach(target, &members.scope, how)?;
    target.checkpoint(plan.leader);
    let mut held = Held::begin(pools, how)?;
    let done = plan.carry_out(target, to);
    held.end(&done.map(|node| format!("{node} is the primary, in the place of {}", plan.leader.name)))
}

/// The members, once somebody is ready to take over. A standby is not for a moment, where others have come or gone: that is
/// waited for before anybody is held.
pub(super) fn settled(target: &Target, to: Option<&str>) -> Result<Members> {
    let mut missing = None;
    let settled = target.wait(SETTLE_TIME, |members| {
        // What there is no remedy for but another request is said at once.
        let is_in_vain = members.holder().is_some_and(|leader| Some(&*leader.name) == to)
            || to.is_some_and(|to| members.named(to).is_none_or(Member::is_never_primary))
            || to.is_none() && (members.pause || nobody_may(members));
        missing = if is_in_vain { None } else { what_is_missing(target, members, to, Wanted::All) };
        missing.is_none().then(|| members.clone())
    });
    let members = match settled {
        Ok(members) => return Ok(members),
        Err(None) => return target.look(),
        Err(Some(members)) => members,
    };
    // It may be known more exactly; and a standby that stays away is forgotten by Patroni.
    Plan::make(&members, to)?;
    missing = what_is_missing(target, &members, to, Wanted::Synchronous);
    if missing.is_none() {
        return Ok(members);
    }
    let seconds = SETTLE_TIME.as_secs();
    bail!(
        "nobody can take over, also not after {seconds} s: {}\nsluice cluster status shows when it can; the logs of that node's \
         Patroni and PostgreSQL say what is in the way. Nobody was held",
        missing.unwrap_or_default()
    )
}

/// The standbys that have to be there where a quorum of them decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// All of them: one that is coming up may have its vote still, which members do not tell.
    All,
    /// Those that are synchronous now.
    Synchronous,
}

/// What keeps a cluster from another primary now, in words.
fn what_is_missing(target: &Target, members: &Members, to: Option<&str>, wanted: Wanted) -> Option<String> {
    let Some(leader) = members.holder() else { return Some("there is no primary".to_owned()) };
    let own = target.own_words(members);
    let own_of = |member: &Member| {
        let place = members.members.iter().position(|it| it.name == member.name)?;
        own[place].as_ref().ok().filter(|own| own.state == "running")
    };
    let answers = |member: &Member| own_of(member).is_some();
    // One that does not answer is not asked again.
    let way = if answers(leader) { Way::of(target, leader) } else { Way::default() };
    let missing = missing(members, leader, to, (way.mode, wanted), &answers);
    // Of a node that is named Patroni wants no quorum.
    if missing.is_some() || way.mode != Mode::Quorum || to.is_some() {
        return missing;
    }
    match target.votes(&members.scope) {
        Some(votes) => votes_missing(&votes, members, leader, &answers),
        None if wanted == Wanted::All => {
            let timeline = own_of(leader).and_then(|own| own.timeline)?;
            way.is_unwritten(target, leader, timeline).then(|| unwritten(&leader.name))
        }
        None => None,
    }
}

/// The votes that are missing for another primary, as etcd has them: right behind an election they are those by which it
/// was held, until the new primary has written its own.
fn votes_missing(
    votes: &Votes,
    members: &Members,
    leader: &Member,
    answers: &dyn Fn(&Member) -> bool,
) -> Option<String> {
    let is_same = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
    if !votes.leader.as_ref().is_some_and(|it| is_same(it, &leader.name)) {
        return Some(unwritten(&leader.name));
    }
    let is_there = |name: &&String| {
        members.members.iter().any(|it| is_same(&it.name, name) && it.state == "streaming" && answers(it))
    };
    let (absent, there): (Vec<_>, Vec<_>) = votes.standbys.iter().partition(|name| !is_there(name));
    let quorum = votes.quorum.unwrap_or_default();
    (there.len() <= quorum).then(|| {
        let absent = absent.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        format!("{} of {} standbys have to be there, and {absent} can't be asked", quorum + 1, votes.standbys.len())
    })
}

fn unwritten(primary: &str) -> String {
    format!("{primary} has just become the primary, and not yet written which standbys its commits wait for")
}

/// The way in which commits are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Asynchronous,
    Synchronous,
    Quorum,
}

/// Settings by which another primary is made.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    mode: Mode,
    loop_wait: Duration,
}

impl Way {
    fn of(target: &Target, leader: &Member) -> Self {
        let settings = told(target, leader, "/config").unwrap_or_default();
        let mode = match &settings["synchronous_mode"] {
            Value::String(mode) if mode == "quorum" => Mode::Quorum,
            Value::Bool(true) => Mode::Synchronous,
            Value::String(mode) if matches!(&**mode, "on" | "true" | "yes") => Mode::Synchronous,
            _ => Mode::Asynchronous,
        };
        Self { mode, loop_wait: settings["loop_wait"].as_u64().map_or(LOOP_WAIT, Duration::from_secs) }
    }

    /// Whether a primary may not have written its votes yet, by the time at which its timeline began: it leaves its
    /// standbys a loop to follow first.
    fn is_unwritten(self, target: &Target, leader: &Member, timeline: u32) -> bool {
        let history = told(target, leader, "/history");
        let last = history.as_ref().and_then(|history| history.as_array()?.last());
        is_fresh(last, timeline, 2 * self.loop_wait, SystemTime::now())
    }
}

/// A member's answer to a question, if it has one.
fn told(target: &Target, member: &Member, path: &str) -> Option<Value> {
    let answer = target.ask(member, path).ok()?;
    serde_json::from_slice(&answer.body).ok()
}

/// Whether a timeline is so young, by the last line of Patroni's history: the timeline before it, with the time of its end.
fn is_fresh(last: Option<&Value>, timeline: u32, young: Duration, now: SystemTime) -> bool {
    if timeline <= 1 {
        return false;
    }
    let Some(last) = last.filter(|last| last[0].as_u64() == Some(u64::from(timeline) - 1)) else {
        // It is written right behind the promotion.
        return true;
    };
    last[3].as_str().and_then(|time| since(time, now)).is_some_and(|age| age < young)
}

/// What is missing, by what is known of each member. Patroni makes somebody the primary who is there with all of its log:
/// where commits wait for standbys, one of these, and with a quorum as many as could have the last commit.
fn missing(
    members: &Members,
    leader: &Member,
    to: Option<&str>,
    (mode, wanted): (Mode, Wanted),
    answers: &dyn Fn(&Member) -> bool,
) -> Option<String> {
    let fault = |member: &Member| {
        let name = &member.name;
        if !matches!(&*member.state, "streaming" | "running") {
            return Some(format!("{name} is {}", member.state));
        }
        if member.timeline.zip(leader.timeline).is_some_and(|(own, leaders)| own != leaders) {
            return Some(format!("{name} does not follow the timeline of {} yet", leader.name));
        }
        if mode != Mode::Asynchronous && !member.is_synchronous() {
            return Some(format!("{name} is not synchronous yet"));
        }
        (!answers(member)).then(|| format!("Patroni or PostgreSQL of {name} does not answer"))
    };
    let standbys = members.members.iter().filter(|member| !member.is_leader());
    let may_be = |member: &&Member| to.map_or_else(|| !member.is_never_primary(), |to| member.name == to);
    let candidates: Vec<_> = standbys.filter(may_be).collect();
    if !answers(leader) {
        return Some(format!("PostgreSQL of {}, the primary, does not run yet", leader.name));
    }
    if candidates.is_empty() {
        return Some(format!("{} has no standby", leader.name));
    }
    let faults: Vec<_> = candidates.iter().filter_map(|member| fault(member)).collect();
    let is_ready = match mode {
        Mode::Quorum if to.is_none() => candidates
            .iter()
            .filter(|member| wanted == Wanted::All || member.is_synchronous())
            .map(|member| fault(member).is_none())
            .reduce(|all, one| all && one)
            .unwrap_or(false),
        _ => faults.len() < candidates.len(),
    };
    (!is_ready).then(|| faults.join("; "))
}

/// Whether there are standbys, and all have a tag that keeps them from becoming the primary.
fn nobody_may(members: &Members) -> bool {
    let standbys = || members.members.iter().filter(|member| !member.is_leader());
    standbys().next().is_some() && standbys().all(Member::is_never_primary)
}

/// Whether commits are waited for on other standbys, and not on that one.
fn may_lack_commits(members: &Members, node: &str) -> bool {
    let is_asynchronous = members.named(node).is_some_and(|it| !it.is_leader() && !it.is_synchronous());
    is_asynchronous && members.members.iter().any(Member::is_synchronous)
}

/// A switchover that can be asked for.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) leader: &'a Member,
}

impl<'a> Plan<'a> {
    /// Sees that there is somebody to take over.
    pub(super) fn make(members: &'a Members, to: Option<&str>) -> Result<Self> {
        let leader = leader(members)?;
        let streams = |member: &&Member| !member.is_leader() && matches!(&*member.state, "streaming" | "running");
        let remedy = "sluice cluster status shows what is the matter with its standbys";
        let Some(to) = to else {
            if members.pause {
                bail!(
                    "the cluster is paused, so Patroni chooses nobody\nname a node with --to, or end it: sluice cluster resume"
                );
            }
            if !members.members.iter().any(|member| streams(&member)) {
                bail!("no standby of {} follows it: {members}\n{remedy}", leader.name);
            }
            if nobody_may(members) {
                bail!("no standby of {} may become the primary\n{NO_FAILOVER}", leader.name);
            }
            return Ok(Self { leader });
        };
        let candidate = named(members, to)?;
        if candidate.is_leader() {
            bail!("{to} is the primary already");
        }
        if candidate.is_never_primary() {
            bail!("{to} may not become the primary\n{NO_FAILOVER}");
        }
        if !streams(&candidate) {
            bail!("{to} can't become the primary: it is {}\n{remedy}", candidate.state);
        }
        if may_lack_commits(members, to) {
            let others = members.members.iter().filter(|it| it.is_synchronous()).map(|it| &*it.name);
            let others = others.collect::<Vec<_>>().join(", ");
            bail!("{to} may lack commits that were acknowledged, since none is waited for there\nchoose {others}");
        }
        Ok(Self { leader })
    }

    /// Asks Patroni for it, and waits until there is another primary.
    pub(super) fn carry_out(&self, target: &Target, to: Option<&str>) -> Result<String> {
        let name = &self.leader.name;
        let body = json!({ "leader": name, "candidate": to }).to_string();
        let answer = target.command(self.leader, Method::Post, "/switchover", &body)?;
        // It gives up telling before it gives up doing.
        let is_open = answer.text().ends_with("status unknown");
        if answer.status >= 300 && !is_open {
            let now = target.look().ok();
            if let Some(other) = now.as_ref().and_then(Members::holder).filter(|leader| leader.name != *name) {
                bail!("{}\nPatroni says: {}", overtaken(&other.name, to), answer.text());
            }
            let said = now.map_or_else(|| "no member answers".to_owned(), |members| members.to_string());
            bail!(
                "Patroni does not switch over: {} ({said})\nit takes nobody who is not there or may lack commits, and nobody right \
                 after an election: try again in some seconds, once sluice cluster status shows its standbys streaming; the \
                 primary's log says what was in the way",
                answer.text()
            );
        }
        let primary = target.wait_primary(PRIMARY_TIME, |leader| leader.name != *name)?;
        match to {
            Some(wanted) if primary != wanted => bail!("{}", overtaken(&primary, to)),
            _ => Ok(primary),
        }
    }
}

/// Words for a switchover whose request another one has come before.
fn overtaken(primary: &str, to: Option<&str>) -> String {
    let wanted = to.filter(|to| *to != primary).map(|to| format!(", and not {to}")).unwrap_or_default();
    format!(
        "another switchover or failover came first: {primary} is the primary now{wanted}\nsee whether it should be: sluice cluster \
         status; if not, ask again"
    )
}

/// Clients that are held by all pools that are known.
pub(super) struct Held {
    pools: Pools,
    is_held: bool,
}

impl Held {
    /// Connects to the pools that are to hold theirs, before anything has happened.
    pub(super) fn reach(target: &Target, scope: &str, how: Holding) -> Result<Pools> {
        if how.no_hold {
            return Ok(Pools::default());
        }
        let pools = Pools::connect(&target.pools, target.cluster.as_deref(), scope)?;
        if !pools.faults.is_empty() {
            bail!("{}\n--no-hold goes on without holding clients", pools.faults.join("\n"));
        }
        if pools.is_empty() {
            say!("no pool is named (--pool), so no clients are held but by Patroni's before_stop");
        }
        Ok(pools)
    }

    /// Holds them; an error leaves nobody held.
    pub(super) fn begin(mut pools: Pools, how: Holding) -> Result<Self> {
        if pools.is_empty() {
            return Ok(Self { pools, is_held: false });
        }
        match pools.hold(how.patience.wait, how.patience.longest) {
            Ok(()) => Ok(Self { pools, is_held: true }),
            Err(not_held) if how.force => {
                say!("{}\ngoing on all the same (--force)", not_held.faults.join("\n"));
                Ok(Self { pools, is_held: true })
            }
            Err(not_held) => {
                let others = if not_held.is_anybody_held { pools.release() } else { Vec::new() };
                let remedy = match not_held.is_open {
                    true => "give transactions more time with --wait, or end them with --force",
                    false => "--no-hold goes on without holding clients",
                };
                let faults = not_held.faults.into_iter().chain(others).collect::<Vec<_>>().join("\n");
                bail!("called off, and clients go on:\n{faults}\n{remedy}");
            }
        }
    }

    /// Waits until all pools have let their clients go on, and says how long they were held; where it has failed, has
    /// them do so.
    pub(super) fn end(&mut self, done: &Result<String>) -> Result<()> {
        let said = match done {
            Ok(said) => said,
            Err(error) => {
                let faults = if self.is_held { self.pools.release() } else { Vec::new() };
                let faults = faults.iter().map(|fault| format!("\n{fault}"));
                return Err(anyhow!("{error}{}", faults.collect::<String>()));
            }
        };
        say!("{said}");
        if !self.is_held {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            let seen = self.pools.seen();
            let is_over = begun.elapsed() >= PICK_UP_TIME;
            if is_over || seen.values().all(|seen| seen.as_ref().is_ok_and(|seen| !seen.is_held)) {
                for (pool, seen) in &seen {
                    match seen {
                        Ok(seen) if seen.is_held => say!("{pool} holds its clients still: see its log"),
                        Ok(seen) => {
                            let time = seen.held.unwrap_or_default().as_secs_f64();
                            say!("{pool} held its clients for {time:.2} s");
                        }
                        Err(error) => say!("{error}"),
                    }
                }
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str, pause: bool) -> Members {
        let members: Vec<_> = text
            .split(", ")
            .map(|member| {
                let words: Vec<_> = member.split(' ').collect();
                let tags = words.get(3).map(|tag| json!({ *tag: true }));
                json!({ "name": words[0], "role": words[1], "state": words[2], "tags": tags })
            })
            .collect();
        serde_json::from_value(json!({ "members": members, "pause": pause })).unwrap()
    }

    #[test]
    fn whoever_can_take_over_may() {
        for (text, to) in [
            ("a leader running, b replica streaming", None),
            ("a leader running, b replica streaming", Some("b")),
            ("a leader running, b quorum_standby streaming, c replica streaming", Some("b")),
            ("a leader running, b sync_standby streaming", None),
        ] {
            assert_eq!(Plan::make(&members(text, false), to).unwrap().leader.name, "a", "{text}");
        }
        assert!(Plan::make(&members("a leader running, b replica streaming", true), Some("b")).is_ok());
    }

    #[test]
    fn somebody_has_to_be_ready() {
        let quorum = "a leader running, b quorum_standby streaming, c quorum_standby streaming";
        let behind = "a leader running, b quorum_standby streaming, c quorum_standby starting";
        let fresh = "a leader running, b replica streaming, c replica streaming";
        for (text, to, mode, silent, said) in [
            (quorum, None, Mode::Quorum, "", None),
            (quorum, None, Mode::Quorum, "c", Some("of c does not answer")),
            (quorum, Some("b"), Mode::Quorum, "c", None),
            (quorum, Some("c"), Mode::Quorum, "c", Some("of c does not answer")),
            (quorum, Some("b"), Mode::Quorum, "a", Some("a, the primary")),
            (behind, None, Mode::Quorum, "", Some("c is starting")),
            ("a leader running, b quorum_standby streaming, c replica stopped", None, Mode::Quorum, "", None),
            (behind, Some("b"), Mode::Quorum, "", None),
            (fresh, None, Mode::Quorum, "", Some("b is not synchronous yet; c is not")),
            (fresh, None, Mode::Synchronous, "", Some("b is not synchronous yet")),
            (fresh, None, Mode::Asynchronous, "b", None),
            ("a leader running, b sync_standby streaming, c replica streaming", None, Mode::Synchronous, "", None),
            (
                "a leader running, b quorum_standby streaming, c replica streaming nofailover",
                None,
                Mode::Quorum,
                "",
                None,
            ),
            ("a leader running", None, Mode::Asynchronous, "", Some("has no standby")),
        ] {
            let members = members(text, false);
            let answers = |member: &Member| member.name != silent;
            let missing = missing(&members, members.holder().unwrap(), to, (mode, Wanted::Synchronous), &answers);
            match (missing, said) {
                (Some(missing), Some(said)) => assert!(missing.contains(said), "{text}: {missing}"),
                (missing, said) => assert_eq!(missing.as_deref(), said, "{text}, {to:?}, {silent:?}"),
            }
        }
    }

    #[test]
    fn a_standby_that_comes_up_may_have_its_vote_still() {
        let members = members("a leader running, b quorum_standby streaming, c replica stopped", false);
        let missing =
            |to: Option<&str>| missing(&members, &members.members[0], to, (Mode::Quorum, Wanted::All), &|_| true);
        assert_eq!(missing(None).as_deref(), Some("c is stopped"));
        assert_eq!(missing(Some("b")), None);
    }

    #[test]
    fn a_new_primary_writes_its_votes_first() {
        let members = members("b leader running, C quorum_standby streaming", false);
        let missing = |leader: &str, standbys: &[&str], quorum, silent: &str| {
            let standbys = standbys.iter().map(|name| (*name).to_owned()).collect();
            let votes = Votes { leader: Some(leader.to_owned()), standbys, quorum: Some(quorum) };
            votes_missing(&votes, &members, &members.members[0], &|member| member.name != silent)
        };
        // Those by which a was the primary, which is gone.
        assert!(missing("a", &["b", "c"], 1, "").unwrap().contains("b has just become the primary"));
        assert_eq!(missing("B", &["c"], 0, ""), None);
        assert!(missing("b", &["a", "c"], 1, "").unwrap().starts_with("2 of 2 standbys have to be there, and a can't"));
        assert!(missing("b", &["c"], 0, "C").unwrap().ends_with("and c can't be asked"));
    }

    #[test]
    fn a_timeline_is_young_by_the_history_or_without_a_line_of_it() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        let line =
            |timeline: u32, second: u32| json!([timeline, 1, "why", format!("1970-01-01T00:00:0{second}+00:00"), "b"]);
        let young = Duration::from_secs(4);
        assert!(is_fresh(Some(&line(3, 7)), 4, young, now) && !is_fresh(Some(&line(3, 5)), 4, young, now));
        assert!(is_fresh(Some(&line(2, 1)), 4, young, now) && is_fresh(None, 4, young, now));
        assert!(!is_fresh(None, 1, young, now));
    }

    #[test]
    fn another_switchover_that_came_first_is_told() {
        assert!(overtaken("c", Some("b")).contains("came first: c is the primary now, and not b\n"));
        assert!(overtaken("c", None).contains("c is the primary now\n"));
    }

    #[test]
    fn what_is_in_the_way_is_said_with_the_remedy() {
        for (text, pause, to, said) in [
            ("a replica running, b replica streaming", false, None, "has no primary now"),
            ("a leader running, b replica streaming", true, None, "sluice cluster resume"),
            ("a leader running, b replica starting", false, None, "no standby of a follows it"),
            ("a leader running, b replica streaming", false, Some("x"), "its nodes are a, b"),
            ("a leader running, b replica streaming", false, Some("a"), "is the primary already"),
            ("a leader running, b replica stopped", false, Some("b"), "it is stopped"),
            (
                "a leader running, b replica streaming nofailover",
                false,
                Some("b"),
                "b may not become the primary\nits tag",
            ),
            ("a leader running, b replica streaming nofailover", false, None, "no standby of a may become the primary"),
            ("a leader running, b sync_standby streaming, c replica streaming", false, Some("c"), "choose b"),
        ] {
            let error = Plan::make(&members(text, pause), to).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
