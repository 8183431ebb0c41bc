\set id random(1, :rows)
SELECT * FROM filled WHERE id = :id;
