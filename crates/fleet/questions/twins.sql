-- Hostnames that two machines have: their times since boot overlap.
WITH boots AS (
  SELECT host, boot, min(first_hour) AS first_hour, max(last_hour) AS last_hour
  FROM boots GROUP BY host, boot
), ordered AS (
  SELECT host, boot, first_hour,
         max(last_hour) OVER (PARTITION BY host ORDER BY first_hour, boot ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM boots
)
SELECT host, count(*) + 1 AS machines FROM ordered
WHERE first_hour < before
GROUP BY host
ORDER BY host
