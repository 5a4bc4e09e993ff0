-- Hosts that went dark: seen within the range, but not since then; their later stall time is unknown.
-- since time 3h: nothing was seen since this time before the end of the range
-- limit int 50: maximum number of rows
SELECT host, max(kernel) AS kernel, max(shape) AS shape, max(last_hour) AS last_seen,
       sum(hours_observed) AS observed_hours
FROM host_sums
GROUP BY host
HAVING max(last_hour) < {since}
ORDER BY last_seen, host
LIMIT {limit}
