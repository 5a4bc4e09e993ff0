-- Settings against stall time: each value beside other values on hosts of the same kernel and shape; hosts without such others are confounded.
-- cause text '': only this cause
WITH per_host AS (
  SELECT host, max(kernel) AS kernel, max(shape) AS shape,
         CAST(sum(CASE WHEN cause IS NOT NULL AND ({cause} = '' OR cause = {cause}) THEN stall_ns ELSE 0 END) AS DOUBLE) AS stall_ns,
         CAST(sum(observed_ms) AS DOUBLE) AS observed_ms,
         max(vm_dirty_ratio) AS vm_dirty_ratio,
         max(vm_dirty_background_ratio) AS vm_dirty_background_ratio,
         max(vm_dirty_bytes) AS vm_dirty_bytes,
         max(vm_dirty_background_bytes) AS vm_dirty_background_bytes,
         max(vm_dirty_expire_centisecs) AS vm_dirty_expire_centisecs,
         max(vm_zone_reclaim_mode) AS vm_zone_reclaim_mode,
         max(vm_swappiness) AS vm_swappiness,
         max(vm_min_free_kbytes) AS vm_min_free_kbytes,
         max(thp_enabled) AS thp_enabled,
         max(queue_scheduler) AS queue_scheduler
  FROM summary
  WHERE origin <> 'capture' AND hour_start >= {from} AND hour_start < {to}
  GROUP BY host
), names AS (
  SELECT 'vm_dirty_ratio' AS setting UNION ALL SELECT 'vm_dirty_background_ratio' UNION ALL SELECT 'vm_dirty_bytes'
  UNION ALL SELECT 'vm_dirty_background_bytes' UNION ALL SELECT 'vm_dirty_expire_centisecs'
  UNION ALL SELECT 'vm_zone_reclaim_mode' UNION ALL SELECT 'vm_swappiness' UNION ALL SELECT 'vm_min_free_kbytes'
  UNION ALL SELECT 'thp_enabled' UNION ALL SELECT 'queue_scheduler'
), long AS (
  SELECT setting, host, kernel, shape, stall_ns / 1000000 / (observed_ms / 3600000) AS rate,
         CASE setting
           WHEN 'vm_dirty_ratio' THEN CAST(vm_dirty_ratio AS VARCHAR)
           WHEN 'vm_dirty_background_ratio' THEN CAST(vm_dirty_background_ratio AS VARCHAR)
           WHEN 'vm_dirty_bytes' THEN CAST(vm_dirty_bytes AS VARCHAR)
           WHEN 'vm_dirty_background_bytes' THEN CAST(vm_dirty_background_bytes AS VARCHAR)
           WHEN 'vm_dirty_expire_centisecs' THEN CAST(vm_dirty_expire_centisecs AS VARCHAR)
           WHEN 'vm_zone_reclaim_mode' THEN CAST(vm_zone_reclaim_mode AS VARCHAR)
           WHEN 'vm_swappiness' THEN CAST(vm_swappiness AS VARCHAR)
           WHEN 'vm_min_free_kbytes' THEN CAST(vm_min_free_kbytes AS VARCHAR)
           WHEN 'thp_enabled' THEN thp_enabled
           ELSE queue_scheduler
         END AS value
  FROM per_host CROSS JOIN names WHERE observed_ms > 0
), strata AS (
  SELECT setting, value, kernel, shape, CAST(count(*) AS DOUBLE) AS hosts, sum(rate) AS rates
  FROM long WHERE value IS NOT NULL GROUP BY setting, value, kernel, shape
), beside AS (
  SELECT setting, value, hosts, rates,
         sum(hosts) OVER (PARTITION BY setting, kernel, shape) - hosts AS other_hosts,
         sum(rates) OVER (PARTITION BY setting, kernel, shape) - rates AS other_rates
  FROM strata
), summed AS (
  SELECT setting, value, sum(hosts) AS hosts, sum(rates) / sum(hosts) AS stall_ms_per_hour,
         sum(CASE WHEN other_hosts > 0 THEN hosts ELSE 0 END) AS comparable,
         sum(CASE WHEN other_hosts > 0 THEN rates ELSE 0 END) AS own_rates,
         sum(CASE WHEN other_hosts > 0 THEN hosts * other_rates / other_hosts ELSE 0 END) AS other_rates
  FROM beside GROUP BY setting, value
)
SELECT setting, value, CAST(hosts AS BIGINT) AS hosts, round(stall_ms_per_hour, 1) AS stall_ms_per_hour,
       CAST(comparable AS BIGINT) AS comparable_hosts,
       CASE WHEN comparable > 0 THEN round(own_rates / comparable, 1) END AS stall_ms_per_hour_comparable,
       CASE WHEN comparable > 0 THEN round(other_rates / comparable, 1) END AS stall_ms_per_hour_of_others,
       CAST(hosts - comparable AS BIGINT) AS confounded_hosts
FROM summed
ORDER BY setting, value
