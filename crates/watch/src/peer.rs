//! Identifies the peer of a connection, since places and answers are limited per peer.
//!
//! Users of this machine can reach loopback from any address in 127.0.0.0/8, so the address does not identify them. The
//! kernel knows the user of each socket, and reports it over sock_diag(7).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A client of the Unix socket, which only its owner can open.
    Owner,
    /// A user of this machine.
    User(u32),
    /// Another machine. For IPv6 only the network's 64 bits count: a machine can use any address below them.
    Machine(IpAddr),
    /// A client on this machine whose user the kernel does not report.
    Unknown,
}

/// Queries the kernel for the users of sockets.
#[derive(Debug)]
pub struct Peers {
    /// `None` if the kernel has no sock_diag or a sandbox forbids it; then all users of the machine are one peer.
    kernel: Option<OwnedFd>,
    /// The number of the last request.
    sequence: AtomicU32,
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const TCP: u8 = 6;
const ANSWER_BYTES: usize = 256;
/// The kernel answers within the system call that asks. An answer that is lost must not end all connections.
const PATIENCE: Duration = Duration::from_millis(100);
/// Offset of the request's number in `struct nlmsghdr`.
const SEQUENCE_AT: usize = 8;
/// Offsets in `struct inet_diag_msg` after `struct nlmsghdr` (linux/inet_diag.h).
const UID_AT: usize = 80;
const INODE_AT: usize = 84;

impl Peers {
    #[must_use]
    pub fn open() -> Peers {
        let flags = SocketFlags::CLOEXEC;
        let kernel = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG)).ok();
        Peers::over(kernel)
    }

    fn over(kernel: Option<OwnedFd>) -> Peers {
        let is_patient = |kernel: &OwnedFd| set_socket_timeout(kernel, Timeout::Recv, Some(PATIENCE)).is_ok();
        Peers { kernel: kernel.filter(is_patient), sequence: AtomicU32::new(0) }
    }

    /// The peer of this connection.
    #[must_use]
    pub fn of(&self, stream: &TcpStream) -> Peer {
        let (Ok(theirs), Ok(ours)) = (stream.peer_addr(), stream.local_addr()) else { return Peer::Unknown };
        let ip = theirs.ip().to_canonical();
        if !ip.is_loopback() && ip != ours.ip().to_canonical() {
            return Peer::Machine(network(ip));
        }
        self.user(theirs, ours).ok().flatten().map_or(Peer::Unknown, Peer::User)
    }

    /// The user of the socket that is bound to `from` and connected to `to`; `None` if it is closed.
    fn user(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
        let Some(kernel) = &self.kernel else { return Ok(None) };
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        send(kernel, &request(from, to, sequence), SendFlags::empty())?;
        let mut answer = [0_u8; ANSWER_BYTES];
        let word = |answer: &[u8], at: usize| answer[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let deadline = Instant::now() + PATIENCE;
        let length = loop {
            let (length, _) = recv(kernel, &mut answer[..], RecvFlags::empty())?;
            if length >= SEQUENCE_AT + 4 && word(&answer, SEQUENCE_AT) == sequence {
                break length;
            }
            // This answers an earlier request, whose connection was served without it.
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        };
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        // Any other message is an error: the socket does not exist any more. A closed socket has no inode, and the uid
        // of root.
        let is_open = kind == SOCK_DIAG_BY_FAMILY && length >= INODE_AT + 4 && word(&answer, INODE_AT) != 0;
        Ok(is_open.then(|| word(&answer, UID_AT)))
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
    }
}

/// A `struct nlmsghdr` with a `struct inet_diag_req_v2`.
fn request(from: SocketAddr, to: SocketAddr, sequence: u32) -> Vec<u8> {
    const FAMILIES: [u8; 2] = [2, 10];
    let (from_ip, to_ip) = (from.ip().to_canonical(), to.ip().to_canonical());
    let mut out = Vec::with_capacity(72);
    out.extend(72_u32.to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend(NLM_F_REQUEST.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    out.extend([FAMILIES[usize::from(from_ip.is_ipv6())], TCP, 0, 0]);
    // Sockets in any state.
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(from.port().to_be_bytes());
    out.extend(to.port().to_be_bytes());
    for ip in [from_ip, to_ip] {
        match ip {
            IpAddr::V4(ip) => {
                out.extend(ip.octets());
                out.extend([0; 12]);
            }
            IpAddr::V6(ip) => out.extend(ip.octets()),
        }
    }
    // Any interface, any cookie.
    out.extend(0_u32.to_ne_bytes());
    out.extend(u64::MAX.to_ne_bytes());
    out
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use needs::{UNPRIVILEGED_ID, as_unprivileged};

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::{INODE_AT, Peer, Peers, SEQUENCE_AT, SOCK_DIAG_BY_FAMILY, UID_AT, network};

    #[test]
    fn a_local_user_is_identified_from_any_address() {
        let peers = Peers::open();
        for at in ["127.0.0.1:0", "[::1]:0", "127.0.0.7:0"] {
            let listener = TcpListener::bind(at).expect("listens");
            let address = listener.local_addr().expect("an address");
            let client = as_unprivileged(|| TcpStream::connect(address).expect("connects"));
            let (stream, _) = listener.accept().expect("accepted");
            assert_eq!(peers.of(&stream), Peer::User(UNPRIVILEGED_ID), "{at}");
            drop(client);
            // Closed: the peer is unknown, and not root.
            assert_eq!(peers.of(&stream), Peer::Unknown, "{at}");
        }
    }

    #[test]
    fn without_sock_diag_all_users_are_one_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let _client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        let (stream, _) = listener.accept().expect("accepted");
        assert_eq!(Peers::over(None).of(&stream), Peer::Unknown);
    }

    /// Fails on 5d310ca9, where a lost answer blocked the accepting thread for good, and a late one named the user of
    /// another connection.
    #[test]
    fn a_lost_answer_does_not_block_and_a_late_one_is_not_used() {
        let pair = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let (ours, kernel) = pair.expect("a pair of sockets");
        let answer = |sequence: u32, uid: u32| {
            let mut bytes = [0_u8; INODE_AT + 4];
            bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            bytes[SEQUENCE_AT..SEQUENCE_AT + 4].copy_from_slice(&sequence.to_ne_bytes());
            bytes[UID_AT..UID_AT + 4].copy_from_slice(&uid.to_ne_bytes());
            bytes[INODE_AT..INODE_AT + 4].copy_from_slice(&7_u32.to_ne_bytes());
            send(&kernel, &bytes, SendFlags::empty()).expect("sent");
        };
        let peers = Peers::over(Some(ours));
        let address = "127.0.0.1:1".parse().expect("an address");
        assert!(peers.user(address, address).is_err(), "no answer came");
        answer(1, 4_711);
        answer(2, 1_000);
        assert_eq!(peers.user(address, address).expect("answered"), Some(1_000));
    }

    #[test]
    fn an_ipv6_machine_is_its_network() {
        let ip = |text: &str| text.parse().expect("an address");
        assert_eq!(network(ip("2001:db8:1:2:3:4:5:6")), ip("2001:db8:1:2::"));
        assert_eq!(network(ip("192.0.2.7")), ip("192.0.2.7"));
    }
}
