//! Clients that are held and let go on, by hand or by Patroni's `before_stop`.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use sluice_instance::cluster;

use super::{
    Patience,
    pools::Pools,
    target::{Target, Where},
};

/// The time for a primary's shutdown before Patroni goes on with it: after that it would have looked by itself.
const SHUTDOWN_TIME: Duration = Duration::from_secs(1);

/// Holds the clients of all pools. By Patroni this is run before each stop of PostgreSQL, whatever the reason: only that
/// of a primary is waited for, and only while it can reach the place where the cluster is kept, since otherwise it has to
/// stop at once. `data` is the data directory of one whose shutdown is begun then.
pub(super) fn hold(at: Where, patience: Patience, data: Option<&Path>) -> Result<()> {
    let target = Target::find(at)?;
    let scope = match target.first() {
        // By hand.
        _ if !target.is_by_member => target.look()?.scope,
        Err(error) => {
            say!("nobody is held: Patroni can't say whether this is the primary ({error})");
            return Ok(());
        }
        Ok((own, members)) => {
            let (name, leader) = (own.name().unwrap_or_default(), members.holder().map(|leader| &*leader.name));
            if leader != Some(name) {
                say!("nobody is held: {name} is not the primary");
                return Ok(());
            }
            members.scope
        }
    };
    let held = hold_all(&target, &scope, patience);
    if let Some(data) = data {
        // Whatever has come of the hold, Patroni stops it next.
        shut_down(data);
    }
    held
}

/// Begins PostgreSQL's shutdown. If that fails here, Patroni does it by itself.
fn shut_down(data: &Path) {
    match cluster::shut_down(data, SHUTDOWN_TIME) {
        Ok(true) => say!("PostgreSQL has been shut down"),
        Ok(false) => say!("PostgreSQL is being shut down"),
        Err(error) => say!("the shutdown of PostgreSQL in {} is left to Patroni: {error}", data.display()),
    }
}

fn hold_all(target: &Target, scope: &str, patience: Patience) -> Result<()> {
    let mut pools = Pools::connect(&target.pools, target.cluster.as_deref(), scope)?;
    for fault in &pools.faults {
        say!("not held: {fault}");
    }
    if target.is_by_member {
        // For a switchover that has given their transactions the time that they were to have.
        for pool in pools.leave_out_held() {
            say!("{pool} holds its clients already");
        }
    }
    if pools.is_empty() {
        if !target.is_by_member && !pools.faults.is_empty() {
            bail!("nobody is held");
        }
        say!("no pool is left to hold anybody");
        return Ok(());
    }
    let count = match pools.pools.len() {
        1 => "one pool".to_owned(),
        count => format!("{count} pools"),
    };
    match pools.hold(patience.wait, patience.longest) {
        Ok(()) => say!("clients are held by {count}, and no transaction is open"),
        Err(not_held) if !not_held.is_anybody_held => bail!("nobody is held:\n{}", not_held.faults.join("\n")),
        // It can't be called off from here.
        Err(not_held) => bail!(
            "clients are held, but:\n{}\nsluice cluster hold again waits on, and sluice cluster release lets them go on",
            not_held.faults.join("\n")
        ),
    }
    Ok(())
}

/// Ends a hold.
pub(super) fn release(at: Where) -> Result<()> {
    let target = Target::find(at)?;
    // The pools' own names do, where the members can't be asked.
    let scope = target.look().map(|members| members.scope).unwrap_or_default();
    let mut pools = Pools::connect(&target.pools, target.cluster.as_deref(), &scope)?;
    let mut faults = pools.faults.clone();
    if pools.is_empty() && faults.is_empty() {
        bail!("no pool is named\nname each pool's admin console with --pool");
    }
    faults.extend(pools.release());
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    say!("clients go on");
    Ok(())
}
