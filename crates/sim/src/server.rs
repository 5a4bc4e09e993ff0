//! An NFS server in outline, behind the request queue: the network to it, its page cache, and its disk.
//!
//! Models: each request goes over the network at its bandwidth, and its answer begins a round trip later; what the server
//! has in memory (all that it has read or written since it began) comes from there while its disk serves others; the rest is
//! read from its disk, and writes go through to it (an export with `sync`). Leaves out: the server's own writeback and
//! eviction, RPC slots, attributes and delegations, COMMIT after unstable writes.

use std::rc::Rc;

use super::Machine;
use super::block::{self, Block, Request};
use super::constant::constants;
use super::ranges::Ranges;
use flatwater_workload::scenario::DiskSpec;

constants! {
    /// Bytes a second of the network, where the scenario does not say.
    pub const NETWORK_BYTES_PER_S: u64 = assumed(1_250_000_000, "10 Gbit/s Ethernet");
    /// From a request to the first byte of its answer.
    const NETWORK_LATENCY_NS: u64 = assumed(200_000, "a round trip in a local network and both ends' handling of an RPC");
}

#[derive(Clone, Debug)]
pub struct Server {
    network_bytes_per_s: u64,
    network_free_at_ns: u64,
    network_latency_ns: u64,
    /// Pages of its disk that it has in memory.
    cached: Ranges,
}

impl Server {
    #[must_use]
    pub fn new(network_bytes_per_s: u64, network_latency_ns: u64) -> Server {
        let network_bytes_per_s = network_bytes_per_s.max(1);
        Server { network_bytes_per_s, network_free_at_ns: 0, network_latency_ns, cached: Ranges::default() }
    }

    /// When so many bytes are over, if they may start at `from_ns`: one after the other, each a round trip after it was asked for.
    pub fn transfer(&mut self, from_ns: u64, bytes: u64) -> u64 {
        let start_ns = self.network_free_at_ns.max(from_ns);
        self.network_free_at_ns = start_ns + bytes * 1_000_000_000 / self.network_bytes_per_s;
        self.network_free_at_ns + self.network_latency_ns
    }
}

impl Block {
    /// The disk of a server behind such a network.
    #[must_use]
    pub fn of_server(mut self, spec: &DiskSpec) -> Block {
        let rate = spec.network_bytes_per_s.unwrap_or(NETWORK_BYTES_PER_S.get());
        self.server = Some(Server::new(rate, spec.network_latency_ns.unwrap_or(NETWORK_LATENCY_NS.get())));
        self
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
        server.transfer(asked_ns, pages * 4096).max(served_ns + server.network_latency_ns)
    }
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
    use super::Server;

    #[test]
    fn transfers_follow_each_other() {
        let mut server = Server::new(1_000_000_000, 100_000);
        let done = [server.transfer(0, 4096), server.transfer(0, 4096), server.transfer(20_000, 4096)];
        assert_eq!(
            done,
            [104_096, 108_192, 124_096],
            "each 100 us after it was asked for, but for what it waits for another"
        );
    }
}
