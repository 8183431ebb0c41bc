//! A look-up's connection whose server asks for no more than it may, until its log-in is over.
//!
//! The driver answers whatever a server asks for. So what comes is read here first: a request that is not to be answered
//! ends the connection, and the driver does not see it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use sluice_control::server_auth::{Channel, ServerAuth};
use sluice_wire::message::AuthenticationRequest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The tag of a server's requests in its log-in.
const AUTHENTICATION: u8 = b'R';
/// A message's tag and length.
const HEADER: usize = 5;
/// The longest request that is read as a whole.
const REQUEST_MAX: usize = 64 << 10;

/// A connection, and how far its log-in is.
pub(crate) struct Watched<S> {
    stream: S,
    auth: ServerAuth,
    stage: Stage,
}

/// The stage of a log-in.
enum Stage {
    /// TLS has been asked for: one byte answers.
    Asked,
    /// Messages in clear, of which these bytes of the next one have come.
    Messages(Channel, Vec<u8>),
    /// The first request has been let through, or what comes is encrypted.
    Over,
}

impl<S> Watched<S> {
    /// One by which messages come in clear.
    pub(crate) fn new(stream: S, auth: ServerAuth, channel: Channel) -> Self {
        Self { stream, auth, stage: Stage::Messages(channel, Vec::new()) }
    }

    /// One by which TLS is asked for first.
    pub(crate) fn asking_for_tls(stream: S, auth: ServerAuth) -> Self {
        Self { stream, auth, stage: Stage::Asked }
    }

    fn see(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        if matches!(self.stage, Stage::Asked) {
            let Some((answer, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            self.stage = match answer {
                b'S' => Stage::Over,
                _ => Stage::Messages(Channel::Clear, Vec::new()),
            };
        }
        let Stage::Messages(channel, held) = &mut self.stage else { return Ok(()) };
        held.extend_from_slice(bytes);
        loop {
            let Some((header, rest)) = held.split_first_chunk::<HEADER>() else { return Ok(()) };
            let [tag, length @ ..] = header;
            let length = (u32::from_be_bytes(*length) as usize).saturating_sub(4);
            if length > REQUEST_MAX {
                return Err("the server sent a message that is too long for a log-in".to_owned());
            }
            let Some(body) = rest.get(..length) else { return Ok(()) };
            if *tag == AUTHENTICATION {
                let request = AuthenticationRequest::read(body).map_err(|_| "this is not PostgreSQL".to_owned())?;
                self.auth.check(&request, *channel)?;
                self.stage = Stage::Over;
                return Ok(());
            }
            held.drain(..HEADER + length);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if let Err(error) = self.see(&buf.filled()[before..]) {
            buf.set_filled(before);
            let hint = "; let pg_hba.conf ask for scram-sha-256, or set server_auth = \"any\" for that database";
            return Poll::Ready(Err(io::Error::other(error + hint)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(requests: &[AuthenticationRequest<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        requests.iter().for_each(|request| request.write(&mut out));
        out
    }

    #[test]
    fn what_is_asked_for_in_clear_is_seen_however_it_is_cut() {
        let (clear, sasl) =
            (AuthenticationRequest::CleartextPassword, AuthenticationRequest::Sasl(b"SCRAM-SHA-256\0\0"));
        let notice = [&b"N"[..], &[0, 0, 0, 5, 0]].concat();
        for (bytes, is_refused) in [
            (requests(&[clear]), true),
            ([notice, requests(&[clear])].concat(), true),
            (requests(&[AuthenticationRequest::Md5Password([1; 4])]), false),
            (requests(&[sasl, AuthenticationRequest::Ok]), false),
            (requests(&[AuthenticationRequest::Ok]), false),
        ] {
            for piece in [1, 3, 100] {
                for asks in [false, true] {
                    let auth = ServerAuth::default();
                    let mut watched = match asks {
                        true => Watched::asking_for_tls((), auth),
                        false => Watched::new((), auth, Channel::Clear),
                    };
                    let bytes = if asks { [b"N", &bytes[..]].concat() } else { bytes.clone() };
                    let seen = bytes.chunks(piece).try_for_each(|piece| watched.see(piece));
                    assert_eq!(seen.is_err(), is_refused, "{bytes:?} by {piece}");
                }
            }
        }
        // What is encrypted is not read.
        let mut watched = Watched::asking_for_tls((), ServerAuth::default());
        assert!(watched.see(&[b"S", &requests(&[AuthenticationRequest::CleartextPassword])[..]].concat()).is_ok());
    }
}
