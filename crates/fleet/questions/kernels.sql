-- Stall time per observed hour by kernel and machine shape: compare kernels within a shape, since shapes differ by themselves.
-- cause text '': only this cause
WITH lost AS (
  SELECT kernel, shape, sum(stall_ns) AS stall_ns, sum(calls) AS calls
  FROM stalls WHERE {cause} = '' OR cause = {cause} GROUP BY kernel, shape
), per_host AS (
  SELECT kernel, shape, host, sum(observed_ms) AS observed_ms FROM hours GROUP BY kernel, shape, host
), seen AS (
  SELECT kernel, shape, count(*) AS hosts, sum(observed_ms) AS observed_ms FROM per_host GROUP BY kernel, shape
)
SELECT seen.shape AS shape, seen.kernel AS kernel, hosts,
       round(CAST(observed_ms AS DOUBLE) / 3600000, 1) AS observed_hours,
       round(CAST(coalesce(stall_ns, 0) AS DOUBLE) / 1000000 / (CAST(observed_ms AS DOUBLE) / 3600000), 1) AS stall_ms_per_hour,
       round(CAST(coalesce(calls, 0) AS DOUBLE) / (CAST(observed_ms AS DOUBLE) / 3600000), 2) AS calls_per_hour
FROM seen LEFT JOIN lost ON seen.kernel = lost.kernel AND seen.shape = lost.shape
WHERE observed_ms > 0
ORDER BY shape, stall_ms_per_hour DESC, kernel
