//! The framer over streams cut at any byte: the same messages come out whatever the cuts, and whether a message is
//! collected whole or let through as it comes.

use proptest::{collection::vec, prelude::*};
use sluice_wire::{
    Frame, FrameError, Framer,
    frame::{HEADER_BYTES, MESSAGE_BYTES_MAX},
    message::framed,
};

/// A message as a consumer put it together: type byte, and all of its bytes.
type Message = (u8, Vec<u8>);

/// Reads a stream as a pool does: what must be seen whole is kept until it is, all else is let through in parts.
#[derive(Default)]
struct Consumer {
    framer: Framer,
    pending: Vec<u8>,
    messages: Vec<Message>,
}

impl Consumer {
    fn take(&mut self, piece: &[u8], must_be_whole: impl Fn(u8) -> bool) -> Result<(), FrameError> {
        let mut input = std::mem::take(&mut self.pending);
        input.extend_from_slice(piece);
        let mut pos = 0;
        while pos < input.len() {
            match self.framer.next(&input[pos..])? {
                Frame::Short => break,
                Frame::Rest(bytes) => {
                    assert!(bytes > 0 && pos + bytes <= input.len(), "a rest is never empty and never past the input");
                    let (_, message) = self.messages.last_mut().expect("a rest follows a beginning");
                    message.extend_from_slice(&input[pos..pos + bytes]);
                    self.framer.pass_rest(bytes);
                    pos += bytes;
                }
                Frame::Message { tag, total, here } => {
                    assert!(here >= HEADER_BYTES && here <= total && pos + here <= input.len());
                    if here < total && must_be_whole(tag) {
                        break;
                    }
                    self.messages.push((tag, input[pos..pos + here].to_vec()));
                    self.framer.pass(total, here);
                    assert_eq!(self.framer.is_inside(), here < total);
                    pos += here;
                }
            }
        }
        self.pending = input.split_off(pos);
        Ok(())
    }
}

fn stream_of(bodies: &[(u8, Vec<u8>)]) -> (Vec<u8>, Vec<Message>) {
    let mut stream = Vec::new();
    let mut messages = Vec::new();
    for (tag, body) in bodies {
        let start = stream.len();
        framed(&mut stream, *tag, |out| out.extend_from_slice(body));
        messages.push((*tag, stream[start..].to_vec()));
    }
    (stream, messages)
}

/// The pieces between cuts, given as fractions of the stream.
fn pieces<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for to in places.into_iter().chain([stream.len()]) {
        pieces.push(&stream[from..to]);
        from = to;
    }
    pieces
}

fn bodies() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    vec((any::<u8>(), prop_oneof![vec(any::<u8>(), 0..4), vec(any::<u8>(), 0..300)]), 0..12)
}

proptest! {
    #[test]
    fn the_same_messages_come_out_whatever_the_cuts(
        bodies in bodies(),
        cuts in vec(any::<prop::sample::Index>(), 0..20),
        whole in any::<[bool; 256]>(),
    ) {
        let (stream, sent) = stream_of(&bodies);
        let mut consumer = Consumer::default();
        for piece in pieces(&stream, &cuts) {
            consumer.take(piece, |tag| whole[usize::from(tag)]).expect("all lengths are possible");
        }
        prop_assert!(consumer.pending.is_empty() && !consumer.framer.is_inside());
        prop_assert_eq!(consumer.messages.iter().map(|(_, m)| m.len()).sum::<usize>(), stream.len());
        prop_assert_eq!(consumer.messages, sent);
    }

    #[test]
    fn a_byte_at_a_time_is_a_cut_like_any_other(bodies in bodies(), collect in any::<bool>()) {
        let (stream, sent) = stream_of(&bodies);
        let mut consumer = Consumer::default();
        for byte in stream.chunks(1) {
            consumer.take(byte, |_| collect).expect("all lengths are possible");
        }
        prop_assert_eq!(consumer.messages, sent);
    }

    #[test]
    fn arbitrary_bytes_give_the_same_whatever_the_cuts(
        stream in vec(any::<u8>(), 0..200),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let read = |pieces: Vec<&[u8]>| {
            let mut consumer = Consumer::default();
            let end = pieces.into_iter().try_for_each(|piece| consumer.take(piece, |_| false));
            (consumer.messages, end)
        };
        prop_assert_eq!(read(pieces(&stream, &cuts)), read(vec![stream.as_slice()]));
    }

    #[test]
    fn only_the_header_counts(header in any::<[u8; HEADER_BYTES]>(), body in vec(any::<u8>(), 0..64)) {
        let whole = [&header[..], &body].concat();
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        let possible = (4..=MESSAGE_BYTES_MAX).contains(&length);
        match Framer::default().next(&whole) {
            Ok(Frame::Message { tag, total, here }) => {
                prop_assert!(possible);
                prop_assert_eq!((tag, total), (header[0], length as usize + 1));
                prop_assert_eq!(here, total.min(whole.len()));
            }
            Err(error) => prop_assert_eq!((possible, error), (false, FrameError { tag: header[0], length })),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn lengths_at_the_edges() {
    let cases: [(u32, bool); 8] = [
        (0, false),
        (3, false),
        (4, true),
        (5, true),
        (MESSAGE_BYTES_MAX, true),
        (MESSAGE_BYTES_MAX + 1, false),
        (0x7fff_ffff, false),
        (u32::MAX, false),
    ];
    for (length, possible) in cases {
        let mut header = vec![b'D'];
        header.extend_from_slice(&length.to_be_bytes());
        assert_eq!(Framer::default().next(&header).is_ok(), possible, "{length}");
        for cut in 0..HEADER_BYTES {
            assert_eq!(Framer::default().next(&header[..cut]), Ok(Frame::Short), "{length} cut at {cut}");
        }
    }
}

#[test]
fn the_largest_message_is_counted_to_its_end() {
    let mut framer = Framer::default();
    let total = MESSAGE_BYTES_MAX as usize + 1;
    let header = [b'd', 0x3f, 0xff, 0xff, 0xff];
    assert_eq!(framer.next(&header), Ok(Frame::Message { tag: b'd', total, here: HEADER_BYTES }));
    framer.pass(total, HEADER_BYTES);
    let piece = [0; 1 << 16];
    let mut left = total - HEADER_BYTES;
    while left > 0 {
        let expected = left.min(piece.len());
        assert_eq!(framer.next(&piece), Ok(Frame::Rest(expected)));
        framer.pass_rest(expected);
        left -= expected;
    }
    assert!(!framer.is_inside());
    assert_eq!(framer.next(b"Z\0\0\0\x05I"), Ok(Frame::Message { tag: b'Z', total: 6, here: 6 }));
}
