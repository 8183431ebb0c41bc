\set new1 random(1, 1000000000)
\set new2 random(1, 1000000000)
\set new3 random(1, 1000000000)
\set new4 random(1, 1000000000)
\set new5 random(1, 1000000000)
\set new6 random(1, 1000000000)
\set new7 random(1, 1000000000)
\set new8 random(1, 1000000000)
\set new9 random(1, 1000000000)
\set new10 random(1, 1000000000)
\set id random(1, :rows)
BEGIN;
SELECT * FROM filled WHERE id = :id;
INSERT INTO upserted VALUES (:new1, md5(:new1::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new2, md5(:new2::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new3, md5(:new3::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new4, md5(:new4::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new5, md5(:new5::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new6, md5(:new6::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new7, md5(:new7::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new8, md5(:new8::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new9, md5(:new9::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
INSERT INTO upserted VALUES (:new10, md5(:new10::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
END;
