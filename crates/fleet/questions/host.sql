-- One host's history by hour: null stall time means not observed, null observed time means that the host pushed nothing.
-- host text: the host's name
WITH seen AS (
  SELECT hour_start FROM hours WHERE hour_start >= {from} AND hour_start < {to} GROUP BY hour_start
), own AS (
  SELECT hour_start, kernel, max(observed_ms) AS observed_ms, sum(stall_ns) AS stall_ns, sum(calls) AS calls,
         max(worst_ns) AS worst_ns, max(not_observed) AS not_observed, max(recording) AS recording
  FROM summary
  WHERE host = {host} AND origin <> 'capture' AND hour_start >= {from} AND hour_start < {to}
  GROUP BY hour_start, kernel
), history AS (
  SELECT seen.hour_start AS hour_start, kernel, observed_ms, stall_ns, calls, worst_ns, not_observed, recording,
         count(own.hour_start) OVER () AS own_hours
  FROM seen LEFT JOIN own ON seen.hour_start = own.hour_start
)
SELECT hour_start, kernel, round(CAST(observed_ms AS DOUBLE) / 1000, 0) AS observed_s, stall_ns, calls, worst_ns, not_observed,
       recording
FROM history
WHERE own_hours > 0
ORDER BY hour_start, kernel
