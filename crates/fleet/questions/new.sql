-- What is new: causes with their aggressor and kernel that cost time since then, and cost none before within the range.
-- range 192h
-- since time 24h: where the new time begins, before the end of the range
-- limit int 20: rows at the most
SELECT cause, aggressor, kernel,
       sum(CASE WHEN hour_start >= {since} THEN stall_ns ELSE 0 END) AS stall_ns,
       sum(CASE WHEN hour_start >= {since} THEN calls ELSE 0 END) AS calls,
       count(DISTINCT host) AS hosts,
       min(hour_start) AS first_hour
FROM stalls
GROUP BY cause, aggressor, kernel
HAVING sum(CASE WHEN hour_start < {since} THEN stall_ns ELSE 0 END) = 0
   AND sum(CASE WHEN hour_start >= {since} THEN stall_ns ELSE 0 END) > 0
ORDER BY stall_ns DESC, cause, aggressor, kernel
LIMIT {limit}
