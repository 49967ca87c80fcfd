//! The thread that looks after a session: feedback to the sender, signs of life, new links for lost ones.

use std::{
    io,
    sync::{Arc, Weak, atomic::Ordering::Relaxed, mpsc},
    thread,
    time::{Duration, Instant},
};

use narrows_core::Feedback;
use narrows_io::Transport;
use narrows_session::{Code, Hello};

use crate::{Dial, Error, greeting::greet, inner::Inner, thread::spawn};

/// How often it looks while data flows: the sender's policy must settle within a second.
const ROUND: Duration = Duration::from_millis(50);
const IDLE_ROUND: Duration = Duration::from_millis(250);
const REDIAL_MIN: Duration = Duration::from_millis(50);
const REDIAL_MAX: Duration = Duration::from_secs(2);

struct Keeper {
    inner: Weak<Inner>,
    dial: Option<Arc<dyn Fn() -> io::Result<Transport> + Send + Sync>>,
    told: Feedback,
    asked_ns: u64,
    /// What comes of the link being made.
    dialling: Option<mpsc::Receiver<Greeted>>,
    redial_at: Instant,
    redial_after: Duration,
}

type Greeted = Result<(Transport, Hello), Error>;

/// Starts the keeper of `inner`; with `dial` it also makes the links. Without one the session ends.
pub(crate) fn start(inner: &Arc<Inner>, dial: Option<Dial>) -> Result<(), Error> {
    let keeper = Keeper {
        inner: Arc::downgrade(inner),
        dial: dial.map(Arc::from),
        told: Feedback::default(),
        asked_ns: 0,
        dialling: None,
        redial_at: Instant::now(),
        redial_after: REDIAL_MIN,
    };
    spawn("keeper", move || keeper.run()).inspect_err(|end| inner.end(end.clone(), true))
}

impl Keeper {
    fn run(mut self) {
        let mut pause = ROUND;
        loop {
            let Some(inner) = self.inner.upgrade() else {
                return;
            };
            {
                let mut state = inner.state.lock();
                if state.ended.is_none() && state.linkless_since_ns.is_none() {
                    inner.signals.monitor_wake.wait_for(&mut state, pause);
                }
                if state.ended.is_some() {
                    return;
                }
            }
            let told = self.feedback(&inner);
            pause = if told { ROUND } else { IDLE_ROUND };
            self.signs_of_life(&inner);
            self.links(inner);
        }
    }

    /// Tells the sender this receiver's state, where it changed.
    fn feedback(&mut self, inner: &Inner) -> bool {
        let counters = inner.counters();
        let unread: u64 = inner
            .state
            .lock()
            .links
            .values()
            .map(|link| link.unread())
            .sum();
        let now = Feedback {
            now_ns: 0,
            workers: inner.engine.workers_at_once(),
            raw_bytes: counters.raw_bytes.load(Relaxed),
            unpack_ns: counters.unpack_ns.load(Relaxed),
            io_ns: counters.io_ns.load(Relaxed),
            delayed_ns: counters.delayed_ns.load(Relaxed),
            waiting_bytes: counters.waiting_bytes.load(Relaxed) + unread,
            sink_ns: counters.sink_ns.load(Relaxed),
        };
        if now == self.told || now.raw_bytes == 0 {
            return false;
        }
        self.told = now;
        inner.state.lock().machine.tell(&now);
        inner.signals.to_send.notify_all();
        true
    }

    /// Gives up links on which nothing came for long, though asked. Each for itself: what was sent on a dead one holds
    /// up its channel until it is sent again on another.
    fn signs_of_life(&mut self, inner: &Inner) {
        let now_ns = inner.engine.clock.now_ns();
        let silence = inner.settings.silence;
        let give_up_after_ns = silence.as_nanos() as u64;
        let ask_after_ns = give_up_after_ns / 4;
        let mut state = inner.state.lock();
        let mut longest_ns = 0;
        for link in state.links.values() {
            if link.silent_ns(now_ns) > give_up_after_ns {
                tracing::info!("nothing came on a link for {silence:?}; it is given up");
                link.cut();
            } else {
                // Asked for while a long frame comes, too: its sender hears nothing else from here meanwhile.
                longest_ns = longest_ns.max(link.unheard_ns(now_ns));
            }
        }
        if longest_ns > ask_after_ns && now_ns.saturating_sub(self.asked_ns) > ask_after_ns {
            self.asked_ns = now_ns;
            state.machine.ping();
            drop(state);
            inner.signals.to_send.notify_all();
        }
    }

    /// Makes missing links, or ends a session that has had none for too long.
    fn links(&mut self, inner: Arc<Inner>) {
        let (links, since_ns, hello) = {
            let state = inner.state.lock();
            (
                state.links.len(),
                state.linkless_since_ns,
                state.machine.hello(),
            )
        };
        let within = inner.settings.resume_within;
        let left = since_ns.map(|since_ns| {
            within.saturating_sub(Duration::from_nanos(
                inner.engine.clock.now_ns().saturating_sub(since_ns),
            ))
        });
        let hopeless = self.dial.is_some() && within.is_zero();
        if left.is_some_and(|left| hopeless || left.is_zero()) {
            let text = format!("the peer vanished and did not come back within {within:?}");
            inner.end(Error::new(Code::FAILED, text), false);
            return;
        }
        let wanted = if since_ns.is_some() {
            1
        } else {
            inner.settings.connections
        };
        if self.dial.is_none() || links >= wanted {
            if since_ns.is_some() {
                thread::sleep(REDIAL_MIN);
            }
            return;
        }
        let Some(greeted) = self.connect(hello, left) else {
            return;
        };
        match greeted.and_then(|(transport, theirs)| inner.attach(transport, theirs)) {
            Ok(()) => {
                if since_ns.is_some() {
                    inner.tallies.resumed.fetch_add(1, Relaxed);
                    tracing::info!("connected again; the session goes on where it was");
                }
                self.redial_after = REDIAL_MIN;
            }
            // The peer is there and does not want this session any more.
            Err(end) if end.code() == Code::PROTOCOL => inner.end(end, false),
            Err(end) => {
                tracing::debug!(why = end.text(), "dialling again soon");
                self.redial_at = Instant::now() + self.redial_after;
                self.redial_after = (self.redial_after * 2).min(REDIAL_MAX);
            }
        }
    }

    /// Dials and says Hello; gives up when no time is `left`. Where there are other links to look after it waits no
    /// longer than a round, and is `None` until something has come of it. On a thread of its own, as a host that stands
    /// still accepts connections and answers nothing, and then each step of it waits for its own ten seconds.
    fn connect(&mut self, hello: Hello, left: Option<Duration>) -> Option<Greeted> {
        let failed = |text: String| Error::new(Code::FAILED, text);
        if self.dialling.is_none() {
            let pause = self.redial_at.saturating_duration_since(Instant::now());
            match left {
                Some(_) => thread::sleep(pause),
                None if !pause.is_zero() => return None,
                None => {}
            }
            let dial = self.dial.clone().expect("only who dials connects");
            let (found, wait) = mpsc::channel();
            let spawned = spawn("dial", move || {
                let greeted = dial()
                    .map_err(|fault| failed(fault.to_string()))
                    .and_then(|transport| greet(&hello, transport));
                let _ = found.send(greeted);
            });
            if let Err(end) = spawned {
                return Some(Err(end));
            }
            self.dialling = Some(wait);
        }
        let greeted = match self.dialling.as_ref()?.recv_timeout(left.unwrap_or(ROUND)) {
            Err(mpsc::RecvTimeoutError::Timeout) if left.is_none() => return None,
            Err(_) => Err(failed("nobody answers".into())),
            Ok(greeted) => greeted,
        };
        self.dialling = None;
        Some(greeted)
    }
}
