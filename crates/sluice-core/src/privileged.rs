//! Settings that only superusers may set, and whoever was granted it. A session may have one all the same: by a
//! function that runs as its owner, or from a time in which it was another role. Then no other server can be given it.

/// Those of PostgreSQL 14 to 18 (`pg_settings.context` is `superuser`), in order.
const NAMES: [&str; 49] = [
    "allow_in_place_tablespaces",
    "allow_system_table_mods",
    "backtrace_functions",
    "commit_delay",
    "compute_query_id",
    "deadlock_timeout",
    "debug_discard_caches",
    "dynamic_library_path",
    "event_triggers",
    "extension_control_path",
    "ignore_checksum_failure",
    "jit_dump_bitcode",
    "lc_messages",
    "lo_compat_privileges",
    "log_duration",
    "log_error_verbosity",
    "log_executor_stats",
    "log_lock_failures",
    "log_lock_waits",
    "log_min_duration_sample",
    "log_min_duration_statement",
    "log_min_error_statement",
    "log_min_messages",
    "log_parameter_max_length",
    "log_parser_stats",
    "log_planner_stats",
    "log_replication_commands",
    "log_statement",
    "log_statement_sample_rate",
    "log_statement_stats",
    "log_temp_files",
    "log_transaction_sample_rate",
    "max_stack_depth",
    "output_plugin_libraries",
    "session_preload_libraries",
    "session_replication_role",
    "temp_file_limit",
    "track_activities",
    "track_cost_delay_timing",
    "track_counts",
    "track_functions",
    "track_io_timing",
    "track_wal_io_timing",
    "update_process_title",
    "wal_compression",
    "wal_consistency_checking",
    "wal_init_zero",
    "wal_recycle",
    "zero_damaged_pages",
];

/// Whether a setting, by its lower-case name, is one of them.
pub fn is_privileged(name: &str) -> bool {
    // All that these two libraries bring.
    NAMES.contains(&name) || ["auto_explain.", "pg_stat_statements."].iter().any(|prefix| name.starts_with(prefix))
}
