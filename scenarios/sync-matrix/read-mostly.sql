\set id1 random(1, :rows)
\set id2 random(1, :rows)
\set id3 random(1, :rows)
\set id4 random(1, :rows)
\set id5 random(1, :rows)
\set id6 random(1, :rows)
\set id7 random(1, :rows)
\set id8 random(1, :rows)
\set id9 random(1, :rows)
\set id10 random(1, :rows)
\set new random(1, 1000000000)
BEGIN;
SELECT * FROM filled WHERE id = :id1;
SELECT * FROM filled WHERE id = :id2;
SELECT * FROM filled WHERE id = :id3;
SELECT * FROM filled WHERE id = :id4;
SELECT * FROM filled WHERE id = :id5;
SELECT * FROM filled WHERE id = :id6;
SELECT * FROM filled WHERE id = :id7;
SELECT * FROM filled WHERE id = :id8;
SELECT * FROM filled WHERE id = :id9;
SELECT * FROM filled WHERE id = :id10;
INSERT INTO upserted VALUES (:new, md5(:new::text), now()) ON CONFLICT (id) DO UPDATE SET info = excluded.info, crt_time = excluded.crt_time;
END;
