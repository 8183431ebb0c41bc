//! Functions, operators and casts as a database's owner may make them, who waits for a superuser to run one of them.

use crate::TestServer;

/// In `public` for types and functions by which a call without a schema finds them before PostgreSQL's own; in `evil`,
/// for a `search_path` that begins there, in the places of PostgreSQL's. Each makes `eve` a superuser if it can.
const TRAPS: &str = "\
CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO public; GRANT USAGE, CREATE ON SCHEMA public TO public;
CREATE FUNCTION evil.take() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  IF (SELECT rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) current_user)
  THEN EXECUTE 'ALTER ROLE eve SUPERUSER'; END IF; END $$;
CREATE FUNCTION public.joined(a name, b name) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN a::text OPERATOR(pg_catalog.||) b::text; END $$;
CREATE OPERATOR public.|| (LEFTARG = name, RIGHTARG = name, FUNCTION = public.joined);
CREATE FUNCTION public.pg_has_role(a text, b text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN true; END $$;
CREATE FUNCTION public.pg_prewarm(a regclass) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN 0; END $$;
CREATE FUNCTION evil.texts(a text, b text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN a OPERATOR(pg_catalog.=) b; END $$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.texts);
CREATE FUNCTION evil.oids(a oid, b oid) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN a OPERATOR(pg_catalog.=) b; END $$;
CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.oids);
CREATE FUNCTION evil.ints(a int, b int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN a OPERATOR(pg_catalog.=) b; END $$;
CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.ints);
CREATE FUNCTION evil.differ(a int, b int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN a OPERATOR(pg_catalog.<>) b; END $$;
CREATE OPERATOR evil.<> (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.differ);
CREATE FUNCTION evil.version() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
  PERFORM evil.take(); RETURN pg_catalog.version(); END $$;";

/// A role for superusers' work, and a database of another's with traps in it.
pub fn set(server: &TestServer) {
    server.execute("CREATE ROLE boss SUPERUSER LOGIN IN ROLE trusted; CREATE ROLE eve LOGIN IN ROLE trusted");
    server.execute("CREATE DATABASE shop OWNER eve");
    server.connect("eve", "shop").batch_execute(TRAPS).unwrap();
}

/// Has the owner of the database give it a path.
pub fn set_path(server: &TestServer, path: &str) {
    server.connect("eve", "shop").batch_execute(&format!("ALTER DATABASE shop SET search_path = {path}")).unwrap();
}

/// A path that leaves PostgreSQL's own in the first place, and one that begins with others.
pub const PATHS: [&str; 2] = ["\"$user\", public", "evil, pg_catalog, public"];

/// Whether a trap has caught a superuser.
pub fn has_caught(server: &TestServer) -> bool {
    server.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'eve'") == "t"
}
