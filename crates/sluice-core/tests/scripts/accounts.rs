//! Rules that need to know more of a client than it says: its user's roles, and the system's user at its end.

use std::{collections::HashMap, ffi::OsString, io, path::Path, sync::Arc, time::Duration};

use sluice_control::{
    access::{AccessRules, LookUp, Policy, Users},
    address::Address,
    server_auth::ServerAuth,
};
use sluice_core::secrets::Account;
use sluice_hba::{Files, Rules};
use sluice_sim::SYSTEM_USER;
use sluice_wire::{
    ErrorResponse, FrontendKind, md5,
    message::{framed, put_cstr},
    secret::Secret,
    sqlstate,
};

use crate::{
    one,
    table::{Side, Table, answers, query},
};

/// Files that are in no folder.
struct Written<'a>(&'a str, &'a str);

impl Files for Written<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        Ok(if path.ends_with("pg_hba.conf") { self.0 } else { self.1 }.to_owned())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }
}

/// The rules and maps of these texts.
pub(crate) fn rules(text: &str, maps: &str) -> Arc<AccessRules> {
    let ident = Some(Path::new("pg_ident.conf"));
    let rules = Rules::read(Path::new("pg_hba.conf"), ident, &Written(text, maps)).expect("rules");
    Arc::new(AccessRules { rules, unloaded: None, interfaces: Vec::new(), text: [text, maps].concat() })
}

/// A table that goes by these rules and maps, where users are looked up.
pub(crate) fn ruled(text: &str, maps: &str) -> Table {
    let mut table = Table::new(one());
    table.changes(|configuration| {
        configuration.access.policy = Policy::Rules(rules(text, maps));
        configuration.access.users = Users::LookedUp(
            LookUp {
                cluster: None,
                tls: None,
                address: Address::Unix("/scripted".into()),
                dbname: "postgres".to_owned(),
                user: "asks".to_owned(),
                password: None,
                server_auth: ServerAuth::default(),
                query: "select $1".to_owned(),
                asks_roles: true,
                cache: Duration::from_secs(10),
            },
            HashMap::new(),
        );
    });
    table
}

fn member_of(roles: &[&str]) -> Account {
    let secret = Some(Secret::Plain("secret".to_owned()));
    Account { secret, roles: Arc::new(roles.iter().copied().collect()), role: None }
}

const NO_ENTRY: &str =
    "E(28000: no pg_hba.conf entry for host \"[local]\", user \"app\", database \"app\", no encryption)";

#[test]
fn members_are_asked_for_only_where_they_decide() {
    for (rules, is_looked_up) in [
        ("local all app reject", false),
        ("local other +staff trust\nlocal all all reject", false),
        ("local all app,+staff reject", false),
        ("local all +staff reject\nlocal all all reject", true),
        ("local samerole all reject\nlocal all all reject", true),
    ] {
        let mut table = ruled(rules, "");
        let client = table.stranger("app");
        if is_looked_up {
            assert_eq!(table.hears(client), "", "{rules}");
            assert_eq!(table.finds(Ok(member_of(&["app"]))), "app");
        }
        assert!(table.hears(client).starts_with("E(28000: pg_hba.conf rejects"), "{rules}");
    }
}

#[test]
fn members_are_let_in_and_others_are_not() {
    for (account, heard) in [
        (member_of(&["app", "staff"]), "R"),
        (member_of(&["app"]), NO_ENTRY),
        // One who does not exist waits for the same look-up.
        (Account::default(), NO_ENTRY),
    ] {
        let mut table = ruled("local all +staff trust", "");
        let (client, other) = (table.stranger("app"), table.stranger("app"));
        assert_eq!(table.hears(client), "");
        table.finds(Ok(account));
        // One look-up is enough for both.
        assert_eq!([client, other].map(|side| table.hears(side)), [heard; 2]);
    }
    // By password: the secret has come with the roles.
    let mut table = ruled("local all +staff md5\nlocal all all reject", "");
    let client = table.stranger("app");
    table.finds(Ok(member_of(&["staff"])));
    assert_eq!(table.hears(client), "R");
    // A look-up that fails lets nobody in.
    let client = table.stranger("other");
    table.finds(Err(Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, "no"))));
    assert_eq!(table.hears(client), "E(57P03)");
}

#[test]
fn who_is_refused_is_looked_up_again() {
    let mut table = ruled("local all +staff trust", "");
    let client = table.stranger("app");
    table.finds(Ok(member_of(&["app"])));
    assert_eq!(table.hears(client), NO_ENTRY);
    let client = table.stranger("app");
    table.finds(Ok(member_of(&["app", "staff"])));
    assert_eq!(table.hears(client), "R");
    table.connects();
    // Who is let in is believed for a while.
    let client = table.stranger("app");
    assert!(table.hears(client).starts_with("R"));
    table.passes(Duration::from_secs(11));
    let client = table.stranger("app");
    table.finds(Ok(member_of(&["app"])));
    assert_eq!(table.hears(client), NO_ENTRY);
}

#[test]
fn the_rules_of_now_decide_about_who_was_looked_up_for_others() {
    let mut table = ruled("local all +staff trust\nlocal all all md5", "");
    let client = table.stranger("app");
    table.changes(|configuration| configuration.access.policy = Policy::Rules(rules("local all all reject", "")));
    table.finds(Ok(member_of(&["staff"])));
    // What was found by the configuration before is not believed.
    if table.hears(client).is_empty() {
        table.finds(Ok(member_of(&["staff"])));
    }
    assert!(table.is_closed(client), "it was let in by rules that have gone");
}

#[test]
fn the_system_knows_who_is_at_a_sockets_end() {
    let failed = "E(28000: Peer authentication failed for user \"app\")";
    let map = format!("m {SYSTEM_USER} app\n");
    let members = format!("m {SYSTEM_USER} +staff\n");
    for (rules, maps, user, heard) in [
        ("local all all peer", "", SYSTEM_USER, "R"),
        ("local all all peer", "", "app", failed),
        ("local all all peer map=m", map.as_str(), "app", "R"),
        ("local all all peer map=m", "m other app\n", "app", failed),
        ("local all all peer map=missing", map.as_str(), "app", failed),
        ("local all all peer map=m", members.as_str(), "app", ""),
        ("local all +staff peer map=m", map.as_str(), "app", ""),
    ] {
        let mut table = ruled(rules, maps);
        let client = table.stranger(user);
        assert_eq!(table.hears(client), heard, "{rules}: {maps}");
        if heard.is_empty() {
            table.finds(Ok(member_of(&["staff"])));
            assert_eq!(table.hears(client), "R", "{rules}: {maps}");
        }
    }
}

#[test]
fn who_is_not_known_hears_what_those_hear_who_are() {
    let map = format!("m {SYSTEM_USER} app\nm {SYSTEM_USER} ghost\n");
    let peer_failed = |user: &str| format!("E(28000: Peer authentication failed for user \"{user}\")");
    for (text, user, heard) in [
        ("local all all peer map=m", "app", "R".to_owned()),
        ("local all all peer map=m", "ghost", peer_failed("ghost")),
        ("local all all peer", "app", peer_failed("app")),
        ("local all all peer", "ghost", peer_failed("ghost")),
        ("local all all trust", "ghost", NO_ENTRY.replace("\"app\", database", "\"ghost\", database")),
    ] {
        let mut table = ruled(text, &map);
        table.changes(|configuration| {
            let all = rules(text, &map);
            let known = all.rules.clone().for_known_users(["app".to_owned()].into());
            let text = format!("{} for those who are known", all.text);
            let known = AccessRules { rules: known, unloaded: None, interfaces: Vec::new(), text };
            configuration.access.policy = Policy::Rules(Arc::new(known));
        });
        let client = table.stranger(user);
        assert_eq!(table.hears(client), heard, "{text}");
    }
}

#[test]
fn a_log_in_has_its_time_besides_the_wait_for_a_primary() {
    for waits in [false, true] {
        let mut table = ruled("local all all md5", "");
        if waits {
            is_in_cluster(&mut table, true);
        }
        let client = table.stranger("app");
        table.passes(Duration::from_secs(31));
        assert_eq!(table.is_closed(client), !waits);
        if waits {
            table.passes(Duration::from_secs(9));
            table.finds(Ok(member_of(&["app"])));
            assert_eq!(table.hears(client), "R");
            // It has been asked for its password, and has as much time for that as any other.
            table.passes(Duration::from_secs(29));
            assert!(!table.is_closed(client));
            table.passes(Duration::from_secs(2));
            assert!(table.hears(client).starts_with("E(57014"));
        }
    }
}

#[test]
fn a_log_in_has_its_time_by_whatever_configuration_it_waited() {
    let mut table = ruled("local all all md5", "");
    is_in_cluster(&mut table, true);
    let client = table.stranger("app");
    table.passes(Duration::from_secs(31));
    is_in_cluster(&mut table, false);
    table.finds(Ok(member_of(&["app"])));
    // It is looked up by the configuration of now as well.
    table.finds(Ok(member_of(&["app"])));
    assert_eq!(table.hears(client), "R");
    table.passes(Duration::from_secs(31));
    assert!(table.hears(client).starts_with("E(57014"));
}

/// Users are looked up at a cluster's primary, or not any more.
fn is_in_cluster(table: &mut Table, is_it: bool) {
    table.changes(|configuration| {
        let Users::LookedUp(look_up, _) = &mut configuration.access.users else { unreachable!("they are looked up") };
        look_up.cluster = is_it.then(|| "main".into());
    });
}

#[test]
fn rules_count_the_servers_roles_of_those_who_are_listed() {
    let mut table = ruled("local all +blocked reject\nlocal all all md5", "");
    let lists = |table: &mut Table, user: &str| {
        table.changes(|configuration| {
            let Users::LookedUp(_, listed) = &mut configuration.access.users else { unreachable!("they are") };
            listed.insert(user.to_owned(), Some(Secret::Plain("of the file".to_owned())));
        });
    };
    lists(&mut table, "app");
    let client = table.stranger("app");
    assert_eq!(table.hears(client), "");
    assert_eq!(table.finds(Ok(member_of(&["app", "blocked"]))), "app");
    assert!(table.hears(client).starts_with("E(28000: pg_hba.conf rejects"));
    let client = table.stranger("other");
    table.finds(Ok(member_of(&["other"])));
    assert_eq!(table.hears(client), "R");
    // Others who are listed meanwhile are no reason to look it up again, or to refuse it.
    lists(&mut table, "another");
    let again = table.stranger("other");
    assert_eq!(table.hears(again), "R");
    assert!(!table.is_closed(client));
}

/// A client that is asked for its password, and its answer.
pub(crate) fn asked(table: &mut Table, password: &str) -> (Side, Vec<u8>) {
    let client = table.stranger("app");
    table.finds(Ok(Account { secret: Some(Secret::Plain(password.to_owned())), ..member_of(&["app"]) }));
    let asked = table.take(client);
    let salt = asked[asked.len() - 4..].try_into().expect("four bytes");
    let answer = md5::answer(&md5::hash_password("app", password), salt);
    let mut message = Vec::new();
    framed(&mut message, FrontendKind::Password, |out| put_cstr(out, answer.as_bytes()));
    (client, message)
}

#[test]
fn an_attempt_with_a_former_password_refuses_nobody_who_has_shown_the_one_of_now() {
    let mut table = ruled("local all all md5", "");
    let shows = |table: &mut Table, password: &str| {
        let (client, answer) = asked(table, password);
        table.says(client, &answer);
        client
    };
    let session = shows(&mut table, "former");
    let servers = table.connects();
    assert!(table.hears(session).ends_with("Z(I)"));
    table.hangs_up(servers[0]);
    // The session waits for a server, and who knows the password of now comes meanwhile.
    table.passes(Duration::from_secs(11));
    table.says(session, &query("SELECT 1"));
    let later = shows(&mut table, "of now");
    assert_eq!(table.hears(later), "R");
    table.refuses("E(28P01: password authentication failed for user \"app\")");
    assert_eq!(table.hears(later), "", "it is refused for another one's password");
    table.passes(Duration::from_secs(1));
    // Whoever has waited for longer is served first.
    let servers = table.connects();
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
    table.says(servers[0], &answers("C(SELECT 1) Z(I)"));
    assert!(table.hears(later).ends_with("Z(I)"));
}
