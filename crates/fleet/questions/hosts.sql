-- Which hosts lose most time to a cause, or to all causes: stall time per observed hour.
-- cause text '': only this cause
-- limit int 20: maximum number of rows
WITH lost AS (
  SELECT host, sum(stall_ns) AS stall_ns, sum(calls) AS calls, max(worst_ns) AS worst_ns
  FROM stall_sums WHERE {cause} = '' OR cause = {cause} GROUP BY host
), seen AS (
  SELECT host, max(kernel) AS kernel, max(shape) AS shape, sum(observed_ms) AS observed_ms
  FROM host_sums GROUP BY host
)
SELECT seen.host AS host, kernel, shape, stall_ns, calls, worst_ns,
       round(CAST(observed_ms AS DOUBLE) / 3600000, 1) AS observed_hours,
       round(CAST(stall_ns AS DOUBLE) / 1000000 / (CAST(observed_ms AS DOUBLE) / 3600000), 1) AS stall_ms_per_hour
FROM seen JOIN lost ON seen.host = lost.host
WHERE observed_ms > 0
ORDER BY stall_ms_per_hour DESC, host
LIMIT {limit}
