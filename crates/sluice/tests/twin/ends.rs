//! The end of a burst of random messages, which its reader has to find in whatever state the burst leaves the session.

use sluice_testkit::{Case, Script, matrix, raw::transcript};

use crate::{
    beside::s,
    disturb::Others,
    plan::{Event, Meanwhile, Step, What},
    run::{End, Side},
    twins::{PATIENCE, Place},
    wire,
};

matrix!(transaction: a_bursts_end_is_known_in_each_state);

fn a_bursts_end_is_known_in_each_state(case: Case) {
    let copy = || s().unnamed("COPY lines FROM STDIN", &[]);
    let closes = |times| (0..times).fold(s(), |script, _| script.close("never"));
    let states = [
        s(),
        s().query("BEGIN"),
        s().query("BEGIN").query("SELEC"),
        s().query("BEGIN").parse("", "SELEC"),
        s().parse("", "SELECT 1"),
        s().parse("", "SELEC"),
        s().unnamed("SELECT generate_series(1, 3)", &[]).flush(),
        s().query("COPY (SELECT 1) TO STDOUT"),
        s().query("COPY lines FROM STDIN").copy_fail("so"),
        s().query("COPY lines FROM STDIN").copy_data(b"too\tmany\n").sync().copy_done(),
        s().query("COPY lines FROM STDIN; COPY lines FROM STDIN").copy_done().sync().copy_fail("so"),
        copy().copy_fail("so"),
        copy().sync().copy_done(),
        copy().copy_data(b"too\tmany\n").copy_done(),
        s().parse("", "SELEC").then(&copy()).copy_done(),
        closes(wire::MARKS - 1),
        closes(wire::MARKS - 1).sync().then(&closes(wire::MARKS - 1)),
    ];
    let place = Place::shared(case.version, false);
    let twin = place.copy(&[0].into());
    let (connect, superuser) = (|| place.alone(), || place.superuser());
    for state in states {
        let mut side = Side::new(Others::new(&connect, &superuser, &twin.name), 1, PATIENCE);
        side.perform(&Event { client: 0, what: What::Open(Vec::new()) });
        let answer = side.perform(&said(wire::ended(state.clone(), "never")));
        let heard = transcript(&answer.messages);
        assert_eq!(answer.end, End::Whole, "{}: {heard}", state.0.escape_ascii());
        // Nothing of it is left.
        let next = transcript(&side.perform(&said(s().query("ROLLBACK"))).messages);
        let is_next = ["C(ROLLBACK) Z(I)", "N(there is no transaction in progress) C(ROLLBACK) Z(I)"];
        assert!(is_next.contains(&next.as_str()), "{}: {heard}, then {next}", state.0.escape_ascii());
    }
}

fn said(script: Script) -> Event {
    let (cuts, meanwhile) = (Vec::new(), Meanwhile::Nothing);
    let step = Step { bytes: script.0, cuts, category: "", pins: false, spends: false, unpins: false, meanwhile };
    Event { client: 0, what: What::Say(step) }
}
