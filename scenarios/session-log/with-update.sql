\set id random(1, :rows)
SELECT log_in(:id);
