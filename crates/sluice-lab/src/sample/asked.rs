//! Those who are asked over a connection: PostgreSQL, and the pool's console. In a stall an answer may take as long as
//! the stall; so each is asked by a thread of its own, and the machine is looked at meanwhile.

use std::{
    fmt::Display,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
    time::Instant,
};

use super::Value;
use crate::{error::Error, proc};

/// One of them.
pub(super) struct Asked {
    /// What it tells, for people.
    what: &'static str,
    questions: Sender<()>,
    answers: Receiver<Answer>,
    thread: JoinHandle<()>,
    /// It owes an answer.
    owes: bool,
    /// Why it told nothing, the first time.
    failure: Option<String>,
    cpu_s: f64,
}

struct Answer {
    values: Result<Vec<Value>, String>,
    /// The thread's processor time so far.
    cpu_s: f64,
}

impl Asked {
    /// Begins to listen for questions, each of which `look` answers. The thread ends with its last answer.
    pub(super) fn start<E: Display>(
        what: &'static str,
        mut look: impl FnMut() -> Result<Vec<Value>, E> + Send + 'static,
    ) -> Result<Self, Error> {
        let (questions, asked) = channel();
        let (tell, answers) = channel();
        let thread = thread::Builder::new()
            .name("sampler's look".to_owned())
            .spawn(move || {
                while let Ok(()) = asked.recv() {
                    let values = look().map_err(|error| error.to_string());
                    if tell.send(Answer { values, cpu_s: proc::thread_cpu_s() }).is_err() {
                        return;
                    }
                }
            })
            .map_err(Error::io("start a thread for the sampler's looks"))?;
        Ok(Self { what, questions, answers, thread, owes: false, failure: None, cpu_s: 0.0 })
    }

    /// Asks, unless it owes an answer already.
    pub(super) fn ask(&mut self) {
        if !self.owes {
            self.owes = self.questions.send(()).is_ok();
        }
    }

    /// Its answer to this question or to a former one, if it comes until then.
    pub(super) fn answer(&mut self, until: Instant) -> Vec<Value> {
        if !self.owes {
            return Vec::new();
        }
        let Ok(answer) = self.answers.recv_timeout(until.saturating_duration_since(Instant::now())) else {
            self.failure.get_or_insert_with(|| "no answer in time".to_owned());
            return Vec::new();
        };
        self.owes = false;
        self.cpu_s = answer.cpu_s;
        answer.values.unwrap_or_else(|why| {
            self.failure.get_or_insert(why);
            Vec::new()
        })
    }

    /// Processor time that its answers took.
    pub(super) fn cpu_s(&self) -> f64 {
        self.cpu_s
    }

    /// What it did not tell, and why.
    pub(super) fn missing(&self) -> Option<String> {
        Some(format!("{} at some moments: {}", self.what, self.failure.as_ref()?))
    }

    /// Ends its connection; one that owes an answer ends it when it has answered.
    pub(super) fn end(self) {
        drop(self.questions);
        if !self.owes {
            // A panic was reported by its thread.
            let _ = self.thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn in_time() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_late_answer_is_to_the_next_question() {
        let (let_go, held) = channel::<f64>();
        let look = move || Ok::<_, String>(vec![("a".to_owned(), held.recv().unwrap())]);
        let mut asked = Asked::start("a", look).unwrap();
        asked.ask();
        assert_eq!(asked.answer(soon()), []);
        asked.ask();
        assert_eq!(asked.answer(soon()), []);
        let_go.send(1.0).unwrap();
        assert_eq!(asked.answer(in_time()), [("a".to_owned(), 1.0)]);
        assert_eq!(asked.answer(in_time()), [], "it was asked once: nothing is waited for");
        asked.ask();
        let_go.send(2.0).unwrap();
        assert_eq!(asked.answer(in_time()), [("a".to_owned(), 2.0)]);
        assert!(asked.cpu_s() > 0.0);
        assert_eq!(asked.missing().as_deref(), Some("a at some moments: no answer in time"));
        asked.end();
    }

    #[test]
    fn the_first_failure_is_told() {
        let mut count = 0;
        let mut asked = Asked::start("a", move || {
            count += 1;
            Err(format!("failure {count}"))
        })
        .unwrap();
        for _ in 0..2 {
            asked.ask();
            assert_eq!(asked.answer(in_time()), []);
        }
        assert_eq!(asked.missing().as_deref(), Some("a at some moments: failure 1"));
    }
}
