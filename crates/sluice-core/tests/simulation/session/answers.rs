//! Answers, as PostgreSQL writes them, and how one is compared with another.

use std::collections::VecDeque;

use sluice_wire::{
    ErrorFields,
    message::{backend, framed, put_cstr},
};

pub(super) fn put_copy_out(out: &mut Vec<u8>, rows: VecDeque<Vec<u8>>) {
    framed(out, backend::COPY_OUT_RESPONSE, |out| out.extend_from_slice(&[0, 0, 1, 0, 0]));
    for row in rows {
        framed(out, backend::COPY_DATA, |out| out.extend_from_slice(&row));
    }
    framed(out, backend::COPY_DONE, |_| {});
}

pub(super) fn put_description(out: &mut Vec<u8>) {
    framed(out, backend::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&1u16.to_be_bytes());
        put_cstr(out, b"text");
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0]);
    });
}

pub(super) fn put_row(out: &mut Vec<u8>, row: &[u8]) {
    framed(out, backend::DATA_ROW, |out| {
        out.extend_from_slice(&1u16.to_be_bytes());
        out.extend_from_slice(&(row.len() as u32).to_be_bytes());
        out.extend_from_slice(row);
    });
}

/// Appends an ErrorResponse or NoticeResponse as PostgreSQL writes it.
pub(crate) fn put_error(out: &mut Vec<u8>, kind: u8, severity: &str, code: &str, text: &str) {
    framed(out, kind, |out| {
        let routine = if code == "0A000" { "RevalidateCachedQuery" } else { "simulated" };
        for (field, value) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', text), (b'R', routine)] {
            out.push(field);
            put_cstr(out, value.as_bytes());
        }
        out.push(0);
    });
}

/// Whether an answer is the expected one. Of errors, PostgreSQL's own fields count that a client acts on.
pub(crate) fn same(expected: &[u8], got: &[u8]) -> bool {
    if expected[0] != got[0] || !matches!(got[0], b'E' | b'N') {
        return expected == got;
    }
    let fields = |frame: &[u8]| [b'V', b'C', b'M'].map(|f| ErrorFields(&frame[5..]).get(f).map(<[u8]>::to_vec));
    fields(expected) == fields(got)
}

/// The messages of an answer.
pub(crate) fn frames(mut bytes: &[u8]) -> VecDeque<Vec<u8>> {
    let mut frames = VecDeque::new();
    while let Some(header) = bytes.first_chunk::<5>() {
        let total = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize + 1;
        frames.push_back(bytes[..total].to_vec());
        bytes = &bytes[total..];
    }
    frames
}
