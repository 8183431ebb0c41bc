//! A host name: its addresses, in the order in which they are tried, and when it is looked up again.

use std::{
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

/// The addresses of a name that are tried, at most.
const ADDRESSES_MAX: usize = 16;

/// The interval at which names of servers are looked up again.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// The same of a name whose last look-up has failed.
const AGAIN_EVERY: Duration = Duration::from_secs(2);

/// The age from which an answer is too old for a member of a cluster that is asked something: a node may come back with
/// another address, and a name server can stand one question in so long.
const MEMBER_AGE_MAX: Duration = Duration::from_secs(2);

/// The age from which a failure is too old for it: the question is repeated until it is answered.
const MEMBER_FAILURE_AGE_MAX: Duration = Duration::from_secs(1);

/// The time for which a member's name is kept that nobody asks for.
const MEMBER_KEPT: Duration = Duration::from_secs(60);

/// The time from which a look-up is slow: others are not to wait behind it.
const SLOW: Duration = Duration::from_secs(1);

/// A host name.
#[derive(Debug)]
pub(super) struct Name {
    /// In the order in which they were found last.
    addresses: Vec<IpAddr>,
    /// The one to begin with where a connect to another one has failed.
    preferred: Option<IpAddr>,
    /// The reason why the last look-up has found nothing; at first, that none has ended.
    fault: Option<String>,
    /// The log has been told of a fault.
    is_said: bool,
    stage: Stage,
    answered_at: Option<Instant>,
    /// Its last look-up took long.
    is_slow: bool,
    /// It is one of a server that there may be connections to: it is kept up to date.
    pub(super) is_servers: bool,
    /// The time at which it was asked for last as a member's.
    member_asked_at: Option<Instant>,
}

/// The stage of a name's look-up. There is one at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// None is under way.
    Resting,
    /// One waits for its turn, or has begun.
    Asked,
}

/// Something that the log is to be told of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It can't be resolved, for that reason.
    Fault(String),
    /// It has been resolved, after a fault.
    Resolved,
}

impl Name {
    pub(super) fn new(host: &str) -> Self {
        Self {
            addresses: Vec::new(),
            preferred: None,
            fault: Some(unresolved(host, "there is no answer yet")),
            is_said: false,
            stage: Stage::Resting,
            answered_at: None,
            is_slow: false,
            is_servers: false,
            member_asked_at: None,
        }
    }

    /// The addresses as they are found.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The addresses, those first that are to be tried first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = IpAddr> {
        let (before, first) = self.addresses.split_at(self.first());
        first.iter().chain(before).copied()
    }

    /// The reason why it has no address.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Whether there is nothing to go by, and an answer under way.
    pub(super) fn is_awaited(&self) -> bool {
        self.addresses.is_empty() && self.stage == Stage::Asked
    }

    pub(super) fn has_no_answer(&self) -> bool {
        self.answered_at.is_none()
    }

    /// The time until it is looked up again, being a server's.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        let every = if self.fault.is_some() { AGAIN_EVERY } else { RESOLVE_EVERY };
        let Some(answered_at) = self.answered_at else { return Duration::ZERO };
        if self.stage == Stage::Asked { Duration::ZERO } else { (answered_at + every).saturating_duration_since(now) }
    }

    /// Begins a look-up if one is due. `Some`: it is, and says whether it may be slow.
    pub(super) fn ask_if_due(&mut self, now: Instant) -> Option<bool> {
        (self.is_servers && self.time_left(now).is_zero()).then(|| self.ask()).flatten()
    }

    /// The same for a member of a cluster that is about to be asked something.
    pub(super) fn ask_for_member(&mut self, now: Instant) -> Option<bool> {
        self.member_asked_at = Some(now);
        let age_max = if self.fault.is_some() { MEMBER_FAILURE_AGE_MAX } else { MEMBER_AGE_MAX };
        let is_due = self.answered_at.is_none_or(|at| now.saturating_duration_since(at) >= age_max);
        is_due.then(|| self.ask()).flatten()
    }

    fn ask(&mut self) -> Option<bool> {
        let begins = self.stage == Stage::Resting;
        self.stage = Stage::Asked;
        begins.then_some(self.is_slow)
    }

    /// Whether nobody needs it any more.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let is_members = self.member_asked_at.is_some_and(|at| now.saturating_duration_since(at) < MEMBER_KEPT);
        !self.is_servers && !is_members && self.stage == Stage::Resting
    }

    /// Its look-up has ended. Where it has failed, the last addresses count.
    pub(super) fn answered(
        &mut self,
        host: &str,
        found: io::Result<Vec<IpAddr>>,
        now: Instant,
        took: Duration,
    ) -> Option<News> {
        self.stage = Stage::Resting;
        self.answered_at = Some(now);
        self.is_slow = took >= SLOW;
        let before = self.fault.take();
        match found.map(distinct) {
            Ok(found) if !found.is_empty() => {
                self.preferred = self.preferred.filter(|preferred| found.contains(preferred));
                self.addresses = found;
                std::mem::take(&mut self.is_said).then_some(News::Resolved)
            }
            Ok(_) => self.fails(format!("the name \"{host}\" has no address"), before),
            Err(error) => self.fails(unresolved(host, error), before),
        }
    }

    fn fails(&mut self, fault: String, before: Option<String>) -> Option<News> {
        self.fault = Some(fault);
        if self.fault == before { None } else { self.say() }
    }

    /// The fault, which the log is to be told of.
    pub(super) fn say(&mut self) -> Option<News> {
        let fault = self.fault.as_deref().filter(|_| self.is_servers)?;
        self.is_said = true;
        let meanwhile = if self.addresses.is_empty() { "" } else { "; its last addresses count until it can" };
        Some(News::Fault(format!("{fault}{meanwhile}")))
    }

    /// A connect to that address has failed: the next one is the first from now on, unless another one is already.
    pub(super) fn failed(&mut self, ip: IpAddr) {
        let first = self.first();
        if self.addresses.get(first) == Some(&ip) {
            let next = (first + 1) % self.addresses.len();
            self.preferred = self.addresses.get(next).copied();
        }
    }

    /// The place in the list to begin with.
    fn first(&self) -> usize {
        let preferred = |preferred| self.addresses.iter().position(|ip| *ip == preferred);
        self.preferred.and_then(preferred).unwrap_or_default()
    }
}

fn unresolved(host: &str, why: impl std::fmt::Display) -> String {
    format!("the name \"{host}\" can't be resolved: {why}")
}

fn distinct(found: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for ip in found {
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&ip) {
            addresses.push(ip);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer in words: addresses with spaces between them; of none it is an error.
    fn answer(words: &str) -> io::Result<Vec<IpAddr>> {
        match words {
            "" => Err(io::Error::other("nobody answers")),
            words => Ok(words.split(' ').filter_map(|ip| ip.parse().ok()).collect()),
        }
    }

    fn shown(name: &Name) -> String {
        name.in_order().map(|ip| ip.to_string()).collect::<Vec<_>>().join(" ")
    }

    fn server() -> Name {
        let mut name = Name::new("db");
        name.is_servers = true;
        name
    }

    #[test]
    fn each_address_of_a_name_gets_its_turn() {
        let (mut name, now) = (server(), Instant::now());
        let answered = |name: &mut Name, words: &str| {
            name.answered("db", answer(words), now, Duration::ZERO);
            shown(name)
        };
        let failed = |name: &mut Name, ip: &str| {
            name.failed(ip.parse().unwrap());
            shown(name)
        };
        assert_eq!(answered(&mut name, "::1 10.0.0.1 10.0.0.2 ::1"), "::1 10.0.0.1 10.0.0.2");
        // While none has failed, the order is that of the last answer.
        assert_eq!(answered(&mut name, "10.0.0.1 10.0.0.2 ::1"), "10.0.0.1 10.0.0.2 ::1");
        assert_eq!(failed(&mut name, "10.0.0.1"), "10.0.0.2 ::1 10.0.0.1");
        // Others may hear later that the same one has failed.
        assert_eq!(failed(&mut name, "10.0.0.1"), "10.0.0.2 ::1 10.0.0.1");
        assert_eq!(answered(&mut name, "::1 10.0.0.2 10.0.0.3"), "10.0.0.2 10.0.0.3 ::1");
        assert_eq!(answered(&mut name, ""), "10.0.0.2 10.0.0.3 ::1");
        assert_eq!(answered(&mut name, "none"), "10.0.0.2 10.0.0.3 ::1");
        // When all have failed, it begins anew.
        for ip in ["10.0.0.2", "10.0.0.3", "::1"] {
            failed(&mut name, ip);
        }
        assert_eq!(failed(&mut name, "10.0.0.2"), "10.0.0.3 ::1 10.0.0.2");
        assert_eq!(answered(&mut name, "10.0.0.4 10.0.0.5"), "10.0.0.4 10.0.0.5");
    }

    #[test]
    fn the_log_is_told_once() {
        let (mut name, now) = (server(), Instant::now());
        assert_eq!(name.fault(), Some("the name \"db\" can't be resolved: there is no answer yet"));
        let mut told = |words: &str| match name.answered("db", answer(words), now, Duration::ZERO) {
            Some(News::Fault(fault)) => fault,
            Some(News::Resolved) => "resolved".to_owned(),
            None => String::new(),
        };
        assert_eq!(told(""), "the name \"db\" can't be resolved: nobody answers");
        assert_eq!(told(""), "");
        assert_eq!(told("none"), "the name \"db\" has no address");
        assert_eq!(told("10.0.0.1"), "resolved");
        assert_eq!(told("10.0.0.1"), "");
        assert_eq!(
            told(""),
            "the name \"db\" can't be resolved: nobody answers; its last addresses count until it can"
        );
    }

    #[test]
    fn a_name_is_looked_up_once_at_a_time_and_again_when_it_is_due() {
        let (mut name, begun) = (server(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!((name.ask_if_due(at(0)), name.is_awaited()), (Some(false), true));
        assert_eq!((name.ask_if_due(at(9)), name.ask_for_member(at(9))), (None, None));
        name.answered("db", answer(""), at(10), Duration::from_secs(10));
        assert_eq!((name.ask_if_due(at(11)), name.is_awaited()), (None, false));
        // It was slow, and may be so again.
        assert_eq!(name.ask_if_due(at(12)), Some(true));
        name.answered("db", answer("10.0.0.1"), at(12), Duration::ZERO);
        assert_eq!((name.ask_if_due(at(21)), name.ask_if_due(at(22))), (None, Some(false)));
        assert!(!name.is_awaited(), "there is one to go by");
    }

    #[test]
    fn a_members_name_is_kept_while_it_is_asked_for() {
        let (mut name, begun) = (Name::new("db"), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        assert_eq!((name.ask_if_due(at(0)), name.ask_for_member(at(0))), (None, Some(false)));
        assert!(!name.is_idle(at(100_000)), "its look-up is under way");
        assert_eq!(name.answered("db", answer(""), at(0), Duration::ZERO), None, "its cluster's log line tells of it");
        assert_eq!((name.ask_for_member(at(900)), name.ask_for_member(at(1000))), (None, Some(false)));
        name.answered("db", answer("10.0.0.1"), at(1000), Duration::ZERO);
        assert_eq!((name.ask_for_member(at(2900)), name.ask_for_member(at(3000))), (None, Some(false)));
        name.answered("db", answer(""), at(3000), Duration::ZERO);
        assert_eq!(shown(&name), "10.0.0.1");
        assert!(!name.is_idle(at(62_000)) && name.is_idle(at(63_000)));
    }
}
