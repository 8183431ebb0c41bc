//! Whether a stall goes with its cause: the same turn again, with one cause taken away.
//!
//! Only the laboratory's own server is changed, and only for that turn. Some of what is set here is no advice for a
//! server that holds data: it shows what a cause costs.

use sluice_instance::Class;

use crate::{
    server::Settings,
    stall::{Cause, Confirmation, Stall},
};

/// The change that takes a cause away: settings, or a limit of the class that is lifted.
pub(super) struct Without {
    pub(super) cause: Cause,
    pub(super) settings: Settings,
}

impl Without {
    /// None for causes that nothing here takes away: locks, clients, other processes.
    pub(super) fn of(cause: Cause) -> Option<Self> {
        let rows: &[(&str, &str)] = match cause {
            // Without checkpoints no segment of the log is used again; new ones are not to be filled with zeros.
            Cause::CheckpointWrites => {
                &[("checkpoint_timeout", "1d"), ("max_wal_size", "64GB"), ("wal_init_zero", "off")]
            }
            Cause::FullPageImages => &[("full_page_writes", "off")],
            Cause::WalSync => &[("synchronous_commit", "off"), ("fsync", "off")],
            Cause::ReplicaWaits => &[("synchronous_standby_names", "")],
            Cause::Autovacuum => &[("autovacuum", "off")],
            Cause::IoCap | Cause::CpuThrottling => &[],
            Cause::CpuTaken | Cause::LockWaits | Cause::Sleep | Cause::Client | Cause::Unknown => return None,
        };
        let settings = rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Some(Self { cause, settings })
    }

    /// The class without the limit that is lifted.
    pub(super) fn class(&self, class: Class) -> Class {
        match self.cause {
            Cause::IoCap => Class { iops: None, ..class },
            Cause::CpuThrottling => Class { cpus: None, ..class },
            _ => class,
        }
    }

    /// As it stands in a report.
    pub(super) fn describe(&self) -> String {
        match self.cause {
            Cause::IoCap => return "no limit on I/O".to_owned(),
            Cause::CpuThrottling => return "no limit on processors".to_owned(),
            _ => {}
        }
        let all: Vec<String> = self.settings.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
        all.join(", ").replace('"', "'")
    }
}

/// The causes of these stalls that can be taken away, the strongest first, each once.
pub(super) fn to_be_taken_away(stalls: &[Stall], class: Class) -> Vec<Without> {
    let causes = strongest(stalls);
    let has_limit = |without: &Without| without.class(class) != class || !without.settings.is_empty();
    causes.into_iter().filter_map(|(cause, _)| Without::of(cause)).filter(has_limit).collect()
}

/// The causes of these stalls, the strongest first, each once.
fn strongest(stalls: &[Stall]) -> Vec<(Cause, f64)> {
    let mut causes: Vec<(Cause, f64)> = Vec::new();
    for finding in stalls.iter().flat_map(|stall| &stall.findings) {
        match causes.iter_mut().find(|(cause, _)| *cause == finding.cause) {
            Some((_, strength)) => *strength = strength.max(finding.strength),
            None => causes.push((finding.cause, finding.strength)),
        }
    }
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    causes
}

/// The part of a turn that stalls took.
fn share<'a>(stalls: impl Iterator<Item = &'a Stall>, seconds: f64) -> f64 {
    let stalled_s = stalls.map(Stall::seconds).fold(0.0, std::ops::Add::add);
    if seconds > 0.0 { stalled_s / seconds } else { 0.0 }
}

/// Notes what a run without the cause has shown.
pub(super) fn note(stalls: &mut [Stall], without: &Without, seconds_before: f64, after: &[Stall], seconds_after: f64) {
    let (stalled_before, stalled_after) = (share(stalls.iter(), seconds_before), share(after.iter(), seconds_after));
    let has_cause = |stall: &&Stall| stall.findings.iter().any(|finding| finding.cause == without.cause);
    let by_cause = share(stalls.iter().filter(has_cause), seconds_before);
    let confirmation = Confirmation {
        // Half of the time that it may explain had to go with it; stalls of other causes may stay.
        confirmed: stalled_after < stalled_before - 0.5 * by_cause,
        without: without.describe(),
        stalled_before,
        stalled_after,
        causes_after: strongest(after).into_iter().map(|(cause, _)| cause).collect(),
    };
    for finding in stalls.iter_mut().flat_map(|stall| &mut stall.findings) {
        if finding.cause == without.cause {
            finding.confirmation = Some(confirmation.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stall::Finding;

    fn stall(from_s: f64, to_s: f64, causes: &[(Cause, f64)]) -> Stall {
        let finding = |(cause, strength): &(Cause, f64)| Finding {
            cause: *cause,
            strength: *strength,
            evidence: Vec::new(),
            confirmation: None,
        };
        let findings = causes.iter().map(finding).collect();
        Stall { from_s, to_s, tps: 1.0, ordinary_tps: 100.0, max_ms: None, findings }
    }

    #[test]
    fn causes_are_taken_away_one_by_one() {
        let stalls = [
            stall(5.0, 10.0, &[(Cause::IoCap, 0.9), (Cause::FullPageImages, 0.3)]),
            stall(20.0, 22.0, &[(Cause::CheckpointWrites, 0.8), (Cause::FullPageImages, 0.5)]),
        ];
        let limited = Class { iops: "400".parse().ok(), ..Class::default() };
        let causes: Vec<Cause> = to_be_taken_away(&stalls, limited).iter().map(|without| without.cause).collect();
        assert_eq!(causes, [Cause::IoCap, Cause::CheckpointWrites, Cause::FullPageImages]);
    }

    #[test]
    fn what_goes_with_its_cause_is_confirmed() {
        let without = Without::of(Cause::FullPageImages).unwrap();
        let mut stalls = [stall(0.0, 10.0, &[(Cause::FullPageImages, 0.5), (Cause::IoCap, 0.9)])];
        note(&mut stalls, &without, 100.0, &[stall(0.0, 9.0, &[])], 100.0);
        let confirmation = stalls[0].findings[0].confirmation.clone().unwrap();
        assert!(!confirmation.confirmed && (confirmation.stalled_after - 0.09).abs() < 1e-9);
        note(&mut stalls, &without, 100.0, &[], 100.0);
        assert!(stalls[0].findings[0].confirmation.clone().unwrap().confirmed);
        assert_eq!(stalls[0].findings[1].confirmation, None);
        assert_eq!(without.describe(), "full_page_writes = 'off'");
    }

    #[test]
    fn other_stalls_may_stay() {
        let without = Without::of(Cause::Autovacuum).unwrap();
        let others = stall(20.0, 70.0, &[(Cause::LockWaits, 0.9)]);
        let mut stalls = [stall(2.0, 6.0, &[(Cause::Autovacuum, 0.5)]), others.clone()];
        let confirmed = |stalls: &[Stall]| stalls[0].findings[0].confirmation.as_ref().unwrap().confirmed;
        note(&mut stalls, &without, 100.0, std::slice::from_ref(&others), 100.0);
        assert!(confirmed(&stalls));
        note(&mut stalls, &without, 100.0, &[others, stall(80.0, 84.0, &[])], 100.0);
        assert!(!confirmed(&stalls));
    }
}
