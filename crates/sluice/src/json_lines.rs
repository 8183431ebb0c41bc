//! Lines of the log in JSON, byte by byte those of `tracing_subscriber`, put together in one buffer: there, each piece of
//! a line goes through several writers, and a pool that logs each of its clients writes two lines for each.

use std::fmt::{self, Write as _};

use serde::Serialize;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

/// The room that a line takes, in bytes: nearly all fit in.
const LINE_BYTES: usize = 512;

/// Events as lines of JSON, without spans.
pub(crate) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Line { json: Vec::with_capacity(LINE_BYTES), shown: String::new() };
        SystemTime.format_time(&mut Writer::new(&mut line.shown))?;
        line.put_shown("timestamp");
        line.put("level", event.metadata().level().as_str());
        event.record(&mut line);
        line.put("target", event.metadata().target());
        line.json.extend_from_slice(b"}\n");
        writer.write_str(std::str::from_utf8(&line.json).map_err(|_| fmt::Error)?)
    }
}

/// A line that is being written.
struct Line {
    json: Vec<u8>,
    /// The value of a field that has none in JSON, as it is shown; empty between uses.
    shown: String,
}

impl Line {
    fn put(&mut self, name: &str, value: impl Serialize) {
        self.json.push(if self.json.is_empty() { b'{' } else { b',' });
        let begin = self.json.len();
        let put = serde_json::to_writer(&mut self.json, name).and_then(|()| {
            self.json.push(b':');
            serde_json::to_writer(&mut self.json, &value)
        });
        if put.is_err() {
            // Nothing that is logged has a value that can't be written: memory takes it, and it is no map.
            self.json.truncate(begin - 1);
        }
    }

    fn put_shown(&mut self, name: &str) {
        let shown = std::mem::take(&mut self.shown);
        self.put(name, shown.as_str());
        self.shown = shown;
        self.shown.clear();
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A value that can't show itself is shown as far as it goes.
        let _ = write!(self.shown, "{value:?}");
        self.put_shown(field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Kept {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// What has been logged, without the times.
    fn lines(kept: &Kept) -> Vec<String> {
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                line.replacen(value["timestamp"].as_str().unwrap(), "", 1)
            })
            .collect()
    }

    fn log_all() {
        let (name, nobody, peer) = ("a \"name\"\\\n\u{1}é", None::<&str>, "[::1]:7");
        tracing::info!(name, %peer, nobody, age_s = 4.25, whole = 3.0, "client {}", "gone");
        tracing::warn!(count = 7_u32, below = -7, is = true, none = f64::NAN, list = ?[Some("a\tb")], "so\u{7f}");
        tracing::error!(target: "elsewhere", error = %io::Error::other("broken"), code = ?'c');
        tracing::debug!("nobody sees this");
    }

    #[test]
    fn lines_are_those_of_tracing_subscriber() {
        let (own, theirs) = (Kept::default(), Kept::default());
        let subscriber = tracing_subscriber::fmt().with_writer(own.clone()).event_format(JsonLines).finish();
        tracing::subscriber::with_default(subscriber, log_all);
        let json = tracing_subscriber::fmt().with_writer(theirs.clone()).json().flatten_event(true);
        let subscriber = json.with_current_span(false).with_span_list(false).finish();
        tracing::subscriber::with_default(subscriber, log_all);
        let own = lines(&own);
        assert_eq!(own, lines(&theirs));
        assert_eq!(own.len(), 3);
    }
}
