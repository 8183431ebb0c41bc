//! Makes the environment for Patroni that tests run clusters in, unless it is there, and prints its interpreter.

fn main() {
    println!("{}", sluice_testkit::cluster::environment().python().display());
}
