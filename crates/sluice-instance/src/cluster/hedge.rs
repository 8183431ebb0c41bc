//! Which member of etcd is asked, and when another one as well. One that is lost with its host says nothing, not even
//! no: nobody should wait for it who can ask another one.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// A member that has said nothing for so long has company.
const HEDGE_AFTER: Duration = Duration::from_millis(300);

/// An attempt has a time limit of its own, far below this.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// A member that has failed is asked behind the others for so long.
const AVOIDED_FOR: Duration = Duration::from_secs(5);

/// The members, in the order in which they are asked while all of them answer.
#[derive(Debug)]
pub(super) struct Members {
    all: Vec<SocketAddr>,
    /// Of each, when it has failed last, unless it has answered since.
    failed_at: Mutex<Vec<Option<Instant>>>,
}

impl Members {
    pub(super) fn new(all: Vec<SocketAddr>) -> Self {
        let failed_at = Mutex::new(vec![None; all.len()]);
        Self { all, failed_at }
    }

    pub(super) fn all(&self) -> &[SocketAddr] {
        &self.all
    }

    /// The order in which they are asked now.
    pub(super) fn in_order(&self) -> Vec<SocketAddr> {
        let failed_at = self.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        order(&failed_at, Instant::now()).into_iter().map(|place| self.all[place]).collect()
    }

    fn note(&self, member: SocketAddr, failed_at: Option<Instant>) {
        let mut all = self.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, noted) in self.all.iter().zip(&mut *all).filter(|(one, _)| **one == member) {
            *noted = failed_at;
        }
    }
}

/// Those that have not failed just now first, and then the ones whose failure is longest ago.
fn order(failed_at: &[Option<Instant>], now: Instant) -> Vec<usize> {
    let is_avoided = |at: &Option<Instant>| at.filter(|at| now.saturating_duration_since(*at) < AVOIDED_FOR);
    let mut places: Vec<usize> = (0..failed_at.len()).collect();
    places.sort_by_key(|place| is_avoided(&failed_at[*place]));
    places
}

/// Asks these members, one after the other: the next one when one has failed, or when all that were asked have said
/// nothing for a while, which are still heard. The first answer counts; if there is none, the last error does.
pub(super) fn race<T: Send + 'static>(
    members: &Arc<Members>,
    asked: &[SocketAddr],
    ask: impl Fn(SocketAddr) -> io::Result<T> + Send + Sync + 'static,
) -> io::Result<T> {
    let ask = Arc::new(ask);
    let (sender, answers) = mpsc::channel();
    let mut waiting: Vec<SocketAddr> = Vec::new();
    let mut last = io::Error::other("etcd has no members");
    let mut left = asked.iter().copied();
    loop {
        if let Some(member) = left.next() {
            let (ask, sender) = (Arc::clone(&ask), sender.clone());
            // Nobody may be there any more to hear it.
            let asking = move || drop(sender.send((member, ask(member))));
            thread::Builder::new().name("etcd".to_owned()).spawn(asking)?;
            waiting.push(member);
        } else if waiting.is_empty() {
            return Err(last);
        }
        let is_last = left.len() == 0;
        let (member, answer) = match answers.recv_timeout(if is_last { ANSWERED_WITHIN } else { HEDGE_AFTER }) {
            Ok(heard) => heard,
            Err(_) if is_last => return Err(last),
            Err(_) => continue,
        };
        if let Some(place) = waiting.iter().position(|one| *one == member) {
            waiting.remove(place);
        }
        match answer {
            Ok(answer) => {
                // Who was asked before, and has not answered yet, is slow at least.
                waiting.iter().for_each(|silent| members.note(*silent, Some(Instant::now())));
                members.note(member, None);
                return Ok(answer);
            }
            Err(error) => {
                members.note(member, Some(Instant::now()));
                last = error;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u16) -> (Arc<Members>, Vec<SocketAddr>) {
        let all: Vec<_> = (1..=count).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        (Arc::new(Members::new(all.clone())), all)
    }

    #[test]
    fn who_has_failed_is_asked_last_for_a_while() {
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds));
        assert_eq!(order(&[None, None, None], now), [0, 1, 2]);
        assert_eq!(order(&[ago(1), None, ago(2)], now), [1, 2, 0]);
        assert_eq!(order(&[ago(2), ago(1), None], now), [2, 0, 1]);
        assert_eq!(order(&[ago(5), ago(1), None], now), [0, 2, 1], "the first one again");
    }

    #[test]
    fn a_silent_member_is_not_waited_for() {
        let (members, all) = members(3);
        let lost = all[0];
        let ask = move |member| {
            if member == lost {
                thread::sleep(Duration::from_secs(60));
            }
            Ok(member)
        };
        let begin = Instant::now();
        assert_eq!(race(&members, &members.in_order(), ask).unwrap(), all[1]);
        assert!(begin.elapsed() >= HEDGE_AFTER && begin.elapsed() < Duration::from_secs(10));
        assert_eq!(members.in_order(), [all[1], all[2], all[0]], "and nobody begins with it");
    }

    #[test]
    fn a_late_answer_counts_as_long_as_no_other_one_has_come() {
        let (members, all) = members(2);
        let late = all[0];
        let ask = move |member| {
            thread::sleep(if member == late { 2 * HEDGE_AFTER } else { Duration::from_secs(60) });
            Ok(member)
        };
        assert_eq!(race(&members, &all, ask).unwrap(), late);
        assert_eq!(members.in_order(), [all[0], all[1]]);
    }

    #[test]
    fn a_refusal_is_no_reason_to_wait() {
        let (members, all) = members(3);
        let last = all[2];
        let ask = move |member| if member == last { Ok(()) } else { Err(io::Error::other("refused")) };
        let begin = Instant::now();
        race(&members, &all, ask).unwrap();
        assert!(begin.elapsed() < HEDGE_AFTER);
        assert_eq!(members.in_order()[0], last);
    }

    #[test]
    fn who_is_asked_alone_is_waited_for() {
        let (members, all) = members(2);
        let ask = |member| {
            thread::sleep(2 * HEDGE_AFTER);
            Err::<(), _>(io::Error::other(format!("not at {member}")))
        };
        assert_eq!(race(&members, &all[..1], ask).unwrap_err().to_string(), "not at 127.0.0.1:1");
        assert_eq!(members.in_order(), [all[1], all[0]]);
    }

    #[test]
    fn nobody_to_ask() {
        let (members, _) = members(0);
        assert!(race(&members, &members.in_order(), |_| Ok(())).is_err());
    }
}
