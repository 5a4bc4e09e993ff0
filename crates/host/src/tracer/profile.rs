//! Reads what the BPF programs count of the calls of targets and neighbours, to imitate them: a mirror of
//! bpf/profile.h.

use std::collections::{BTreeMap, HashMap as Map, HashSet};
#[cfg(test)]
use std::mem::offset_of;

use aya::maps::{HashMap, MapData};

use super::calls::{self, OffsetArg};
#[cfg(test)]
use super::layout::Member;
use super::layout::{mirror_struct, text};
use super::totals::class_bounds;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{GroupRole, OpKind, OperationFiles, OperationKind, Operations, classes_text};

/// Sizes of the arrays, which the test of the structures compares.
mod size {
    pub const PROFILE_PAUSES: usize = 64;
    pub const PROFILE_SIZES: usize = 256;
}

/// enum profile_kind.
mod kind {
    pub const P_READ: usize = 0;
    pub const P_WRITE: usize = 1;
    pub const P_FSYNC: usize = 2;
    pub const P_FDATASYNC: usize = 3;
    pub const P_SYNCFS: usize = 4;
    pub const P_OPEN: usize = 6;
    pub const P_UNLINK: usize = 7;
    pub const P_RENAME: usize = 8;
    pub const P_RESIZE: usize = 9;
    pub const PROFILE_KINDS: usize = 10;
}

/// Role of a process in the map `targets`: enum role.
pub mod role {
    pub const ROLE_TARGET: u32 = 1;
    pub const ROLE_NEIGHBOUR: u32 = 2;
}

mirror_struct! {
    #[derive(PartialEq, Eq, Hash)]
    Key = "profile_key" { tgid: u32, role: u32, device: u32, unused: u32, comm: [u8; 16], }
    Op = "profile_op" {
        count: u64,
        bytes: u64,
        sequential: u64,
        call_ns: u64,
        pauses: u64,
        pause_ns: u64,
        pause: [u64; size::PROFILE_PAUSES],
    }
    Profile = "profile" {
        threads: u64,
        direct: u64,
        synced: u64,
        appended: u64,
        op: [Op; kind::PROFILE_KINDS],
        size: [[u64; size::PROFILE_SIZES]; 2],
        sync_writes: [u64; size::PROFILE_PAUSES],
    }
    #[derive(PartialEq, Eq, Hash)]
    FileKey = "profile_file_key" { inode: u64, device: u32, tgid: u32, role: u32, unused: u32, }
    FileUse = "profile_file" { reads: u64, writes: u64, syncs: u64, first_bytes: u64, bytes: u64, next: u64, }
}

// SAFETY: only integers and arrays of integers, without padding: every bit pattern is valid.
unsafe impl aya::Pod for Key {}
// SAFETY: as above.
unsafe impl aya::Pod for Profile {}
// SAFETY: as above.
unsafe impl aya::Pod for FileKey {}
// SAFETY: as above.
unsafe impl aya::Pod for FileUse {}

/// By system call: the kind + 1, and where its offset comes from (1: argument 3, 2: the file's position).
#[must_use]
pub fn tables() -> ([u8; 512], [u8; 512]) {
    let (mut kinds, mut offsets) = ([0; 512], [0; 512]);
    for call in calls::all() {
        let Some(kind) = kind_of(call.op) else { continue };
        let Some(number) = usize::try_from(call.number).ok().filter(|number| *number < 512) else { continue };
        kinds[number] = kind as u8 + 1;
        offsets[number] = if matches!(call.offset, OffsetArg::At(3)) { 1 } else { 2 };
    }
    (kinds, offsets)
}

fn kind_of(op: OpKind) -> Option<usize> {
    Some(match op {
        OpKind::Read => kind::P_READ,
        OpKind::Write | OpKind::CopyFileRange | OpKind::Sendfile => kind::P_WRITE,
        OpKind::Fsync => kind::P_FSYNC,
        OpKind::Fdatasync => kind::P_FDATASYNC,
        OpKind::Sync | OpKind::Syncfs => kind::P_SYNCFS,
        OpKind::Open | OpKind::Create => kind::P_OPEN,
        OpKind::Unlink => kind::P_UNLINK,
        OpKind::Rename => kind::P_RENAME,
        OpKind::Truncate | OpKind::Fallocate => kind::P_RESIZE,
        _ => return None,
    })
}

/// The two maps; read once, at the end.
#[derive(Debug)]
pub struct Profiles {
    pub groups: HashMap<MapData, Key, Profile>,
    pub files: HashMap<MapData, FileKey, FileUse>,
    pub parents: HashMap<MapData, u32, u32>,
}

impl Profiles {
    #[must_use]
    pub fn operations(&self) -> Vec<Operations> {
        let mut rows = Vec::new();
        for (key, profile) in self.groups.iter().flatten() {
            rows.extend(rows_of(&key, &profile));
        }
        rows.sort_short_by(|a: &Operations, b| (a.role, a.pid, &a.thread, a.op).cmp(&(b.role, b.pid, &b.thread, b.op)));
        rows
    }

    #[must_use]
    pub fn files(&self) -> Vec<OperationFiles> {
        summed(&self.files.iter().flatten().collect::<Vec<_>>())
    }

    /// The file systems of the targets' files, the one with the most writes first, as `major:minor`.
    #[must_use]
    pub fn file_systems(&self) -> Vec<String> {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for (key, file) in self.files.iter().flatten().filter(|(key, _)| key.role == role::ROLE_TARGET) {
            let sum = sums.entry(key.device).or_default();
            *sum = sum.saturating_add(file.writes.saturating_mul(16)).saturating_add(file.reads).saturating_add(1);
        }
        let mut ordered: Vec<(u32, u64)> = sums.into_iter().collect();
        ordered.sort_short_by_key(|(_, sum)| std::cmp::Reverse(*sum));
        ordered.into_iter().map(|(device, _)| number(device)).collect()
    }
}

/// A device number in the kernel's encoding, as `major:minor`.
fn number(device: u32) -> String {
    format!("{}:{}", device >> 20, device & 0xf_ffff)
}

fn role_of(role: u32) -> GroupRole {
    if role == role::ROLE_NEIGHBOUR { GroupRole::Neighbour } else { GroupRole::Target }
}

fn pid_of(tgid: u32) -> Option<u32> {
    (tgid != 0).then_some(tgid)
}

/// The lowest value of each class, one per power of two from 8 on.
fn coarse(counts: &[u64]) -> String {
    let lowest = |class: usize| if class == 0 { 0 } else { 1_u64 << (class + 2).min(63) };
    classes_text(counts.iter().enumerate().map(|(class, count)| (lowest(class), *count)))
}

fn rows_of(key: &Key, profile: &Profile) -> Vec<Operations> {
    let used = profile.op.iter().zip(OperationKind::ALL).filter(|(op, _)| op.count > 0);
    let row = |(op, kind): (&Op, &OperationKind)| {
        let sizes = match kind {
            OperationKind::Read => Some(&profile.size[kind::P_READ]),
            OperationKind::Write => Some(&profile.size[kind::P_WRITE]),
            _ => None,
        };
        let classes = sizes.into_iter().flatten().enumerate();
        Operations {
            role: role_of(key.role),
            pid: pid_of(key.tgid),
            thread: text(&key.comm),
            file_system: number(key.device),
            op: *kind,
            count: op.count,
            bytes: op.bytes,
            sequential: op.sequential,
            call_ns: op.call_ns,
            pauses: op.pauses,
            pause_ns: op.pause_ns,
            pause_classes: coarse(&op.pause),
            size_classes: classes_text(classes.map(|(class, count)| (class_bounds(class).0, *count))),
            // The BPF program multiplies the number of writes by 8, the first class of which has a bound.
            sync_classes: if *kind == OperationKind::Write {
                classes_text(
                    profile
                        .sync_writes
                        .iter()
                        .enumerate()
                        .map(|(class, count)| (if class == 0 { 0 } else { 1_u64 << (class - 1).min(63) }, *count)),
                )
            } else {
                String::new()
            },
            threads: profile.threads,
            direct: profile.direct,
            synced: profile.synced,
            appended: profile.appended,
        }
    };
    used.map(row).collect()
}

type Use = (GroupRole, Option<u32>, String, bool, bool, bool);

/// Sums files of the same use, so that a million files are a few rows.
fn summed(files: &[(FileKey, FileUse)]) -> Vec<OperationFiles> {
    let mut roles: Map<(u64, u32), HashSet<u32>> = Map::new();
    for (key, _) in files {
        roles.entry((key.inode, key.device)).or_default().insert(key.role);
    }
    let mut rows: BTreeMap<Use, OperationFiles> = BTreeMap::new();
    for (key, file) in files {
        let shared = roles.get(&(key.inode, key.device)).is_some_and(|roles| roles.len() > 1);
        let of = (role_of(key.role), pid_of(key.tgid), number(key.device), file.writes > 0, file.syncs > 0, shared);
        let row = rows.entry(of.clone()).or_insert_with(|| OperationFiles {
            role: of.0,
            pid: of.1,
            file_system: of.2,
            written: Some(of.3),
            synced: Some(of.4),
            shared: Some(of.5),
            ..OperationFiles::default()
        });
        row.files += 1;
        for (sum, more) in [
            (&mut row.reads, file.reads),
            (&mut row.writes, file.writes),
            (&mut row.syncs, file.syncs),
            (&mut row.first_bytes, file.first_bytes),
            (&mut row.bytes, file.bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        row.largest_bytes = row.largest_bytes.max(file.bytes);
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::{FileKey, FileUse, Key, Op, Profile, kind, role, rows_of, size, summed, tables};
    use crate::tracer::btf::Types;
    use crate::tracer::variant;
    use flatwater_recording::{GroupRole, OperationKind};

    #[test]
    fn structures_and_constants_match_the_object() {
        for variant in &variant::ALL {
            let types = Types::of_object(&variant.object.elf()).expect("an object with BTF");
            for (name, size, members) in [
                (Op::ORIGINAL, size_of::<Op>(), Op::MEMBERS),
                (Profile::ORIGINAL, size_of::<Profile>(), Profile::MEMBERS),
                (Key::ORIGINAL, size_of::<Key>(), Key::MEMBERS),
                (FileKey::ORIGINAL, size_of::<FileKey>(), FileKey::MEMBERS),
                (FileUse::ORIGINAL, size_of::<FileUse>(), FileUse::MEMBERS),
            ] {
                types.assert_struct(name, size, members);
            }
        }
        assert_eq!(kind::PROFILE_KINDS, OperationKind::ALL.len(), "the same order in bpf/profile.h");
    }

    #[test]
    fn every_row_of_a_group_has_its_histograms() {
        let op = Op { count: 0, bytes: 0, sequential: 0, call_ns: 0, pauses: 0, pause_ns: 0, pause: [0; 64] };
        let mut profile = Profile {
            threads: 2,
            direct: 0,
            synced: 0,
            appended: 0,
            op: [op; kind::PROFILE_KINDS],
            size: [[0; size::PROFILE_SIZES]; 2],
            sync_writes: [0; 64],
        };
        profile.op[kind::P_WRITE].count = 3;
        profile.op[kind::P_WRITE].pause[1] = 2;
        profile.size[kind::P_WRITE][80] = 3;
        // One write between two syncs, multiplied by 8.
        profile.sync_writes[1] = 1;
        profile.op[kind::P_FSYNC].count = 1;
        let mut comm = [0; 16];
        comm[..2].copy_from_slice(b"dd");
        let key = Key { tgid: 0, role: role::ROLE_NEIGHBOUR, device: 7 << 20 | 3, unused: 0, comm };
        let rows = rows_of(&key, &profile);
        assert_eq!(rows.iter().map(|row| row.op).collect::<Vec<_>>(), [OperationKind::Write, OperationKind::Fsync]);
        let write = &rows[0];
        assert_eq!((write.role, write.pid, write.thread.as_str()), (GroupRole::Neighbour, None, "dd"));
        assert_eq!((write.file_system.as_str(), write.threads), ("7:3", 2));
        assert_eq!((write.pause_classes.as_str(), write.size_classes.as_str()), ("8:2", "4096:3"));
        assert_eq!(write.sync_classes, "1:1");
    }

    #[test]
    fn files_of_one_use_are_one_row() {
        let key = |inode, role, tgid| FileKey { inode, device: 7 << 20, tgid, role, unused: 0 };
        let file = |writes, syncs, bytes| FileUse { reads: 0, writes, syncs, first_bytes: 0, bytes, next: 0 };
        let rows = summed(&[
            (key(1, role::ROLE_TARGET, 5), file(3, 1, 100)),
            (key(2, role::ROLE_TARGET, 5), file(4, 2, 300)),
            (key(3, role::ROLE_TARGET, 5), file(0, 0, 9)),
            (key(1, role::ROLE_NEIGHBOUR, 0), file(1, 0, 100)),
        ]);
        let shown: Vec<_> =
            rows.iter().map(|row| (row.role, row.files, row.shared, row.writes, row.largest_bytes)).collect();
        let (target, neighbour) = (GroupRole::Target, GroupRole::Neighbour);
        let expected = [
            (target, 1, Some(false), 0, 9),
            (target, 1, Some(false), 4, 300),
            (target, 1, Some(true), 3, 100),
            (neighbour, 1, Some(true), 1, 100),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn writes_and_syncs_are_profiled_and_close_is_not() {
        let (kinds, offsets) = tables();
        let of = |number: i64| (kinds[number as usize], offsets[number as usize]);
        assert_eq!(of(libc::SYS_write), (kind::P_WRITE as u8 + 1, 2));
        assert_eq!(of(libc::SYS_pwrite64), (kind::P_WRITE as u8 + 1, 1));
        assert_eq!(of(libc::SYS_fdatasync).0, kind::P_FDATASYNC as u8 + 1);
        assert_eq!(of(libc::SYS_close).0, 0);
    }
}
