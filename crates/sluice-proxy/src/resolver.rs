//! Host names of servers and of clusters' members, resolved where it may take its time: never by a worker, nor by
//! whoever starts, reloads or hears signals.
//!
//! The system's resolver can't be interrupted, and takes as long as it takes. So each look-up has a thread of its own for
//! as long as that, of which there are some and no more; of a name there is one at a time, whoever waits for it; and who
//! waits does so up to a limit of its own. While no name server answers, the last addresses count.
//!
//! Of a name with several addresses each is a place where the server may be. They are tried in the order in which the
//! system gives them, as libpq does, but from the one on at which a connect that failed at another was tried next.

mod name;
mod turns;

use std::{
    collections::{BTreeSet, HashMap},
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sluice_core::io::Address;
use tokio::{sync::watch, time::timeout};

use crate::net::sockets::Target;

use self::{
    name::{Name, News},
    turns::{Turn, Turns},
};

pub(crate) use self::turns::AT_ONCE;

/// The time that a start or a reload has for its new names, for all of them together: most are known by then, and the
/// others become so in their own time.
const NEW_NAMES_TIME: Duration = Duration::from_millis(300);

/// The interval at which it is looked which names are to be looked up again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The known addresses of host names.
#[derive(Debug)]
pub(crate) struct Resolver {
    state: Mutex<State>,
    /// For threads that wait for an answer.
    answered: Condvar,
    /// For tasks that do.
    answers: watch::Sender<()>,
    look_up: fn(&str) -> io::Result<Vec<IpAddr>>,
}

#[derive(Debug, Default)]
struct State {
    names: HashMap<String, Name>,
    turns: Turns,
}

/// A name and its addresses, to be shown.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) host: String,
    /// None if it has not been resolved.
    pub(crate) addresses: Vec<IpAddr>,
    /// The time until it is looked up again.
    pub(crate) time_left: Duration,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::by(of_system)
    }
}

impl Resolver {
    fn by(look_up: fn(&str) -> io::Result<Vec<IpAddr>>) -> Self {
        Self { state: Mutex::default(), answered: Condvar::new(), answers: watch::Sender::new(()), look_up }
    }

    /// Has the names in `addresses` looked up, those that are new at once, and keeps them up to date, and no others. It
    /// waits for new ones for a short while.
    pub(crate) fn know<'a>(self: &Arc<Self>, addresses: impl IntoIterator<Item = &'a Address>) {
        let hosts: BTreeSet<_> = addresses.into_iter().filter_map(name_in).collect();
        for (host, name) in &mut self.state().names {
            name.is_servers &= hosts.contains(&**host);
        }
        let new = self.begin(hosts);
        let waited = self.answered.wait_timeout_while(self.state(), NEW_NAMES_TIME, |state| state.lacks(&new));
        drop(waited);
        self.say_what_lacks(&new);
    }

    /// Keeps the names in those addresses up to date as well, and waits for new ones for a short while.
    pub(crate) async fn know_besides<'a>(self: &Arc<Self>, addresses: impl IntoIterator<Item = &'a Address>) {
        let new = self.begin(addresses.into_iter().filter_map(name_in).collect());
        if !self.wait_for(&new, NEW_NAMES_TIME).await {
            self.say_what_lacks(&new);
        }
    }

    /// Waits, if its name has no address and one may be found, no longer than that.
    pub(crate) async fn wait_for_address(&self, address: &Address, time_max: Duration) {
        if let Some(host) = name_in(address) {
            self.wait_for(&[host.to_owned()], time_max).await;
        }
    }

    /// The addresses of a member of a cluster, which is about to be asked something: those of a moment ago, or the last
    /// ones while no others can be found. The first ones are waited for, no longer than that; the error says why there
    /// are none.
    pub(crate) async fn addresses_of_member(
        self: &Arc<Self>,
        host: &str,
        time_max: Duration,
    ) -> Result<Vec<IpAddr>, String> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let is_begun = {
            let State { names, turns } = &mut *self.state();
            let name = names.entry(host.to_owned()).or_insert_with(|| Name::new(host));
            let begun = name.ask_for_member(Instant::now());
            begun.inspect(|is_slow| turns.wait(host.to_owned(), *is_slow)).is_some()
        };
        if is_begun {
            self.take_turns();
        }
        self.wait_for(&[host.to_owned()], time_max).await;
        let state = self.state();
        let name = state.names.get(host).ok_or_else(|| NOT_KNOWN.to_owned())?;
        match name.addresses() {
            [] => Err(name.fault().unwrap_or(NOT_KNOWN).to_owned()),
            addresses => Ok(addresses.to_vec()),
        }
    }

    /// The places to connect to, one after the other until one works: the addresses of a name, or else what is given.
    pub(crate) fn places(&self, address: &Address) -> Vec<Address> {
        if let Address::Tcp(host, port) = address
            && let Some(name) = self.state().names.get(host)
            && !name.addresses().is_empty()
        {
            return name.in_order().map(|ip| Address::Tcp(ip.to_string(), *port)).collect();
        }
        vec![address.clone()]
    }

    /// A connect to that place of an address has failed: others are tried first from now on.
    pub(crate) fn failed(&self, address: &Address, place: &Address) {
        let (Address::Tcp(host, _), Address::Tcp(ip, _)) = (address, place) else { return };
        let (false, Ok(ip)) = (host == ip, ip.parse::<IpAddr>()) else { return };
        if let Some(name) = self.state().names.get_mut(host) {
            name.failed(ip);
        }
    }

    /// The target at a place. A name is one that has no address, and the error says why.
    pub(crate) fn target(&self, place: &Address) -> io::Result<Target> {
        match place {
            Address::Unix(path) => Ok(Target::Unix(path.clone())),
            Address::Tcp(host, port) => {
                if let Ok(ip) = host.parse() {
                    return Ok(Target::Tcp(SocketAddr::new(ip, *port)));
                }
                let state = self.state();
                let fault = state.names.get(host).and_then(Name::fault);
                Err(io::Error::other(fault.unwrap_or(NOT_KNOWN).to_owned()))
            }
            Address::Primary(_) | Address::Readers(_) => Err(io::Error::other(format!("{place} is not known"))),
        }
    }

    /// The names of servers, in their order.
    pub(crate) fn known(&self) -> Vec<Known> {
        let now = Instant::now();
        let state = self.state();
        let names = state.names.iter().filter(|(_, name)| name.is_servers);
        let mut known: Vec<_> = names
            .map(|(host, name)| Known {
                host: host.clone(),
                addresses: name.addresses().to_vec(),
                time_left: name.time_left(now),
            })
            .collect();
        known.sort_unstable_by(|a, b| a.host.cmp(&b.host));
        known
    }

    /// Has names looked up again when they are due, for ever.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = Instant::now();
            {
                let State { names, turns } = &mut *self.state();
                names.retain(|_, name| !name.is_idle(now));
                for (host, name) in names {
                    if let Some(is_slow) = name.ask_if_due(now) {
                        turns.wait(host.clone(), is_slow);
                    }
                }
            }
            self.take_turns();
        }
    }

    /// Begins to look servers' names up; those of which nothing is known yet are returned.
    fn begin(self: &Arc<Self>, hosts: BTreeSet<&str>) -> Vec<String> {
        let now = Instant::now();
        let mut new = Vec::new();
        {
            let State { names, turns } = &mut *self.state();
            for host in hosts {
                let name = names.entry(host.to_owned()).or_insert_with(|| Name::new(host));
                if !std::mem::replace(&mut name.is_servers, true) && name.has_no_answer() {
                    new.push(host.to_owned());
                }
                if name.has_no_answer()
                    && let Some(is_slow) = name.ask_if_due(now)
                {
                    turns.wait(host.to_owned(), is_slow);
                }
            }
        }
        self.take_turns();
        new
    }

    /// Begins as many look-ups as have their turn.
    fn take_turns(self: &Arc<Self>) {
        loop {
            let Some(turn) = self.state().turns.next() else { return };
            let (resolver, its) = (self.clone(), turn.clone());
            let thread = std::thread::Builder::new().name("resolver".to_owned());
            if let Err(error) = thread.spawn(move || resolver.work(its)) {
                self.ended(&turn, Err(error), Duration::ZERO);
            }
        }
    }

    /// A thread's work: that look-up, and others until none has its turn.
    fn work(&self, turn: Turn) {
        let mut next = Some(turn);
        while let Some(turn) = next {
            let begun = Instant::now();
            let found = (self.look_up)(&turn.host);
            self.ended(&turn, found, begun.elapsed());
            next = self.state().turns.next();
        }
    }

    fn ended(&self, turn: &Turn, found: io::Result<Vec<IpAddr>>, took: Duration) {
        let news = {
            let State { names, turns } = &mut *self.state();
            turns.give_back(turn);
            names.get_mut(&turn.host).and_then(|name| name.answered(&turn.host, found, Instant::now(), took))
        };
        self.answered.notify_all();
        self.answers.send_replace(());
        match news {
            Some(News::Fault(fault)) => tracing::warn!("{fault}"),
            Some(News::Resolved) => tracing::info!("the name \"{}\" has been resolved", turn.host),
            None => {}
        }
    }

    /// Waits until something is known of these names. `false` if that takes longer than it may.
    async fn wait_for(&self, hosts: &[String], time_max: Duration) -> bool {
        let mut answers = self.answers.subscribe();
        let waiting = async {
            while self.state().lacks(hosts) {
                // The sender is here, and stays.
                let _ = answers.changed().await;
            }
        };
        timeout(time_max, waiting).await.is_ok()
    }

    /// Has the log tell which of these names are not known yet.
    fn say_what_lacks(&self, hosts: &[String]) {
        for host in hosts {
            let news = self.state().names.get_mut(host).filter(|name| name.is_awaited()).and_then(Name::say);
            if let Some(News::Fault(fault)) = news {
                tracing::warn!("{fault}");
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether any of these names has no address, and may have one soon.
    fn lacks(&self, hosts: &[String]) -> bool {
        hosts.iter().filter_map(|host| self.names.get(host)).any(Name::is_awaited)
    }
}

/// The fault of a name that nobody has asked for.
const NOT_KNOWN: &str = "the host name has not been resolved";

/// The name in an address, if there is one.
fn name_in(address: &Address) -> Option<&str> {
    match address {
        Address::Tcp(host, _) if host.parse::<IpAddr>().is_err() => Some(host),
        _ => None,
    }
}

fn of_system(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Longer than any of this may take.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn server(host: &str) -> Address {
        Address::Tcp(host.to_owned(), 5432)
    }

    fn shown(resolver: &Resolver, host: &str) -> String {
        let places = resolver.places(&server(host));
        match resolver.target(&places[0]) {
            Ok(_) => places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    /// The look-ups of names that no name server answers.
    static SILENCES: AtomicUsize = AtomicUsize::new(0);

    fn answer(host: &str) -> io::Result<Vec<IpAddr>> {
        match host {
            "good" => Ok(vec!["::1".parse().unwrap(), "10.0.0.1".parse().unwrap()]),
            "refused" => Err(io::Error::other("nobody of that name")),
            _ => {
                SILENCES.fetch_add(1, Ordering::Relaxed);
                loop {
                    std::thread::park();
                }
            }
        }
    }

    #[tokio::test]
    async fn names_that_nobody_answers_keep_nobody_waiting() {
        let resolver = Arc::new(Resolver::by(answer));
        let begun = Instant::now();
        let dead: Vec<_> = (0..40).map(|number| server(&format!("dead{number}"))).collect();
        resolver.know(dead.iter().chain(&[server("good"), server("refused")]));
        resolver.know_besides([&server("dead"), &server("good")]).await;
        resolver.wait_for_address(&server("good"), PATIENCE).await;
        resolver.wait_for_address(&server("refused"), PATIENCE).await;
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        assert_eq!(shown(&resolver, "good"), "[::1]:5432 10.0.0.1:5432");
        assert_eq!(shown(&resolver, "refused"), "the name \"refused\" can't be resolved: nobody of that name");
        assert_eq!(shown(&resolver, "dead7"), "the name \"dead7\" can't be resolved: there is no answer yet");
        // The configuration read again changes nothing, and begins nothing anew.
        resolver.failed(&server("good"), &server("::1"));
        resolver.know(dead.iter().chain([&server("good")]));
        assert_eq!(shown(&resolver, "good"), "10.0.0.1:5432 [::1]:5432");
        // Any number may ask: there is one look-up of a name.
        let limit = Duration::from_millis(50);
        for _ in 0..3 {
            let (first, second) = tokio::join!(
                resolver.addresses_of_member("dead-member", limit),
                resolver.addresses_of_member("dead-member", limit)
            );
            let silent = "the name \"dead-member\" can't be resolved: there is no answer yet";
            assert_eq!((first.unwrap_err().as_str(), second.unwrap_err().as_str()), (silent, silent));
        }
        assert_eq!(resolver.addresses_of_member("good", limit).await.unwrap().len(), 2);
        assert_eq!(resolver.addresses_of_member("::1", limit).await.unwrap().len(), 1);
        while SILENCES.load(Ordering::Relaxed) < 42 && begun.elapsed() < PATIENCE {
            tokio::time::sleep(limit).await;
        }
        assert_eq!(SILENCES.load(Ordering::Relaxed), 42);
        let shown: Vec<_> = resolver.known().iter().map(|known| (known.host.clone(), known.addresses.len())).collect();
        assert!(shown.len() == 41 && shown.contains(&("good".to_owned(), 2)), "{shown:?}");
    }

    #[test]
    fn what_is_no_name_is_one_place() {
        let resolver = Resolver::default();
        for address in [Address::Unix("/run/.s.PGSQL.5432".into()), Address::Tcp("::1".to_owned(), 5432)] {
            assert_eq!(resolver.places(&address), std::slice::from_ref(&address));
            resolver.failed(&address, &address);
            assert!(resolver.target(&address).is_ok());
        }
        assert_eq!(resolver.places(&server("db")), [server("db")]);
        assert!(resolver.target(&server("db")).is_err());
    }
}
