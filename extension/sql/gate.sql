-- What SQL sees of the gate. It needs a superuser, nobody else at work on the server, and psql in PATH.

CREATE EXTENSION sluice;
SELECT pg_describe_object(classid, objid, objsubid) COLLATE "C" AS object
FROM pg_depend
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'sluice')
  AND classid <> 'pg_type'::regclass
ORDER BY 1;

-- Views.
SELECT attrelid::regclass AS view, attname AS column, format_type(atttypid, atttypmod) AS type
FROM pg_attribute
WHERE attrelid IN ('sluice_gate'::regclass, 'sluice_gate_waiters'::regclass) AND attnum > 0
ORDER BY attrelid::regclass::text, attnum;
-- Who looks is inside already, so that looking is not counted.
BEGIN;
SELECT sluice_gate_reset();
SELECT kind, name, waiting, admitted, waited, waited_ms, over_limit, failed_waits, cardinality(wait_histogram) AS buckets,
  (SELECT sum(waits) FROM unnest(wait_histogram) waits) AS waits
FROM sluice_gate
WHERE kind = 'class';
SELECT * FROM sluice_gate_waiters;
COMMIT;

-- Settings.
SELECT name, vartype, unit, context, boot_val
FROM pg_settings
WHERE name LIKE 'sluice.%'
ORDER BY name COLLATE "C";
SET sluice.gate_timeout = '1500ms';
SHOW sluice.gate_timeout;
SET sluice.gate_timeout = '2s';
SHOW sluice.gate_timeout;
RESET sluice.gate_timeout;
SET sluice.bigquery_cost = 1e6;
SHOW sluice.bigquery_cost;
RESET sluice.bigquery_cost;

-- Bad values.
SET sluice.gate_timeout = 'soon';
SET sluice.bigquery_cost = 'much';
SET sluice.transaction_concurrency = 4;
SET sluice.superuser_reserved_slots = 4;
SET sluice.concurrency = 4;
ALTER SYSTEM SET sluice.transaction_concurrency = 'many';
ALTER SYSTEM SET sluice.autocommit_concurrency = -1;
ALTER SYSTEM SET sluice.query_concurrency = '';
ALTER SYSTEM SET sluice.bigquery_concurrency = 262144;
ALTER SYSTEM SET sluice.role_concurrency = 'batch';
ALTER SYSTEM SET sluice.role_concurrency = 'batch=4', 'report=few';
ALTER SYSTEM SET sluice.database_concurrency = '=1';
ALTER SYSTEM SET sluice.exempt_roles = 'one two';

-- Permissions.
CREATE ROLE regress_sluice_user;
SET SESSION AUTHORIZATION regress_sluice_user;
SELECT count(*) FROM sluice_gate WHERE kind = 'class';
SELECT * FROM sluice_gate_waiters;
SELECT * FROM sluice_gate_waiters();
SELECT sluice_gate_reset();
-- Anybody may call what a pool calls, but for nothing without the secret.
SELECT sluice_set_client(''), sluice_set_client('\x00'), sluice_set_client('\x0141040000');
SET sluice.bigquery_cost = 1;
ALTER SYSTEM SET sluice.query_concurrency = 1;
-- A role may say how long it waits.
ALTER ROLE regress_sluice_user SET sluice.gate_timeout = '1min';
SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'regress_sluice_user'::regrole;
RESET SESSION AUTHORIZATION;
GRANT pg_monitor TO regress_sluice_user;
SET SESSION AUTHORIZATION regress_sluice_user;
SELECT * FROM sluice_gate_waiters;
SELECT * FROM sluice_gate_waiters();
SELECT sluice_gate_reset();
RESET SESSION AUTHORIZATION;

-- A wait that is too long: the database has one place, and this session has it. What was set before is put back.
-- A block begins nevertheless, and fails with its next statement.
SELECT setting AS before, coalesce(sourcefile LIKE '%/postgresql.auto.conf', false) AS was_altered
FROM pg_settings
WHERE name = 'sluice.database_concurrency' \gset
ALTER SYSTEM SET sluice.database_concurrency = 'contrib_regression=1';
SELECT pg_reload_conf();
DO $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM sluice_gate WHERE kind = 'database' AND name = 'contrib_regression') LOOP
    PERFORM pg_sleep(0.01);
  END LOOP;
END
$$;
\setenv PGDATABASE :DBNAME
BEGIN;
\! psql -X -q -c "SET SESSION AUTHORIZATION regress_sluice_user" -c "SET sluice.gate_timeout = 20" -c "BEGIN" -c "SELECT 1" 2>&1
\! psql -X -q -c "SET SESSION AUTHORIZATION regress_sluice_user" -c "SET sluice.gate_timeout = 20" -v VERBOSITY=terse -c "SELECT 1" 2>&1
\! psql -X -q -c "SET SESSION AUTHORIZATION regress_sluice_user" -c "SET sluice.gate_timeout = 20" -v VERBOSITY=sqlstate -c "COPY (SELECT 1) TO STDOUT" 2>&1
SELECT kind, name, concurrency, is_auto, running, waiting, admitted > 0 AS admits, failed_waits
FROM sluice_gate
WHERE kind = 'database' AND name = 'contrib_regression';
COMMIT;
\if :was_altered
ALTER SYSTEM SET sluice.database_concurrency = :'before';
\else
ALTER SYSTEM RESET sluice.database_concurrency;
\endif
SELECT pg_reload_conf();

DROP ROLE regress_sluice_user;

-- The library stays, and with it its settings.
DROP EXTENSION sluice;
SELECT * FROM sluice_gate;
SELECT sluice_gate_reset();
SET sluice.gate_timeout = '3s';
SHOW sluice.gate_timeout;
