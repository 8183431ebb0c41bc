CREATE TABLE filled (id int PRIMARY KEY, info text, crt_time timestamp);
CREATE TABLE upserted (id int PRIMARY KEY, info text, crt_time timestamp);
INSERT INTO filled SELECT id, md5(id::text), now() FROM generate_series(1, :rows) AS id;
VACUUM ANALYZE filled;
