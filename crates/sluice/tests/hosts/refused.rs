//! Data and settings that are not the cluster's: each a clear error, and nothing is touched but half a copy.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use rcgen::{CertificateParams, KeyPair};
use sluice_testkit::Version;

use crate::{
    hosts::{Hosts, name},
    ledger::Servers,
};

/// As PostgreSQL's user, which these are run as.
fn run(program: &str, arguments: &[&str]) {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command.arg(Version::V15.bin_dir().join(program)).args(arguments).current_dir("/").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The digest of what a control file holds.
fn control(pgdata: &Path) -> Vec<u8> {
    fs::read(pgdata.join("global/pg_control")).unwrap()
}

pub(crate) fn what_is_not_the_clusters(hosts: &Hosts) {
    let leader = hosts.leader();
    let [standby, other] = [1, 2].map(|next| (leader + next) % 3);
    hosts.stop(standby);
    // What changes something takes a certificate, which a host has. The new primary's timeline is one that the standby has
    // not heard of.
    let mut switchover = Command::new(crate::SLUICE);
    let (data, to) = (hosts.data(leader), name(other));
    let said = switchover.args(["cluster", "switchover", "--to", &to, "--data"]).arg(data).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.contains(&format!("{to} is the primary")), "{said}");
    hosts.wait_streaming(1);
    let pgdata = hosts.data(standby).join("node/pgdata");
    let aside = hosts.data(standby).join("node/aside");
    let path = |path: &Path| path.display().to_string();

    fs::rename(&pgdata, &aside).unwrap();
    run("initdb", &["-D", &path(&pgdata), "-U", "postgres"]);
    is_refused(hosts, standby, &["has data of another PostgreSQL", "move that folder away"], &pgdata);
    // A directory that is not this host's has no etcd of its own either: its true one keeps its place.
    let (etcd, etcd_aside) = (hosts.data(standby).join("etcd"), hosts.data(standby).join("etcd-aside"));
    fs::rename(&etcd, &etcd_aside).unwrap();
    is_refused(hosts, standby, &["has data of another PostgreSQL"], &pgdata);
    assert!(!hosts.said(standby).contains("since its data are gone"), "{}", hosts.said(standby));
    fs::remove_dir_all(&etcd).unwrap();
    fs::rename(&etcd_aside, &etcd).unwrap();
    fs::remove_dir_all(&pgdata).unwrap();

    // Somebody has promoted these data by themselves.
    let copied = Command::new("cp").arg("-a").arg(&aside).arg(&pgdata).status().unwrap();
    assert!(copied.success());
    let socket = hosts.data(standby).join("node");
    let options = format!("-p 6000 -c listen_addresses= -c primary_conninfo= -k {}", path(&socket));
    let promote = || {
        run("pg_ctl", &["-D", &path(&pgdata), "-w", "-s", "-l", "/dev/null", "-o", &options, "start"]);
        run("pg_ctl", &["-D", &path(&pgdata), "-w", "-s", "promote"]);
        run("pg_ctl", &["-D", &path(&pgdata), "-w", "-s", "-m", "fast", "stop"]);
    };
    promote();
    is_refused(hosts, standby, &["has another history than cluster main", "look at it"], &pgdata);
    // Twice, to a timeline that the cluster has not come to.
    fs::write(pgdata.join("standby.signal"), "").unwrap();
    promote();
    is_refused(hosts, standby, &["goes further than the data of cluster main", "look at it"], &pgdata);
    fs::remove_dir_all(&pgdata).unwrap();
    fs::rename(&aside, &pgdata).unwrap();

    settings(hosts, standby);
    another_authority(hosts, standby);
    another_name_or_version(hosts, standby);
    let (said, is_good) = hosts.command(standby, &["init"]);
    assert!(!is_good && said.contains("the other hosts have a cluster already"), "{said}");

    // A copy, as a loss of power leaves it.
    fs::write(pgdata.join("backup_label"), "").unwrap();
    for file in ["PG_VERSION", "global/pg_control", "postmaster.opts"] {
        fs::remove_file(pgdata.join(file)).unwrap();
    }
    hosts.start(standby);
    hosts.wait_said(standby, "node/pgdata, which had not come to its end");
    hosts.wait_placed(standby);
    hosts.wait_streaming(2);
}

fn is_refused(hosts: &Hosts, host: usize, words: &[&str], pgdata: &Path) {
    let before = control(pgdata);
    hosts.start(host);
    assert!(!hosts.wait_end(host), "{}", hosts.said(host));
    let said = hosts.said(host);
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    assert!(control(pgdata) == before, "the data were touched");
    assert_eq!(hosts.network.processes(host), [0; 0]);
}

/// A host with certificates of another cluster's authority is told whose they are, and where.
fn another_authority(hosts: &Hosts, host: usize) {
    let (file, text) = (hosts.file(host), fs::read_to_string(hosts.file(host)).unwrap());
    let other = hosts.ca("").with_file_name("ca-other");
    let mut ca = Command::new(crate::SLUICE);
    let address = format!("{}={}", name(host), hosts.network.address(host));
    assert!(ca.args(["node", "ca"]).arg(&other).arg(address).output().unwrap().status.success());
    let elsewhere = hosts.data(host).with_extension("elsewhere");
    let as_stranger = text.replace("\"ca/", "\"ca-other/");
    let as_stranger = as_stranger.replace(&hosts.data(host).display().to_string(), &elsewhere.display().to_string());
    fs::write(&file, as_stranger).unwrap();
    hosts.start(host);
    hosts.wait_said(host, "do not trust each other's certificates");
    hosts.stop(host);
    let said = hosts.said(host);
    assert!(said.contains(&format!("ca-other/{} are not of the authority", name(host))), "{said}");
    fs::write(&file, text).unwrap();
    fs::remove_dir_all(elsewhere).unwrap();
}

/// A host with an empty disk whose file says another cluster, or that has another PostgreSQL: the true one's place in etcd
/// stays as it is.
fn another_name_or_version(hosts: &Hosts, host: usize) {
    let (file, text) = (hosts.file(host), fs::read_to_string(hosts.file(host)).unwrap());
    let path = |path: &Path| path.display().to_string();
    let elsewhere = hosts.data(host).with_extension("elsewhere");
    let empty = text.replace(&hosts.data(host).display().to_string(), &elsewhere.display().to_string());
    let newer = empty.replace(&path(&Version::V15.bin_dir()), &path(&Version::V18.bin_dir()));
    for (text, words) in [
        (
            format!("cluster = \"other\"\n{empty}"),
            "etcd of these hosts has cluster \"main\", and \"other\" is said here",
        ),
        (newer, "is PostgreSQL 15, and "),
    ] {
        fs::write(&file, text).unwrap();
        hosts.start(host);
        assert!(!hosts.wait_end(host), "{}", hosts.said(host));
        let said = hosts.said(host);
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("since its data are gone") && !said.contains("is added"), "{said}");
        fs::remove_dir_all(&elsewhere).unwrap();
    }
    fs::write(&file, text).unwrap();
}

/// A file that was cut off behind its first member: it passes no check, and changes nothing, neither by a reload nor by a
/// start.
pub(crate) fn half_a_file(hosts: &Hosts, host: usize) {
    let rules = || fs::read_to_string(hosts.data(host).join("node/pgdata/pg_hba.conf")).unwrap();
    let before = rules();
    hosts.set_members(host, &[host]);
    let missing = "member: this file does not name members of etcd that it had named before: ";
    let (said, is_good) = hosts.command(host, &["check"]);
    assert!(!is_good && said.contains(missing) && said.contains("sluice node remove"), "{said}");
    hosts.hang_up(host);
    hosts.wait_said(host, "the file is not taken, and nothing is changed: ");
    assert!(hosts.said(host).contains(missing), "{}", hosts.said(host));
    assert_eq!(rules(), before);
    hosts.stop(host);
    for _ in 0..2 {
        hosts.start(host);
        assert!(!hosts.wait_end(host) && hosts.said(host).contains(missing), "{}", hosts.said(host));
        assert_eq!(rules(), before);
    }
    hosts.set_members(host, &[0, 1, 2]);
    hosts.start(host);
    hosts.wait_placed(host);
    hosts.wait_streaming(2);
}

/// A standby whose disk becomes full when it has its place long since.
pub(crate) fn a_full_disk(hosts: &Hosts, host: usize) {
    let Some(disk) = hosts.disk(host) else { return };
    disk.fill();
    hosts.wait_said(host, "data is full (");
    let status = hosts.status(host);
    assert!(status.contains("Note: the disk of ") && status.contains("make room"), "{status}");
    disk.empty();
    hosts.wait_streaming(2);
}

/// A host whose certificate expires while it runs: that is said, rather than what follows from it.
pub(crate) fn an_expired_certificate(hosts: &Hosts, host: usize) {
    let tls = hosts.data(host).join("tls");
    let files = ["node.crt", "node.key"].map(|name| tls.join(name));
    let before = files.each_ref().map(|file| fs::read(file).unwrap());
    let mut params = CertificateParams::new(vec![hosts.network.address(host).to_string()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 2, 1);
    let key = KeyPair::generate().unwrap();
    // Written over, they keep their owner and mode.
    fs::write(&files[0], params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&files[1], key.serialize_pem()).unwrap();
    let status = hosts.status(host);
    assert!(status.contains("tls/node.crt has expired, on 2020-02-01: make a new one"), "{status}");
    assert!(!status.contains("etcd has no majority"), "{status}");
    hosts.wait_said(host, "tls/node.crt has expired, on 2020-02-01");
    files.iter().zip(before).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    hosts.wait_streaming(2);
}

/// A file that is not this host's, and a port that somebody has.
fn settings(hosts: &Hosts, host: usize) {
    let (file, text) = (hosts.file(host), fs::read_to_string(hosts.file(host)).unwrap());
    let other = (host + 1) % 3;
    let of_other = text.replace(&format!("ca/{}/", name(host)), &format!("ca/{}/", name(other)));
    fs::write(&file, of_other).unwrap();
    let (said, is_good) = hosts.command(host, &["check"]);
    assert!(!is_good && said.contains("tls.cert_file") && said.contains("sluice node ca"), "{said}");
    // A key that others may read is no bad certificate.
    let key = hosts.ca(&format!("{}/node.key", name(host)));
    fs::write(&file, &text).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (said, is_good) = hosts.command(host, &["check"]);
    assert!(!is_good && said.contains("chmod 0600") && !said.contains("sluice node ca"), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&file, text.replace("address = ", "adress = ")).unwrap();
    let (said, is_good) = hosts.command(host, &["check"]);
    assert!(!is_good && said.contains("did you mean address?") && said.contains(&file.display().to_string()), "{said}");
    // Another host's name, with its certificates: its address is not here.
    let as_other = text.replacen(&format!("name = \"{}\"", name(host)), &format!("name = \"{}\"", name(other)), 1);
    let as_other = as_other.replace(&format!("ca/{}/", name(host)), &format!("ca/{}/", name(other)));
    fs::write(&file, &as_other).unwrap();
    let (said, is_good) = hosts.command(host, &[]);
    assert!(!is_good && said.contains(&format!("this is the directory of host {}", name(host))), "{said}");
    let elsewhere = hosts.data(host).with_extension("elsewhere");
    let as_other = as_other.replace(&hosts.data(host).display().to_string(), &elsewhere.display().to_string());
    fs::write(&file, as_other).unwrap();
    let (said, is_good) = hosts.command(host, &[]);
    assert!(!is_good && said.contains("is no address of this machine"), "{said}");
    fs::write(&file, &text).unwrap();
    let (said, is_good) = hosts.command(host, &["check"]);
    assert!(is_good && said.contains("good"), "{said}");

    let script = format!(
        "import socket, time\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\ns.bind(('{}', 8008))\ns.listen()\nprint(flush=True)\ntime.sleep(600)",
        hosts.network.address(host)
    );
    let mut listener = hosts.network.command(host, "python3");
    let mut listener = listener.args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read(listener.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let (said, is_good) = hosts.command(host, &[]);
    listener.kill().unwrap();
    listener.wait().unwrap();
    assert!(!is_good && said.contains("8008 is in use, where Patroni (patroni_port) has to listen"), "{said}");
    assert_eq!(fs::metadata(hosts.data(host)).unwrap().permissions().mode() & 0o777, 0o711);
}
