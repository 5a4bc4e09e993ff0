-- Stall time per observed hour by kernel and machine shape: compare kernels only within a shape.
-- cause text '': only this cause
WITH lines AS (
  SELECT kernel, shape, host, observed_ms, CAST(0 AS BIGINT) AS stall_ns, CAST(0 AS BIGINT) AS calls FROM host_sums
  UNION ALL
  SELECT kernel, shape, host, CAST(0 AS BIGINT) AS observed_ms, stall_ns, calls
  FROM stall_sums WHERE {cause} = '' OR cause = {cause}
), per_host AS (
  SELECT kernel, shape, host, sum(observed_ms) AS observed_ms, sum(stall_ns) AS stall_ns, sum(calls) AS calls
  FROM lines GROUP BY kernel, shape, host
), summed AS (
  SELECT kernel, shape, count(*) AS hosts, CAST(sum(observed_ms) AS DOUBLE) / 3600000 AS observed_hours,
         CAST(sum(stall_ns) AS DOUBLE) / 1000000 AS stall_ms, CAST(sum(calls) AS DOUBLE) AS calls
  FROM per_host WHERE observed_ms > 0 GROUP BY kernel, shape
)
SELECT shape, kernel, hosts, round(observed_hours, 1) AS observed_hours,
       round(stall_ms / observed_hours, 1) AS stall_ms_per_hour, round(calls / observed_hours, 2) AS calls_per_hour
FROM summed
ORDER BY shape, stall_ms_per_hour DESC, kernel
