-- Hostnames that two machines have: their times since boot overlap.
WITH boots AS (
  SELECT host, boot, min(hour_start) AS first_hour, max(hour_start) AS last_hour
  FROM hours WHERE boot IS NOT NULL GROUP BY host, boot
), ordered AS (
  SELECT host, boot, first_hour,
         max(last_hour) OVER (PARTITION BY host ORDER BY first_hour, boot ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM boots
)
SELECT host, count(*) + 1 AS machines FROM ordered
WHERE first_hour < before
GROUP BY host
ORDER BY host
