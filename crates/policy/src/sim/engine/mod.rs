//! Runs a policy through a scene: what happens at one moment. `clock` moves time to the next.

mod clock;

use std::{collections::VecDeque, sync::Arc};

use narrows_core::{Candidate, Feedback, Gauges, Outcome, Policy, Seq, policy::AUDITION_LEN};

use crate::{
    offers::Offer,
    prior::PriorCost,
    sim::{
        data::Random,
        scene::{Scene, length_factor},
    },
};

/// One chunk from decision to delivery.
#[derive(Debug, Clone)]
pub struct Trip {
    /// Which offer.
    pub index: usize,
    /// Which sort of data.
    pub sort: usize,
    /// Where it starts in the raw bytes.
    pub offset: u64,
    /// Raw bytes.
    pub raw_len: u32,
    /// Packed bytes.
    pub packed_len: u32,
    /// When it was decided on, in nanoseconds.
    pub decided_ns: f64,
    /// When it and all before it were unpacked; infinite while they are not.
    pub delivered_ns: f64,
    /// The policy's word.
    pub why: &'static str,
    /// What the policy believed of the link.
    pub link_bytes_per_s: u64,
    ticket: u32,
    unpack_ns: f64,
    packed: bool,
    unpacked: bool,
}

/// Work on a processor.
#[derive(Debug)]
struct Job {
    trip: usize,
    cpu_ns: f64,
    left_ns: f64,
    since_ns: f64,
    audition: Option<Arc<[Candidate]>>,
    auditioning: bool,
}

/// A run in progress.
#[derive(Debug)]
pub struct Run<'a> {
    scene: &'a Scene,
    offers: &'a [Offer],
    random: Random,
    now: f64,
    /// All chunks so far.
    pub trips: Vec<Trip>,
    /// CPU spent on auditions, in nanoseconds.
    pub auditioned_ns: f64,
    raw_read: u64,
    packing: Vec<Job>,
    waiting: VecDeque<Job>,
    next_written: usize,
    writing: Option<f64>,
    kernel: f64,
    written: f64,
    drained: f64,
    /// Frames in kernel or link: trip and where it ends in the stream of written bytes.
    flying: VecDeque<(usize, f64)>,
    /// Frames on their way beyond the link: trip, arrival.
    landing: VecDeque<(usize, f64)>,
    arrived: VecDeque<usize>,
    unpacking: Vec<Job>,
    outstanding: f64,
    credits: VecDeque<(f64, f64)>,
    delivered: usize,
    reports: VecDeque<Feedback>,
    report_due: f64,
    peer: Feedback,
    sending_ns: f64,
    starved_ns: f64,
    link_bytes: f64,
    link_ns: f64,
    full_ns: f64,
    /// What the bucket before the link still lets through.
    tokens: f64,
}

/// How fast a write fills the kernel's buffer, in bytes per nanosecond.
const COPY: f64 = 6.0;
const REPORT_NS: f64 = 20e6;
/// A queue on the way is seen by the round trips that it lengthens by so much.
const STANDING_NS: f64 = 2e6;
const EPS: f64 = 1e-3;

impl<'a> Run<'a> {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(scene: &'a Scene, offers: &'a [Offer]) -> Self {
        Self {
            scene,
            offers,
            random: Random::new(scene.seed),
            now: 0.0,
            trips: Vec::new(),
            auditioned_ns: 0.0,
            raw_read: 0,
            packing: Vec::new(),
            waiting: VecDeque::new(),
            next_written: 0,
            writing: None,
            kernel: 0.0,
            written: 0.0,
            drained: 0.0,
            flying: VecDeque::new(),
            landing: VecDeque::new(),
            arrived: VecDeque::new(),
            unpacking: Vec::new(),
            outstanding: 0.0,
            credits: VecDeque::new(),
            delivered: 0,
            reports: VecDeque::new(),
            report_due: REPORT_NS,
            peer: Feedback::default(),
            sending_ns: 0.0,
            starved_ns: 0.0,
            link_bytes: 0.0,
            link_ns: 0.0,
            full_ns: 0.0,
            tokens: scene.bucket_bytes,
        }
    }

    /// Runs until `end_ns`. May be called again with a later end.
    pub fn until(&mut self, end_ns: f64, policy: &mut dyn Policy) {
        while self.now < end_ns {
            self.settle(policy);
            let dt = self.next_event(end_ns).max(EPS);
            self.advance(dt);
        }
    }

    /// Raw bytes per nanosecond delivered between two moments.
    #[must_use]
    pub fn throughput(&self, from_ns: f64, to_ns: f64) -> f64 {
        // Between whole deliveries: on slow links a chunk is a large part of a span.
        let mut within = self
            .trips
            .iter()
            .filter(|trip| trip.delivered_ns >= from_ns && trip.delivered_ns <= to_ns);
        let Some(first) = within.next() else {
            return 0.0;
        };
        let (bytes, last) = within.fold((0.0, first.delivered_ns), |(sum, _), t| {
            (sum + f64::from(t.raw_len), t.delivered_ns)
        });
        if last > first.delivered_ns {
            bytes / (last - first.delivered_ns)
        } else {
            0.0
        }
    }

    /// Raw bytes delivered between two moments.
    #[must_use]
    pub fn delivered(&self, from_ns: f64, to_ns: f64) -> f64 {
        self.trips
            .iter()
            .filter(|trip| trip.delivered_ns > from_ns && trip.delivered_ns <= to_ns)
            .map(|trip| f64::from(trip.raw_len))
            .sum()
    }

    fn gauges(&self) -> Gauges {
        let queued: f64 = self.trips[self.next_written..]
            .iter()
            .filter(|trip| trip.packed)
            .map(|trip| f64::from(trip.packed_len))
            .sum::<f64>();
        Gauges {
            now_ns: self.now as u64,
            workers: self.scene.workers,
            packing: (self.waiting.len()
                + self.packing.iter().filter(|job| !job.auditioning).count())
                as u32,
            queued_bytes: (queued + self.writing.unwrap_or(0.0)) as u64,
            sent_bytes: self.written as u64,
            acked_bytes: self.drained as u64,
            link_bytes: self.link_bytes as u64,
            link_ns: self.link_ns as u64,
            full_ns: self.full_ns as u64,
            sending_ns: self.sending_ns as u64,
            starved_ns: self.starved_ns as u64,
            heard_ns: 0,
        }
    }

    /// Everything that happens at this moment, until nothing more does.
    fn settle(&mut self, policy: &mut dyn Policy) {
        loop {
            let before = (
                self.trips.len(),
                self.packing.len(),
                self.writing.is_some(),
                self.arrived.len(),
            );
            self.finish_packing(policy);
            self.start_packing(policy);
            self.write();
            self.receive(policy);
            if before
                == (
                    self.trips.len(),
                    self.packing.len(),
                    self.writing.is_some(),
                    self.arrived.len(),
                )
            {
                break;
            }
        }
    }

    fn cost(&mut self, trip: usize, index: usize, len: usize) -> (u32, f64, f64) {
        let audition = len < self.trips[trip].raw_len as usize;
        let cost = match &self.scene.recording {
            Some(recording) => {
                let mut cost = recording.cost(self.trips[trip].offset, len, index, audition);
                cost.pack += self.offers[index].indexing_beyond(len);
                cost
            }
            None => {
                let cost = self.scene.truths[self.trips[trip].sort].costs[index];
                PriorCost {
                    pack: cost.pack + self.offers[index].indexing_beyond(len),
                    ..cost
                }
            }
        };
        let noise = |random: &mut Random, by: f64| (1.0 + by * random.normal()).max(0.3);
        let by = self.scene.noise;
        // Data with nothing to gain have nothing to gain in every chunk.
        let spread = if cost.size < 0.99 { 0.5 * by } else { 0.0 };
        // A recorded slice has its length in its cost.
        let factor = if audition && self.scene.recording.is_some() {
            1.0
        } else {
            length_factor(len, cost.size)
        };
        let mut size = f64::from(cost.size * factor) * noise(&mut self.random, spread);
        let mut unpack = f64::from(cost.unpack) * noise(&mut self.random, by);
        let pack = f64::from(cost.pack) * noise(&mut self.random, by) * len as f64;
        if size >= 1.0 || index == 0 {
            (size, unpack) = (1.0, f64::from(PriorCost::RAW.unpack));
        }
        ((size * len as f64) as u32, pack, unpack * len as f64)
    }

    fn start_packing(&mut self, policy: &mut dyn Policy) {
        let workers = self.scene.workers as usize;
        while self.trips.len() - self.next_written < self.scene.depth
            && self.waiting.len() < workers
        {
            let gauges = self.gauges();
            let most = policy.ahead_max();
            let unconsumed = gauges.queued_bytes + self.outstanding as u64;
            if gauges.queued_bytes > most.queued_bytes || unconsumed > most.unconsumed_bytes {
                break;
            }
            if self.raw_read as f64 / self.scene.source > self.now {
                break;
            }
            let len = policy.chunk_len(&gauges);
            let sort = self.scene.sort_at(self.raw_read);
            let raw = match &self.scene.recording {
                Some(recording) => recording.bytes_at(self.raw_read, len),
                None => {
                    let bytes = &self.scene.truths[sort].bytes;
                    let start = (self.raw_read as usize % (bytes.len() - len)) & !15;
                    &bytes[start..start + len]
                }
            };
            let decision = policy.decide(raw, &gauges);
            let offset = self.raw_read;
            self.raw_read += len as u64;
            let index = self
                .offers
                .iter()
                .position(|offer| offer.candidate == decision.candidate)
                .expect("an offer");
            self.trips.push(Trip {
                index,
                sort,
                offset,
                raw_len: len as u32,
                packed_len: 0,
                decided_ns: self.now,
                delivered_ns: f64::INFINITY,
                why: decision.why,
                link_bytes_per_s: decision.estimate.link_bytes_per_s,
                ticket: decision.ticket,
                unpack_ns: 0.0,
                packed: false,
                unpacked: false,
            });
            let trip = self.trips.len() - 1;
            let (packed_len, cpu_ns, unpack_ns) = self.cost(trip, index, len);
            (self.trips[trip].packed_len, self.trips[trip].unpack_ns) = (packed_len, unpack_ns);
            let job = Job {
                trip,
                cpu_ns,
                left_ns: cpu_ns,
                since_ns: 0.0,
                audition: decision.audition,
                auditioning: false,
            };
            self.waiting.push_back(job);
            self.assign();
        }
        self.assign();
    }

    fn assign(&mut self) {
        while self.packing.len() < self.scene.workers as usize {
            let Some(mut job) = self.waiting.pop_front() else {
                break;
            };
            job.since_ns = self.now;
            self.packing.push(job);
        }
    }

    fn finish_packing(&mut self, policy: &mut dyn Policy) {
        let mut at = 0;
        while at < self.packing.len() {
            if self.packing[at].left_ns > EPS {
                at += 1;
                continue;
            }
            let job = self.packing.swap_remove(at);
            if job.auditioning {
                continue;
            }
            let trip = &mut self.trips[job.trip];
            trip.packed = true;
            let (ticket, raw_len, packed_len, index) =
                (trip.ticket, trip.raw_len, trip.packed_len, trip.index);
            let wall_ns = (self.now - job.since_ns) as u64;
            let mut outcome = Outcome {
                seq: Seq(job.trip as u64),
                candidate: self.offers[index].candidate,
                ticket,
                raw_len,
                packed_len,
                cpu_ns: job.cpu_ns as u64,
                wall_ns,
                audition: false,
            };
            policy.learn(&outcome);
            let Some(candidates) = job.audition else {
                continue;
            };
            let len = AUDITION_LEN.min(raw_len as usize);
            let mut total_ns = 0.0;
            for candidate in candidates.iter() {
                let index = self
                    .offers
                    .iter()
                    .position(|offer| offer.candidate == *candidate)
                    .expect("an offer");
                let (packed_len, cpu_ns, _) = self.cost(job.trip, index, len);
                total_ns += cpu_ns;
                (outcome.candidate, outcome.raw_len, outcome.packed_len) =
                    (*candidate, len as u32, packed_len);
                (outcome.cpu_ns, outcome.wall_ns, outcome.audition) =
                    (cpu_ns as u64, cpu_ns as u64, true);
                policy.learn(&outcome);
            }
            self.auditioned_ns += total_ns;
            let audition = None;
            self.packing.push(Job {
                trip: job.trip,
                cpu_ns: total_ns,
                left_ns: total_ns,
                since_ns: self.now,
                audition,
                auditioning: true,
            });
        }
    }

    fn write(&mut self) {
        while self.writing.is_none()
            && self.next_written < self.trips.len()
            && self.trips[self.next_written].packed
        {
            let len = f64::from(self.trips[self.next_written].packed_len) + 16.0;
            if self.outstanding > 0.0 && self.outstanding + len > self.scene.credit_bytes {
                break;
            }
            self.outstanding += len;
            self.writing = Some(len);
            self.next_written += 1;
        }
    }

    fn receive(&mut self, policy: &mut dyn Policy) {
        while self
            .flying
            .front()
            .is_some_and(|(_, end)| *end <= self.drained + EPS)
        {
            let (trip, _) = self.flying.pop_front().expect("front exists");
            self.landing
                .push_back((trip, self.now + self.scene.rtt_ns as f64 / 2.0));
        }
        while self
            .landing
            .front()
            .is_some_and(|(_, at)| *at <= self.now + EPS)
        {
            let (trip, _) = self.landing.pop_front().expect("front exists");
            self.peer.waiting_bytes += u64::from(self.trips[trip].packed_len);
            self.arrived.push_back(trip);
        }
        let mut at = 0;
        while at < self.unpacking.len() {
            if self.unpacking[at].left_ns > EPS {
                at += 1;
                continue;
            }
            let job = self.unpacking.swap_remove(at);
            let trip = &mut self.trips[job.trip];
            trip.unpacked = true;
            self.peer.raw_bytes += u64::from(trip.raw_len);
            self.peer.unpack_ns += job.cpu_ns as u64;
            self.credits.push_back((
                f64::from(trip.packed_len) + 16.0,
                self.now + self.scene.rtt_ns as f64 / 2.0,
            ));
        }
        while self.delivered < self.trips.len() && self.trips[self.delivered].unpacked {
            self.trips[self.delivered].delivered_ns = self.now;
            self.delivered += 1;
        }
        while self.unpacking.len() < self.scene.peer_workers as usize {
            let Some(&trip) = self.arrived.front() else {
                break;
            };
            // A frame with history waits for the one before it.
            if self.offers[self.trips[trip].index].candidate.history_len > 0
                && !self.unpacking.is_empty()
            {
                break;
            }
            self.arrived.pop_front();
            self.peer.waiting_bytes -= u64::from(self.trips[trip].packed_len);
            let cpu_ns = self.trips[trip].unpack_ns * Scene::step(&self.scene.peer_slow, self.now);
            self.unpacking.push(Job {
                trip,
                cpu_ns,
                left_ns: cpu_ns,
                since_ns: self.now,
                audition: None,
                auditioning: false,
            });
        }
        while self
            .credits
            .front()
            .is_some_and(|(_, at)| *at <= self.now + EPS)
        {
            self.outstanding -= self.credits.pop_front().expect("front exists").0;
        }
        if self.now + EPS >= self.report_due {
            self.report_due += REPORT_NS;
            self.peer.workers = self.scene.peer_workers;
            self.peer.now_ns = (self.now + self.scene.rtt_ns as f64 / 2.0) as u64;
            self.reports.push_back(self.peer);
        }
        while self
            .reports
            .front()
            .is_some_and(|report| report.now_ns as f64 <= self.now + 1.0)
        {
            policy.feedback(&self.reports.pop_front().expect("front exists"));
        }
    }
}
