-- New stalls: causes with aggressor and kernel that cost time since a given time, and none before it in the range.
-- range 192h
-- since time 24h: start of the new time, before the end of the range
-- limit int 20: maximum number of rows
WITH fresh AS (
  SELECT cause, aggressor, kernel, sum(stall_ns) AS stall_ns, sum(calls) AS calls,
         count(DISTINCT host) AS hosts, min(first_stall) AS first_hour
  FROM stall_sums
  WHERE stall_ns > 0
  GROUP BY cause, aggressor, kernel
  HAVING min(first_stall) >= {since}
), seen AS (
  -- On a new kernel every cause is new.
  SELECT coalesce(kernel, '') AS kernel, min(first_hour) AS first_hour
  FROM host_sums WHERE hours_observed > 0 GROUP BY coalesce(kernel, '')
)
SELECT cause, aggressor, fresh.kernel AS kernel, stall_ns, calls, hosts, fresh.first_hour AS first_hour,
       seen.first_hour AS kernel_first_hour
FROM fresh LEFT JOIN seen ON coalesce(fresh.kernel, '') = seen.kernel
ORDER BY stall_ns DESC, cause, aggressor, kernel
LIMIT {limit}
