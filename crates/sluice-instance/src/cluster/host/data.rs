//! Whether the data of a host are its cluster's. What can't be shown to be is left as it is, and the start ends.
//!
//! Data of the same PostgreSQL on an earlier timeline are Patroni's to bring in line: it promotes nobody who may lack
//! what was acknowledged, so what such data have more is not missed. Data on a later timeline than the primary's, further
//! on the same one, or on one that began elsewhere in the log, were written outside of the cluster. In a cluster that was
//! begun again on a host of an operator's choice (`again.rs`), nothing of the kind is known of the primary either.

use sluice_config::NodeConfig;

use super::{
    super::{control::Control, error::ClusterError, rest::Api},
    ASK_TIME_MAX, again,
    history::History,
};
use crate::{
    data_dir::DataDir,
    pid_file::{self, Runner},
};

/// Looks at the data here, and at the programs, before Patroni does. `system` is the cluster's identifier; `is_begun_again`:
/// it was begun again, and this host has not joined it since. `Err` within: what has to be there first.
pub(super) fn check(
    config: &NodeConfig,
    data_dir: &DataDir,
    system: &str,
    api: &Api,
    is_begun_again: bool,
) -> Result<Result<(), String>, ClusterError> {
    let all = config.other_nodes().filter_map(|node| Some((node, api.own(node.patroni, ASK_TIME_MAX).ok()?)));
    let all: Vec<_> = all.collect();
    let ours = data_dir.binaries().version.major;
    let other = all.iter().filter_map(|(node, own)| Some((&node.name, own.server_version? / 10_000)));
    // They have one, whoever is the primary.
    if let Some((name, major)) = other.into_iter().find(|(_, major)| *major != ours) {
        return Err(ClusterError::OtherVersion {
            node: name.clone(),
            theirs: major,
            dir: data_dir.binaries().dir.clone(),
            ours: data_dir.binaries().version.number.clone(),
            file: config.file.clone(),
        });
    }
    let primary = all.into_iter().find(|(_, own)| own.role == "primary" && own.state == "running");
    let pgdata = data_dir.pgdata();
    if !pgdata.join("PG_VERSION").exists() {
        return Ok(Ok(()));
    }
    let control = Control::read(data_dir.binaries(), pgdata)?;
    let (pgdata, cluster) = (pgdata.to_owned(), config.cluster.clone());
    if control.system != system {
        return Err(ClusterError::ForeignData { pgdata, found: control.system, cluster, expected: system.to_owned() });
    }
    // One that runs was started by this cluster's Patroni.
    if !is_begun_again && matches!(pid_file::runner(&pgdata), Ok(Runner::Live(_))) {
        return Ok(Ok(()));
    }
    let unknown = |why: &str| if is_begun_again { Err(format!("{}: {why}", again::TO_COMPARE)) } else { Ok(()) };
    let Some((node, own)) = primary else { return Ok(unknown("no primary answers yet")) };
    let Some(timeline) = own.timeline.map(u64::from) else { return Ok(unknown("it has not said its timeline yet")) };
    if own.log.and_then(|log| log.location).is_some_and(|location| is_further(&control, timeline, location)) {
        let primary = format!("primary {}, on timeline {timeline}", node.name);
        return Err(ClusterError::FurtherData { pgdata, timeline: control.timeline, cluster, primary });
    }
    let history = History::of_data(&pgdata, control.timeline).map_err(ClusterError::io("read", &pgdata))?;
    // One that the primary does not let in yet has no data of its own.
    let of_primary = match api.tls() {
        Some(tls) => History::of_primary(&node.postgres.ip().to_string(), node.postgres.port(), tls, timeline),
        None => Ok(History::default()),
    };
    let of_primary = match of_primary {
        Ok(history) => history,
        Err(error) => return Ok(unknown(&format!("{} does not let this host look: {error}", node.name))),
    };
    if let Some(left) = history.parting(&of_primary) {
        return Err(ClusterError::PartedData { pgdata, timeline: control.timeline, left, cluster });
    }
    if is_begun_again
        && control.timeline < timeline
        && let Some(left) = again::parting(data_dir.binaries(), &pgdata, &control, &of_primary)?
    {
        let primary = format!("primary {}", node.name);
        return Err(ClusterError::AheadOfBeginning { pgdata, timeline: control.timeline, cluster, primary, left });
    }
    Ok(Ok(()))
}

/// Whether data hold what a primary at that place of its log has not written.
fn is_further(control: &Control, timeline: u64, location: u64) -> bool {
    control.timeline > timeline || control.timeline == timeline && control.end() > location
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_elsewhere_is_further() {
        let control = |timeline, checkpoint, recovered| Control {
            system: "7".to_owned(),
            state: "shut down".to_owned(),
            timeline,
            checkpoint,
            recovered,
        };
        assert!(is_further(&control(3, 10, 0), 2, 100));
        assert!(is_further(&control(2, 101, 0), 2, 100) && is_further(&control(2, 10, 101), 2, 100));
        assert!(!is_further(&control(2, 100, 100), 2, 100) && !is_further(&control(1, 500, 500), 2, 100));
    }
}
