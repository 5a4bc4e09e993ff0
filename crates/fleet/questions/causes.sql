-- Which causes cost most stall time, and on how many hosts.
-- limit int 20: rows at the most
WITH by_host AS (
  SELECT cause, host, sum(stall_ns) AS stall_ns, sum(calls) AS calls, max(worst_ns) AS worst_ns
  FROM stalls GROUP BY cause, host
)
SELECT cause,
       sum(stall_ns) AS stall_ns,
       round(100 * CAST(sum(stall_ns) AS DOUBLE) / CAST(sum(sum(stall_ns)) OVER () AS DOUBLE), 1) AS share_percent,
       sum(calls) AS calls,
       max(worst_ns) AS worst_ns,
       count(*) AS hosts
FROM by_host
GROUP BY cause
ORDER BY stall_ns DESC, cause
LIMIT {limit}
