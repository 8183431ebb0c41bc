//! The count of the configuration's reloads, as sessions are told of it.

use sluice_testkit::{Version, becomes, versions};
use sluice_wire::message::{backend, read_parameter_status};

use crate::{server::Gate, session::Session};

versions!(reloads_are_counted,);

/// What a transaction reports of it.
fn reported(session: &mut Session) -> Option<u32> {
    use sluice_testkit::raw::Script;

    let messages = session.talk(&Script::new().query("SELECT 1"));
    let reports = messages.iter().filter(|message| message.tag == backend::PARAMETER_STATUS);
    let read = reports.map(|message| read_parameter_status(&message.body).unwrap());
    read.filter(|(name, _)| *name == "sluice.configuration").map(|(_, count)| count.parse().unwrap()).next_back()
}

fn reloads_are_counted(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut sessions = [(); 2].map(|()| Session::new(&gate));
    let before: u32 = sessions[0].raw.parameter("sluice.configuration").parse().unwrap();
    // The server's start counts as well, which the background worker does when it comes to it.
    sessions.iter_mut().for_each(|session| _ = reported(session));
    assert_eq!(sessions.each_mut().map(reported), [None; 2]);
    gate.server.execute("SELECT pg_reload_conf()");
    let mut counts = [before; 2];
    becomes("both report it", true, || {
        for (count, session) in counts.iter_mut().zip(&mut sessions) {
            *count = reported(session).unwrap_or(*count);
        }
        counts[0] > before && counts[1] > before
    });
    let later = Session::new(&gate);
    assert_eq!(later.raw.parameter("sluice.configuration"), counts[0].to_string());
    assert_eq!(counts[0], counts[1]);
}
