-- Stall time by setting: each value compared with other values on hosts of the same kernel and shape; others are confounded.
-- cause text '': only this cause
WITH lines AS (
  SELECT host, kernel, shape,
         vm_dirty_ratio, vm_dirty_background_ratio, vm_dirty_bytes, vm_dirty_background_bytes, vm_dirty_expire_centisecs,
         vm_zone_reclaim_mode, vm_swappiness, vm_min_free_kbytes, vm_watermark_scale_factor, vm_vfs_cache_pressure,
         thp_enabled, thp_defrag, queue_scheduler,
         observed_ms, CAST(0 AS BIGINT) AS stall_ns
  FROM host_sums
  UNION ALL
  SELECT host, kernel, shape,
         vm_dirty_ratio, vm_dirty_background_ratio, vm_dirty_bytes, vm_dirty_background_bytes, vm_dirty_expire_centisecs,
         vm_zone_reclaim_mode, vm_swappiness, vm_min_free_kbytes, vm_watermark_scale_factor, vm_vfs_cache_pressure,
         thp_enabled, thp_defrag, queue_scheduler,
         CAST(0 AS BIGINT) AS observed_ms, stall_ns
  FROM stall_sums WHERE {cause} = '' OR cause = {cause}
), setups AS (
  -- A host whose settings changed counts under each setup, for the time that it had this setup.
  SELECT host, kernel, shape,
         vm_dirty_ratio, vm_dirty_background_ratio, vm_dirty_bytes, vm_dirty_background_bytes, vm_dirty_expire_centisecs,
         vm_zone_reclaim_mode, vm_swappiness, vm_min_free_kbytes, vm_watermark_scale_factor, vm_vfs_cache_pressure,
         thp_enabled, thp_defrag, queue_scheduler,
         sum(observed_ms) AS observed_ms, sum(stall_ns) AS stall_ns
  FROM lines
  GROUP BY host, kernel, shape,
         vm_dirty_ratio, vm_dirty_background_ratio, vm_dirty_bytes, vm_dirty_background_bytes, vm_dirty_expire_centisecs,
         vm_zone_reclaim_mode, vm_swappiness, vm_min_free_kbytes, vm_watermark_scale_factor, vm_vfs_cache_pressure,
         thp_enabled, thp_defrag, queue_scheduler
), names AS (
  SELECT 'vm_dirty_ratio' AS setting UNION ALL SELECT 'vm_dirty_background_ratio' UNION ALL SELECT 'vm_dirty_bytes' UNION ALL
  SELECT 'vm_dirty_background_bytes' UNION ALL SELECT 'vm_dirty_expire_centisecs' UNION ALL
  SELECT 'vm_zone_reclaim_mode' UNION ALL SELECT 'vm_swappiness' UNION ALL SELECT 'vm_min_free_kbytes' UNION ALL
  SELECT 'vm_watermark_scale_factor' UNION ALL SELECT 'vm_vfs_cache_pressure' UNION ALL SELECT 'thp_enabled' UNION ALL
  SELECT 'thp_defrag' UNION ALL SELECT 'queue_scheduler'
), long AS (
  SELECT setting, host, kernel, shape, observed_ms, stall_ns,
         CASE setting
           WHEN 'vm_dirty_ratio' THEN CAST(vm_dirty_ratio AS String)
           WHEN 'vm_dirty_background_ratio' THEN CAST(vm_dirty_background_ratio AS String)
           WHEN 'vm_dirty_bytes' THEN CAST(vm_dirty_bytes AS String)
           WHEN 'vm_dirty_background_bytes' THEN CAST(vm_dirty_background_bytes AS String)
           WHEN 'vm_dirty_expire_centisecs' THEN CAST(vm_dirty_expire_centisecs AS String)
           WHEN 'vm_zone_reclaim_mode' THEN CAST(vm_zone_reclaim_mode AS String)
           WHEN 'vm_swappiness' THEN CAST(vm_swappiness AS String)
           WHEN 'vm_min_free_kbytes' THEN CAST(vm_min_free_kbytes AS String)
           WHEN 'vm_watermark_scale_factor' THEN CAST(vm_watermark_scale_factor AS String)
           WHEN 'vm_vfs_cache_pressure' THEN CAST(vm_vfs_cache_pressure AS String)
           WHEN 'thp_enabled' THEN thp_enabled
           WHEN 'thp_defrag' THEN thp_defrag
           WHEN 'queue_scheduler' THEN queue_scheduler
         END AS value
  FROM setups CROSS JOIN names WHERE observed_ms > 0
), per_host AS (
  SELECT setting, value, kernel, shape, host, sum(observed_ms) AS observed_ms, sum(stall_ns) AS stall_ns
  FROM long WHERE value IS NOT NULL GROUP BY setting, value, kernel, shape, host
), strata AS (
  SELECT setting, value, kernel, shape, count(*) AS hosts, CAST(sum(observed_ms) AS DOUBLE) / 3600000 AS hours,
         CAST(sum(stall_ns) AS DOUBLE) / 1000000 AS stall_ms
  FROM per_host GROUP BY setting, value, kernel, shape
), beside AS (
  SELECT setting, value, hosts, hours, stall_ms,
         sum(hosts) OVER (PARTITION BY setting, kernel, shape) - hosts AS other_hosts,
         sum(hours) OVER (PARTITION BY setting, kernel, shape) - hours AS other_hours,
         sum(stall_ms) OVER (PARTITION BY setting, kernel, shape) - stall_ms AS other_stall_ms
  FROM strata
), summed AS (
  SELECT setting, value, sum(hosts) AS hosts, sum(stall_ms) / sum(hours) AS stall_ms_per_hour,
         sum(CASE WHEN other_hosts > 0 THEN hosts ELSE 0 END) AS comparable,
         sum(CASE WHEN other_hosts > 0 THEN hours ELSE 0 END) AS hours,
         sum(CASE WHEN other_hosts > 0 THEN stall_ms ELSE 0 END) AS stall_ms,
         -- The stall time that the other hosts of the stratum would have had in the observed hours of this value.
         sum(CASE WHEN other_hosts > 0 THEN hours * other_stall_ms / other_hours ELSE 0 END) AS stall_ms_of_others
  FROM beside GROUP BY setting, value
)
SELECT setting, value, CAST(hosts AS BIGINT) AS hosts, round(stall_ms_per_hour, 1) AS stall_ms_per_hour,
       CAST(comparable AS BIGINT) AS comparable_hosts,
       CASE WHEN comparable > 0 THEN round(stall_ms / hours, 1) END AS stall_ms_per_hour_comparable,
       CASE WHEN comparable > 0 THEN round(stall_ms_of_others / hours, 1) END AS stall_ms_per_hour_of_others,
       CAST(hosts - comparable AS BIGINT) AS confounded_hosts
FROM summed
ORDER BY setting, value
