-- One host's history, hour by hour: null stall time is an hour that was not observed.
-- host text: its name
SELECT hour_start, kernel,
       round(CAST(max(observed_ms) AS DOUBLE) / 1000, 0) AS observed_s,
       sum(stall_ns) AS stall_ns, sum(calls) AS calls, max(worst_ns) AS worst_ns,
       max(not_observed) AS not_observed, max(recording) AS recording
FROM summary
WHERE host = {host} AND origin <> 'capture' AND hour_start >= {from} AND hour_start < {to}
GROUP BY hour_start, kernel
ORDER BY hour_start, kernel
