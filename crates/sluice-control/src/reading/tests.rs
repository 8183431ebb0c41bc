use super::*;

const LAG_MAX: Duration = Duration::from_secs(10);

fn reading(target: Target) -> Reading {
    Reading { target, lag_max: LAG_MAX, lag_bytes_max: Some(1000) }
}

fn address(node: &str) -> Address {
    Address::Tcp(node.to_owned(), 5432)
}

fn primary(node: &str, timeline: u32) -> Primary {
    Primary { node: node.to_owned(), address: address(node), timeline, system: "7".to_owned() }
}

fn good() -> Standby {
    Standby {
        timeline: 4,
        system: "7".to_owned(),
        streams: true,
        is_paused: false,
        is_excluded: false,
        lag: Lag { time: Some(Duration::ZERO), bytes: Some(0) },
    }
}

fn node(name: &str, state: NodeState) -> Node {
    Node { name: name.to_owned(), address: address(name), state }
}

fn standby(name: &str) -> Node {
    node(name, NodeState::Standby(good()))
}

fn names(readers: &[Reader]) -> Vec<&str> {
    readers.iter().map(|reader| &*reader.node).collect()
}

#[test]
fn readers_go_where_the_target_says() {
    let nodes = [node("a", NodeState::Primary { timeline: 4 }), standby("b"), standby("c")];
    let lost = [nodes[0].clone(), node("b", NodeState::Down("starting".to_owned()))];
    let primary = primary("a", 4);
    for (target, with_standbys, without) in [
        (Target::Standby, vec!["b", "c"], vec![]),
        (Target::PreferStandby, vec!["b", "c"], vec!["a"]),
        (Target::Any, vec!["b", "c", "a"], vec!["a"]),
    ] {
        let readers = reading(target).readers(&nodes, Some(&primary), &[]);
        assert_eq!(names(&readers), with_standbys, "{target:?}");
        assert!(readers.iter().all(|it| it.is_primary == (it.node == "a")));
        assert_eq!(names(&reading(target).readers(&lost, Some(&primary), &[])), without, "{target:?}");
        assert_eq!(names(&reading(target).readers(&nodes, None, &[])), [""; 0], "{target:?}");
    }
}

#[test]
fn a_standby_has_to_follow_the_primary_of_now() {
    let primary = primary("a", 4);
    let changed = |change: &dyn Fn(&mut Standby)| {
        let mut standby = good();
        change(&mut standby);
        NodeState::Standby(standby)
    };
    for (state, why) in [
        (NodeState::Silent("refused".to_owned()), "its Patroni does not answer: refused"),
        (NodeState::Down("stopped".to_owned()), "its PostgreSQL is stopped"),
        (NodeState::Primary { timeline: 3 }, "it is the primary"),
        (changed(&|it| it.timeline = 3), "it is on timeline 3, and the primary on 4"),
        (changed(&|it| it.timeline = 5), "it is on timeline 5, and the primary on 4"),
        (changed(&|it| it.system = "8".to_owned()), "it has the data of another cluster"),
        (changed(&|it| it.streams = false), "it does not stream"),
        (changed(&|it| it.is_paused = true), "its replay is paused"),
        (changed(&|it| it.is_excluded = true), "it has Patroni's tag noloadbalance"),
        (changed(&|it| it.lag.time = None), "it is not known how far it is behind"),
        (changed(&|it| it.lag.bytes = None), "it is not known how far it is behind"),
        (changed(&|it| it.lag.bytes = Some(1001)), "it is 1001 bytes behind, and 1000 are allowed"),
        (changed(&|it| it.lag.time = Some(Duration::from_millis(10_001))), "it is 10s behind, and 10s is allowed"),
    ] {
        let unfit = reading(Target::Standby).judge(&node("b", state), Some(&primary), true).expect_err(why);
        assert_eq!(unfit.to_string(), why);
    }
    assert_eq!(reading(Target::Standby).judge(&standby("b"), Some(&primary), false), Ok(()));
    assert_eq!(reading(Target::Standby).judge(&standby("b"), None, true), Err(Unfit::NoPrimary));
    // It holds the lock already, and is in recovery still; or it has had to give it back.
    assert_eq!(reading(Target::Standby).judge(&standby("a"), Some(&primary), true), Err(Unfit::LastPrimary));
}

#[test]
fn one_that_was_left_has_to_come_nearer_than_it_may_go() {
    let primary = primary("a", 4);
    let at = |time: u64, bytes: u64| {
        let lag = Lag { time: Some(Duration::from_secs(time)), bytes: Some(bytes) };
        [node("b", NodeState::Standby(Standby { lag, ..good() }))]
    };
    let reading = Reading { target: Target::Standby, ..reading(Target::Standby) };
    let mut readers = Vec::new();
    for (time, bytes, is_one) in [
        (8, 0, false),
        (5, 501, false),
        (5, 500, true),
        (10, 1000, true),
        (11, 0, false),
        (9, 0, false),
        (4, 0, true),
        (4, 1001, false),
        (4, 1000, false),
        (4, 10, true),
    ] {
        readers = reading.readers(&at(time, bytes), Some(&primary), &readers);
        assert_eq!(!readers.is_empty(), is_one, "{time} s, {bytes} bytes");
    }
}

#[test]
fn the_reasons_name_each_node() {
    let nodes = [node("a", NodeState::Primary { timeline: 4 }), node("b", NodeState::Down("starting".to_owned()))];
    let reasons = reading(Target::Standby).reasons(&nodes, Some(&primary("a", 4)));
    assert_eq!(reasons, "a: it is the primary; b: its PostgreSQL is starting");
    assert!(reading(Target::Standby).reasons(&[], None).starts_with("no member of the cluster"));
}
