//! Tells whether the processes ahead at a device use the awaited file system, or another one on the same device.

use std::collections::{BTreeSet, HashMap};

use flatwater_recording::{Recording, Request, RequestOp};

/// Program and cgroup, as aggressors are named.
type Who = (String, Option<String>);

/// Time at devices, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    same_ns: u64,
    elsewhere_ns: u64,
}

/// Time that devices spent on each process's requests while the target's waited, by file system.
#[derive(Clone, Debug, Default)]
pub struct Places {
    by_owner: HashMap<Who, Shares>,
}

impl Places {
    #[must_use]
    pub fn of(recording: &Recording) -> Places {
        let requests: HashMap<u64, &Request> = recording.requests.iter().map(|one| (one.id, one)).collect();
        // A flush has no data. Its file system is taken from other awaited requests to the same device.
        let mut of_device: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for request in &recording.requests {
            let Some(place) = &request.file_system else { continue };
            of_device.entry(&request.device).or_default().insert(place);
        }
        let mut places = Places::default();
        for row in recording.queue_ahead.iter().filter(|row| row.op != RequestOp::Discard) {
            let Some(owner) = &row.owner else { continue };
            let who = (owner.name.clone(), owner.cgroup.clone().filter(|path| path != "/"));
            let shares = places.by_owner.entry(who).or_default();
            let (Some(place), Some(awaited)) = (row.file_system.as_deref(), requests.get(&row.request)) else {
                continue;
            };
            let same = match &awaited.file_system {
                Some(own) => own == place,
                None => match of_device.get(awaited.device.as_str()) {
                    Some(known) => known.contains(place),
                    None => continue,
                },
            };
            let sum = if same { &mut shares.same_ns } else { &mut shares.elsewhere_ns };
            *sum = sum.saturating_add(row.device_ns);
        }
        places
    }

    /// Whether most of this program's time at the device was for the awaited file system; `None` if unknown.
    #[must_use]
    pub fn shared(&self, program: &str, cgroup: Option<&str>) -> Option<bool> {
        self.by_owner.get(&(program.to_owned(), cgroup.map(str::to_owned)))?.mostly_same()
    }

    /// As `shared`, for all programs of a cgroup together.
    #[must_use]
    pub fn shared_by_all_of(&self, cgroup: &str) -> Option<bool> {
        let members = self.by_owner.iter().filter(|((_, path), _)| path.as_deref() == Some(cgroup));
        let sum = |sum: Shares, (_, one): (&Who, &Shares)| Shares {
            same_ns: sum.same_ns.saturating_add(one.same_ns),
            elsewhere_ns: sum.elsewhere_ns.saturating_add(one.elsewhere_ns),
        };
        members.fold(Shares::default(), sum).mostly_same()
    }
}

impl Shares {
    /// `None` if no time is known.
    fn mostly_same(self) -> Option<bool> {
        (self.same_ns.max(self.elsewhere_ns) > 0).then_some(self.same_ns >= self.elsewhere_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use flatwater_recording::{QueueAhead, Recording, Request, RequestOp, Task};

    fn request(id: u64, device: &str, place: Option<&str>) -> Request {
        let file_system = place.map(str::to_owned);
        Request { id, device: device.to_owned(), op: RequestOp::Write, file_system, ..Request::default() }
    }

    fn ahead(request: u64, program: &str, cgroup: &str, place: Option<&str>, device_ns: u64) -> QueueAhead {
        let owner = Task { name: program.to_owned(), cgroup: Some(cgroup.to_owned()), ..Task::default() };
        let file_system = place.map(str::to_owned);
        QueueAhead {
            request,
            owner: Some(owner),
            op: RequestOp::Write,
            file_system,
            device_ns,
            ..QueueAhead::default()
        }
    }

    #[test]
    fn requests_show_the_file_system_of_each_process() {
        let recording = Recording {
            requests: vec![request(1, "vda", Some("254:1")), request(2, "vda", None), request(3, "vdb", None)],
            queue_ahead: vec![
                ahead(1, "dd", "/", Some("254:1"), 90),
                ahead(1, "dd", "/", Some("254:2"), 10),
                ahead(1, "backup", "/jobs", Some("254:2"), 50),
                // The flush does not show its file system; other requests to the same device do.
                ahead(2, "rsync", "/jobs", Some("254:2"), 50),
                ahead(2, "cp", "/home", Some("254:1"), 50),
                ahead(3, "tar", "/home", Some("254:17"), 50),
                ahead(1, "old", "/home", None, 50),
            ],
            ..Recording::default()
        };
        let places = Places::of(&recording);
        assert_eq!(places.shared("dd", None), Some(true), "most of the time");
        assert_eq!(places.shared("backup", Some("/jobs")), Some(false));
        assert_eq!(places.shared("rsync", Some("/jobs")), Some(false));
        assert_eq!(places.shared("cp", Some("/home")), Some(true));
        assert_eq!(places.shared_by_all_of("/jobs"), Some(false));
        assert_eq!(
            places.shared("cron", Some("/jobs")),
            None,
            "it had nothing there; its neighbours' requests are not its own"
        );
        assert_eq!(places.shared("tar", Some("/home")), None, "nothing is known of that device");
        assert_eq!(places.shared("old", Some("/home")), None, "a recording of an earlier version");
    }
}
