/* The gate of Sluice, for SQL. */
\echo Use "CREATE EXTENSION sluice" to load this file. \quit

CREATE FUNCTION sluice_gate(
    OUT kind text, OUT name text, OUT concurrency integer, OUT is_auto boolean, OUT running integer, OUT waiting integer,
    OUT admitted bigint, OUT waited bigint, OUT waited_ms double precision, OUT over_limit bigint,
    OUT failed_waits bigint, OUT wait_histogram bigint[])
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sluice_gate' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION sluice_gate_waiters(
    OUT pid integer, OUT kind text, OUT name text, OUT queue_position integer, OUT since timestamptz)
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sluice_gate_waiters' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION sluice_gate_reset() RETURNS void
AS 'MODULE_PATHNAME', 'sluice_gate_reset' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW sluice_gate AS SELECT * FROM sluice_gate();

COMMENT ON VIEW sluice_gate IS
    'limits and current use of the gates, and their counters since the last sluice_gate_reset()';
COMMENT ON COLUMN sluice_gate.wait_histogram IS
    'successful waits; the n-th element counts those from 2^(n-1) up to 2^n microseconds, the last one all longer ones';

CREATE VIEW sluice_gate_waiters AS
    SELECT w.pid, w.kind, w.name, w.queue_position, clock_timestamp() - w.since AS wait_time, a.datname, a.usename, a.application_name
    FROM sluice_gate_waiters() w LEFT JOIN pg_stat_activity a USING (pid);

COMMENT ON VIEW sluice_gate_waiters IS 'sessions that wait for admission, with their positions in the queue of their gate';

CREATE FUNCTION sluice_set_client(bytea) RETURNS boolean
AS 'MODULE_PATHNAME', 'sluice_set_client' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION sluice_set_client(bytea) IS
    'for connection pools, which authenticate themselves by a secret: sets the client address of this session';

REVOKE ALL ON FUNCTION sluice_gate_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION sluice_gate_waiters() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sluice_gate_waiters() TO pg_monitor;
GRANT SELECT ON sluice_gate TO PUBLIC;
GRANT SELECT ON sluice_gate_waiters TO pg_monitor;
