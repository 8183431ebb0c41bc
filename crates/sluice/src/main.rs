//! The program: see the library.

fn main() -> std::process::ExitCode {
    sluice::main()
}
