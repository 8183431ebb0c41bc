//! Waits of a client whose message is there and has not been handled. Nothing takes such a message up by itself: what
//! ends the wait has to, or the client waits for ever.

use sluice_wire::Frame;

use crate::{
    client::{Client, Link, Phase},
    pauses::Reason,
};

use super::Engine;

impl Engine {
    /// Checks, when an event is done with, that whoever waits waits for something.
    pub(super) fn assert_waits(&self) {
        let is_forgotten = |client: &Client| has_message(client) && !self.waits(client);
        debug_assert!(
            !self.clients.iter().any(|(_, client)| is_forgotten(client)),
            "nothing will take up what a client has sent"
        );
    }

    /// Whether something is to come that takes up what a client has sent.
    fn waits(&self, client: &Client) -> bool {
        let Phase::Open(session) = &client.phase else { return true };
        if client.pauses.has(Reason::Unread) {
            return true;
        }
        match session.link {
            Link::None => false,
            Link::Waiting(_) | Link::Coming => true,
            Link::Server(server) => self.servers.get(server).is_some_and(|server| {
                let is_asked = !server.exchange.is_settled() || server.cancels.are_under_way();
                is_asked || server.stream.is_inside() || server.said_why
            }),
        }
    }
}

/// Whether a message of a client's is there, or more of one that is passing.
fn has_message(client: &Client) -> bool {
    match client.stream.next(&client.pending) {
        _ if client.pending.is_empty() => false,
        Ok(Frame::Short) => false,
        Ok(Frame::Message { total, here, .. }) => here == total,
        Ok(Frame::Rest(_)) | Err(_) => true,
    }
}
