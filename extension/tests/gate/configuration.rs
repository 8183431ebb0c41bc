//! The mark of the configuration, as sessions are told of it.

use sluice_testkit::{Version, becomes, raw::Script, versions};
use sluice_wire::message::{backend, read_parameter_status};

use crate::{server::Gate, session::Session};

versions!(reloads_that_change_sessions_are_told,);

/// The mark that a transaction reports, if it does.
fn reported(session: &mut Session) -> Option<String> {
    let messages = session.talk(&Script::new().query("SELECT 1"));
    let reports = messages.iter().filter(|message| message.tag == backend::PARAMETER_STATUS);
    let mut read = reports.map(|message| read_parameter_status(&message.body).unwrap());
    read.find(|(name, _)| *name == "sluice.configuration").map(|(_, mark)| mark.to_owned())
}

fn reloads_that_change_sessions_are_told(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut sessions = [(); 2].map(|()| Session::new(&gate));
    // The background worker reads the configuration for the first time when it comes to it.
    sessions.iter_mut().for_each(|session| _ = reported(session));
    assert_eq!(sessions.each_mut().map(reported), [None, None]);
    let before = Session::new(&gate).raw.parameter("sluice.configuration").to_owned();
    // What no session may set is no matter of theirs.
    gate.server.execute("ALTER SYSTEM SET autovacuum_naptime = '71s'");
    gate.server.execute("SELECT pg_reload_conf()");
    becomes("the setting", "71s".to_owned(), || gate.server.value("SHOW autovacuum_naptime"));
    assert_eq!(Session::new(&gate).raw.parameter("sluice.configuration"), before);
    gate.server.execute("ALTER SYSTEM SET transform_null_equals = on");
    gate.server.execute("SELECT pg_reload_conf()");
    let mut marks = [None, None];
    becomes("both tell it", true, || {
        for (mark, session) in marks.iter_mut().zip(&mut sessions) {
            *mark = reported(session).or(mark.take());
        }
        marks.iter().all(Option::is_some)
    });
    let later = Session::new(&gate).raw.parameter("sluice.configuration").to_owned();
    assert_eq!(marks, [Some(later.clone()), Some(later.clone())]);
    let start = |mark: &str| mark.split_once('.').unwrap().0.to_owned();
    assert!(later != before && start(&later) == start(&before), "{before}, {later}");
}
