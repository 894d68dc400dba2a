//! Settings that change nothing about a prepared statement.
//!
//! PostgreSQL reads some settings when it parses or plans a text: `transform_null_equals` changes
//! what `x = null` says, `extra_float_digits` a constant that the planner computes. Clients share a
//! statement only if they have set the same values of these. Which settings these are grows with
//! PostgreSQL and its extensions, so the list here has the others: a setting that this list lacks
//! counts as one that matters.

/// Settings that matter only while a command runs, or to the speed of a plan, or for messages.
/// Sorted.
const HARMLESS: [&[u8]; 150] = [
    b"application_name",
    b"backend_flush_after",
    b"backtrace_functions",
    b"check_function_bodies",
    b"client_connection_check_interval",
    b"client_min_messages",
    b"commit_delay",
    b"commit_siblings",
    b"compute_query_id",
    b"constraint_exclusion",
    b"cpu_index_tuple_cost",
    b"cpu_operator_cost",
    b"cpu_tuple_cost",
    b"cursor_tuple_fraction",
    b"deadlock_timeout",
    b"debug_parallel_query",
    b"debug_pretty_print",
    b"debug_print_parse",
    b"debug_print_plan",
    b"debug_print_rewritten",
    b"default_statistics_target",
    b"default_table_access_method",
    b"default_tablespace",
    b"default_toast_compression",
    b"default_transaction_deferrable",
    b"default_transaction_isolation",
    b"default_transaction_read_only",
    b"effective_cache_size",
    b"effective_io_concurrency",
    b"enable_async_append",
    b"enable_bitmapscan",
    b"enable_distinct_reordering",
    b"enable_gathermerge",
    b"enable_group_by_reordering",
    b"enable_hashagg",
    b"enable_hashjoin",
    b"enable_incremental_sort",
    b"enable_indexonlyscan",
    b"enable_indexscan",
    b"enable_material",
    b"enable_memoize",
    b"enable_mergejoin",
    b"enable_nestloop",
    b"enable_parallel_append",
    b"enable_parallel_hash",
    b"enable_partition_pruning",
    b"enable_partitionwise_aggregate",
    b"enable_partitionwise_join",
    b"enable_presorted_aggregate",
    b"enable_self_join_elimination",
    b"enable_seqscan",
    b"enable_sort",
    b"enable_tidscan",
    b"escape_string_warning",
    b"force_parallel_mode",
    b"from_collapse_limit",
    b"geqo",
    b"geqo_effort",
    b"geqo_generations",
    b"geqo_pool_size",
    b"geqo_seed",
    b"geqo_selection_bias",
    b"geqo_threshold",
    b"gin_fuzzy_search_limit",
    b"gin_pending_list_limit",
    b"hash_mem_multiplier",
    b"idle_in_transaction_session_timeout",
    b"idle_session_timeout",
    b"io_combine_limit",
    b"jit",
    b"jit_above_cost",
    b"jit_expressions",
    b"jit_inline_above_cost",
    b"jit_optimize_above_cost",
    b"jit_tuple_deforming",
    b"join_collapse_limit",
    b"lc_messages",
    b"lock_timeout",
    b"log_duration",
    b"log_error_verbosity",
    b"log_executor_stats",
    b"log_lock_failures",
    b"log_lock_waits",
    b"log_min_duration_sample",
    b"log_min_duration_statement",
    b"log_min_error_statement",
    b"log_min_messages",
    b"log_parameter_max_length",
    b"log_parameter_max_length_on_error",
    b"log_parser_stats",
    b"log_planner_stats",
    b"log_replication_commands",
    b"log_statement",
    b"log_statement_sample_rate",
    b"log_statement_stats",
    b"log_temp_files",
    b"log_transaction_sample_rate",
    b"logical_decoding_work_mem",
    b"maintenance_io_concurrency",
    b"maintenance_work_mem",
    b"max_parallel_maintenance_workers",
    b"max_parallel_workers",
    b"max_parallel_workers_per_gather",
    b"min_parallel_index_scan_size",
    b"min_parallel_table_scan_size",
    b"parallel_leader_participation",
    b"parallel_setup_cost",
    b"parallel_tuple_cost",
    b"plan_cache_mode",
    b"random_page_cost",
    b"recursive_worktable_factor",
    b"row_security",
    b"seq_page_cost",
    b"statement_timeout",
    b"stats_fetch_consistency",
    b"synchronize_seqscans",
    b"synchronous_commit",
    b"tcp_keepalives_count",
    b"tcp_keepalives_idle",
    b"tcp_keepalives_interval",
    b"tcp_user_timeout",
    b"temp_buffers",
    b"temp_file_limit",
    b"temp_tablespaces",
    b"trace_notify",
    b"trace_sort",
    b"track_activities",
    b"track_cost_delay_timing",
    b"track_counts",
    b"track_functions",
    b"track_io_timing",
    b"track_wal_io_timing",
    b"transaction_timeout",
    b"update_process_title",
    b"vacuum_buffer_usage_limit",
    b"vacuum_cost_delay",
    b"vacuum_cost_limit",
    b"vacuum_cost_page_dirty",
    b"vacuum_cost_page_hit",
    b"vacuum_cost_page_miss",
    b"vacuum_failsafe_age",
    b"vacuum_freeze_min_age",
    b"vacuum_freeze_table_age",
    b"vacuum_multixact_failsafe_age",
    b"vacuum_multixact_freeze_min_age",
    b"vacuum_multixact_freeze_table_age",
    b"wal_compression",
    b"wal_sender_timeout",
    b"wal_skip_threshold",
    b"work_mem",
];

/// True if clients with different values of this setting can share statements. Custom settings
/// (`app.tenant`) are read when a command runs. The name is in lower case.
pub fn is_harmless(name: &[u8]) -> bool {
    name.contains(&b'.') || HARMLESS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in `pg_settings`.
    const POSTGRESQL: [&str; 2] = [
        include_str!("harmless/postgresql-15.txt"),
        include_str!("harmless/postgresql-18.txt"),
    ];

    #[test]
    fn harmless_settings_exist() {
        assert!(HARMLESS.is_sorted());
        for name in HARMLESS {
            let known = |list: &&str| list.lines().any(|known| known.as_bytes() == name);
            let name = String::from_utf8_lossy(name);
            assert!(POSTGRESQL.iter().any(known), "{name} is in no version");
        }
    }

    #[test]
    fn what_is_not_listed_matters() {
        for name in [
            "array_nulls",
            "search_path",
            "role",
            "a_setting_of_postgresql_19",
            "",
        ] {
            assert!(!is_harmless(name.as_bytes()), "{name}");
        }
        for name in ["work_mem", "app.tenant", "statement_timeout"] {
            assert!(is_harmless(name.as_bytes()), "{name}");
        }
    }
}
