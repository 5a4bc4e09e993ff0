//! An NFS server in outline, behind the request queue: the network to it, its page cache, and its disk.
//!
//! Models: each request goes over the network at its bandwidth and takes a round trip; no more are under way than the session has
//! slots, and none is of more than rsize or wsize; what the server has in memory (all that it has read or written since it began)
//! comes from there while its disk serves others; the rest is read from its disk, and writes go through to it (an export with
//! `sync`). The client queues as many requests as there are, but for pages under writeback (nfs_congestion_kb, 5.18 and later),
//! and reads 15 MiB ahead (up to 5.3). Leaves out: the server's own writeback and eviction, attributes and delegations, unstable
//! writes and their COMMIT.

use std::rc::Rc;

use super::Machine;
use super::block::{self, Block, Request};
use super::constant::constants;
use super::device::DeviceId;
use super::kernel::{NfsCongestion, Profile};
use super::knobs::DeviceKnobs;
use super::ranges::Ranges;
use super::site::Site;
use super::task::Task;
use super::writeback;

constants! {
    /// Bytes a second of the network, where the scenario does not say.
    pub const NETWORK_BYTES_PER_S: u64 = assumed(1_250_000_000, "10 Gbit/s Ethernet");
    /// A round trip, where the scenario does not say.
    pub const NETWORK_RTT_NS: u64 = assumed(100_000, "ping between two hosts at one switch of 10 Gbit/s");
    /// Requests under way at once.
    const SESSION_SLOTS: u64 = kernel(64, "fs/nfs/nfs4session.h", "NFS4_DEF_SLOT_TABLE_SIZE", "4.4");
    /// rsize and wsize, which a Linux server offers: 1 MiB.
    const REQUEST_PAGES: u64 = kernel(256, "include/linux/nfs_xdr.h", "NFS_MAX_FILE_IO_SIZE (1048576)", "4.4");
    const MAX_READAHEAD: u64 = kernel(15, "fs/nfs/internal.h", "NFS_MAX_READAHEAD (RPC_DEF_SLOT_TABLE - 1)", "4.4");
    /// Requests of which a client may have as many as it likes: no queue of a block device limits them.
    const REQUESTS_MAX: u64 = kernel(65_536, "include/linux/sunrpc/xprt.h", "RPC_MAX_SLOT_TABLE_LIMIT", "4.4");
    const CONGESTION_KIB_MAX: u64 = kernel(262_144, "fs/nfs/write.c", "nfs_init_writepagecache (256*1024)", "4.4");
}

/// fs/nfs/write.c: nfs_init_writepagecache, 4.4: pages under writeback from which on a server counts as congested
/// (NFS_CONGESTION_ON_THRESH), and below which no more (NFS_CONGESTION_OFF_THRESH).
fn congestion_thresholds(total_pages: u64) -> (u64, u64) {
    let on = ((16 * total_pages.isqrt()) << 2).min(CONGESTION_KIB_MAX.get()) >> 2;
    (on, on - (on >> 2))
}

/// What a mount of nfs has instead of a block device's queue.
pub fn set_client(knobs: &mut DeviceKnobs, profile: &Profile) {
    (knobs.nr_requests, knobs.request_pages) = (Some(REQUESTS_MAX.get()), REQUEST_PAGES.get());
    if profile.nfs.reads_far_ahead {
        // fs/nfs/client.c: nfs_server_set_fsinfo, 4.4.
        knobs.read_ahead_pages = REQUEST_PAGES.get() * MAX_READAHEAD.get();
    }
}

#[derive(Clone, Debug)]
pub struct Server {
    network_bytes_per_s: u64,
    network_free_at_ns: u64,
    rtt_ns: u64,
    /// Requests of which the answers have not come yet.
    under_way: u64,
    /// More pages are under writeback than nfs_congestion_kb (`nfs_server->write_congested`).
    congested: bool,
    /// Pages of its disk that it has in memory.
    cached: Ranges,
}

impl Server {
    #[must_use]
    pub fn new(network_bytes_per_s: u64, rtt_ns: u64) -> Server {
        Server {
            network_bytes_per_s: network_bytes_per_s.max(1),
            network_free_at_ns: 0,
            rtt_ns,
            under_way: 0,
            congested: false,
            cached: Ranges::default(),
        }
    }

    /// fs/nfs/write.c: nfs_folio_set_writeback, nfs_folio_end_writeback, 5.18: between the thresholds it stays as it was.
    fn note_writeback(&mut self, pages: u64, (on, off): (u64, u64)) -> bool {
        self.congested = pages > on || (self.congested && pages >= off);
        self.congested
    }

    /// When so many bytes are over, if they may start at `from_ns`: one after the other.
    pub fn transfer(&mut self, from_ns: u64, bytes: u64) -> u64 {
        let start_ns = self.network_free_at_ns.max(from_ns);
        self.network_free_at_ns = start_ns + bytes * 1_000_000_000 / self.network_bytes_per_s;
        self.network_free_at_ns + self.rtt_ns
    }
}

impl Block {
    /// The disk of a server behind such a network.
    #[must_use]
    pub fn of_server(mut self, network_bytes_per_s: Option<u64>, rtt_ns: Option<u64>) -> Block {
        let bytes_per_s = network_bytes_per_s.unwrap_or(NETWORK_BYTES_PER_S.get());
        self.server = Some(Server::new(bytes_per_s, rtt_ns.unwrap_or(NETWORK_RTT_NS.get())));
        self.joined.by_file = true;
        self
    }

    /// Whether a request has to wait for a slot of its session.
    pub fn lacks_slots(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.under_way >= SESSION_SLOTS.get())
    }

    /// A request takes a slot, or its answer has come.
    pub fn count_slot(&mut self, taken: bool) {
        if let Some(server) = self.server.as_mut() {
            server.under_way = server.under_way.wrapping_add_signed(if taken { 1 } else { -1 });
        }
    }

    /// When a request is done that the server need not ask its disk for.
    pub fn served_from_memory(&mut self, request: &Request, now_ns: u64) -> Option<u64> {
        let (from, pages) = (request.position, u64::from(request.pages));
        let server = self.server.as_mut().filter(|server| !request.write && server.cached.hold(from, from + pages))?;
        Some(server.transfer(now_ns, pages * 4096))
    }

    /// When a request is done that the disk was asked for at one time and has served at another.
    pub fn over_network(&mut self, request: &Request, asked_ns: u64, served_ns: u64) -> u64 {
        let (from, pages) = (request.position, u64::from(request.pages));
        let Some(server) = self.server.as_mut() else { return served_ns };
        server.cached.insert(from, from + pages);
        server.transfer(asked_ns, pages * 4096).max(served_ns + server.rtt_ns)
    }
}

/// fs/nfs/write.c: nfs_writepages, 5.18: whether a flusher may write to the server now.
pub async fn may_flush(m: &Machine, task: &mut Task, device: DeviceId) -> bool {
    if m.profile.nfs.congestion == NfsCongestion::Marks {
        return true;
    }
    while is_congested(m, device) {
        if m.profile.nfs.congestion == NfsCongestion::Skips {
            return false;
        }
        task.run(m).await;
        writeback::wait_for_pages(m, task, Site::CongestionWait).await;
    }
    true
}

fn is_congested(m: &Machine, device: DeviceId) -> bool {
    let mm = m.mm.borrow();
    let thresholds = congestion_thresholds(mm.managed());
    let pages = mm.by_device[device.index()].writeback;
    m.device(device).block.borrow_mut().server.as_mut().is_some_and(|server| server.note_writeback(pages, thresholds))
}

/// A request that is done at a time to come, while the device is at others.
pub fn answer(m: &Rc<Machine>, request: Request, at_ns: u64) {
    let own = m.clone();
    m.clock.spawn(async move {
        own.clock.sleep_until(at_ns).await;
        block::complete(&own, &request);
    });
}

#[cfg(test)]
mod tests {
    use super::{Server, congestion_thresholds};

    #[test]
    fn the_clients_limit_grows_with_the_root_of_memory_up_to_256_mib() {
        // The table in nfs_init_writepagecache's comment, in KiB: 64 MB to 16 GB.
        for (mib, kib) in [(64, 8192), (256, 16_384), (1024, 32_768), (4096, 65_536), (16_384, 131_072)] {
            let (on, off) = congestion_thresholds(mib * 256);
            assert_eq!((on * 4, off * 4), (kib, kib * 3 / 4), "{mib} MiB");
        }
        assert_eq!(congestion_thresholds(1 << 28), (65_536, 49_152), "1 TiB");
    }

    #[test]
    fn a_server_is_congested_until_a_quarter_fewer_pages_are_under_writeback() {
        let mut server = Server::new(1, 0);
        let met = [100, 101, 80, 75, 74, 90].map(|pages| server.note_writeback(pages, (100, 75)));
        assert_eq!(met, [false, true, true, true, false, false]);
    }

    #[test]
    fn transfers_follow_each_other_and_take_a_round_trip_each() {
        let mut slow = Server::new(1_000_000_000, 500);
        assert_eq!((slow.transfer(0, 4096), slow.transfer(0, 4096)), (4596, 8692));
        let mut server = Server::new(1_000_000_000, 0);
        assert_eq!(
            (server.transfer(0, 4096), server.transfer(0, 4096), server.transfer(20_000, 4096)),
            (4096, 8192, 24_096)
        );
    }
}
