//! The settings that all nodes share: Patroni's dynamic configuration, as names with dots.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Result, anyhow, bail};
use serde_json::{Map, Value};
use sluice_instance::cluster::STANDBYS_REQUIRED;
use sluice_patroni::Members;

use super::{judged, parameters, settings, status::pending, target::Target};

/// The place of PostgreSQL's own settings, whose names may have dots themselves.
const PARAMETERS: &str = "postgresql.parameters.";

/// Time for all members to look at another configuration, and say what it means to them: more than a loop of Patroni's.
const HEARD_TIME: Duration = Duration::from_secs(15);

/// Shows them.
pub(super) fn show(target: &Target, as_json: bool) -> Result<()> {
    let members = target.look()?;
    let (_, settings) = target.settings(&members)?;
    let text = if as_json {
        serde_json::to_string_pretty(&settings).map_err(|error| anyhow!("{error}"))? + "\n"
    } else {
        flat(&settings).iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    };
    // Whoever reads it may have enough.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// Changes some, and says what they need, and what is given up by them.
pub(super) fn set(target: &Target, settings: &[String]) -> Result<()> {
    let mut change = change(settings)?;
    target.check_majority()?;
    let members = target.look()?;
    let (teller, before) = target.settings(&members)?;
    settings::check_timing(&before, &change)?;
    settings::check_slots(&before, &change)?;
    if let Some(required) = settings::requirement(&before, &change) {
        put(&mut change, &["postgresql", "parameters", STANDBYS_REQUIRED], required.into());
    }
    check_parameters(target, &members, &change)?;
    judged::before(target, &members, &change)?;
    let was_pending = members.members.iter().any(|member| member.pending_restart);
    let answer = target.share(teller, &change)?;
    let now = flat(&serde_json::from_slice::<Value>(&answer.body)?);
    for (name, _) in flat(&change) {
        match now.iter().find(|(known, _)| *known == name) {
            Some((name, value)) if value != "null" => say!("{name}={value}"),
            _ => say!("{name} is no longer set"),
        }
    }
    for promise in settings::given_up(&change) {
        say!("note: {promise}");
    }
    // They look once in each loop, and whoever needs a restart says so then.
    let loop_wait = now.iter().find(|(name, _)| name == "loop_wait").and_then(|(_, value)| value.parse().ok());
    let heard = loop_wait.map_or(HEARD_TIME, |seconds: u64| Duration::from_secs(seconds + 2)).min(HEARD_TIME);
    // Where one was due before, nobody can tell whether it is for this.
    let all_say_so = |members: &Members| {
        let mut all = members.members.iter();
        (!was_pending && all.all(|member| member.pending_restart)).then(|| members.members.clone())
    };
    let told = target.wait(heard, all_say_so).or_else(|last| match last {
        // The others are slower.
        Some(some) if !was_pending && some.members.iter().any(|it| it.pending_restart) => {
            target.wait(HEARD_TIME, all_say_so)
        }
        last => Err(last),
    });
    let now = match told {
        Ok(all) => all,
        Err(last) => last.map_or_else(Vec::new, |members| members.members),
    };
    let needs: Vec<_> = now.iter().filter(|member| member.pending_restart).collect();
    for member in &needs {
        say!("{} has to be restarted: {}", member.name, pending(member).join(", "));
    }
    if !needs.is_empty() {
        say!("sluice cluster restart --pending does that, one node after the other");
    }
    judged::behind(target, &now, &change)
}

/// Sees that Patroni gives PostgreSQL its own settings as they are said, by the version that the nodes have. Where none of
/// them says that, there is nothing to go by.
fn check_parameters(target: &Target, members: &Members, change: &Value) -> Result<()> {
    let set = judged::set(change);
    if set.is_empty() {
        return Ok(());
    }
    let own = target.own_words(members);
    let Some(version) = own.iter().find_map(|own| own.as_ref().ok()?.server_version) else { return Ok(()) };
    set.iter().try_for_each(|(name, value)| parameters::check(name, value, version))
}

/// The change that `name=value` stands for, each of them; what has no value is removed.
fn change(settings: &[String]) -> Result<Value> {
    let mut all = Value::Object(Map::new());
    for setting in settings {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| anyhow!("{setting:?} has no value\nwrite name=value, or name= to remove a setting"))?;
        let (name, value) = (name.trim(), Some(value).filter(|value| !value.is_empty()));
        let path = parts(name);
        let (path, value) = match *path {
            ["postgresql", "parameters", parameter] if !parameter.is_empty() => {
                let value = settings::of_postgresql(parameter, value)?;
                (path, value)
            }
            _ => {
                if path.iter().any(|part| part.is_empty()) {
                    bail!(
                        "{name:?} is no setting's name: write name=value, with a dot between a group and a name in it"
                    );
                }
                let value = value.map(str::trim).filter(|value| !value.is_empty());
                let value = settings::of_patroni(&path, value)?;
                (path, value)
            }
        };
        put(&mut all, &path, value);
    }
    Ok(all)
}

/// The parts of a whole name.
fn parts(name: &str) -> Vec<&str> {
    match name.strip_prefix(PARAMETERS) {
        Some(parameter) => vec!["postgresql", "parameters", parameter],
        None => name.split('.').collect(),
    }
}

fn put(into: &mut Value, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Some(object) = into.as_object_mut() else { return };
    let below = object.entry(*first).or_insert(Value::Null);
    if rest.is_empty() { *below = value } else { put(below, rest, value) }
}

/// All of them with their whole names, in order.
fn flat(settings: &Value) -> Vec<(String, String)> {
    fn add(prefix: &str, value: &Value, all: &mut Vec<(String, String)>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    add(&name, value, all);
                }
            }
            Value::String(text) => all.push((prefix.to_owned(), text.clone())),
            value => all.push((prefix.to_owned(), value.to_string())),
        }
    }
    let mut all = Vec::new();
    add("", settings, &mut all);
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        net::{TcpListener, TcpStream},
        thread,
        time::Instant,
    };

    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::cluster::target::Where;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        at: Where,
    }

    fn answer(stream: TcpStream, body: &str) -> io::Result<()> {
        let mut asked = String::new();
        let mut reader = BufReader::new(stream);
        while reader.read_line(&mut asked)? > 2 {}
        assert!(asked.starts_with("GET /config "), "{asked}");
        write!(reader.get_mut(), "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn another_member_says_what_a_primary_does_not_that_is_stopped_where_it_is() {
        // The kernel takes the connection, and nobody reads from it.
        let (frozen, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let url = |listener: &TcpListener| format!("http://{}/patroni", listener.local_addr().unwrap());
        let members: Members = serde_json::from_value(json!({ "members": [
            { "name": "node1", "role": "leader", "state": "running", "api_url": url(&frozen) },
            { "name": "node2", "role": "replica", "state": "streaming", "api_url": url(&other) },
        ] }))
        .unwrap();
        thread::spawn(move || answer(other.accept().unwrap().0, r#"{"ttl": 30}"#));
        let typed = Typed::parse_from(["sluice", "--rest", "http://127.0.0.1:1"]);
        let target = Target::find(typed.at).unwrap();
        let begun = Instant::now();
        let (member, settings) = target.settings(&members).unwrap();
        assert_eq!((&*member.name, settings), ("node2", json!({ "ttl": 30 })));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    fn change_of(settings: &[&str]) -> Result<Value> {
        change(&settings.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_with_dots_become_a_change() {
        let change = change_of(&[
            "ttl=30",
            "synchronous_mode=quorum",
            "failsafe_mode=true",
            "postgresql.parameters.work_mem=64MB",
            "postgresql.parameters.auto_explain.log_min_duration=1s",
            "postgresql.use_slots=false",
            "maximum_lag_on_failover=",
        ]);
        let expected = json!({ "ttl": 30, "synchronous_mode": "quorum", "failsafe_mode": true,
            "maximum_lag_on_failover": null, "postgresql": { "use_slots": false,
            "parameters": { "work_mem": "64MB", "auto_explain.log_min_duration": "1s" } } });
        assert_eq!(change.unwrap(), expected);
        let shown: Vec<String> = flat(&expected).iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert!(shown.contains(&"postgresql.parameters.auto_explain.log_min_duration=1s".to_owned()), "{shown:?}");
    }

    #[test]
    fn what_is_no_setting_is_refused_with_what_was_meant() {
        let error = change_of(&["work_mem=64MB"]).unwrap_err().to_string();
        assert!(error.ends_with("is written postgresql.parameters.work_mem=64MB"), "{error}");
        for text in ["ttl", "", "=1", "postgresql..x=1", "nonsense.x=1"] {
            assert!(change_of(&[text]).is_err(), "{text}");
        }
    }
}
