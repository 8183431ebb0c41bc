//! An instance's groups on folders that behave like control groups of version 1, of version 2, and of both.

use std::{fs, time::Duration};

use nix::errno::Errno;

use super::{Class, ClassGroup, Obstacle, device::Disk, fake::Fake, group::Site, group_fs::GroupFs, ledger::Ledger};

const OWN: u32 = 77;
const SERVER: u32 = 4711;

fn class(memory: &str, cpus: &str, iops: &str) -> Class {
    Class {
        memory: memory.parse().ok(),
        cpus: cpus.parse().ok(),
        iops: iops.parse().ok(),
        connections: "100".parse().ok(),
    }
}

fn full() -> Class {
    class("1GB", "0.5", "400")
}

fn disk() -> Disk {
    Disk::new(254, 0)
}

fn make(fake: &Fake, own: &str, class: &Class) -> ClassGroup {
    let site = Site { hierarchies: fake.hierarchies(own), disk: Ok(disk()), pid: OWN };
    ClassGroup::make(class, &site, ledger(fake), fake.files())
}

fn ledger(fake: &Fake) -> Ledger {
    Ledger::read(fake.path("cgroups"), "sluice-1".to_owned())
}

fn v1() -> Fake {
    let fake = Fake::new();
    ["cpu", "memory", "blkio"].iter().for_each(|controller| fake.v1(controller));
    fake
}

const ENFORCED: &str = "class enforced: memory 1GB, cpus 0.5, iops 400";

#[test]
fn version_1() {
    let fake = v1();
    let mut groups = make(&fake, "", &full());
    assert_eq!(groups.report().to_string(), ENFORCED);
    for (file, value) in [
        ("memory/sluice-1/memory.limit_in_bytes", "1073741824"),
        ("memory/sluice-1/memory.memsw.limit_in_bytes", "1073741824"),
        ("cpu/sluice-1/cpu.cfs_period_us", "100000"),
        ("cpu/sluice-1/cpu.cfs_quota_us", "50000"),
        ("blkio/sluice-1/blkio.throttle.read_iops_device", "254:0 400"),
        ("blkio/sluice-1/blkio.throttle.write_iops_device", "254:0 400"),
    ] {
        assert_eq!(fake.text(file), value, "{file}");
    }
    groups.admit(SERVER);
    assert_eq!(groups.report().to_string(), ENFORCED);
    for controller in ["memory", "cpu", "blkio"] {
        assert_eq!(fake.text(&format!("{controller}/sluice-1/cgroup.procs")), "4711");
    }
    // The server ends.
    for controller in ["memory", "cpu", "blkio"] {
        fs::write(fake.path(&format!("{controller}/sluice-1/cgroup.procs")), "").unwrap();
    }
    drop(groups);
    assert!(!fake.path("memory/sluice-1").exists() && !fake.path("cgroups").exists());
}

#[test]
fn version_2_where_sluice_is_alone() {
    let fake = Fake::new();
    fake.v2("app.service", "cpuset cpu io memory pids", "77\n");
    let mut groups = make(&fake, "app.service", &full());
    assert_eq!(groups.report().to_string(), ENFORCED);
    assert_eq!(fake.text("v2/app.service/sluice-pool/cgroup.procs"), "77");
    for (file, value) in [
        ("memory.max", "1073741824"),
        ("memory.swap.max", "0"),
        ("cpu.max", "50000 100000"),
        ("io.max", "254:0 rbps=max wbps=max riops=400 wiops=400"),
    ] {
        assert_eq!(fake.text(&format!("v2/app.service/sluice-1/{file}")), value, "{file}");
    }
    groups.admit(SERVER);
    assert_eq!(fake.text("v2/app.service/sluice-1/cgroup.procs"), "4711");

    // A second instance, now that the process has stepped aside.
    let site = Site { hierarchies: fake.hierarchies("app.service/sluice-pool"), disk: Ok(disk()), pid: OWN };
    let other = Ledger::read(fake.path("cgroups-2"), "sluice-2".to_owned());
    let second = ClassGroup::make(&full(), &site, other, fake.files());
    assert_eq!(second.report().to_string(), ENFORCED);
    assert!(fake.path("v2/app.service/sluice-2/memory.max").exists());
    fs::write(fake.path("v2/app.service/sluice-1/cgroup.procs"), "").unwrap();
}

#[test]
fn version_2_in_the_root() {
    let fake = Fake::new();
    fake.v2("", "cpu io memory", "1\n77\n");
    let groups = make(&fake, "", &full());
    assert_eq!(groups.report().to_string(), ENFORCED);
    assert!(!fake.path("v2/sluice-pool").exists());
    drop(groups);
    assert!(!fake.path("v2/sluice-1").exists());
}

#[test]
fn version_2_with_others_in_the_group() {
    let fake = Fake::new();
    fake.v2("session-3.scope", "cpu io memory", "5\n77\n");
    let groups = make(&fake, "session-3.scope", &full());
    assert!(!groups.is_limiting());
    let (limits, whys): (Vec<_>, Vec<_>) = groups.report().not_enforced().unzip();
    assert_eq!(limits.len(), 3);
    assert!(matches!(whys[0], Obstacle::NotAlone { .. }), "{}", groups.report());
    assert!(groups.report().remedies().iter().any(|remedy| remedy.contains("systemd-run")));
    assert!(!fake.path("v2/session-3.scope/sluice-1").exists() && !fake.path("cgroups").exists());
}

#[test]
fn each_controller_where_it_is() {
    let fake = Fake::new();
    fake.v1("memory");
    fake.v2("", "cpu", "77\n");
    let groups = make(&fake, "", &full());
    assert_eq!(
        groups.report().to_string(),
        "class enforced: memory 1GB, cpus 0.5; class not enforced: iops (no io controller)"
    );
    assert_eq!(fake.text("v2/sluice-1/cpu.max"), "50000 100000");
    drop(groups);

    let fake = Fake::new();
    fake.v1("memory");
    let line = make(&fake, "", &class("1GB", "", "400")).report().to_string();
    assert_eq!(line, "class enforced: memory 1GB; class not enforced: iops (no blkio controller)");
}

#[test]
fn what_the_kernel_refuses() {
    for (file, errno, reason, remedy) in [
        ("cpu.cfs_quota_us", Some(Errno::EINVAL), "cannot write", "a group above allows less"),
        ("cpu.cfs_quota_us", Some(Errno::EACCES), "Permission denied", "start as root"),
        ("cpu.cfs_quota_us", Some(Errno::EROFS), "Read-only file system", "/sys/fs/cgroup writable"),
        ("cpu.cfs_quota_us", None, "says \"max\" where \"50000\" was written", "another program"),
    ] {
        let fake = v1().refusing(file, errno);
        let groups = make(&fake, "", &full());
        let report = groups.report();
        let line = report.to_string();
        assert!(line.starts_with("class enforced: memory 1GB, iops 400; class not enforced: cpus ("), "{line}");
        assert!(line.contains(reason), "{line}");
        assert!(report.remedies().iter().any(|text| text.contains(remedy)), "{:?}", report.remedies());
        assert!(!fake.path("cpu/sluice-1").exists(), "a group without a limit stays");
        assert_eq!(ledger(&fake).groups().len(), 2);
    }
}

#[test]
fn a_server_that_can_not_be_put_there() {
    let fake = v1().refusing("memory/sluice-1/cgroup.procs", Some(Errno::EACCES));
    let mut groups = make(&fake, "", &full());
    assert!(groups.report().is_enforced());
    groups.admit(SERVER);
    let line = groups.report().to_string();
    assert!(line.starts_with("class enforced: cpus 0.5, iops 400; class not enforced: memory (cannot write"), "{line}");

    // A group that somebody removed while the server was down.
    fs::remove_dir_all(fake.path("cpu/sluice-1")).unwrap();
    groups.admit(SERVER);
    assert!(groups.report().to_string().starts_with("class enforced: iops 400; class not enforced: memory"));
    fs::write(fake.path("blkio/sluice-1/cgroup.procs"), "").unwrap();
}

#[test]
fn without_a_disk_or_any_groups() {
    let fake = v1();
    let none = Obstacle::NoDisk { path: "/data".into(), file_system: "overlay".to_owned() };
    let site = Site { hierarchies: fake.hierarchies(""), disk: Err(none), pid: OWN };
    let groups = ClassGroup::make(&full(), &site, ledger(&fake), fake.files());
    assert!(groups.report().to_string().ends_with("not enforced: iops (/data is on overlay, not on a disk)"));
    drop(groups);

    let empty = Fake::new();
    let line = make(&empty, "", &full()).report().to_string();
    assert!(line.starts_with("class not enforced: memory (no memory controller), cpus (no cpu"), "{line}");
    assert_eq!(make(&empty, "", &Class::default()).report().to_string(), "");
}

/// As after SIGKILL: nobody removes anything.
fn leave(fake: &Fake, class: &Class) {
    std::mem::forget(make(fake, "", class));
}

#[test]
fn what_a_killed_run_left() {
    let fake = v1();
    leave(&fake, &full());
    let groups = make(&fake, "", &class("512MB", "", ""));
    assert_eq!(groups.leftovers().len(), 3);
    assert_eq!(fake.text("memory/sluice-1/memory.limit_in_bytes"), "536870912");
    assert!(!fake.path("cpu/sluice-1").exists() && !fake.path("blkio/sluice-1").exists());
    drop(groups);

    // Without its ledger it is found by its name.
    leave(&fake, &full());
    fs::remove_file(fake.path("cgroups")).unwrap();
    let groups = make(&fake, "", &full());
    assert_eq!((groups.leftovers().len(), groups.report().to_string().as_str()), (0, ENFORCED));
    drop(groups);

    // A group with somebody in it is nobody's to remove.
    leave(&fake, &full());
    fs::write(fake.path("cpu/sluice-1/cgroup.procs"), "99\n").unwrap();
    let groups = make(&fake, "", &full());
    let line = groups.report().to_string();
    assert!(line.contains("class not enforced: cpus (the group") && line.contains("cpu/sluice-1 is in use"), "{line}");
    drop(groups);
    assert_eq!(fake.text("cpu/sluice-1/cgroup.procs"), "99");
    assert_eq!(ledger(&fake).groups(), [fake.path("cpu/sluice-1")]);
}

#[test]
fn others_are_left_alone() {
    let fake = v1();
    fake.make(&fake.path("memory/sluice-2")).unwrap();
    drop(make(&fake, "", &full()));
    assert!(fake.path("memory/sluice-2").exists());
}

#[test]
fn a_slow_disk_takes_its_time() {
    assert_eq!(full().time_to_write(256 << 20), Duration::from_secs(81));
    assert_eq!(Class::default().time_to_write(u64::MAX), Duration::ZERO);
}

#[test]
fn a_class_in_words() {
    assert_eq!(full().to_string(), "memory 1GB, cpus 0.5, iops 400, connections 100");
    assert_eq!(Class::default().to_string(), "no limits");
}
