/* The gate of Sluice, for SQL. */
\echo Use "CREATE EXTENSION sluice" to load this file. \quit

CREATE FUNCTION sluice_gate_rows(
    OUT kind text, OUT name text, OUT concurrency integer, OUT is_auto boolean, OUT running integer, OUT waiting integer,
    OUT admitted bigint, OUT waited bigint, OUT waited_ms double precision, OUT over_limit bigint,
    OUT given_up bigint, OUT wait_histogram bigint[])
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sluice_gate' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION sluice_gate_waiter_rows(
    OUT pid integer, OUT kind text, OUT name text, OUT place integer, OUT since timestamptz)
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sluice_gate_waiters' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION sluice_gate_reset() RETURNS void
AS 'MODULE_PATHNAME', 'sluice_gate_reset' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW sluice_gate AS SELECT * FROM sluice_gate_rows();

COMMENT ON VIEW sluice_gate IS
    'gates: how many are inside, how many wait, and what has been counted since the last sluice_gate_reset()';
COMMENT ON COLUMN sluice_gate.wait_histogram IS
    'waits that have ended; the n-th number counts those from 2^(n-1) up to under 2^n microseconds, the last one all above';

CREATE VIEW sluice_gate_waiters AS
    SELECT w.pid, w.kind, w.name, w.place, clock_timestamp() - w.since AS waits, a.datname, a.usename, a.application_name
    FROM sluice_gate_waiter_rows() w LEFT JOIN pg_stat_activity a USING (pid);

COMMENT ON VIEW sluice_gate_waiters IS 'sessions that wait at a gate, each gate''s first one at place 1';

CREATE FUNCTION sluice_set_client(bytea) RETURNS boolean
AS 'MODULE_PATHNAME', 'sluice_set_client' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION sluice_set_client(bytea) IS
    'for pools, which prove themselves by a secret: where the client of this session comes from';

REVOKE ALL ON FUNCTION sluice_gate_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION sluice_gate_waiter_rows() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sluice_gate_waiter_rows() TO pg_monitor;
GRANT SELECT ON sluice_gate TO PUBLIC;
GRANT SELECT ON sluice_gate_waiters TO pg_monitor;
