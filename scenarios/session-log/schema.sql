CREATE TABLE userinfo (userid int PRIMARY KEY, info jsonb);
CREATE TABLE session (userid int PRIMARY KEY, last_login timestamp);
CREATE TABLE login_log (
    userid int, db_user name, client_addr inet, client_port int, server_addr inet, server_port int, login_time timestamp
);
INSERT INTO userinfo SELECT id FROM generate_series(1, :rows) AS id;
INSERT INTO session SELECT id FROM generate_series(1, :rows) AS id;

-- Reads a user, notes the log-in in the session and in the log, and returns the user.
CREATE FUNCTION log_in(id int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    found_info jsonb;
BEGIN
    SELECT info INTO found_info FROM userinfo WHERE userid = id;
    UPDATE session SET last_login = now() WHERE userid = id;
    INSERT INTO login_log
    VALUES (id, current_user, inet_client_addr(), inet_client_port(), inet_server_addr(), inet_server_port(), now());
    RETURN found_info;
END $$;

-- The same without the update.
CREATE FUNCTION log_in_only(id int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    found_info jsonb;
BEGIN
    SELECT info INTO found_info FROM userinfo WHERE userid = id;
    INSERT INTO login_log
    VALUES (id, current_user, inet_client_addr(), inet_client_port(), inet_server_addr(), inet_server_port(), now());
    RETURN found_info;
END $$;

VACUUM ANALYZE userinfo;
VACUUM ANALYZE session;
