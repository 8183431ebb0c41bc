//! PgBouncer's settings, up to 1.26, and the fate of each.

use std::time::Duration;

use toml_edit::Value;

use super::values;
use crate::{kinds::Time, schema, units};

/// The table whose keys go into that of each database.
pub(super) const EACH_DATABASE: &str = "each database";

/// The shortest time that any setting takes: Sluice's `backoff_min`, which `backoff_max` may not be below.
const LEAST: Duration = Duration::from_millis(100);

/// The longest time that `tcp_user_timeout` takes.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The choice that is made for TLS.
const SAFE_TLS: &str = "TLS 1.3 and 1.2, with the ciphers and curves that are held to be safe";

/// The fate of a setting.
pub(super) enum Counterpart {
    /// A key of Sluice's in that table, and how its value is turned.
    Key(&'static str, &'static str, Kind),
    /// Sluice does it by itself, or it says nothing to it.
    Unneeded(&'static str),
    /// The same, but for the values of which the function says what they mean to clients.
    Mostly(&'static str, fn(&str) -> Option<String>),
    /// Sluice does not have it; where it is set, that is said.
    Missing(&'static str),
}

/// The way in which a value is converted.
pub(super) enum Kind {
    /// A whole number.
    Number,
    /// A whole number; 0 says that there is no such limit, and is left out.
    Limit,
    /// A number of clients, one at least.
    Clients,
    /// Seconds, perhaps with a fraction, within the range of that key; 0 says that there is no such limit, and is left
    /// out.
    Seconds(&'static schema::Key<Time>),
    /// The same; 0 says that it is waited for ever, and becomes the most of that key.
    Patience(&'static schema::Key<Time>),
    /// Milliseconds, a second at least and a day at most; 0 says that there is no such limit, and is left out.
    UserTimeout,
    /// A number that is 0 for no.
    Flag,
    /// A path, or a name.
    Text,
    /// Names with commas or blanks between them.
    Names,
    /// `session`, `transaction` or `statement`.
    Mode,
}

impl Kind {
    /// The value in TOML; `None` if it says nothing.
    pub(super) fn convert(&self, text: &str) -> Result<Option<Value>, String> {
        match self {
            Self::Number | Self::Limit => {
                let number: u32 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
                let says_nothing = matches!(self, Self::Limit) && number == 0;
                Ok((!says_nothing).then(|| i64::from(number).into()))
            }
            Self::Flag => {
                let number: i64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
                Ok(Some((number != 0).into()))
            }
            Self::Clients => {
                let number: u32 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
                Ok(Some(i64::from(number.max(1)).into()))
            }
            Self::Seconds(key) => {
                let seconds = seconds(text).ok_or_else(|| format!("{text:?} is no number of seconds"))?;
                let time = Duration::from_millis((seconds * 1000.0).round() as u64);
                let time = time.clamp(key.kind.min.max(LEAST), key.kind.max);
                Ok((seconds > 0.0).then(|| units::show_duration(time).into()))
            }
            Self::Patience(key) => {
                let told = Self::Seconds(key).convert(text)?;
                Ok(told.or_else(|| Some(units::show_duration(key.kind.max).into())))
            }
            Self::UserTimeout => {
                let ms: u64 = text.parse().map_err(|_| format!("{text:?} is no number of milliseconds"))?;
                Ok((ms > 0).then(|| units::show_duration(Duration::from_millis(ms.clamp(1000, DAY_MS))).into()))
            }
            Self::Text => Ok((!text.is_empty()).then(|| text.into())),
            Self::Names => {
                let names: Vec<_> = values::names(text).collect();
                Ok((!names.is_empty()).then(|| names.into_iter().collect()))
            }
            Self::Mode => match text.to_ascii_lowercase().as_str() {
                mode @ ("session" | "transaction") => Ok(Some(mode.into())),
                "statement" => Ok(Some("transaction".into())),
                _ => Err(format!("{text:?} is no pool_mode")),
            },
        }
    }
}

impl Kind {
    /// The difference that a value makes, where there is no such value of Sluice's.
    pub(super) fn otherwise(&self, text: &str) -> Option<String> {
        match self {
            Self::Clients => {
                let what = "0 lets nobody in with PgBouncer, and Sluice one at least";
                (text.parse() == Ok(0)).then(|| what.to_owned())
            }
            Self::Seconds(key) => {
                let seconds = seconds(text).filter(|seconds| *seconds > 0.0)?;
                let shown = units::show_duration;
                let (least, most) = (key.kind.min.max(LEAST), key.kind.max);
                match seconds {
                    _ if seconds < least.as_secs_f64() => Some(format!("Sluice takes {} at least", shown(least))),
                    _ if seconds > most.as_secs_f64() => Some(format!("Sluice takes {} at most", shown(most))),
                    _ => None,
                }
            }
            Self::Patience(key) if seconds(text) == Some(0.0) => {
                let most = units::show_duration(key.kind.max);
                Some(format!("0 means to wait for ever: it becomes the most here, {most}"))
            }
            Self::Patience(key) => Self::Seconds(key).otherwise(text),
            Self::UserTimeout => match text.parse().ok()? {
                1..1000 => Some("Sluice waits for a second at least".to_owned()),
                ms if ms > DAY_MS => Some("Sluice waits for a day at most".to_owned()),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A number of seconds, perhaps with a fraction.
fn seconds(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds))
}

/// The meaning of 0 seconds where it is not that of a missing key of Sluice's.
pub(super) fn meaning_of_zero(key: &str) -> Option<&'static str> {
    Some(match key {
        "server_idle_timeout" => "to keep idle servers for ever",
        "server_lifetime" => "to use a server once",
        "client_login_timeout" | "server_connect_timeout" => "no limit",
        "tcp_user_timeout" => "the system's own limits",
        _ => return None,
    })
}

/// The fate of a setting of the section `[pgbouncer]`; `None` if PgBouncer has none of that name.
pub(super) fn counterpart(key: &str) -> Option<Counterpart> {
    use Counterpart::{Key, Missing, Mostly, Unneeded};
    use Kind::{Clients, Flag, Limit, Mode, Names, Number, Patience, Seconds, Text, UserTimeout};
    Some(match key {
        "unix_socket_dir" => Key("", "unix_socket_dir", Text),
        "stats_period" => Key("", "stats_period", Seconds(&schema::STATS_PERIOD)),
        "tcp_user_timeout" => Key("", "tcp_user_timeout", UserTimeout),
        "max_client_conn" => Key("limits", "clients", Clients),
        "client_login_timeout" => Key("limits", "login_timeout", Seconds(&schema::LOGIN_TIMEOUT)),
        "idle_transaction_timeout" => {
            Key("limits", "idle_transaction_timeout", Seconds(&schema::IDLE_TRANSACTION_TIMEOUT))
        }
        "client_idle_timeout" => Key("limits", "idle_client_timeout", Seconds(&schema::IDLE_CLIENT_TIMEOUT)),
        "query_timeout" => Key("limits", "query_timeout", Seconds(&schema::QUERY_TIMEOUT)),
        "auth_file" => Key("auth", "users_file", Text),
        "auth_user" => Key("auth.lookup", "user", Text),
        "auth_dbname" => Key("auth.lookup", "database", Text),
        "pool_mode" => Key("pool", "mode", Mode),
        "default_pool_size" => Key("pool", "size", Number),
        "min_pool_size" => Key("pool", "min", Number),
        "query_wait_timeout" => Key("pool", "wait_timeout", Patience(&schema::WAIT_TIMEOUT)),
        "server_lifetime" => Key("pool", "server_lifetime", Seconds(&schema::SERVER_LIFETIME)),
        "server_idle_timeout" => Key("pool", "server_idle_timeout", Seconds(&schema::SERVER_IDLE_TIMEOUT)),
        "server_connect_timeout" => Key("pool", "connect_timeout", Seconds(&schema::CONNECT_TIMEOUT)),
        "server_login_retry" => Key("pool", "backoff_max", Seconds(&schema::BACKOFF_MAX)),
        "max_prepared_statements" => Unneeded("prepared statements work in transaction mode, and are shared"),
        // For all databases, they are looked at together.
        "server_reset_query" | "server_reset_query_always" => Unneeded(values::IN_ORDER),
        "server_check_query" | "server_check_delay" => Unneeded("a server that is gone is seen at once"),
        "server_fast_close" => Unneeded("it is for session mode"),
        "ignore_startup_parameters" => Mostly("all settings follow their client", values::startup_parameters),
        "track_extra_parameters" => Unneeded("all settings follow their client"),
        "disable_pqexec" => Mostly("simple queries are let through here, too", values::simple_queries),
        "application_name_add_host" => Missing("not supported: use the extension, which shows clients' addresses"),
        "log_connections" => Key("", "log_connections", Flag),
        "log_disconnections" => Key("", "log_disconnections", Flag),
        "log_pooler_errors" => Unneeded(
            "errors by which a client is refused or sent away are always logged (RUST_LOG=warn leaves them out, and all \
             else of their level), others that the pool itself answers are not",
        ),
        "syslog" | "syslog_ident" | "syslog_facility" | "logfile" | "log_stats" | "verbose" => {
            Unneeded("the log goes to standard error; RUST_LOG chooses what")
        }
        "pidfile" | "user" | "service_name" | "job_name" | "conffile" => {
            Unneeded("the service manager tracks the PID and sets the user")
        }
        "so_reuseport" | "peer_id" => Unneeded("one process uses all cores"),
        "pkt_buf"
        | "max_packet_size"
        | "listen_backlog"
        | "sbuf_loopcnt"
        | "suspend_timeout"
        | "tcp_defer_accept"
        | "tcp_socket_buffer"
        | "tcp_keepalive"
        | "tcp_keepcnt"
        | "tcp_keepidle"
        | "tcp_keepintvl"
        | "scram_iterations"
        | "autodb_idle_timeout"
        | "pool_idle_timeout" => Unneeded("Sluice chooses by itself"),
        "unix_socket_mode" | "unix_socket_group" => Missing(
            "the socket is open to all local users: have unix_socket_dir name a folder that only the right ones may enter",
        ),
        "dns_max_ttl" | "dns_nxdomain_ttl" | "dns_zone_check_period" | "resolv_conf" => {
            Unneeded("the system's resolver is asked")
        }
        "server_round_robin" => Unneeded("the server that was used last serves next: its caches are warm"),
        "admin_users" => Key("admin", "users", Names),
        "stats_users" => Key("admin", "stats_users", Names),
        "reserve_pool_size" | "reserve_pool_timeout" => Missing("there is no reserve: make the pool larger"),
        "max_user_connections" => Key("limits", "servers_per_user", Limit),
        "max_user_client_connections" => Key("limits", "clients_per_user", Limit),
        "max_db_connections" => Key(EACH_DATABASE, "servers", Limit),
        "max_db_client_connections" => Key(EACH_DATABASE, "clients", Limit),
        "transaction_timeout" => {
            Missing("not supported: set transaction_timeout for the role by ALTER ROLE … SET (PostgreSQL 17 and later)")
        }
        "query_wait_notify" => {
            Missing("not supported: clients are not told that they wait; SHOW WAITS at the console says who does")
        }
        "login_notify_message" => Missing("not supported: clients get no message of the pool's own at their log-in"),
        "cancel_wait_timeout" => Unneeded("a cancel waits for no place in a pool"),
        "auth_hba_file" => Key("auth", "hba_file", Text),
        "auth_ident_file" => Key("auth", "ident_file", Text),
        "auth_ldap_options" => Missing("there is no ldap: use scram-sha-256"),
        "client_tls_protocols" | "server_tls_protocols" => Mostly(SAFE_TLS, values::protocols),
        "client_tls_ciphers" | "client_tls13_ciphers" | "server_tls_ciphers" | "server_tls13_ciphers" => {
            Mostly(SAFE_TLS, values::ciphers)
        }
        "client_tls_ecdhcurve" => Mostly(SAFE_TLS, values::curve),
        "client_tls_dheparams" => Unneeded(SAFE_TLS),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of `[pgbouncer]` that PgBouncer's documentation has, at 1.26, in the order of the alphabet.
    const DOCUMENTED: &str = "admin_users application_name_add_host auth_dbname auth_file auth_hba_file auth_ident_file \
        auth_ldap_options auth_query auth_type auth_user autodb_idle_timeout cancel_wait_timeout client_idle_timeout \
        client_login_timeout client_tls13_ciphers client_tls_ca_file client_tls_cert_file client_tls_ciphers \
        client_tls_dheparams client_tls_ecdhcurve client_tls_key_file client_tls_protocols client_tls_sslmode conffile \
        default_pool_size disable_pqexec dns_max_ttl dns_nxdomain_ttl dns_zone_check_period idle_transaction_timeout \
        ignore_startup_parameters job_name listen_addr listen_backlog listen_port log_connections log_disconnections \
        log_pooler_errors log_stats logfile login_notify_message max_client_conn max_db_client_connections \
        max_db_connections max_packet_size max_prepared_statements max_user_client_connections max_user_connections \
        min_pool_size peer_id pidfile pkt_buf pool_idle_timeout pool_mode query_timeout query_wait_notify \
        query_wait_timeout reserve_pool_size reserve_pool_timeout resolv_conf sbuf_loopcnt scram_iterations \
        server_check_delay server_check_query server_connect_timeout server_fast_close server_idle_timeout \
        server_lifetime server_login_retry server_reset_query server_reset_query_always server_round_robin \
        server_tls13_ciphers server_tls_ca_file server_tls_cert_file server_tls_ciphers server_tls_key_file \
        server_tls_protocols server_tls_sslmode service_name so_reuseport stats_period stats_users suspend_timeout syslog \
        syslog_facility syslog_ident tcp_defer_accept tcp_keepalive tcp_keepcnt tcp_keepidle tcp_keepintvl \
        tcp_socket_buffer tcp_user_timeout track_extra_parameters transaction_timeout unix_socket_dir \
        unix_socket_group unix_socket_mode user verbose";

    #[test]
    fn each_documented_setting_is_known() {
        // These are looked at together with others.
        let apart = ["auth_query", "auth_type", "listen_addr", "listen_port"];
        let ends = ["_tls_sslmode", "_tls_cert_file", "_tls_key_file", "_tls_ca_file"];
        let of_tls = |key: &str| ends.iter().any(|end| key.ends_with(end));
        for key in DOCUMENTED.split_whitespace() {
            assert!(apart.contains(&key) || of_tls(key) || counterpart(key).is_some(), "{key}");
        }
    }
}
