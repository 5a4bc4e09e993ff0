-- Hosts that went dark: seen within the range, and not since then; what they lost since is not known.
-- since time 3h: nothing was seen since then, before the end of the range
-- limit int 50: rows at the most
SELECT host, max(kernel) AS kernel, max(shape) AS shape, max(hour_start) AS last_seen,
       sum(CASE WHEN observed_ms > 0 THEN 1 ELSE 0 END) AS observed_hours
FROM hours
GROUP BY host
HAVING max(hour_start) < {since}
ORDER BY last_seen, host
LIMIT {limit}
