//! A process that forbids core dumps can't allow them again by its limit, and a program that it starts is an ordinary one.
//! It is the only test of its program: what it forbids is forbidden to the whole process.

use std::process::Command;

use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

#[test]
fn a_process_forbids_its_core_dumps() {
    sluice_proxy::forbid_core_dumps();
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    let limit = getrlimit(Resource::Core);
    assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
    // As a new process in the place of this one would: the program's path, and a child that may look at itself.
    assert!(std::env::current_exe().unwrap().is_absolute());
    let child = Command::new("cat").arg("/proc/self/environ").output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}
