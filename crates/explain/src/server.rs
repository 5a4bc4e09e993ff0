//! Network and user-space file systems: which server a call waited for, and the measurement that tells why its
//! answer is late.

use std::collections::BTreeMap;

use crate::facts::Facts;
use flatwater_recording::Cause;
use flatwater_recording::symbol::base_name;

/// A finding is about the server only from this share of the waiting time.
const SHARE_MIN: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    Nfs,
    Smb,
    Ceph,
    Fuse,
    NineP,
    Lustre,
}

/// Prefixes of the functions of each file system's client.
const CLIENTS: &[(Server, &[&str])] = &[
    (Server::Nfs, &["nfs_", "nfs3_", "nfs4_", "_nfs4_", "__nfs_", "rpc_", "__rpc_", "wait_on_commit"]),
    (Server::Smb, &["cifs_", "smb2_", "SMB2_", "smb3_", "SendReceive", "compound_send_recv", "wait_for_response"]),
    (Server::Ceph, &["ceph_", "__ceph_"]),
    (Server::Fuse, &["fuse_", "__fuse_", "request_wait_answer"]),
    (Server::NineP, &["v9fs_", "p9_"]),
    (Server::Lustre, &["ll_file_", "cl_sync_", "cl_io_", "ptlrpc_", "ldlm_cli_", "osc_"]),
];

impl Server {
    /// The server that a thread with this stack waits for.
    pub fn of<S: AsRef<str>>(frames: &[S]) -> Option<Server> {
        frames.iter().find_map(|frame| {
            let name = base_name(frame.as_ref());
            CLIENTS.iter().find(|(_, begins)| begins.iter().any(|begin| name.starts_with(begin))).map(|(who, _)| *who)
        })
    }

    /// The server that slow calls waited for during at least half of this cause's time.
    pub fn awaited(facts: &Facts<'_>, cause: Cause) -> Option<Server> {
        let mut by_server: BTreeMap<Option<Server>, u64> = BTreeMap::new();
        for (&id, &ns) in &facts.sum(cause).by_stack_ns {
            let server = facts.recording.stack(id).and_then(|stack| Server::of(&stack.frames));
            let sum = by_server.entry(server).or_default();
            *sum = sum.saturating_add(ns);
        }
        let all: f64 = by_server.values().map(|ns| *ns as f64).sum();
        let (server, ns) = by_server.into_iter().max_by_key(|(_, ns)| *ns)?;
        server.filter(|_| ns as f64 >= SHARE_MIN * all)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Server::Nfs => "the NFS server",
            Server::Smb => "the SMB server",
            Server::Ceph => "Ceph's servers (OSD or MDS)",
            Server::Fuse => "the process that serves this FUSE file system",
            Server::NineP => "the 9p server (the host of a guest)",
            Server::Lustre => "Lustre's servers",
        }
    }

    /// The measurement that separates network time from server time.
    pub const fn settle(self) -> &'static str {
        match self {
            Server::Nfs => {
                "`nfsiostat 1` or two copies of /proc/self/mountstats while it is slow (RTT against execution and \
                 queue time, COMMIT apart from WRITE), and `flatwater record` on the server"
            }
            Server::Smb => "/proc/fs/cifs/Stats twice while it is slow, and the server's own disk latency",
            Server::Ceph => {
                "/sys/kernel/debug/ceph/*/osdc and mdsc while it is slow (requests under way, by server), and `ceph \
                 osd perf`"
            }
            Server::Fuse => {
                "`flatwater record -p` of the process that serves it; /sys/fs/fuse/connections/*/waiting counts \
                 unanswered requests"
            }
            Server::NineP => "`flatwater record` on the host, of the process that serves the share (qemu, virtiofsd)",
            Server::Lustre => "`lctl get_param osc.*.rpc_stats osc.*.import` while it is slow",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Server;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind};

    const COMMIT: [&str; 4] = ["schedule", "wait_on_commit", "__nfs_commit_inode", "nfs_file_fsync"];
    const DISK: [&str; 4] = ["io_schedule", "__wait_on_buffer", "some_file_system", "vfs_fsync_range"];

    #[test]
    fn the_stack_names_the_server() {
        assert_eq!(Server::of(&COMMIT), Some(Server::Nfs));
        assert_eq!(Server::of(&["request_wait_answer+0x4f/0x1d0 [fuse]", "fuse_simple_request"]), Some(Server::Fuse));
        assert_eq!(Server::of(&["wait_for_response", "compound_send_recv"]), Some(Server::Smb));
        assert_eq!(Server::of(&["folio_wait_writeback", "ext4_sync_file", "nfsd_commit", "nfsd4_commit"]), None);
        assert_eq!(Server::of(&DISK), None);
    }

    #[test]
    fn half_of_the_wait_must_be_for_the_server() {
        let waited = |server: f64, disk: f64| {
            let builder = RecordingBuilder::new().slow(OpKind::Fsync, &[(Cause::DeviceWait, server)]).stack(&COMMIT);
            let builder = builder.slow(OpKind::Fsync, &[(Cause::DeviceWait, disk)]).stack(&DISK);
            builder.found(&crate::cause::device_wait::ENTRY).expect("a wait")
        };
        let server = waited(60.0, 20.0);
        assert!(server.headline.contains("the NFS server") && server.settle.contains("nfsiostat"), "{server:?}");
        let disk = waited(20.0, 60.0);
        assert!(!disk.headline.contains("server") && disk.settle.contains("iostat -x"), "{disk:?}");
    }
}
