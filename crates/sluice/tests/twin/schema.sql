-- What both twins begin with. Clients have a schema each, c0, c1 and so on, with tables of the same names; so have
-- four tenants, with other column types. In `public` is what all only read, and functions that leave something behind.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (one int, two text);
CREATE TABLE shared (id int PRIMARY KEY, name text, at timestamptz, day date, span interval, price float8, raw bytea, feels mood);
INSERT INTO shared
SELECT i, 'name ' || i, '2024-01-01 12:00+00'::timestamptz + i * interval '31 days 1 hour', date '2024-01-01' + i * 31,
       i * interval '1 mon 2 days 03:04:05', i / 3.0, decode(lpad(to_hex(i), 4, '0'), 'hex'),
       (enum_range(NULL::mood))[1 + i % 3]
FROM generate_series(1, 12) i;
INSERT INTO shared VALUES (13, 'Grüße, Ærø, naïve', NULL, NULL, NULL, 'NaN', '\x00ff5c27', NULL), (14, '日本', NULL, NULL, NULL, 1e300, NULL, NULL);

CREATE TABLE owned_rows (owner name, content text);
INSERT INTO owned_rows VALUES ('app', 'of app'), ('twin_a', 'of a'), ('twin_b', 'of b'), ('twin_b', 'more of b');
ALTER TABLE owned_rows ENABLE ROW LEVEL SECURITY;
ALTER TABLE owned_rows FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON owned_rows USING (owner = current_user);
CREATE TABLE tenant_rows (tenant text, content text);
INSERT INTO tenant_rows VALUES ('a', 'of tenant a'), ('b', 'of tenant b'), ('', 'of nobody');
ALTER TABLE tenant_rows ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_rows FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON tenant_rows USING (tenant = current_setting('app.tenant', true));
GRANT SELECT ON shared, owned_rows, tenant_rows TO twin_a, twin_b;

CREATE FUNCTION sets(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config($1, $2, false); END $$;
CREATE FUNCTION sets_locally(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config($1, $2, true); END $$;
CREATE FUNCTION runs(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; END $$;
CREATE FUNCTION with_settings() RETURNS text LANGUAGE sql SET "TimeZone" = 'Asia/Tokyo' SET "DateStyle" = 'German'
    AS $$ SELECT timestamptz '2024-01-01 12:00+00'::text $$;
CREATE FUNCTION tells(text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'told %', $1; RAISE WARNING 'warned %', $1; RETURN 1; END $$;
CREATE FUNCTION fails(text) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'failed %', $1 USING DETAIL = 'a detail', HINT = 'a hint', ERRCODE = 'P7777'; END $$;
CREATE FUNCTION catches(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; RETURN 'fine'; EXCEPTION WHEN OTHERS THEN RETURN SQLERRM; END $$;
CREATE FUNCTION makes_temporary(int) RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN CREATE TEMPORARY TABLE IF NOT EXISTS made (n int); INSERT INTO made VALUES ($1); END $$;
CREATE FUNCTION shows_time() RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN timestamptz '2024-01-01 12:00+00'; END $$;
CREATE FUNCTION counts_item() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE number bigint;
BEGIN
    -- Planned each time: a plan that is kept may go on reading what a temporary table hides (docs/decisions/0014).
    EXECUTE 'SELECT count(*) FROM item' INTO number;
    RETURN number;
END $$;
CREATE FUNCTION locks(bigint) RETURNS void LANGUAGE sql AS $$ SELECT pg_advisory_lock($1) $$;
CREATE FUNCTION plus(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + $2 $$;
CREATE PROCEDURE sets_zone(text) LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('TimeZone', $1, false); END $$;
CREATE PROCEDURE commits(text) LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO log VALUES ($1); COMMIT; INSERT INTO log VALUES ($1 || ' again'); ROLLBACK; END $$;
CREATE PROCEDURE gives(INOUT int, INOUT text DEFAULT 'x') LANGUAGE plpgsql AS $$ BEGIN $1 := $1 + 1; END $$;

DO $$
DECLARE
    tenants text[] := ARRAY['a', 'b', 'c', 'd'];
    types text[] := ARRAY['int8', 'text', 'float8', 'uuid'];
    casts text[] := ARRAY['i', 'i::text', 'i / 7.0', 'md5(i::text)::uuid'];
BEGIN
    FOR i IN 1..4 LOOP
        EXECUTE format('CREATE SCHEMA tenant_%s', tenants[i]);
        EXECUTE format('CREATE TABLE tenant_%s.item (id int PRIMARY KEY, value %s, at timestamptz)', tenants[i], types[i]);
        EXECUTE format('INSERT INTO tenant_%s.item SELECT i, %s, ''2024-02-02 12:00+00''::timestamptz + i * interval ''1 day'' FROM generate_series(1, %s) i',
                       tenants[i], casts[i], 3 + i);
        EXECUTE format('GRANT USAGE ON SCHEMA tenant_%s TO twin_a, twin_b', tenants[i]);
        EXECUTE format('GRANT SELECT ON tenant_%s.item TO twin_a, twin_b', tenants[i]);
    END LOOP;
END $$;

-- What several clients write to at once: without a key nobody waits for another.
CREATE TABLE lines (line text);
GRANT SELECT ON lines TO twin_a;

-- Makes clients' own schemas anew, and empties what they share.
CREATE PROCEDURE renew(clients int[]) LANGUAGE plpgsql SET client_min_messages = 'warning' AS $$
DECLARE
    i int;
BEGIN
    TRUNCATE lines;
    FOREACH i IN ARRAY clients LOOP
        EXECUTE format('DROP SCHEMA IF EXISTS c%s CASCADE', i);
        EXECUTE format('CREATE SCHEMA c%s', i);
        EXECUTE format('CREATE TABLE c%s.t (id int PRIMARY KEY, v text, n int DEFAULT %s)', i, i);
        EXECUTE format('INSERT INTO c%s.t (id, v) SELECT g, %L || g FROM generate_series(1, 6) g', i, 'row ' || i || '-');
        EXECUTE format('CREATE TABLE c%s.log (line text)', i);
        EXECUTE format('CREATE SEQUENCE c%s.s START %s', i, i * 100 + 1);
    END LOOP;
END $$;
