SET application_name = 'client :client_id';
SELECT 1;
