use sluice_wire::{
    sqlstate,
    startup::{ProtocolVersion, SessionRequest},
};

use super::*;
use crate::{
    ids::{ClientId, ServerId},
    logins::LogIns,
};

const NOW: Time = Time(1_000_000);

fn client(index: u32) -> ClientRef {
    ClientRef { worker: 0, id: ClientId(index), serial: 0 }
}

fn server(index: u32) -> ServerRef {
    ServerRef { worker: 0, id: ServerId(index), serial: 0 }
}

fn wants() -> Wants<'static> {
    Wants {
        made: &Customs::NONE,
        generation: Generation::FIRST,
        startup: &StartupParameters::NONE,
        new: false,
        purpose: Purpose::Work,
        until: None,
    }
}

fn opened(at: Time) -> Opened {
    Opened { at, generation: Generation::FIRST, startup: StartupParameters::NONE, has_served: false }
}

fn pool(size: u32) -> PoolState {
    PoolState::new(PoolSettings { size, ..PoolSettings::default() })
}

#[test]
fn a_server_is_recalled_only_where_none_can_be_opened() {
    let mut pool = PoolState::new(PoolSettings { size: 2, pinned_max: Some(2), ..PoolSettings::default() });
    for (number, id) in [(0, 0), (1, 1)] {
        assert!(matches!(pool.acquire(NOW, client(number), wants()), Acquired::Queued(_)));
        assert!(pool.reserve(NOW).is_some());
        assert_eq!(pool.recall(Time(0)), None, "one is coming");
        pool.connected(&StartupParameters::NONE);
        assert_eq!(
            pool.release(NOW, server(id), opened(NOW), &Customs::default(), false),
            Released::To(client(number))
        );
        assert!(pool.settings.pinned_max.is_some() && pool.pin(server(id), Pins::SEQUENCE));
    }
    assert_eq!(pool.recall(Time(0)), None, "nobody waits");
    assert!(matches!(pool.acquire(NOW, client(2), wants()), Acquired::Queued(_)));
    pool.set_pins(server(0), Pins::SEQUENCE | Pins::TEMPORARY);
    assert_eq!(pool.pins().to_string(), "temp=1 sequence=2");
    assert_eq!((pool.recall(Time(0)), pool.recall(Time(0))), (Some(server(1)), None), "the other one can't be lost");
}

#[test]
fn servers_that_clients_may_lose_take_no_place_from_others() {
    let mut pool = PoolState::new(PoolSettings { size: 9, pinned_max: Some(2), ..PoolSettings::default() });
    assert!(pool.pin(server(0), Pins::LITERAL) && pool.pin(server(1), Pins::SEQUENCE));
    assert!(pool.pin(server(2), Pins::LOCK));
    assert!(pool.pin(server(3), Pins::LITERAL), "any number may be lost");
    assert!(pool.set_pins(server(0), Pins::LITERAL | Pins::TEMPORARY), "it may not be lost any more");
    assert!(!pool.set_pins(server(1), Pins::CURSOR), "as many as may");
    pool.unpin(server(2));
    assert!(pool.set_pins(server(1), Pins::CURSOR));
}

#[test]
fn whoever_keeps_a_server_for_good_keeps_it_when_fewer_may() {
    let mut pool = PoolState::new(PoolSettings { size: 9, pinned_max: Some(3), ..PoolSettings::default() });
    assert!(
        pool.pin(server(0), Pins::LOCK) && pool.pin(server(1), Pins::TEMPORARY) && pool.pin(server(2), Pins::LITERAL)
    );
    pool.settings.pinned_max = Some(1);
    assert!(pool.set_pins(server(0), Pins::LOCK | Pins::TEMPORARY) && pool.set_pins(server(1), Pins::LOCK));
    assert!(!pool.set_pins(server(2), Pins::LOCK), "it might have been lost");
    assert!(!pool.pin(server(3), Pins::LOCK));
}

/// A pool with one server in use and `waiting` clients.
fn busy(waiting: u32) -> PoolState {
    let mut pool = pool(1);
    assert!(matches!(pool.acquire(NOW, client(0), wants()), Acquired::Queued(_)));
    assert!(pool.reserve(NOW).is_some());
    pool.connected(&StartupParameters::NONE);
    assert_eq!(pool.release(NOW, server(0), opened(NOW), &Customs::default(), false), Released::To(client(0)));
    for i in 1..=waiting {
        assert!(matches!(pool.acquire(NOW, client(i), wants()), Acquired::Queued(_)));
    }
    pool
}

#[test]
fn who_waits_is_told_of_the_servers_that_clients_keep() {
    for (pins, kept) in [
        (Pins::SEQUENCE, ""),
        (Pins::LOCK | Pins::SEQUENCE, ", 1 of them kept by clients whose sessions can't be moved (lock=1 sequence=1)"),
    ] {
        let mut pool = busy(1);
        assert!(pool.pin(server(0), pins));
        assert_eq!(pool.recall(NOW).is_some(), kept.is_empty(), "it is asked for");
        let refused = pool.expire(NOW + PoolSettings::default().wait_timeout);
        assert_eq!(refused[0].1.detail, Some(format!("1 of 1 server connections are open{kept}.")));
    }
}

#[test]
fn a_paused_pool_gives_out_and_opens_nothing_and_refuses_nobody() {
    let mut pool = busy(2);
    pool.set_paused(NOW, true);
    assert_eq!(pool.release(NOW, server(0), opened(NOW), &Customs::default(), false), Released::Close);
    assert!(pool.reserve(NOW).is_none());
    let limit = PoolSettings::default().wait_timeout;
    let later = NOW + 2 * limit;
    assert!(pool.expire(later).is_empty());
    pool.set_paused(later, false);
    assert!(pool.expire(later + limit / 2).is_empty(), "they have all of their time from then on");
    assert_eq!(pool.expire(later + limit).len(), 2);
}

#[test]
fn servers_that_were_opened_before_go_as_they_fall_idle() {
    let mut pool = busy(0);
    pool.renew(NOW + Duration::from_secs(1));
    let later = NOW + Duration::from_secs(2);
    assert_eq!(pool.release(later, server(0), opened(NOW), &Customs::default(), false), Released::Close);
    assert!(matches!(pool.acquire(later, client(1), wants()), Acquired::Queued(_)));
    assert!(pool.reserve(later).is_some());
    pool.connected(&StartupParameters::NONE);
    assert_eq!(pool.release(later, server(1), opened(later), &Customs::default(), false), Released::To(client(1)));
}

#[test]
fn a_pool_that_becomes_smaller_gives_servers_up_as_they_fall_idle() {
    let mut pool = pool(3);
    for i in 0..3 {
        assert!(matches!(pool.acquire(NOW, client(i), wants()), Acquired::Queued(_)));
        assert!(pool.reserve(NOW).is_some());
        pool.connected(&StartupParameters::NONE);
        assert_eq!(pool.release(NOW, server(i), opened(NOW), &Customs::default(), false), Released::To(client(i)));
    }
    assert_eq!(pool.release(NOW, server(0), opened(NOW), &Customs::default(), false), Released::Idle);
    pool.set_settings(PoolSettings { size: 1, ..PoolSettings::default() });
    assert_eq!(pool.surplus(NOW), [server(0)]);
    assert!(matches!(pool.acquire(NOW, client(3), wants()), Acquired::Queued(_)));
    assert_eq!(pool.release(NOW, server(1), opened(NOW), &Customs::default(), false), Released::Close);
    assert_eq!(pool.release(NOW, server(2), opened(NOW), &Customs::default(), false), Released::To(client(3)));
    assert_eq!(pool.counts().open, 1);
}

#[test]
fn one_that_came_behind_a_change_is_not_passed_over_for_ever() {
    let mut pool = busy(0);
    let changed = LogIns::new(Arc::default(), 0);
    changed.begin_change();
    changed.end_change();
    let later = Wants { generation: changed.generation(), ..wants() };
    assert!(matches!(pool.acquire(NOW, client(1), later), Acquired::Queued(_)));
    assert!(matches!(pool.acquire(NOW, client(2), wants()), Acquired::Queued(_)));
    assert_eq!(pool.release(NOW, server(0), opened(NOW), &Customs::default(), false), Released::Close);
    assert!(pool.reserve(NOW).is_some(), "another one may come in its place");
}

#[test]
fn waiters_are_served_in_order() {
    let mut pool = busy(3);
    for i in 1..=3 {
        assert_eq!(pool.release(NOW, server(0), opened(NOW), &Customs::default(), false), Released::To(client(i)));
    }
    assert_eq!(pool.release(NOW, server(0), opened(NOW), &Customs::default(), false), Released::Idle);
    assert_eq!(pool.acquire(NOW, client(9), wants()), Acquired::Server(server(0)));
}

#[test]
fn waits_are_counted() {
    let mut pool = busy(2);
    let later = NOW + Duration::from_millis(30);
    assert_eq!(pool.longest_wait(later), Duration::from_millis(30));
    for _ in 0..3 {
        pool.release(later, server(0), opened(NOW), &Customs::default(), false);
    }
    pool.acquire(later, client(9), wants());
    let waits = pool.counts().waits;
    assert_eq!((waits.count(), waits.sum), (4, Duration::from_millis(60)));
    assert_eq!(pool.longest_wait(later), Duration::ZERO);
}

#[test]
fn no_more_connections_than_the_size_and_than_are_needed() {
    let mut pool = pool(3);
    for i in 0..2 {
        pool.acquire(NOW, client(i), wants());
    }
    assert_eq!(
        [pool.reserve(NOW).is_some(), pool.reserve(NOW).is_some(), pool.reserve(NOW).is_some()],
        [true, true, false]
    );
    for i in 2..9 {
        pool.acquire(NOW, client(i), wants());
    }
    assert_eq!([pool.reserve(NOW).is_some(), pool.reserve(NOW).is_some()], [true, false]);
}

#[test]
fn a_long_wait_ends_with_what_to_change() {
    let mut pool = busy(2);
    let limit = PoolSettings::default().wait_timeout;
    assert!(pool.expire(NOW + (limit - Duration::from_millis(1))).is_empty());
    let refused = pool.expire(NOW + limit);
    assert_eq!(refused.iter().map(|(c, _)| c.id.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(refused[0].1.code, sqlstate::TOO_MANY_CONNECTIONS);
    assert!(refused[0].1.hint.as_deref().is_some_and(|h| h.contains("size")));
}

#[test]
fn failed_connects_back_off_and_lasting_failures_refuse_at_once() {
    let mut pool = pool(2);
    let error = Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, "connection refused"));
    pool.acquire(NOW, client(1), wants());
    assert!(pool.reserve(NOW).is_some());
    assert!(pool.connect_failed(NOW, &opened(NOW), &error, Lasts::ForNobody).is_empty());
    assert!(pool.reserve(NOW).is_none());
    let later = NOW + PoolSettings::default().backoff_min;
    assert!(pool.reserve(later).is_some());
    assert_eq!(pool.connect_failed(later, &opened(NOW), &error, Lasts::ForAll), [(client(1), error.clone())]);
    pool.acquire(later, client(2), wants());
    let limit = later + PoolSettings::default().connect_timeout;
    assert_eq!(pool.expire(limit), [(client(2), error.clone())]);
    // Since then the database admits more, perhaps.
    let mut pool = self::pool(2);
    pool.acquire(NOW, client(1), wants());
    assert!(pool.reserve(NOW).is_some());
    assert!(pool.connect_failed(NOW, &opened(NOW), &error, Lasts::ForNobody).is_empty());
    let changed = LogIns::default();
    changed.begin_change();
    changed.end_change();
    pool.acquire(NOW, client(2), wants());
    assert!(pool.reserve(NOW).is_none());
    pool.acquire(NOW, client(3), Wants { generation: changed.generation(), ..wants() });
    assert!(pool.reserve(NOW).is_some());
    assert_eq!(
        pool.connect_failed(NOW, &opened(NOW), &error, Lasts::ForAll),
        [(client(1), error.clone()), (client(2), error)]
    );
}

/// Has clients come at that interval to a server that refuses connections at once. Gives how often it was tried, and
/// whether each of those who were refused had an attempt within its wait.
fn tried(settings: PoolSettings, every: Duration, time: Duration) -> (u32, bool) {
    let mut pool = PoolState::new(settings);
    let error = Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, "connection refused"));
    let (mut tries, mut all_had_one) = (Vec::new(), true);
    let (mut came, mut now) = (Vec::new(), NOW);
    while now < NOW + time {
        if came.last().is_none_or(|last| now.since(*last) >= every) {
            pool.acquire(now, client(came.len() as u32), wants());
            came.push(now);
        }
        let mut refused = pool.expire(now);
        if pool.reserve(now).is_some() {
            tries.push(now);
            refused.extend(pool.connect_failed(now, &opened(now), &error, Lasts::ForNobody));
        }
        all_had_one &= refused.iter().all(|(it, _)| tries.last().is_some_and(|last| *last >= came[it.id.0 as usize]));
        now = now + Duration::from_millis(10);
    }
    (tries.len() as u32, all_had_one)
}

#[test]
fn nobody_is_refused_without_an_attempt_of_its_own_and_those_are_bounded() {
    let minute = Duration::from_secs(60);
    let seconds = |seconds| Duration::from_secs_f64(seconds);
    let of_times = |wait, connect, backoff| PoolSettings {
        wait_timeout: seconds(wait),
        connect_timeout: seconds(connect),
        backoff_max: seconds(backoff),
        ..PoolSettings::default()
    };
    for settings in [of_times(30.0, 5.0, 5.0), of_times(1.0, 5.0, 5.0), of_times(120.0, 15.0, 15.0)] {
        let limit = settings.wait_timeout.min(settings.connect_timeout).as_secs_f64();
        for every in [0.05, 0.7, 3.0, limit, limit + 0.02, limit * 1.5, 20.0].map(seconds) {
            let (tries, all_had_one) = tried(settings.clone(), every, minute);
            assert!(all_had_one, "{every:?} {settings:?}");
            // Some at the beginning, one for each time that nobody was there before, and two for each wait.
            let most = 8 + 2 * (60.0 / limit) as u32 + 60_000 / every.max(seconds(limit)).as_millis() as u32;
            assert!(tries <= most, "{tries} of {most}: {every:?} {settings:?}");
        }
    }
}

#[test]
fn a_server_that_does_not_answer_is_not_taken_for_a_full_pool() {
    let limit = Duration::from_secs(1);
    let mut pool = PoolState::new(PoolSettings { size: 2, wait_timeout: limit, ..PoolSettings::default() });
    pool.acquire(NOW, client(1), wants());
    assert!(pool.reserve(NOW).is_some());
    let [(_, refused)] = &pool.expire(NOW + limit)[..] else { panic!("it has waited long enough") };
    assert_eq!((&*refused.code, refused.hint.is_some()), (sqlstate::CANNOT_CONNECT, true));
    // There is one, which others have.
    pool.connected(&StartupParameters::NONE);
    assert_eq!(pool.release(NOW + limit, server(0), opened(NOW), &Customs::NONE, false), Released::Idle);
    assert_eq!(pool.acquire(NOW + limit, client(2), wants()), Acquired::Server(server(0)));
    pool.acquire(NOW + limit, client(3), wants());
    assert!(pool.reserve(NOW + limit).is_some());
    let [(_, refused)] = &pool.expire(NOW + 2 * limit)[..] else { panic!("it has waited long enough") };
    assert_eq!(refused.code, sqlstate::TOO_MANY_CONNECTIONS);
}

#[test]
fn a_server_that_is_being_replaced_is_not_taken_for_one_that_does_not_answer() {
    let limit = Duration::from_secs(1);
    let mut pool = PoolState::new(PoolSettings { size: 1, wait_timeout: limit, ..PoolSettings::default() });
    pool.acquire(NOW, client(1), wants());
    assert!(pool.reserve(NOW).is_some());
    pool.connected(&StartupParameters::NONE);
    let released = pool.release(NOW, server(0), opened(NOW), &Customs::NONE, false);
    assert_eq!(released, Released::To(client(1)));
    pool.acquire(NOW, client(2), wants());
    // The other one's server has come to the end of its life, a moment before the wait does.
    pool.lost();
    assert!(pool.reserve(NOW + (limit - Duration::from_millis(1))).is_some());
    let [(_, refused)] = &pool.expire(NOW + limit)[..] else { panic!("it has waited long enough") };
    assert_eq!(refused.code, sqlstate::TOO_MANY_CONNECTIONS);
    assert_eq!(refused.detail.as_deref(), Some("1 of 1 server connections are open, or are being opened (1)."));
}

#[test]
fn sessions_wait_where_the_pool_lacks_what_it_could_log_in_with() {
    let mut pool = pool(2);
    let error = Arc::new(ErrorResponse::fatal(sqlstate::INVALID_PASSWORD, "password authentication failed"));
    pool.acquire(NOW, client(1), wants());
    pool.acquire(NOW, client(2), Wants { purpose: Purpose::LogIn, ..wants() });
    assert!(pool.reserve(NOW).is_some());
    assert_eq!(pool.connect_failed(NOW, &opened(NOW), &error, Lasts::ForLogIns), [(client(2), error)]);
    let limit = PoolSettings::default().wait_timeout;
    assert!(pool.expire(NOW + (limit - Duration::from_millis(1))).is_empty());
    let [(_, refused)] = &pool.expire(NOW + limit)[..] else { panic!("it waits no longer than others") };
    assert_eq!(refused.code, sqlstate::TOO_MANY_CONNECTIONS);
    assert!(refused.hint.as_deref().is_some_and(|hint| hint.contains("password")));
}

#[test]
fn who_has_lost_its_server_makes_nobody_wait_longer() {
    let mut pool = pool(1);
    let limit = PoolSettings::default().wait_timeout;
    pool.acquire(NOW, client(1), wants());
    assert!(matches!(pool.acquire_again(NOW + limit / 2, client(2), wants()), Acquired::Queued(_)));
    let refused = |pool: &mut PoolState, now| pool.expire(now).iter().map(|(client, _)| *client).collect::<Vec<_>>();
    assert_eq!(refused(&mut pool, NOW + limit), [client(1)]);
    assert_eq!(refused(&mut pool, NOW + limit * 3 / 2), [client(2)]);
}

#[test]
fn an_attempt_is_made_at_once_when_somebody_has_shown_another_secret() {
    let mut pool = pool(2);
    let error = Arc::new(ErrorResponse::fatal(sqlstate::INVALID_PASSWORD, "password authentication failed"));
    pool.acquire(NOW, client(1), wants());
    assert!(pool.reserve(NOW).is_some());
    pool.connect_failed(NOW, &opened(NOW), &error, Lasts::ForLogIns);
    assert!(pool.reserve(NOW).is_none());
    pool.has_another_secret();
    assert!(pool.reserve(NOW).is_some());
}

#[test]
fn idle_servers_above_the_minimum_go_after_a_while() {
    let mut pool = PoolState::new(PoolSettings { size: 3, min: 1, ..PoolSettings::default() });
    for i in 0..3 {
        pool.acquire(NOW, client(i), wants());
        assert!(pool.reserve(NOW).is_some());
    }
    for i in 0..3 {
        pool.connected(&StartupParameters::NONE);
        pool.release(NOW, server(i), opened(NOW), &Customs::default(), false);
    }
    for i in 0..3 {
        assert_eq!(pool.release(NOW, server(i), opened(NOW), &Customs::default(), false), Released::Idle);
    }
    let later = NOW + PoolSettings::default().server_idle_timeout;
    assert_eq!(pool.surplus(later).len(), 2);
    assert_eq!(pool.counts(), Counts { open: 1, idle: 1, connecting: 0, waiting: 0, ..pool.counts() });
    assert_eq!(pool.surplus(NOW + PoolSettings::default().server_lifetime).len(), 1);
}

/// The parameters of a client that begins with this name.
fn named(name: &str) -> StartupParameters {
    let parameters = vec![("application_name".to_owned(), name.to_owned())];
    StartupParameters::of(&SessionRequest { version: ProtocolVersion::V3_0, parameters })
}

#[test]
fn a_server_serves_those_who_begin_as_it_was_opened() {
    let mut pool = pool(2);
    let [a, b] = ["a", "b"].map(named);
    let wants_of = |startup| Wants { startup, ..wants() };
    let opened_with = |startup: &StartupParameters| Opened { startup: startup.clone(), ..opened(NOW) };
    for (number, startup) in [(0, &a), (1, &b), (2, &b)] {
        assert!(matches!(pool.acquire(NOW, client(number), wants_of(startup)), Acquired::Queued(_)));
    }
    assert_eq!([pool.reserve(NOW), pool.reserve(NOW), pool.reserve(NOW)], [Some(a.clone()), Some(b.clone()), None]);
    assert!(pool.is_short(Time(0)), "nothing comes for the third");
    // Whichever is there first.
    pool.connected(&b);
    assert_eq!(pool.release(NOW, server(1), opened_with(&b), &Customs::NONE, false), Released::To(client(1)));
    pool.connected(&a);
    assert_eq!(pool.release(NOW, server(0), opened_with(&a), &Customs::NONE, false), Released::To(client(0)));
    // The one that waits needs another.
    assert_eq!(pool.release(NOW, server(0), opened_with(&a), &Customs::NONE, false), Released::Close);
    assert_eq!(pool.reserve(NOW), Some(b.clone()));
    pool.connected(&b);
    assert_eq!(pool.release(NOW, server(2), opened_with(&b), &Customs::NONE, false), Released::To(client(2)));
    for id in [1, 2] {
        assert_eq!(pool.release(NOW, server(id), opened_with(&b), &Customs::NONE, false), Released::Idle);
    }
    // It is closed for one that fits, since there can be none besides.
    assert_eq!(pool.acquire(NOW, client(3), wants_of(&a)), Acquired::Server(server(1)));
    assert_eq!(pool.acquire(NOW, client(4), wants_of(&b)), Acquired::Server(server(2)));
}

#[test]
fn what_one_client_begins_with_is_no_trouble_of_others() {
    let mut pool = pool(2);
    let [a, b] = ["a", "b"].map(named);
    let error = Arc::new(ErrorResponse::fatal("22023", "invalid value"));
    for (number, startup) in [(0, &a), (1, &b)] {
        let wants = Wants { startup, purpose: Purpose::LogIn, ..wants() };
        assert!(matches!(pool.acquire(NOW, client(number), wants), Acquired::Queued(_)));
    }
    assert_eq!(pool.reserve(NOW), Some(a.clone()));
    let opened = Opened { startup: a, ..opened(NOW) };
    assert_eq!(pool.connect_failed(NOW, &opened, &error, Lasts::ForAll), [(client(0), error.clone())]);
    assert_eq!(pool.reserve(NOW), Some(b), "and at once");
}

#[test]
fn who_could_have_another_pools_server_waits_no_longer_than_it_says() {
    let mut pool = pool(1);
    let until = |time| Wants { until: Some(NOW + time), ..wants() };
    let second = Duration::from_secs(1);
    pool.acquire(NOW, client(1), wants());
    pool.acquire(NOW, client(2), until(second));
    pool.acquire(NOW, client(3), until(2 * second));
    let refused = |pool: &mut PoolState, now| pool.expire(now).into_iter().map(|(it, _)| it).collect::<Vec<_>>();
    assert_eq!(refused(&mut pool, NOW + second / 2), []);
    assert_eq!(refused(&mut pool, NOW + second), [client(2)]);
    // Also while nothing is given out.
    pool.set_paused(NOW + second, true);
    assert_eq!(refused(&mut pool, NOW + 2 * second), [client(3)]);
}

/// Generations of one address, the first one first.
fn generations() -> [Generation; 3] {
    let log_ins = LogIns::default();
    std::array::from_fn(|_| {
        let generation = log_ins.generation();
        log_ins.begin_change();
        log_ins.end_change();
        generation
    })
}

/// A pool with room, and an idle server of each generation.
fn idle_of(generations: [Generation; 3]) -> PoolState {
    let mut pool = pool(9);
    for (number, generation) in (0..).zip(generations) {
        pool.acquire(NOW, client(number), Wants { generation, ..wants() });
        assert!(pool.reserve(NOW).is_some());
        pool.connected(&StartupParameters::NONE);
        let opened = Opened { generation, ..opened(NOW) };
        let released = pool.release(NOW, server(number), opened.clone(), &Customs::default(), false);
        assert_eq!(released, Released::To(client(number)));
    }
    for (number, generation) in (0..).zip(generations) {
        let opened = Opened { generation, ..opened(NOW) };
        assert_eq!(pool.release(NOW, server(number), opened, &Customs::default(), false), Released::Idle);
    }
    pool
}

#[test]
fn servers_of_before_are_kept_for_as_many_clients_as_would_take_them() {
    let [first, second, third] = generations();
    for (clients, gone) in [
        (&[][..], &[0, 1][..]),
        (&[third][..], &[0, 1]),
        (&[first][..], &[1]),
        (&[second][..], &[0]),
        (&[first, third][..], &[1]),
        (&[first, second][..], &[]),
        (&[second, second][..], &[0]),
    ] {
        let mut pool = idle_of([first, second, third]);
        clients.iter().for_each(|generation| pool.standings.enter(*generation));
        let mut given_up = pool.give_up_superseded(third);
        given_up.sort_by_key(|server| server.id);
        assert_eq!(given_up, gone.iter().map(|number| server(*number)).collect::<Vec<_>>(), "{clients:?}");
        assert_eq!(pool.counts().open, 3 - gone.len() as u32);
        clients.iter().for_each(|generation| pool.standings.leave(*generation));
        assert_eq!(pool.give_up_superseded(third).len(), 2 - gone.len(), "{clients:?}: they have gone");
    }
}

#[test]
fn one_that_nobody_can_want_goes_before_another_is_opened() {
    let [first, second, third] = generations();
    let mut pool = idle_of([first, second, second]);
    pool.standings.enter(first);
    pool.standings.enter(third);
    let wants = Wants { generation: third, ..wants() };
    assert_eq!(pool.acquire(NOW, client(7), wants), Acquired::Server(server(1)), "it is closed for another");
    pool.lost();
    assert_eq!(pool.acquire_again(NOW, client(7), wants), Acquired::Server(server(2)));
    pool.lost();
    assert!(matches!(pool.acquire_again(NOW, client(7), wants), Acquired::Queued(_)));
    assert_eq!(pool.counts().idle, 1, "the one that is left is for who was there before");
}
