use std::fmt::Write;

use super::*;

/// A server's own values.
const OWN: &[(&str, &str)] =
    &[("TimeZone", "UTC"), ("cpu_tuple_cost", "0.01"), ("jit", "on"), ("statement_timeout", "0"), ("work_mem", "4MB")];

fn profile(pairs: &[(&str, &str)]) -> Profile {
    Profile::new(pairs.iter().map(|(name, value)| (name.to_string(), value.as_bytes().into())).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A session that answers probes: settings with their values, and whether the session has set them.
struct Session {
    probe: Probe,
    conf: &'static str,
    libraries: &'static [u8],
    languages: &'static str,
    set: Vec<(&'static str, &'static str)>,
    /// The settings in place as far as the pool knows.
    profile: Profile,
    start: Profile,
    catalog: u64,
    now: Time,
}

impl Session {
    fn new() -> Self {
        Self {
            probe: Probe::default(),
            conf: "a",
            libraries: b"$libdir/hstore",
            languages: "own",
            set: Vec::new(),
            profile: Profile::default(),
            start: Profile::default(),
            catalog: 1,
            now: Time(0),
        }
    }

    /// One that has been probed in full.
    fn seen() -> Self {
        let mut session = Self::new();
        assert_eq!(session.depths(), "full");
        session
    }

    fn circumstances<'a>(&self, profile: &'a Profile, made: &'a Customs) -> Circumstances<'a> {
        Circumstances { catalog: self.catalog, user: "app", profile, made }
    }

    fn value(&self, name: &str) -> Option<&str> {
        let all = self.set.iter().rev().chain(OWN);
        all.clone().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// The answer's word on custom settings: those that there are, and those that are not empty.
    fn customs(&self) -> String {
        let customs = || self.set.iter().filter(|(name, _)| name.contains('.'));
        let made: Vec<_> = customs().map(|(name, _)| hex(name.as_bytes())).collect();
        let set = customs().filter(|(_, value)| !value.is_empty());
        let set: Vec<_> =
            set.map(|(name, value)| format!("{}:{}", hex(name.as_bytes()), hex(value.as_bytes()))).collect();
        format!(" made={} set={}", made.join(","), set.join(","))
    }

    /// Answers one query as PostgreSQL would.
    fn answer(&mut self, sql: &str) {
        let before = self.set.clone();
        if sql.contains("SHOW jit;SET LOCAL jit = off;") {
            let jit = self.value("jit").unwrap_or_default().to_owned();
            self.probe.hear(&jit);
            self.set.push(("jit", "off"));
        }
        if sql.contains("'was='") {
            let row = format!("was={}", self.value("statement_timeout").unwrap_or_default());
            self.probe.hear(&row);
        }
        let mut row = format!("pins= statements=0 schema=0 conf={}", self.conf);
        if let Some((_, names)) = sql.split_once("array_cat('{") {
            let names = names.split('}').next().unwrap_or_default();
            let values: Vec<_> = names.split(',').map(|name| self.value(name).unwrap_or("\x02")).collect();
            let _ = write!(row, "{} values={}", self.customs(), hex(values.join("\x01").as_bytes()));
        } else {
            let is_set = |name: &str| self.set.iter().any(|(known, _)| *known == name);
            // What RESET goes back to is told of settings without a unit.
            let values = OWN.iter().map(|(name, value)| match is_set(name) && *name != "jit" {
                true => (*name).to_owned(),
                false => format!("{name}\x02{value}"),
            });
            let values: Vec<_> = values.collect();
            let set: Vec<_> = self
                .set
                .iter()
                .map(|(name, value)| format!("{}:{}", hex(name.as_bytes()), hex(value.as_bytes())))
                .collect();
            let _ = write!(row, " set={} defaults={}", set.join(","), hex(values.join("\x01").as_bytes()));
        }
        self.set = before;
        self.probe.hear(&row);
        if sql.contains("probin") {
            self.probe.hear(&format!("libraries={}", hex(self.libraries)));
            self.probe.hear(&format!("languages={}", self.languages));
        }
    }

    /// Probes until it is known what the session holds; gives how deep each probe was.
    fn depths(&mut self) -> String {
        let (before, made) = (self.profile.clone(), Customs::default());
        let mut depths = Vec::new();
        for _ in 0..4 {
            let sql = self.probe.ask(self.now, self.circumstances(&before, &made));
            depths.push(if sql.contains("'values='") { "brief" } else { "full" });
            self.answer(&sql);
            let start = self.start.clone();
            match self.probe.conclude(self.circumstances(&before, &made), &start) {
                Seen::Holding(holding) => {
                    self.profile = holding.profile;
                    return depths.join(" ");
                }
                Seen::Again => {}
                Seen::Nothing => panic!("the answer makes no sense"),
            }
        }
        panic!("it probes for ever");
    }
}

#[test]
fn a_session_is_probed_in_full_once() {
    let mut session = Session::seen();
    session.set = vec![("work_mem", "5MB")];
    assert_eq!(session.depths(), "brief");
    assert_eq!(session.profile, profile(&[("work_mem", "5MB")]));
    // It is there still, and then another one, and none.
    assert_eq!(session.depths(), "brief");
    session.set = vec![("TimeZone", "X")];
    assert_eq!(session.depths(), "brief");
    assert_eq!(session.profile, profile(&[("timezone", "X")]));
    session.set.clear();
    assert_eq!(session.depths(), "brief");
    assert_eq!(session.profile, Profile::default());
}

#[test]
fn what_values_do_not_tell_is_read_in_full() {
    // The server's own value, which may be a SET or a RESET: a text says SET.
    let mut session = Session::seen();
    session.probe.note_text(b"SET work_mem = '4MB'");
    session.set = vec![("work_mem", "4MB")];
    assert_eq!(session.depths(), "brief full");
    assert_eq!(session.profile, profile(&[("work_mem", "4MB")]));
    assert_eq!(session.depths(), "brief", "it is known to be set now");
    // A client that began with another one would go back to that by RESET.
    let mut session = Session::seen();
    session.start = profile(&[("work_mem", "5MB")]);
    (session.profile, session.set) = (session.start.clone(), vec![("work_mem", "5MB")]);
    assert_eq!(session.depths(), "brief");
    session.set.clear();
    assert_eq!(session.depths(), "brief full");
    // Also where it had set the server's own.
    session.set = vec![("work_mem", "4MB")];
    assert_eq!(session.depths(), "brief full");
    assert_eq!(session.profile, profile(&[("work_mem", "4MB")]));
    session.set.clear();
    assert_eq!(session.depths(), "brief full");
    assert_eq!(session.profile, Profile::default());
    // The configuration has been read anew, and then it is known.
    session.conf = "b";
    assert_eq!((session.depths().as_str(), session.depths().as_str()), ("brief full", "brief full"));
    session.start = Profile::default();
    assert_eq!(session.depths(), "brief");
    // A value with a separator in it.
    session.set = vec![("TimeZone", "a\x01b")];
    session.profile = Profile::default();
    let sql = session.probe.ask(session.now, session.circumstances(&Profile::default(), &Customs::default()));
    assert!(sql.contains("'values='"));
    session.answer(&sql);
    let (before, made) = (Profile::default(), Customs::default());
    assert_eq!(session.probe.conclude(session.circumstances(&before, &made), &before), Seen::Again);
}

#[test]
fn a_value_that_was_never_seen_by_itself_is_read_in_full() {
    let mut session = Session::new();
    (session.profile, session.set) = (profile(&[("work_mem", "5MB")]), vec![("work_mem", "5MB")]);
    assert_eq!(session.depths(), "full");
    assert_eq!(session.depths(), "brief", "it is what is known to be set");
    (session.profile, session.set) = (Profile::default(), Vec::new());
    assert_eq!((session.depths().as_str(), session.depths().as_str()), ("brief full", "brief"));
}

#[test]
fn libraries_may_bring_settings() {
    let mut session = Session::seen();
    session.catalog = 2;
    assert_eq!((session.depths().as_str(), session.depths().as_str()), ("full", "brief"), "functions may be new");
    session.now = Time(0) + LIBRARIES_AGE_MAX;
    assert_eq!((session.depths().as_str(), session.depths().as_str()), ("full", "brief"));
    session.set = vec![("pg_trgm.similarity_threshold", "0.3")];
    assert_eq!(session.depths(), "brief full", "one that is known has been loaded");
    let mut session = Session::new();
    session.libraries = b"$libdir/hstore\x01/usr/lib/frobnicate.so";
    assert_eq!((session.depths().as_str(), session.depths().as_str()), ("full", "full"));
}

#[test]
fn languages_are_asked_for_with_the_libraries() {
    let mut session = Session::seen();
    assert!(!session.probe.has_languages());
    session.languages = "others";
    session.depths();
    assert!(!session.probe.has_languages(), "the catalogs are the same");
    session.catalog = 2;
    session.depths();
    assert!(session.probe.has_languages());
}

#[test]
fn a_brief_probe_that_fails_is_the_last_one() {
    let mut session = Session::seen();
    let (before, made) = (Profile::default(), Customs::default());
    session.probe.ask(session.now, session.circumstances(&before, &made));
    assert!(session.probe.fails(false, &Profile::default()));
    assert_eq!(session.probe.conclude(session.circumstances(&before, &made), &before), Seen::Again);
    session.probe.ask(session.now, session.circumstances(&before, &made));
    assert!(!session.probe.fails(false, &Profile::default()), "one in full has to answer");
    assert_eq!((session.depths().as_str(), session.depths().as_str()), ("full", "full"));
}

#[test]
fn a_probe_is_ended_by_no_time_out_and_is_not_compiled() {
    let mut session = Session::seen();
    session.probe.note_text(b"SELECT f()");
    session.set = vec![("statement_timeout", "1ms"), ("jit", "on")];
    assert_eq!(session.depths(), "brief");
    assert_eq!(session.profile, profile(&[("statement_timeout", "1ms")]));
    let sql = session
        .probe
        .ask(session.now, session.circumstances(&profile(&[("jit_above_cost", "0")]), &Customs::default()));
    assert!(sql.starts_with("SHOW jit;SET LOCAL jit = off;"), "{sql}");
    // Where it has to be read in full after that, the time-out is known.
    let mut session = Session::seen();
    session.probe.note_text(b"SELECT f()");
    session.set = vec![("statement_timeout", "1ms")];
    session.conf = "b";
    assert_eq!(session.depths(), "brief full");
    assert_eq!(session.profile, profile(&[("statement_timeout", "1ms")]));
}

#[test]
fn costs_that_a_client_sets_have_no_probe_compiled() {
    const OFF: &str = "SHOW jit;SET LOCAL jit = off;";
    let (none, made) = (Profile::default(), Customs::default());
    for name in ["cpu_tuple_cost", "cpu_operator_cost", "seq_page_cost", "enable_nestloop", "jit_above_cost"] {
        for mut session in [Session::seen(), Session::new()] {
            let there = profile(&[(name, "1e300")]);
            assert!(session.probe.ask(session.now, session.circumstances(&there, &made)).starts_with(OFF), "{name}");
        }
        for text in [format!("SET {name} = '1e300'"), format!("DO $$ BEGIN SET {name} = '1e300'; END $$")] {
            for mut session in [Session::seen(), Session::new()] {
                assert!(!session.probe.ask(session.now, session.circumstances(&none, &made)).starts_with(OFF));
                session.probe.note_text(text.as_bytes());
                assert!(session.probe.ask(session.now, session.circumstances(&none, &made)).starts_with(OFF), "{text}");
            }
        }
    }
    // What `jit` was counts, whatever the probe has made of it.
    let costs = ("cpu_tuple_cost", "1e300");
    for (before, jit, after) in
        [(None, None, None), (None, Some("off"), Some("off")), (Some("on"), Some("on"), Some("on"))]
    {
        for (mut session, depth) in [(Session::seen(), "brief"), (Session::new(), "full")] {
            session.profile = profile(before.map(|jit| ("jit", jit)).as_slice());
            session.probe.note_text(b"SET cpu_tuple_cost = '1e300'");
            session.set = [Some(costs), jit.map(|jit| ("jit", jit))].into_iter().flatten().collect();
            let expected: Vec<_> = [Some(costs), after.map(|jit| ("jit", jit))].into_iter().flatten().collect();
            let expected = profile(&expected);
            assert_eq!((session.depths().as_str(), &session.profile), (depth, &expected), "{jit:?}");
        }
    }
}

#[test]
fn a_time_out_that_nobody_knows_ends_one_probe_and_not_the_next() {
    for (set, left) in [("1ms", vec![("statement_timeout", "1ms")]), ("0", vec![])] {
        let mut session = Session::new();
        session.probe.note_text(b"SET statement_timeout = '1ms'");
        let (before, made) = (Profile::default(), Customs::default());
        session.probe.ask(session.now, session.circumstances(&before, &made));
        assert!(session.probe.fails(true, &before));
        assert_eq!(session.probe.conclude(session.circumstances(&before, &made), &before), Seen::Again);
        let sql = session.probe.ask(session.now, session.circumstances(&before, &made));
        assert!(sql.starts_with("SELECT pg_catalog.concat('was='"), "{sql}");
        // What it has set itself it does not know to be the client's.
        session.probe.hear(&format!(
            "was={set},0 pins= statements=0 schema=0 conf=a set={}:30 defaults=",
            hex(b"statement_timeout")
        ));
        let seen = session.probe.conclude(session.circumstances(&before, &made), &before);
        let Seen::Holding(holding) = seen else { panic!("{seen:?}") };
        assert_eq!(holding.profile, profile(&left), "{set}");
    }
}

#[test]
fn users_that_a_client_began_with_are_given_up_by_what_texts_say() {
    let began = [("role", "a"), ("session_authorization", "b")];
    let left = [("role", "none"), ("session_authorization", "app")];
    let only = |name: &str| left.iter().copied().filter(|(left, _)| *left == name).collect::<Vec<_>>();
    // What the session knows is what the server has by itself, in each of these.
    for (before, text, expected) in [
        (&began, "SET ROLE NONE", &only("role")),
        (&began, "SELECT set_config('role', 'none', false)", &left.to_vec()),
        (&began, "SET SESSION AUTHORIZATION app", &left.to_vec()),
        (&began, "DO $$ BEGIN SET ROLE NONE; END $$", &only("role")),
        (&began, "SELECT f('session_authorization', 'app')", &left.to_vec()),
        (&began, "DO $$ BEGIN RESET ROLE; END $$", &vec![]),
        (&began, "SELECT f()", &vec![]),
        (&began, "SET ROLE NONE; RESET ROLE", &vec![]),
        (&began, "RESET ROLE; SET ROLE NONE", &only("role")),
        (&left, "SELECT f()", &left.to_vec()),
        (&left, "RESET ROLE", &only("session_authorization")),
        (&left, "DISCARD ALL", &vec![]),
        (&left, "SET SESSION AUTHORIZATION DEFAULT", &vec![]),
    ] {
        let mut session = Session::seen();
        (session.start, session.profile) = (profile(&began), profile(before));
        session.probe.note_text(text.as_bytes());
        if let Some(resets) = crate::sql::reset(text.as_bytes()) {
            session.probe.note_resets(&resets);
        }
        session.depths();
        assert_eq!(session.profile, profile(expected), "{text}");
        // It is known from then on, and no text counts twice.
        session.start = profile(&[]);
        session.depths();
        assert_eq!(session.profile, Profile::default(), "{text}");
    }
}

#[test]
fn a_custom_setting_that_a_client_began_with_is_empty_where_no_text_takes_it_back() {
    for (text, now, expected) in [
        ("SET app.tenant = 'c'", "c", Some("c")),
        ("SET app.tenant = ''", "", Some("")),
        ("SELECT set_config('app.tenant', '', false)", "", Some("")),
        ("SELECT f()", "", Some("")),
        ("RESET app.tenant; SET app.tenant = ''", "", Some("")),
        ("SET app.tenant = ''; RESET app.tenant", "", None),
        ("RESET ALL", "", None),
        ("DISCARD ALL", "", None),
        ("SELECT set_config('app.tenant', NULL, false)", "", None),
        ("SELECT set_config('app.tenant', '', false), NULLIF(1, 1)", "", Some("")),
    ] {
        let mut session = Session::seen();
        (session.start, session.profile) = (profile(&[("app.tenant", "b")]), profile(&[("app.tenant", "b")]));
        session.set = vec![("app.tenant", now)];
        session.probe.note_text(text.as_bytes());
        if let Some(resets) = crate::sql::reset(text.as_bytes()) {
            session.probe.note_resets(&resets);
        }
        session.depths();
        assert_eq!(session.profile, profile(expected.map(|value| ("app.tenant", value)).as_slice()), "{text}");
    }
}
