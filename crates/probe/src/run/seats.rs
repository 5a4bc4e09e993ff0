//! Where the neighbours run: directories, cgroups, limits.

use std::path::{Path, PathBuf};

use flatwater_host::error::HostError;
use flatwater_host::record::cgroup_directory;
use flatwater_host::run::check_directory;
use flatwater_host::setup::Log;
use flatwater_host::setup::groups::{Group, Groups, memory_limit};
use flatwater_recording::ControllerName;
use rustix::param::page_size;

use super::{Options, ProbeError};
use crate::child::{DirtyLimit, dirty};
use crate::output::{PlanText, SeatText};
use crate::place::{Place, PlaceError};
use crate::plan::{Limits, Memory, Relation, VICTIM_BYTES};

/// A neighbour's seat.
#[derive(Clone, Debug)]
pub struct Seat {
    pub relation: Relation,
    /// Index of the place.
    pub place: usize,
    pub group: Group,
    pub limits: Limits,
    pub memory: Memory,
}

impl Seat {
    /// Whether it is in another cgroup that limits on memory or I/O do not separate from the victim's.
    #[must_use]
    pub fn shares_controller(&self) -> bool {
        let shared = &self.group.shared;
        let separates =
            [ControllerName::Memory, ControllerName::Io].iter().all(|controller| !shared.contains(controller));
        self.relation == Relation::OtherCgroup && !separates
    }

    /// The limit of dirty pages of the seat's cgroup.
    #[must_use]
    pub fn dirty_limit(&self) -> Option<DirtyLimit> {
        dirty_limit_of(&self.group, self.memory.limit_bytes)
    }
}

/// All seats; the first place is the victim's.
#[derive(Debug)]
pub struct Seats {
    pub places: Vec<Place>,
    pub seats: Vec<Seat>,
    pub victim_group: Group,
    notes: Vec<String>,
    groups: Option<Groups>,
}

impl Seats {
    /// Finds places, makes cgroups, and checks the space.
    pub fn find(options: &Options, log: &Log) -> Result<Seats, ProbeError> {
        let mut places = Vec::new();
        for path in &options.paths {
            let place = Place::of(path)?;
            check_directory(&place.path).map_err(|error| match error {
                HostError::ReadOnly { path } => PlaceError::ReadOnly { path }.into(),
                HostError::Directory { path, why } => PlaceError::Unusable { path, why }.into(),
                error => ProbeError::from(error),
            })?;
            places.push(place);
        }
        let mut notes = Vec::new();
        let found = places.first().filter(|_| places.len() == 1).and_then(Place::find_beside);
        // A place that the probe found by itself is used only if it is large enough.
        places.extend(found.filter(|place| Limits::of(place.free_bytes, 1, false, u64::MAX, UNLIMITED).is_ok()));
        let cgroup = options.cgroup.as_deref().map(cgroup_directory).transpose()?;
        let mut groups = Groups::new(log.clone())?;
        let (victim_group, outside) = match groups.inside(cgroup.as_deref()) {
            Ok(inside) => (inside, groups.outside(cgroup.as_deref())),
            // Asked for by name: without it the probe would answer another question.
            Err(why) if cgroup.is_some() => return Err(why.into()),
            Err(why) => (Group::default(), Err(why)),
        };
        let mut seats = Seats { places, seats: Vec::new(), victim_group, notes: Vec::new(), groups: Some(groups) };
        let own = seats.victim_group.clone();
        seats.add(0, Relation::SameFileSystem, own.clone());
        match outside {
            Ok(group) => {
                notes.extend(shared_note(&group, options.cgroup.as_deref()));
                seats.add(0, Relation::OtherCgroup, group);
            }
            Err(why) => notes.push(format!("not measured: a neighbour in another cgroup: {why}")),
        }
        let relations: Vec<Relation> =
            seats.places.iter().skip(1).filter_map(|place| Some(seats.places.first()?.relation(place))).collect();
        for (index, relation) in relations.into_iter().enumerate() {
            seats.add(index + 1, relation, own.clone());
        }
        if !seats.seats.iter().any(|seat| matches!(seat.relation, Relation::SameDevice)) {
            notes.push("not measured: another file system on the same device: none was given or found".to_owned());
        }
        seats.notes = notes;
        seats.lower_dirty_limit(options.apply);
        seats.check_space()?;
        Ok(seats)
    }

    fn add(&mut self, place: usize, relation: Relation, group: Group) {
        let memory = memory(&group);
        let limits = Limits { dirty_bytes: 0, cache_bytes: 0, in_flight_bytes: None };
        self.seats.push(Seat { relation, place, group, limits, memory });
    }

    fn lower_dirty_limit(&mut self, apply: bool) {
        for seat in self.seats.iter_mut().filter(|_| apply) {
            seat.memory.dirty_limit_bytes =
                super::DIRTY_LIMITS.iter().filter_map(|(_, bytes)| bytes.parse().ok()).max();
        }
    }

    /// The number of neighbours in the same file system as this place, and whether the victim is in it.
    fn users(&self, place: &Place) -> (u64, bool) {
        let same = |other: &Place| other.relation(place) == Relation::SameFileSystem;
        let count = self.seats.iter().filter(|seat| self.places.get(seat.place).is_some_and(same)).count();
        (count as u64, self.places.first().is_some_and(same))
    }

    fn limits(&self, seat: &Seat, bytes_per_s: u64) -> Result<Limits, ProbeError> {
        let Some(place) = self.places.get(seat.place) else { return Ok(seat.limits) };
        let (neighbours, victim) = self.users(place);
        // A tmpfs takes memory: at most a tenth of what is free as well.
        let free = if place.is_in_memory() { place.free_bytes.min(free_memory()) } else { place.free_bytes };
        Limits::of(free, neighbours, victim, bytes_per_s, seat.memory).map_err(|small| ProbeError::Space {
            path: place.path.display().to_string(),
            free_mib: free >> 20,
            wanted_mib: small.wanted_free_bytes.div_ceil(1 << 20),
        })
    }

    fn check_space(&mut self) -> Result<(), ProbeError> {
        let limits: Vec<Limits> =
            self.seats.iter().map(|seat| self.limits(seat, u64::MAX)).collect::<Result<_, _>>()?;
        for (seat, limits) in self.seats.iter_mut().zip(limits) {
            seat.limits = limits;
        }
        Ok(())
    }

    /// Fits the limits to the measured speed of the victim's device. The space was checked before.
    pub fn set_limits(&mut self, bytes_per_s: u64) {
        let limits: Vec<Option<Limits>> = self.seats.iter().map(|seat| self.limits(seat, bytes_per_s).ok()).collect();
        for (seat, limits) in self.seats.iter_mut().zip(limits) {
            seat.limits = limits.unwrap_or(seat.limits);
        }
    }

    /// The plan for people and programs.
    #[must_use]
    pub fn plan(&self, options: &Options) -> PlanText {
        let seat = |seat: &Seat| SeatText {
            relation: seat.relation,
            path: self.places.get(seat.place).map(|place| place.path.display().to_string()).unwrap_or_default(),
            dirty_bytes_max: seat.limits.dirty_bytes,
            cache_bytes_max: seat.limits.cache_bytes,
            in_flight_bytes: seat.limits.in_flight_bytes,
            memory_limit_bytes: seat.memory.limit_bytes,
            shared_controllers: seat.group.shared.clone(),
        };
        PlanText {
            place: self.places.first().cloned(),
            cgroup: options.cgroup.as_ref().map(|path| path.display().to_string()),
            victim_bytes: VICTIM_BYTES,
            seconds_max: options.length.as_secs(),
            seed: options.seed,
            applied: options.apply,
            neighbours: self.seats.iter().map(seat).collect(),
            notes: self.notes.clone(),
        }
    }

    /// Removes the cgroups; returns what could not be removed.
    pub fn remove(&mut self) -> Vec<String> {
        self.groups.take().map(Groups::remove).unwrap_or_default().failed
    }
}

/// The limits that a probe cannot tell apart for the victim and a neighbour in another cgroup.
fn shared_note(outside: &Group, cgroup: Option<&Path>) -> Option<String> {
    let names: Vec<&str> = outside.shared.iter().map(|controller| controller.in_version(2)).collect();
    let why = match cgroup {
        Some(cgroup) => format!("{} exists only in other hierarchies", cgroup.display()),
        None => "it is not mounted, or not enabled for new cgroups".to_owned(),
    };
    (!names.is_empty()).then(|| format!("not measured: what other cgroups limit by {}: {why}", names.join(", ")))
}

const UNLIMITED: Memory = Memory { limit_bytes: None, available_bytes: u64::MAX, dirty_limit_bytes: None };

fn free_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    dirty::field(&text, "MemFree:").map_or(0, |kib| kib << 10)
}

/// What bounds the page cache of processes in this cgroup.
fn memory(group: &Group) -> Memory {
    let limit_bytes = group.directories.iter().filter_map(|directory| memory_limit(directory)).min();
    let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let machine = dirty::free_run_pages(&vmstat).map(|pages| pages * page_size() as u64);
    let own = dirty_limit_of(group, limit_bytes).map(|own| own.bytes);
    Memory { limit_bytes, available_bytes: free_memory(), dirty_limit_bytes: own.into_iter().chain(machine).min() }
}

/// In cgroup v2 the machine's ratios apply to the cgroup's memory.
fn dirty_limit_of(group: &Group, limit_bytes: Option<u64>) -> Option<DirtyLimit> {
    let is_v2 = |directory: &&PathBuf| directory.join("cgroup.controllers").exists();
    let stat = group.directories.iter().find(is_v2)?.join("memory.stat");
    let ratio = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/vm/{name}")).ok()?.trim().parse().ok()
    };
    let percent = (ratio("dirty_ratio")? + ratio("dirty_background_ratio")?) / 2;
    Some(DirtyLimit { stat, bytes: limit_bytes? / 100 * percent })
}
