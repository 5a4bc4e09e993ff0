-- What was observed in each hour: hosts, observed hours, and hosts on which something was not timed.
SELECT hour_start, count(*) AS summaries, sum(CASE WHEN observed_ms > 0 THEN 1 ELSE 0 END) AS observed,
       sum(CASE WHEN stall_ns IS NULL THEN 1 ELSE 0 END) AS not_observed,
       sum(CASE WHEN not_observed IS NOT NULL THEN 1 ELSE 0 END) AS partly,
       round(CAST(sum(observed_ms) AS DOUBLE) / 3600000, 1) AS observed_hours
FROM hours
GROUP BY hour_start
ORDER BY hour_start
