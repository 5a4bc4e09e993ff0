-- Which programs and cgroups make others wait, for how long, on how many hosts, and mostly in which hour of the day.
-- limit int 20: maximum number of rows
WITH by_hour AS (
  SELECT aggressor, aggressor_cgroup, host, extract(hour FROM hour_start) AS hour_of_day,
         sum(stall_ns) AS stall_ns, sum(calls) AS calls
  FROM stalls WHERE aggressor_kind = 'others' AND aggressor IS NOT NULL
  GROUP BY aggressor, aggressor_cgroup, host, extract(hour FROM hour_start)
), by_host AS (
  SELECT aggressor, aggressor_cgroup, host, sum(stall_ns) AS stall_ns, sum(calls) AS calls
  FROM by_hour GROUP BY aggressor, aggressor_cgroup, host
), by_day AS (
  SELECT aggressor, aggressor_cgroup, hour_of_day, sum(stall_ns) AS stall_ns,
         row_number() OVER (PARTITION BY aggressor, aggressor_cgroup ORDER BY sum(stall_ns) DESC, hour_of_day) AS place
  FROM by_hour GROUP BY aggressor, aggressor_cgroup, hour_of_day
), whole AS (
  SELECT aggressor, aggressor_cgroup, sum(stall_ns) AS stall_ns, sum(calls) AS calls, count(*) AS hosts
  FROM by_host GROUP BY aggressor, aggressor_cgroup
)
SELECT whole.aggressor AS aggressor, whole.aggressor_cgroup AS aggressor_cgroup, whole.stall_ns AS stall_ns, whole.calls AS calls,
       whole.hosts AS hosts, CAST(by_day.hour_of_day AS INT) AS worst_hour_of_day,
       round(100 * CAST(by_day.stall_ns AS DOUBLE) / CAST(whole.stall_ns AS DOUBLE), 1) AS percent_in_that_hour
FROM whole JOIN by_day ON whole.aggressor = by_day.aggressor
     AND coalesce(whole.aggressor_cgroup, '') = coalesce(by_day.aggressor_cgroup, '') AND by_day.place = 1
WHERE whole.stall_ns > 0
ORDER BY stall_ns DESC, aggressor, aggressor_cgroup
LIMIT {limit}
