//! Connections whose peer has not shown who it is: few, short, and never in the way of the others.
//!
//! Why: a place in a server is for those who may use it. A stranger who connects and says nothing would hold one for
//! as long as a handshake may take, and enough of them would hold all. So strangers wait in a lobby of their own. When
//! it is full, a newcomer takes the place of a waiting one: of the address that has most of them, one that has said
//! nothing before one that has, and of those the one that has waited longest. A client that goes on with its handshake
//! is therefore served however many others are silent.
//!
//! How long a handshake may take is [`crate::secure::HANDSHAKE_TIME`]. The reason of a refusal is
//! logged for a hundred strangers a minute. Further ones are only counted, so that they cannot fill the log. Upstream:
//! whoever accepts connections.

use std::{
    fmt::Display,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::transport::{Shutdown, Transport};

/// Strangers who may wait at once, at most; see [`crate::limits::strangers_max`].
pub const STRANGERS_MAX: usize = 128;

/// Where strangers wait.
#[derive(Debug)]
pub struct Lobby {
    max: usize,
    state: Mutex<State>,
    faults: Mutex<Faults>,
}

/// What was told of strangers' faults in this minute.
#[derive(Debug, Default)]
struct Faults {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

#[derive(Debug, Default)]
struct State {
    serial: u64,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    serial: u64,
    address: String,
    spoke: bool,
    shutdown: Shutdown,
}

/// A stranger's place. Given up on drop: when the peer is admitted, and when it is gone.
#[derive(Debug)]
pub struct Stranger {
    lobby: Arc<Lobby>,
    serial: u64,
}

impl Lobby {
    /// A lobby for up to `max` strangers; 0 counts as 1.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max: max.max(1),
            state: Mutex::default(),
            faults: Mutex::default(),
        })
    }

    /// Tells in the log why `peer` was not let in, or counts it.
    pub fn refused(&self, peer: &str, why: &dyn Display) {
        let Some(untold) = self.faults.lock().tell(Instant::now()) else {
            return;
        };
        if untold > 0 {
            tracing::warn!("{untold} more connections were refused");
        }
        tracing::warn!(peer, "refused: {why}");
    }

    /// Takes a newcomer in. Where the lobby is full another one's connection is aborted, which its thread notices.
    #[must_use]
    pub fn enter(self: &Arc<Self>, transport: &Transport) -> Stranger {
        let mut state = self.state.lock();
        while state.waiting.len() >= self.max {
            let at = state.least();
            let gone = state.waiting.swap_remove(at);
            tracing::debug!(address = gone.address, "too many strangers; one is dropped");
            gone.shutdown.abort();
        }
        let serial = state.serial;
        state.serial += 1;
        state.waiting.push(Waiting {
            serial,
            address: host(&transport.peer).into(),
            spoke: false,
            shutdown: transport.shutdown.clone(),
        });
        Stranger {
            lobby: self.clone(),
            serial,
        }
    }

    /// Strangers who wait now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Faults {
    /// Whether one more is told, and how many were not since the last that was.
    fn tell(&mut self, now: Instant) -> Option<u64> {
        let is_over = |since| now.duration_since(since) >= PERIOD;
        if self.since.is_none_or(is_over) {
            (self.since, self.told) = (Some(now), 0);
        }
        if self.told == TOLD_MAX {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// Faults of strangers that are told in one period.
const TOLD_MAX: u32 = 100;
const PERIOD: Duration = Duration::from_secs(60);

impl State {
    /// Who has to make room.
    fn least(&self) -> usize {
        let of = |address: &str| {
            self.waiting
                .iter()
                .filter(|one| one.address == address)
                .count()
        };
        let rank = |one: &Waiting| (usize::MAX - of(&one.address), one.spoke, one.serial);
        let order = (0..self.waiting.len()).min_by_key(|&at| rank(&self.waiting[at]));
        order.expect("a full lobby has somebody in it")
    }
}

impl Stranger {
    /// It said something that made sense, so silent ones go before it.
    pub fn spoke(&self) {
        let mut state = self.lobby.state.lock();
        if let Some(one) = state
            .waiting
            .iter_mut()
            .find(|one| one.serial == self.serial)
        {
            one.spoke = true;
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.lobby
            .state
            .lock()
            .waiting
            .retain(|one| one.serial != self.serial);
    }
}

/// A peer's name without its port.
fn host(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::transport::from_unix;

    fn from(address: &str) -> Transport {
        let (socket, _) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        from_unix(socket, address.into())
    }

    // Goal: the silent make room before those who spoke, the many before the few, the old before the new.
    #[test]
    fn who_makes_room() {
        let lobby = Lobby::new(3);
        let (a, b, c) = (from("10.0.0.1:1"), from("10.0.0.1:2"), from("10.0.0.2:1"));
        let places = [lobby.enter(&a), lobby.enter(&b), lobby.enter(&c)];
        places[0].spoke();
        let d = from("10.0.0.3:9");
        let _d = lobby.enter(&d);
        assert!(b.shutdown.is_aborted() && !a.shutdown.is_aborted() && !c.shutdown.is_aborted());
        let e = from("10.0.0.3:10");
        let _e = lobby.enter(&e);
        assert!(c.shutdown.is_aborted(), "one each: the oldest silent one");
        drop(places);
        assert_eq!(lobby.len(), 2);
    }
    // Goal: a crowd cannot fill the log, and nothing is kept from who reads it. Method: a thousand faults in a second,
    // and one a minute later.
    #[test]
    fn faults_of_a_crowd_are_counted() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        let told = (0..1000)
            .filter(|at| {
                faults
                    .tell(now + Duration::from_millis(*at))
                    .is_some_and(|untold| untold == 0)
            })
            .count();
        assert_eq!(told, TOLD_MAX as usize);
        assert_eq!(faults.tell(now + PERIOD), Some(1000 - u64::from(TOLD_MAX)));
        assert_eq!(faults.tell(now + PERIOD), Some(0));
    }
}
