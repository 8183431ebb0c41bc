\set new random(1, 1000000000)
INSERT INTO upserted VALUES (:new, md5(:new::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
