-- Which causes cost most stall time, and on how many hosts.
-- limit int 20: maximum number of rows
WITH by_host AS (
  SELECT cause, host, sum(stall_ns) AS stall_ns, sum(calls) AS calls, max(worst_ns) AS worst_ns
  FROM stall_sums GROUP BY cause, host
), by_cause AS (
  SELECT cause, sum(stall_ns) AS stall_ns, sum(calls) AS calls, max(worst_ns) AS worst_ns, count(*) AS hosts
  FROM by_host GROUP BY cause
)
SELECT cause, stall_ns,
       round(100 * CAST(stall_ns AS DOUBLE) / nullif(CAST(sum(stall_ns) OVER () AS DOUBLE), 0), 1) AS share_percent,
       calls, worst_ns, hosts
FROM by_cause
ORDER BY stall_ns DESC, cause
LIMIT {limit}
