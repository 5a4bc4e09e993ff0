//! Reads the kernel's delay accounting of a thread over netlink (Documentation/accounting/taskstats.rst).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use flatwater_recording::schema::{Column, workload};

pub const WHAT: &str = "what the target's threads waited for (delay accounting)";
pub const REMEDY: &str = "as root: sysctl kernel.task_delayacct=1 (since 5.14; before, boot with delayacct), on a \
                          kernel with CONFIG_TASK_DELAY_ACCT";

/// Delays of one thread since it began, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    pub block_io_ns: u64,
    pub swap_in_ns: u64,
    pub reclaim_ns: u64,
    pub thrashing_ns: u64,
    pub compaction_ns: u64,
}

impl Delays {
    pub fn columns(&self) -> [(Column, u64); 5] {
        [
            (workload::BLOCK_IO_DELAY_NS, self.block_io_ns),
            (workload::SWAP_IN_DELAY_NS, self.swap_in_ns),
            (workload::RECLAIM_DELAY_NS, self.reclaim_ns),
            (workload::THRASHING_DELAY_NS, self.thrashing_ns),
            (workload::COMPACTION_DELAY_NS, self.compaction_ns),
        ]
    }

    pub fn with(&self, other: &Delays, of: fn(u64, u64) -> u64) -> Delays {
        Delays {
            block_io_ns: of(self.block_io_ns, other.block_io_ns),
            swap_in_ns: of(self.swap_in_ns, other.swap_in_ns),
            reclaim_ns: of(self.reclaim_ns, other.reclaim_ns),
            thrashing_ns: of(self.thrashing_ns, other.thrashing_ns),
            compaction_ns: of(self.compaction_ns, other.compaction_ns),
        }
    }

    /// Parses `struct taskstats`. New versions only append fields, except version 15, which inserted some in the
    /// middle.
    fn parse(stats: &[u8]) -> Option<Delays> {
        let version = u16::from_ne_bytes(stats.get(..2)?.try_into().ok()?);
        let field = |at: usize| Some(u64::from_ne_bytes(stats.get(at..at + 8)?.try_into().ok()?));
        if !(8..=64).contains(&version) || version == 15 {
            return None;
        }
        Some(Delays {
            block_io_ns: field(40)?,
            swap_in_ns: field(56)?,
            reclaim_ns: field(320)?,
            // Added in versions 9 and 11.
            thrashing_ns: field(336).unwrap_or(0),
            compaction_ns: field(360).unwrap_or(0),
        })
    }
}

/// From linux/genetlink.h and linux/taskstats.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const TASKSTATS_CMD_GET: u8 = 1;
const TASKSTATS_CMD_ATTR_PID: u16 = 1;
const TASKSTATS_TYPE_STATS: u16 = 3;
const TASKSTATS_TYPE_AGGR_PID: u16 = 4;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const HEADER_BYTES: usize = 16 + 4;

/// Why delays cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelaysError {
    /// All sums would be 0, which would mean that nothing was waited for.
    #[error("delay accounting is off (kernel.task_delayacct is 0)")]
    SwitchedOff,
    #[error("this kernel has no TASKSTATS family")]
    NoFamily,
    #[error("the netlink request failed: {0}")]
    Netlink(#[from] io::Error),
}

/// A netlink socket for delay accounting.
#[derive(Debug)]
pub struct Asker {
    socket: OwnedFd,
    family: u16,
}

impl Asker {
    pub fn new() -> Result<Asker, DelaysError> {
        let switch = std::fs::read_to_string("/proc/sys/kernel/task_delayacct").unwrap_or_default();
        if switch.trim() == "0" {
            return Err(DelaysError::SwitchedOff);
        }
        // SAFETY: passes no pointer.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_GENERIC) };
        if fd < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut asker = Asker { socket, family: GENL_ID_CTRL };
        let reply = asker.ask(CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0")?;
        let family = attribute(&reply, CTRL_ATTR_FAMILY_ID)
            .and_then(|bytes| Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?)));
        asker.family = family.ok_or(DelaysError::NoFamily)?;
        asker.ask_for(std::process::id())?;
        Ok(asker)
    }

    pub fn delays_of(&self, tid: u32) -> Option<Delays> {
        self.ask_for(tid).ok().flatten()
    }

    fn ask_for(&self, tid: u32) -> io::Result<Option<Delays>> {
        let reply = self.ask(TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_PID, &tid.to_ne_bytes())?;
        let stats = attribute(&reply, TASKSTATS_TYPE_AGGR_PID).and_then(|both| attribute(both, TASKSTATS_TYPE_STATS));
        Ok(stats.and_then(Delays::parse))
    }

    /// Sends a request with one attribute; returns the attributes of the answer.
    fn ask(&self, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
        let message = request(self.family, command, kind, value);
        // SAFETY: reads `message.len()` bytes of a live buffer.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut reply = vec![0_u8; 4096];
        // SAFETY: writes at most `reply.len()` bytes into a live buffer.
        let got = unsafe { libc::recv(self.socket.as_raw_fd(), reply.as_mut_ptr().cast(), reply.len(), 0) };
        reply.truncate(usize::try_from(got).map_err(|_| io::Error::last_os_error())?);
        answer(&reply)
    }
}

fn request(family: u16, command: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute_bytes = 4 + value.len();
    let mut message = Vec::with_capacity(HEADER_BYTES + attribute_bytes.next_multiple_of(4));
    message.extend(((HEADER_BYTES + attribute_bytes.next_multiple_of(4)) as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend((attribute_bytes as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

fn answer(reply: &[u8]) -> io::Result<Vec<u8>> {
    let kind = reply.get(4..6).and_then(|bytes| Some(u16::from_ne_bytes(bytes.try_into().ok()?)));
    if kind == Some(NLMSG_ERROR) {
        let code = reply.get(16..20).and_then(|bytes| Some(i32::from_ne_bytes(bytes.try_into().ok()?)));
        return Err(io::Error::from_raw_os_error(code.unwrap_or(0).saturating_neg()));
    }
    Ok(reply.get(HEADER_BYTES..).unwrap_or_default().to_vec())
}

/// The payload of the first attribute of this kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let payload = attributes.get(4..length)?;
        if kind == wanted {
            return Some(payload);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, Delays, attribute, request};

    #[test]
    fn attributes_are_found_unless_truncated() {
        let message = request(16, 3, 2, b"abcde");
        assert_eq!(message.len(), 20 + 12);
        let mut two = message[20..].to_vec();
        two.extend(&request(16, 3, 7, b"xy")[20..]);
        assert_eq!(
            (attribute(&two, 2), attribute(&two, 7), attribute(&two, 9)),
            (Some(&b"abcde"[..]), Some(&b"xy"[..]), None)
        );
        for end in 0..two.len() - 2 {
            assert!(attribute(&two[..end], 7).is_none());
        }
        assert_eq!(attribute(&[0, 0, 2, 0, 1], 9), None, "a length of 0 ends the search");
    }

    #[test]
    fn unknown_versions_are_not_parsed() {
        let mut stats = vec![0_u8; 400];
        stats[40] = 9;
        stats[321] = 1;
        for (version, reported) in [(14_u16, true), (16, true), (15, false), (3, false), (0xffff, false)] {
            stats[..2].copy_from_slice(&version.to_ne_bytes());
            let delays = Delays::parse(&stats);
            assert_eq!(delays.is_some(), reported, "version {version}");
            assert!(delays.is_none_or(|delays| (delays.block_io_ns, delays.reclaim_ns) == (9, 256)));
        }
        assert_eq!(Delays::parse(&stats[..20]), None);
    }

    #[test]
    fn delays_are_read_or_the_error_has_a_reason() {
        match Asker::new() {
            Ok(asker) => assert!(asker.delays_of(std::process::id()).is_some()),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
