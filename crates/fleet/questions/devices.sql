-- Stall time by device and I/O scheduler, and the number of calls of 100 ms and longer.
-- limit int 20: maximum number of rows
WITH by_device AS (
  SELECT device, queue_scheduler, sum(stall_ns) AS stall_ns, sum(calls) AS calls,
         sum(calls_over_100ms) AS calls_over_100ms, sum(calls_over_1s) AS calls_over_1s, max(worst_ns) AS worst_ns
  FROM stall_sums
  GROUP BY device, queue_scheduler
)
SELECT device, queue_scheduler, stall_ns, calls, calls_over_100ms, calls_over_1s, worst_ns
FROM by_device
ORDER BY stall_ns DESC, device, queue_scheduler
LIMIT {limit}
