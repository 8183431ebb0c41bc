//! Requests that take long, for the log: what they say without its constants, and the trace that they belong to.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use sluice_control::address::PeerAddress;

use crate::sql;

/// The time from which a request is logged; it may change at any moment.
#[derive(Debug)]
pub struct Threshold(AtomicU64);

/// None is.
const NEVER: u64 = u64::MAX;

impl Threshold {
    /// A limit of that time, or none.
    pub fn new(time: Option<Duration>) -> Self {
        Self(AtomicU64::new(micros(time)))
    }

    /// It is that one from now on.
    pub fn set(&self, time: Option<Duration>) {
        self.0.store(micros(time), Ordering::Relaxed);
    }

    /// Whether there is one.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NEVER
    }

    /// Whether a request that has taken so long is logged.
    pub fn is_reached(&self, time: Duration) -> bool {
        let threshold = self.0.load(Ordering::Relaxed);
        threshold != NEVER && time.as_micros() >= u128::from(threshold)
    }
}

fn micros(time: Option<Duration>) -> u64 {
    time.map_or(NEVER, |time| u64::try_from(time.as_micros()).unwrap_or(NEVER))
}

/// A client's request to its server, as far as it is kept for the log.
#[derive(Debug)]
pub struct Request {
    /// The address of the client.
    pub peer: PeerAddress,
    /// The time that the client has waited for the server, up to its first request there.
    pub waited: Duration,
    /// The statements that it runs.
    pub statements: u32,
    /// The beginning of the first one; of one that is parsed, where none is run.
    text: Vec<u8>,
    /// Whether that is all of it.
    is_whole: bool,
    trace: Option<TraceParent>,
}

/// The text of W3C's `traceparent`.
type TraceParent = [u8; 55];

impl Request {
    /// None yet.
    pub fn none() -> Self {
        let peer = PeerAddress::Local;
        Self { peer, waited: Duration::ZERO, statements: 0, text: Vec::new(), is_whole: true, trace: None }
    }

    /// A client has got the server, for which it has waited so long.
    pub fn taken_by(&mut self, peer: PeerAddress, waited: Duration) {
        self.clear();
        (self.peer, self.waited) = (peer, waited);
    }

    /// It runs a statement of that text, which may not have come whole.
    pub fn runs(&mut self, text: &[u8], is_whole: bool) {
        self.parses(text, is_whole);
        self.statements += 1;
    }

    /// It has a statement of that text parsed, which may not have come whole.
    pub fn parses(&mut self, text: &[u8], is_whole: bool) {
        if self.statements == 0 {
            let kept = sql::beginning(text);
            self.text.clear();
            self.text.extend_from_slice(kept);
            self.is_whole = is_whole && kept.len() == text.len();
        }
        self.trace = trace_in(text).or(self.trace);
    }

    /// Whether anything of it is known.
    pub fn is_known(&self) -> bool {
        !self.text.is_empty()
    }

    /// It has been answered.
    pub fn clear(&mut self) {
        self.waited = Duration::ZERO;
        self.statements = 0;
        self.trace = None;
        self.text.clear();
    }

    /// Its first statement, with `?` for each constant: those may be anybody's data, or a password.
    pub fn text(&self) -> String {
        sql::without_constants(&self.text, self.is_whole)
    }

    /// The trace that it is a part of, as the client says.
    pub fn trace(&self) -> Option<&str> {
        str::from_utf8(self.trace.as_ref()?).ok()
    }
}

/// The `traceparent` in a text's comments, as sqlcommenter writes it: `/*…,traceparent='00-…-…-01'*/`. One that W3C's
/// Trace Context calls invalid is none, nor is one of a later version that is longer.
fn trace_in(text: &[u8]) -> Option<TraceParent> {
    const KEY: &[u8] = b"traceparent='";
    // Most texts have no quote, which is found out faster.
    memchr::memchr(b'\'', text)?;
    let begins = memchr::memmem::rfind(text, KEY)?;
    // The end of another key's name is not this one.
    if text[..begins].last().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_-%.$".contains(byte)) {
        return None;
    }
    let at = begins + KEY.len();
    let (trace, behind): (&TraceParent, _) = text.get(at..)?.split_first_chunk()?;
    let is_right = trace.iter().enumerate().all(|(place, byte)| match place {
        2 | 35 | 52 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    });
    let is_zero = |id: &[u8]| id.iter().all(|byte| *byte == b'0');
    let is_invalid = trace.starts_with(b"ff") || is_zero(&trace[3..35]) || is_zero(&trace[36..52]);
    (is_right && !is_invalid && behind.first() == Some(&b'\'')).then_some(*trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_request_is_its_first_statement_and_its_trace() {
        let mut request = Request::none();
        request.runs(b"select * from t where a = 'secret' and b > 17", true);
        request.runs(format!("update t set a = 1 /*action='x',traceparent='{TRACE}'*/").as_bytes(), true);
        assert_eq!(request.text(), "select * from t where a = ? and b > ?");
        assert_eq!((request.statements, request.trace()), (2, Some(TRACE)));
        request.clear();
        request.parses(format!("select '{}'", "x".repeat(3000)).as_bytes(), true);
        assert_eq!((request.text().as_str(), request.trace()), ("select …", None));
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for trace in [
            "00-4bf92f",
            "xx-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            &TRACE.to_ascii_uppercase(),
            &TRACE.replace('-', ":"),
            &format!("{TRACE}x"),
        ] {
            assert_eq!(trace_in(format!("select 1 /*traceparent='{trace}'*/").as_bytes()), None, "{trace}");
        }
    }

    #[test]
    fn the_end_of_another_name_is_no_traceparent() {
        for (text, expected) in [
            (format!("select 1 /*xtraceparent='{TRACE}'*/"), None),
            (format!("select 1 /*a='b', traceparent='{TRACE}'*/"), Some(TRACE)),
        ] {
            let trace = trace_in(text.as_bytes());
            assert_eq!(trace.as_ref().and_then(|trace| str::from_utf8(trace).ok()), expected, "{text}");
        }
    }

    #[test]
    fn a_threshold_may_change() {
        let threshold = Threshold::new(None);
        assert!(!threshold.is_set() && !threshold.is_reached(Duration::from_secs(9)));
        threshold.set(Some(Duration::from_millis(5)));
        assert!(threshold.is_reached(Duration::from_millis(5)) && !threshold.is_reached(Duration::from_millis(4)));
    }
}
