//! Divides the connections served at a time, and the answers per second, among peers.
//!
//! If all places are taken, a newcomer replaces a connection of the peer that has most. Connections that have not sent
//! a request are closed first, the oldest before others. A peer without any connection always gets a place, if need be
//! that of the oldest connection whose peer does not read its answer: an answer takes milliseconds. So neither silent
//! connections nor unread answers keep anyone out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::peer::Peer;

/// Closes a connection from another thread.
pub type Close = Box<dyn Fn() + Send>;

/// Answers that a peer can get at once, and in each second after that. A scraper needs one in several seconds.
const BURST: f64 = 20.0;
const PER_SECOND: f64 = 5.0;
/// Peers whose answers are counted separately; further peers count as one.
const PEERS_MAX: usize = 1_024;

pub struct Places {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    connections: BTreeMap<u64, Connection>,
    allowed: BTreeMap<Peer, (f64, Instant)>,
}

struct Connection {
    peer: Peer,
    has_asked: bool,
    close: Close,
}

/// A place of an open connection; freed when it is dropped, however the thread ends.
pub struct Place {
    places: Arc<Places>,
    number: u64,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// All places are taken, and this peer has its share.
    Full,
    /// This peer has used up its answers.
    TooOften,
}

impl Places {
    pub fn new(max: usize) -> Arc<Places> {
        Arc::new(Places { max, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection of this peer; closes another connection if necessary.
    pub fn take(self: &Arc<Places>, peer: Peer, now: Instant, close: Close) -> Result<Place, NoPlace> {
        let mut state = self.lock();
        if peer != Peer::Owner && !state.may_ask(peer, now) {
            return Err(NoPlace::TooOften);
        }
        if state.connections.len() >= self.max {
            let victim = state.victim(peer).ok_or(NoPlace::Full)?;
            if let Some(connection) = state.connections.remove(&victim) {
                (connection.close)();
            }
        }
        let number = state.next;
        state.next += 1;
        state.connections.insert(number, Connection { peer, has_asked: false, close });
        Ok(Place { places: Arc::clone(self), number })
    }
}

impl State {
    fn may_ask(&mut self, peer: Peer, now: Instant) -> bool {
        let left = |(tokens, at): (f64, Instant)| {
            (tokens + now.saturating_duration_since(at).as_secs_f64() * PER_SECOND).min(BURST)
        };
        if self.allowed.len() >= PEERS_MAX && !self.allowed.contains_key(&peer) {
            self.allowed.retain(|_, allowed| left(*allowed) < BURST);
        }
        let peer =
            if self.allowed.len() < PEERS_MAX || self.allowed.contains_key(&peer) { peer } else { Peer::Unknown };
        let allowed = self.allowed.entry(peer).or_insert((BURST, now));
        let tokens = left(*allowed);
        let may = tokens >= 1.0;
        *allowed = (if may { tokens - 1.0 } else { tokens }, now);
        may
    }

    /// The connection to close for one of this peer; `None` if the peer has its share.
    fn victim(&self, peer: Peer) -> Option<u64> {
        let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
        self.connections.values().for_each(|connection| *counts.entry(connection.peer).or_default() += 1);
        let own = counts.get(&peer).copied().unwrap_or(0);
        let most = counts.iter().max_by_key(|(_, count)| **count).filter(|(_, count)| **count > own + 1);
        let of = |whose: Option<Peer>, has_asked: bool| {
            let mut all =
                self.connections.iter().filter(|(_, connection)| whose.is_none_or(|peer| connection.peer == peer));
            all.find(|(_, connection)| connection.has_asked == has_asked).map(|(number, _)| *number)
        };
        match most {
            Some((most, _)) => of(Some(*most), false).or_else(|| of(Some(*most), true)),
            None if own > 0 => of(Some(peer), false),
            // Numbers rise: the first one is the oldest.
            None => of(None, false).or_else(|| of(None, true)),
        }
    }
}

impl Place {
    /// Marks that the connection has sent a complete request, so that silent connections are closed before it.
    pub fn has_asked(&self) {
        if let Some(connection) = self.places.lock().connections.get_mut(&self.number) {
            connection.has_asked = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::{NoPlace, PEERS_MAX, Place, Places};
    use crate::peer::Peer;

    struct Scene {
        places: Arc<Places>,
        closed: Arc<AtomicUsize>,
        now: Instant,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { places: Places::new(8), closed: Arc::default(), now: Instant::now() }
        }

        fn take(&self, peer: Peer) -> Result<Place, NoPlace> {
            let closed = Arc::clone(&self.closed);
            self.places.take(peer, self.now, Box::new(move || _ = closed.fetch_add(1, Ordering::Relaxed)))
        }

        fn count(&self, peer: Peer) -> usize {
            self.places.lock().connections.values().filter(|connection| connection.peer == peer).count()
        }
    }

    #[test]
    fn a_peer_that_holds_all_places_yields_to_others_up_to_their_share() {
        let scene = Scene::new();
        let mut held: Vec<Place> = (0..8).map(|_| scene.take(Peer::User(7)).expect("a place")).collect();
        held.iter().for_each(Place::has_asked);
        let others: Vec<_> = (0..8).filter_map(|_| scene.take(Peer::User(8)).ok()).collect();
        assert_eq!((scene.count(Peer::User(7)), scene.count(Peer::User(8))), (4, 4));
        others.iter().for_each(Place::has_asked);
        assert!(
            matches!(scene.take(Peer::User(8)), Err(NoPlace::Full)),
            "the peer's own connections are being answered"
        );
        assert!(scene.take(Peer::Machine([192, 0, 2, 1].into())).is_ok(), "a third peer");
        held.clear();
        assert_eq!(scene.count(Peer::User(7)), 0, "a place is not freed twice");
    }

    /// Fails on 5d310ca9, where eight peers that did not read their answers kept a ninth out for five seconds.
    #[test]
    fn peers_that_do_not_read_their_answers_keep_no_one_out() {
        let scene = Scene::new();
        let unread: Vec<Place> = (0..8).map(|uid| scene.take(Peer::User(uid)).expect("a place")).collect();
        unread.iter().for_each(Place::has_asked);
        let place = scene.take(Peer::User(100)).expect("a place");
        place.has_asked();
        assert_eq!((scene.count(Peer::User(0)), scene.closed.load(Ordering::Relaxed)), (0, 1), "the oldest is closed");
        // The eight come again: they cannot take the place of the newest connection.
        let again = (0..7).map(|uid| scene.take(Peer::User(uid)).expect("a place"));
        let _again: Vec<Place> = again.inspect(Place::has_asked).collect();
        assert_eq!(scene.count(Peer::User(100)), 1);
    }

    #[test]
    fn a_silent_connection_is_replaced_also_by_the_same_peer() {
        let scene = Scene::new();
        let answered: Vec<Place> = (0..4).map(|_| scene.take(Peer::User(7)).expect("a place")).collect();
        answered.iter().for_each(Place::has_asked);
        let _silent: Vec<Place> = (0..4).map(|_| scene.take(Peer::User(7)).expect("a place")).collect();
        for number in 1..=4 {
            scene.take(Peer::User(7)).expect("a place").has_asked();
            assert!(scene.closed.load(Ordering::Relaxed) <= number);
        }
        assert_eq!(
            scene.places.lock().connections.values().filter(|connection| connection.has_asked).count(),
            4,
            "these stay open"
        );
    }

    #[test]
    fn a_peer_that_asks_in_a_loop_is_limited_and_others_are_always_answered() {
        let mut scene = Scene::new();
        let mut answered = 0;
        for _ in 0..100 {
            for _ in 0..100 {
                answered += u32::from(scene.take(Peer::User(7)).is_ok());
            }
            scene.now += Duration::from_millis(200);
            assert!(scene.take(Peer::User(8)).is_ok());
        }
        // 20 at first, then 5 per second for 20 s.
        assert!((100..=121).contains(&answered), "{answered}");
        for number in 0..10 * PEERS_MAX as u32 {
            let _ = scene.take(Peer::User(number));
        }
        assert!(scene.places.lock().allowed.len() <= PEERS_MAX + 1);
    }
}
