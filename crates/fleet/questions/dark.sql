-- Hosts that went dark: seen within the range, and not since then; what they lost since is not known.
-- since time 3h: nothing was seen since then, before the end of the range
-- limit int 50: rows at the most
SELECT host, max(kernel) AS kernel, max(shape) AS shape, max(last_hour) AS last_seen,
       sum(hours_observed) AS observed_hours
FROM host_sums
GROUP BY host
HAVING max(last_hour) < {since}
ORDER BY last_seen, host
LIMIT {limit}
