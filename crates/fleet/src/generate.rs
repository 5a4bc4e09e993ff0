//! Generates a synthetic fleet for tests: hosts that stall like recordings of the simulator, with known facts and
//! realistic noise.
//!
//! The duration of a call is from recordings (`TEMPLATES`, or other summaries). The number of calls differs from host
//! to host, hour to hour and shape to shape, and some hours are lost. Nothing else differs, so any other finding is
//! false.

use std::sync::Arc;

use flatwater_recording::summary::{self, CALLS_OVER_NS, HourStart, SummaryOrigin, SummaryRow};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStoreExt, PutPayload};
use rand_core::Rng;
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::store::{Fleet, input_key, partition};
use crate::{FleetError, compact, time};

/// The cost of a cause, if it occurs.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub cause: String,
    pub operation: String,
    pub service: &'static str,
    /// Mean time of a slow call in this cause, ns.
    pub call_ns: f64,
    /// Slow calls per hour, on an average host in an average hour.
    pub calls_per_hour: f64,
}

/// Cause, operation, service, mean ns of a call, calls per hour. The mean is lost time over calls as `flatwater run
/// SCENARIO --on sim -O json` reported it on 2026-11-22 (journal-durable, full-cgroup, dirty-bytes, maildir,
/// checkpoint). The calls are a hundredth of an hour of that load. In these scenarios the simulator has neither waits
/// for page writeback inside write() nor node reclaim; they are set to 20 and 15 ms.
const TEMPLATES: &[(&str, &str, &str, f64, f64)] = &[
    ("journal-commit", "fsync", "postgresql.service", 848_000.0, 1_200.0),
    ("journal-buffer", "write", "kafka.service", 72_600_000.0, 6.0),
    ("dirty-throttle", "write", "kafka.service", 33_200_000.0, 60.0),
    ("synchronous-read", "read", "dovecot.service", 13_200_000.0, 120.0),
    ("lock", "write", "postgresql.service", 326_600_000.0, 2.5),
    ("request-queue", "fsync", "etcd.service", 20_800_000.0, 40.0),
    ("page-writeback", "write", "kafka.service", 20_000_000.0, 90.0),
    ("node-reclaim", "write", "kafka.service", 15_000_000.0, 8.0),
];

pub const KERNELS: [&str; 3] = ["6.1.0-26", "6.6.58", "6.12.8"];
/// A kernel with more stall time of this cause, and the factor.
const BAD_KERNEL: (&str, &str, f64) = (KERNELS[2], "page-writeback", 2.0);
/// The share of hosts with zone reclaim, its cause, and the factor of stall time.
const ZONE_RECLAIM: (f64, &str, f64) = (0.03, "node-reclaim", 12.0);
/// The share of hosts with a backup, its program and cgroup, and its hour of the day.
const BACKUP: (f64, &str, &str, u32) = (0.4, "restic", "/system.slice/backup.service", 2);
/// The fix: the new value of the column, its cause, and the remaining share of stall time.
const FIX: (i64, &str, f64) = (268_435_456, "dirty-throttle", 0.5);
const SHAPES: [(u32, i64, u32, &str, f64); 3] =
    [(16, 64, 1, "16c-64g-1n-kvm", 1.0), (32, 128, 2, "32c-128g-2n-metal", 1.6), (8, 32, 1, "8c-32g-1n-kvm", 0.7)];

#[derive(Clone, Debug)]
pub struct Options {
    pub hosts: u32,
    pub hours: i64,
    pub from: HourStart,
    pub seed: u64,
    /// Whether to write sorted parts, as a compactor leaves them, instead of inputs.
    pub compacted: bool,
    /// Rows from which to take the duration of calls.
    pub like: Vec<SummaryRow>,
}

/// The facts that are planted in the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Truth {
    pub rows: u64,
    pub hosts: u32,
    pub kernel: String,
    pub kernel_cause: String,
    pub zone_reclaim_hosts: Vec<String>,
    pub zone_reclaim_cause: String,
    pub aggressor: String,
    pub aggressor_hour: u32,
    pub fix_setting: String,
    pub fix_cause: String,
    pub fix_at: String,
    pub fixed_hosts: u32,
    pub dark_hosts: Vec<String>,
    /// Host-hours without observation: lost, blind or dark.
    pub hours_not_observed: u64,
}

/// One machine.
struct Machine {
    name: String,
    boot: String,
    kernel: &'static str,
    shape: (u32, i64, u32, &'static str, f64),
    zone_reclaim: bool,
    backup: bool,
    fixed: bool,
    /// From this hour of the range on the host pushes nothing.
    dark_from: Option<i64>,
    /// The factor of each template on this host.
    factors: Vec<f64>,
}

fn uniform(dice: &mut Pcg64) -> f64 {
    (dice.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Approximately normal.
fn normal(dice: &mut Pcg64) -> f64 {
    (0..12).map(|_| uniform(dice)).sum::<f64>() - 6.0
}

fn poisson(mean: f64, dice: &mut Pcg64) -> f64 {
    if mean > 30.0 {
        return (mean + mean.sqrt() * normal(dice)).round().max(0.0);
    }
    let (limit, mut product, mut count) = ((-mean).exp(), uniform(dice), 0.0);
    while product > limit {
        product *= uniform(dice);
        count += 1.0;
    }
    count
}

/// The hour of the fix, counted from the beginning: the middle, at the start of a day if the range is long enough.
#[must_use]
pub fn fix_hour(hours: i64) -> i64 {
    if hours >= 48 { hours / 2 / 24 * 24 } else { hours / 2 }
}

fn machine(number: u32, options: &Options, templates: &[Template]) -> Machine {
    let mut dice = Pcg64::new(u128::from(options.seed), u128::from(number) << 64 | 0x686f_7374);
    let shape = SHAPES[number as usize % SHAPES.len()];
    // Large machines get the new kernel more often: a confounder, not a fact.
    let new = if shape.0 == 32 { 0.35 } else { 0.15 };
    let draw = uniform(&mut dice);
    let kernel = if draw < new {
        KERNELS[2]
    } else if draw < 0.5 {
        KERNELS[1]
    } else {
        KERNELS[0]
    };
    let zone_reclaim = uniform(&mut dice) < ZONE_RECLAIM.0;
    let backup = uniform(&mut dice) < BACKUP.0;
    let fixed = uniform(&mut dice) < 0.5;
    let dark = uniform(&mut dice) < 0.004 || number == 1;
    let late = uniform(&mut dice) * (options.hours as f64 / 2.0 - 4.0).max(0.0);
    let dark_from = dark.then(|| (options.hours / 3 + late as i64).min(options.hours - 5)).filter(|hour| *hour > 0);
    let factors = templates.iter().map(|_| (0.4 * normal(&mut dice)).exp()).collect();
    Machine {
        name: format!("host-{number:05}"),
        boot: format!("{:08x}-b007-4b00-8b00-{number:012x}", options.seed as u32),
        kernel,
        shape,
        zone_reclaim,
        backup,
        fixed,
        dark_from,
        factors,
    }
}

/// The cost of each cause, with the mean duration taken from these rows if they have calls of that cause.
#[must_use]
pub fn templates(like: &[SummaryRow]) -> Vec<Template> {
    let built_in = TEMPLATES.iter().map(|(cause, operation, service, call_ns, calls_per_hour)| Template {
        cause: (*cause).to_owned(),
        operation: (*operation).to_owned(),
        service,
        call_ns: *call_ns,
        calls_per_hour: *calls_per_hour,
    });
    let mut all: Vec<Template> = built_in.collect();
    for template in &mut all {
        let of = like.iter().filter(|row| row.cause.as_ref() == Some(&template.cause));
        let (stall_ns, calls) =
            of.fold((0, 0), |sum, row| (sum.0 + row.stall_ns.unwrap_or(0), sum.1 + row.calls.unwrap_or(0)));
        if calls > 0 {
            template.call_ns = stall_ns as f64 / calls as f64;
        }
    }
    all
}

impl Machine {
    fn common(&self, hour: i64, options: &Options) -> SummaryRow {
        let fixed = self.fixed && hour >= fix_hour(options.hours);
        SummaryRow {
            host: self.name.clone(),
            boot: Some(self.boot.clone()),
            sequence: hour * 3_600_000_000_000,
            origin: SummaryOrigin::Watch,
            hour_start: Some(HourStart::of_hours(options.from.hours() + hour)),
            clock_error_s: Some(0),
            kernel: Some(self.kernel.to_owned()),
            cpus: Some(self.shape.0),
            memory_bytes: Some(self.shape.1 << 30),
            nodes: Some(self.shape.2),
            hypervisor: self.shape.3.ends_with("kvm").then(|| "kvm".to_owned()),
            shape: self.shape.3.to_owned(),
            vm_dirty_ratio: Some(20),
            vm_dirty_background_ratio: Some(10),
            vm_dirty_bytes: Some(0),
            vm_dirty_background_bytes: Some(if fixed { FIX.0 } else { 0 }),
            vm_dirty_expire_centisecs: Some(3_000),
            vm_zone_reclaim_mode: Some(i64::from(self.zone_reclaim)),
            vm_swappiness: Some(60),
            vm_min_free_kbytes: Some(67_584),
            vm_watermark_scale_factor: Some(10),
            vm_vfs_cache_pressure: Some(100),
            thp_enabled: Some("madvise".to_owned()),
            thp_defrag: Some("madvise".to_owned()),
            queue_scheduler: Some("none".to_owned()),
            threshold_ns: 1_000_000,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            ..SummaryRow::default()
        }
    }

    /// The rows of one hour; none if the host pushed nothing.
    fn hour(&self, hour: i64, options: &Options, templates: &[Template]) -> Vec<SummaryRow> {
        let stream = u128::from(crc32fast::hash(self.name.as_bytes())) << 64 | hour as u128;
        let mut dice = Pcg64::new(u128::from(options.seed) ^ 0x686f_7572, stream);
        let lost = uniform(&mut dice) < 0.005;
        let blind = uniform(&mut dice) < 0.002;
        if lost || self.dark_from.is_some_and(|from| hour >= from) {
            return Vec::new();
        }
        let common = self.common(hour, options);
        if blind {
            let missed = Some("file-calls,page-faults".to_owned());
            return vec![SummaryRow { observed_ms: Some(0), not_observed: missed, ..common }];
        }
        let observed = if uniform(&mut dice) < 0.02 { 0.2 + 0.8 * uniform(&mut dice) } else { 1.0 };
        let observed_ms = (observed * 3_600_000.0) as i64;
        let mut rows =
            vec![SummaryRow { calls: Some(0), stall_ns: Some(0), observed_ms: Some(observed_ms), ..common.clone() }];
        let of_day = common.hour_start.map_or(0, |start| start.civil().3);
        // More load in the daytime.
        let load = 1.0 - 0.2 * (f64::from(of_day) / 24.0 * std::f64::consts::TAU).cos();
        for (template, own) in templates.iter().zip(&self.factors) {
            let noise = (0.3 * normal(&mut dice)).exp();
            let rate = template.calls_per_hour
                * own
                * noise
                * load
                * observed
                * self.shape.4
                * self.effect(template, hour, options);
            let calls = poisson(rate, &mut dice);
            rows.extend(filled(&common, template, calls, None, &mut dice));
            // Mostly without another aggressor; sometimes a neighbour without a fixed hour.
            if template.cause == "request-queue" && uniform(&mut dice) < 0.15 {
                let neighbour =
                    [("dockerd", "/system.slice/docker.service"), ("fstrim", "/system.slice/fstrim.service")];
                let which = neighbour[usize::from(uniform(&mut dice) < 0.4)];
                let calls = poisson(6.0 * own * noise, &mut dice);
                rows.extend(filled(&common, template, calls, Some(which), &mut dice));
            }
            if template.cause == "request-queue" && self.backup && of_day == BACKUP.3 {
                let calls = poisson(300.0 * own * noise, &mut dice);
                rows.extend(filled(&common, template, calls, Some((BACKUP.1, BACKUP.2)), &mut dice));
            }
        }
        rows
    }

    fn effect(&self, template: &Template, hour: i64, options: &Options) -> f64 {
        let mut effect = 1.0;
        if self.kernel == BAD_KERNEL.0 && template.cause == BAD_KERNEL.1 {
            effect *= BAD_KERNEL.2;
        }
        if self.zone_reclaim && template.cause == ZONE_RECLAIM.1 {
            effect *= ZONE_RECLAIM.2;
        }
        if self.fixed && hour >= fix_hour(options.hours) && template.cause == FIX.1 {
            effect *= FIX.2;
        }
        effect
    }
}

fn filled(
    common: &SummaryRow,
    template: &Template,
    calls: f64,
    aggressor: Option<(&str, &str)>,
    dice: &mut Pcg64,
) -> Option<SummaryRow> {
    if calls < 1.0 {
        return None;
    }
    let spread = (0.8 * normal(dice) / calls.sqrt()).exp();
    let mean_ns = template.call_ns * spread;
    let over = CALLS_OVER_NS.map(|over_ns| Some((calls * (-(over_ns as f64) / mean_ns).exp()).round() as i64));
    let kind = if aggressor.is_some() { "others" } else { "device" };
    Some(SummaryRow {
        device: Some("nvme0n1".to_owned()),
        cgroup: Some(format!("/system.slice/{}", template.service)),
        service: Some(template.service.to_owned()),
        program: Some(template.service.trim_end_matches(".service").to_owned()),
        operation: Some(template.operation.clone()),
        cause: Some(template.cause.clone()),
        aggressor_kind: Some(kind.to_owned()),
        aggressor: aggressor.map(|(name, _)| name.to_owned()),
        aggressor_cgroup: aggressor.map(|(_, cgroup)| cgroup.to_owned()),
        aggressor_means: Some(if aggressor.is_some() { "queue" } else { "data" }.to_owned()),
        calls: Some(calls as i64),
        stall_ns: Some((calls * mean_ns) as i64),
        // The longest of n exponential waits is about ln n + 0.6 means.
        worst_ns: Some((mean_ns * (calls.ln() + 0.6)) as i64),
        calls_over_1ms: over[0],
        calls_over_3ms: over[1],
        calls_over_10ms: over[2],
        calls_over_30ms: over[3],
        calls_over_100ms: over[4],
        calls_over_300ms: over[5],
        calls_over_1s: over[6],
        calls_over_10s: over[7],
        ..common.clone()
    })
}

/// What every hour of the fleet is generated from.
struct Plan {
    options: Options,
    templates: Vec<Template>,
    machines: Vec<Machine>,
}

/// The objects of one hour, and the size of their content.
struct Generated {
    objects: Vec<(String, Vec<u8>)>,
    rows: u64,
    hosts_seen: u64,
}

/// Generates one hour. Hours are independent, so one per CPU is generated at a time.
fn hour(plan: &Plan, hour: i64) -> Result<Generated, FleetError> {
    let by_host = plan.machines.iter().map(|machine| machine.hour(hour, &plan.options, &plan.templates));
    let by_host: Vec<Vec<SummaryRow>> = by_host.filter(|rows| !rows.is_empty()).collect();
    let hosts_seen = by_host.iter().filter(|rows| rows[0].stall_ns.is_some()).count() as u64;
    let rows = by_host.iter().map(Vec::len).sum::<usize>() as u64;
    let objects = if plan.options.compacted {
        let all: Vec<SummaryRow> = by_host.into_iter().flatten().collect();
        let start = HourStart::of_hours(plan.options.from.hours() + hour);
        let key = format!("v=1/table=summary/{}/part-00-of-01.parquet", partition(Some(start)));
        vec![(key, compact::part_bytes(&compact::sorted(&SummaryRow::encode(&all)?)?)?)]
    } else {
        let object = |rows: &Vec<SummaryRow>| Ok((input_key(&rows[0]), summary::to_parquet(rows)?));
        by_host.iter().map(object).collect::<Result<_, FleetError>>()?
    };
    Ok(Generated { objects, rows, hosts_seen })
}

/// Writes the fleet into the store; returns the planted facts.
pub async fn generate(fleet: &Fleet, options: &Options) -> Result<Truth, FleetError> {
    let templates = templates(&options.like);
    let machines: Vec<Machine> = (0..options.hosts).map(|number| machine(number, options, &templates)).collect();
    let mut truth = truth(&machines, options);
    let plan = Arc::new(Plan { options: options.clone(), templates, machines });
    let at_a_time = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let hours = (0..options.hours).map(|at| {
        let plan = Arc::clone(&plan);
        tokio::task::spawn_blocking(move || hour(&plan, at))
    });
    let mut hours = stream::iter(hours).buffered(at_a_time);
    while let Some(made) = hours.next().await {
        let made = made.map_err(|error| FleetError::Encode(error.to_string()))??;
        truth.hours_not_observed += u64::from(options.hosts) - made.hosts_seen;
        truth.rows += made.rows;
        let puts = made.objects.into_iter().map(|(key, bytes)| async move {
            fleet.store.put(&fleet.key(&key), PutPayload::from(bytes)).await?;
            Ok::<(), FleetError>(())
        });
        stream::iter(puts).buffer_unordered(16).try_collect::<()>().await?;
    }
    Ok(truth)
}

fn truth(machines: &[Machine], options: &Options) -> Truth {
    let names = |keep: fn(&Machine) -> bool| {
        machines.iter().filter(|machine| keep(machine)).map(|machine| machine.name.clone()).collect()
    };
    Truth {
        rows: 0,
        hosts: options.hosts,
        kernel: BAD_KERNEL.0.to_owned(),
        kernel_cause: BAD_KERNEL.1.to_owned(),
        zone_reclaim_hosts: names(|machine| machine.zone_reclaim),
        zone_reclaim_cause: ZONE_RECLAIM.1.to_owned(),
        aggressor: BACKUP.1.to_owned(),
        aggressor_hour: BACKUP.3,
        fix_setting: "vm_dirty_background_bytes".to_owned(),
        fix_cause: FIX.1.to_owned(),
        fix_at: time::sql(HourStart::of_hours(options.from.hours() + fix_hour(options.hours))),
        fixed_hosts: machines.iter().filter(|machine| machine.fixed).count() as u32,
        dark_hosts: names(|machine| machine.dark_from.is_some()),
        hours_not_observed: 0,
    }
}
