//! Runs the tokio-postgres checks against the server that `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD` and `PGDATABASE`
//! name, as the programs under `tests/drivers` do. The harness calls the library function itself.

use std::process::ExitCode;

use tokio_postgres::Config;

fn config() -> Result<Config, String> {
    let var = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set: it names the server to test"));
    let mut config = Config::new();
    config
        .host(var("PGHOST")?)
        .port(var("PGPORT")?.parse().map_err(|problem| format!("PGPORT: {problem}"))?)
        .user(var("PGUSER")?)
        .password(var("PGPASSWORD")?)
        .dbname(var("PGDATABASE")?);
    Ok(config)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let config = match config() {
        Ok(config) => config,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for (name, outcome) in sluice_testkit::tokio_checks::run(config).await {
        match outcome {
            Ok(()) => println!("ok {name}"),
            Err(reason) => {
                println!("not ok {name}: {reason}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
