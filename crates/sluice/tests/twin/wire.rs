//! Client messages as bytes: those that the testkit's scripts have no word for, and how messages are read back to be
//! counted, shown and cut.

use sluice_testkit::Script;
use sluice_wire::message::{framed, frontend, put_cstr};

/// Text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text = 0,
    Binary = 1,
}

/// A parameter's value: NULL is `None`.
pub(crate) type Value = Option<Vec<u8>>;

/// A Query whose text need not be UTF-8.
pub(crate) fn query(sql: &[u8]) -> Script {
    message(frontend::QUERY, |out| put_cstr(out, sql))
}

/// A Parse whose text need not be UTF-8.
pub(crate) fn parse(name: &str, sql: &[u8], types: &[u32]) -> Script {
    message(frontend::PARSE, |out| {
        put_cstr(out, name.as_bytes());
        put_cstr(out, sql);
        out.extend_from_slice(&(types.len() as u16).to_be_bytes());
        types.iter().for_each(|oid| out.extend_from_slice(&oid.to_be_bytes()));
    })
}

/// A Bind with one format for all parameters and one for all results.
pub(crate) fn bind(portal: &str, statement: &str, values: &[Value], parameters: Format, results: Format) -> Script {
    bind_as(portal, statement, values, &[parameters as u16], &[results as u16])
}

/// A Bind with any number of formats.
pub(crate) fn bind_as(portal: &str, statement: &str, values: &[Value], parameters: &[u16], results: &[u16]) -> Script {
    let put_formats = |out: &mut Vec<u8>, formats: &[u16]| {
        out.extend_from_slice(&(formats.len() as u16).to_be_bytes());
        formats.iter().for_each(|format| out.extend_from_slice(&format.to_be_bytes()));
    };
    message(frontend::BIND, |out| {
        put_cstr(out, portal.as_bytes());
        put_cstr(out, statement.as_bytes());
        put_formats(out, parameters);
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            let length = value.as_ref().map_or(-1, |value| value.len() as i32);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        put_formats(out, results);
    })
}

/// The number of Closes in a row that mark the end of a burst.
pub(crate) const MARKS: usize = 14;

/// A burst of messages with an end that its reader knows: a Sync, Closes of a statement and a portal of that name, more
/// of them than a burst has in a row, and another Sync. The first Sync ends whatever is skipped, and no Close ever fails,
/// not even in a transaction that has. A burst that may have begun a COPY has ended it before.
pub(crate) fn ended(burst: Script, name: &str) -> Script {
    let close = |script: Script, at| if at % 2 == 0 { script.close(name) } else { script.close_portal(name) };
    (0..MARKS).fold(burst.sync(), close).sync()
}

/// The number of messages before that end, if there is one.
pub(crate) fn before_end(messages: &[(u8, &[u8])]) -> Option<usize> {
    let (sync, closes) = messages.split_last()?;
    let at = closes.len().checked_sub(MARKS + 1)?;
    let is_end = sync.0 == frontend::SYNC && closes[at].0 == frontend::SYNC;
    (is_end && closes[at + 1..].iter().all(|(tag, _)| *tag == frontend::CLOSE)).then_some(at)
}

/// A message with any body.
pub(crate) fn message(tag: u8, body: impl FnOnce(&mut Vec<u8>)) -> Script {
    let mut out = Vec::new();
    framed(&mut out, tag, body);
    Script(out)
}

/// The messages in a script, each whole: its type byte, and its body.
pub(crate) fn messages(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize - 4;
        found.push((header[0], &rest[..length]));
        bytes = &rest[length..];
    }
    found
}

/// A client message for the reader of a failed test.
pub(crate) fn show(tag: u8, body: &[u8]) -> String {
    let part = |at: usize| readable(body.split(|b| *b == 0).nth(at).unwrap_or_default());
    match tag {
        frontend::QUERY if body.last() == Some(&0) => format!("Query {}", part(0)),
        frontend::PARSE => {
            let types = body.len().saturating_sub(part_end(body, 2) + 2) / 4;
            format!("Parse {:?} {} ({types} types)", part(0), part(1))
        }
        frontend::BIND => format!("Bind {:?} to {:?} {}", part(0), part(1), values(body).unwrap_or_default()),
        frontend::DESCRIBE => format!("Describe {}", readable(body)),
        frontend::CLOSE => format!("Close {}", readable(body)),
        frontend::EXECUTE => {
            let rows = body.last_chunk::<4>().map_or(0, |rows| u32::from_be_bytes(*rows));
            format!("Execute {:?} {rows}", part(0))
        }
        // What is malformed is shown as such.
        frontend::SYNC if body.is_empty() => "Sync".to_owned(),
        frontend::FLUSH if body.is_empty() => "Flush".to_owned(),
        frontend::COPY_DATA => format!("CopyData {}", readable(body)),
        frontend::COPY_DONE if body.is_empty() => "CopyDone".to_owned(),
        frontend::COPY_FAIL => format!("CopyFail {}", readable(body)),
        frontend::FUNCTION_CALL => format!("FunctionCall {}", readable(body)),
        other => format!("{:?} {}", char::from(other), readable(body)),
    }
}

/// The part of a Bind behind the names, as text, if it is complete.
fn values(body: &[u8]) -> Option<String> {
    let mut rest = &body[part_end(body, 2)..];
    let mut number = |size: usize| {
        let (head, tail) = rest.split_at_checked(size)?;
        rest = tail;
        Some(head.to_vec())
    };
    let mut short = || Some(u16::from_be_bytes(number(2)?.try_into().ok()?));
    let parameters = (0..short()?).map(|_| short()).collect::<Option<Vec<_>>>()?;
    let count = short()?;
    let mut values = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(number(4)?.try_into().ok()?);
        let value = usize::try_from(length).ok().map(&mut number);
        values.push(value.map_or(Some("NULL".to_owned()), |value| Some(readable(&value?)))?);
    }
    let mut short = || Some(u16::from_be_bytes(number(2)?.try_into().ok()?));
    let results = (0..short()?).map(|_| short()).collect::<Option<Vec<_>>>()?;
    Some(format!("({}), formats {parameters:?} {results:?}", values.join(", ")))
}

/// The end of the text with that number, its zero byte included.
fn part_end(body: &[u8], count: usize) -> usize {
    body.iter().enumerate().filter(|(_, b)| **b == 0).nth(count - 1).map_or(body.len(), |(at, _)| at + 1)
}

/// Bytes as text, with what can't be shown as `\xNN`.
pub(crate) fn readable(bytes: &[u8]) -> String {
    bytes
        .utf8_chunks()
        .flat_map(|chunk| {
            let valid =
                chunk.valid().chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() });
            let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
            valid.chain(invalid).collect::<Vec<_>>()
        })
        .collect()
}
