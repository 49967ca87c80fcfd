//! Scenes by seed, and what a policy makes of each: for the tests, and for the example `ablation`.
//!
//! Ten seeds in a row are a fair share of each [`Group`]. A score is a share of what the linear program says is possible; none of
//! them depends on the choices of the policy that is measured, so that two policies are compared scene by scene.

use std::{cell::RefCell, sync::Arc};

use narrows_core::{CodecId, Policy};

use crate::{
    adaptive::Adaptive,
    config::Config,
    offers::{Offer, default_offers},
    sim::{
        data::{Random, SHAPES},
        engine::Run,
        recording::Recording,
        scene::{Scene, Truth, truth},
    },
    simple::{CHUNK_LEN_DEFAULT, Fixed},
};

/// The candidates, without what needs a codec of its own to be tested.
#[must_use]
pub fn offers() -> Vec<Offer> {
    let names = [
        "raw",
        "lz4",
        "zstd",
        "deflate",
        "shuffle2-lz4",
        "shuffle2-zstd",
        "shuffle4-lz4",
        "shuffle4-zstd",
        "shuffle8-lz4",
        "shuffle8-zstd",
        "delta4-zstd",
        "delta8-zstd",
    ];
    default_offers(
        |name| {
            names
                .iter()
                .position(|n| *n == name)
                .map(|id| CodecId(id as u8))
        },
        4 << 20,
    )
}

/// All candidates, for recordings.
#[must_use]
pub fn recorded_offers() -> Vec<Offer> {
    let names = RefCell::new(Vec::<String>::new());
    default_offers(
        |name| {
            let mut names = names.borrow_mut();
            let known = names.iter().position(|known| known == name);
            if known.is_none() {
                names.push(name.into());
            }
            // 0 is raw's.
            Some(CodecId(known.unwrap_or(names.len() - 1) as u8 + 1))
        },
        4 << 20,
    )
}

/// A candidate in words: codec, level, `h` where it has history.
#[must_use]
pub fn label(offer: &Offer) -> String {
    let history = if offer.candidate.history_len > 0 {
        "h"
    } else {
        ""
    };
    format!("{}:{}{history}", offer.name, offer.candidate.level)
}

/// A scene by its seed. In a `strange` one data cost what the priors do not foresee: machines three times slower or
/// faster, and half the sorts look like one kind and cost like another.
#[must_use]
pub fn random_scene(seed: u64, strange: bool, offers: &[Offer]) -> (Scene, String) {
    let mut random = Random::new(seed);
    let shapes = 1 + random.below(4);
    let mut names = String::new();
    let truths: Vec<Truth> = (0..shapes)
        .map(|sort| {
            let (kind, stride) = SHAPES[random.below(SHAPES.len())];
            let mut data = truth(
                offers,
                kind,
                stride,
                seed * 16 + sort as u64,
                if strange { 2.5 } else { 1.0 },
            );
            let mut looks = kind;
            if strange && random.below(2) == 0 {
                let (kind, stride) = SHAPES[random.below(SHAPES.len())];
                looks = kind;
                data.bytes = truth(offers, kind, stride, 1, 0.0).bytes;
            }
            names += &if looks == kind {
                format!("{kind:?} ")
            } else {
                format!("{kind:?}-as-{looks:?} ")
            };
            data
        })
        .collect();
    let mbit = 10.0 * 1000.0_f64.powf(random.unit());
    let mut scene = Scene::new(truths, mbit, [1, 2, 4][random.below(3)]);
    // No shorter than a chunk: the simulator takes a chunk to be all of one sort.
    let stretch = (1 << (18 + random.below(5))).max(if mbit < 410.0 { 1 << 20 } else { 0 });
    scene
        .stretches
        .iter_mut()
        .for_each(|(len, _)| *len = stretch);
    scene.kernel_bytes = [64e3, 256e3, 1e6][random.below(3)];
    scene.noise = 0.02 + 0.08 * random.unit();
    scene.seed = seed;
    let about = format!(
        "n={} {mbit:.0} Mbit/s {} KiB of each {names}",
        scene.workers,
        stretch >> 10
    );
    (scene, about)
}

/// Long enough for a few thousand chunks on fast links, a hundred on slow ones.
#[must_use]
pub fn span_ns(scene: &Scene) -> f64 {
    let mbit = scene.link[0].1 * 8000.0;
    (1e12 / mbit * 2.5).clamp(1.2e9, 30e9)
}

/// Gives both ends of a scene so many workers, each with a processor of its own, and a link of `mbit` Mbit/s.
pub fn many_workers(scene: &mut Scene, workers: u32, mbit: f64) {
    (scene.workers, scene.cores, scene.peer_workers) = (workers, workers, workers);
    scene.depth = 4 * workers as usize + 8;
    scene.credit_bytes = 64e6;
    scene.link = vec![(0, mbit / 8000.0)];
}

/// How long scenes of many workers run, in nanoseconds.
pub const MANY_WORKERS_NS: f64 = 6e8;

/// What a scene is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Links, machines, data and their costs by seed, costs scattered around the priors.
    Plain,
    /// Costs that the priors do not foresee, kinds that look like others.
    Strange,
    /// Both ends share the processors, and know it.
    OneMachine,
    /// The link or the receiver slows down by three to ten times, and recovers.
    Changing,
    /// Eight or sixteen workers at each end, 2.5 to 40 Gbit/s.
    ManyWorkers,
}

impl Group {
    /// All, in the order of their seeds.
    pub const ALL: [Self; 5] = [
        Self::Plain,
        Self::Strange,
        Self::OneMachine,
        Self::Changing,
        Self::ManyWorkers,
    ];

    /// The group of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        match seed % 10 {
            0..=4 => Self::Plain,
            5 | 6 => Self::Strange,
            7 => Self::OneMachine,
            8 => Self::Changing,
            _ => Self::ManyWorkers,
        }
    }
}

/// A scene, and how a policy is run in it.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is for.
    pub group: Group,
    /// The world.
    pub scene: Scene,
    /// What the policy is told.
    pub config: Config,
    /// How long it runs, in nanoseconds.
    pub span_ns: f64,
}

impl Case {
    /// The case of a seed.
    #[must_use]
    pub fn new(seed: u64, offers: &[Offer]) -> Self {
        let group = Group::of(seed);
        let (mut scene, _) = random_scene(seed, group == Group::Strange, offers);
        let mut random = Random::new(seed ^ 0x5EED);
        let mut config = Config::default();
        let mut span = span_ns(&scene);
        match group {
            Group::Plain | Group::Strange => {}
            Group::OneMachine => (scene.shared, config.shared_host) = (true, true),
            Group::Changing => {
                span = span.max(6e9);
                let [from, to] = [span / 3.0, span * 2.0 / 3.0].map(|at| at as u64);
                let by = 3.0 + 7.0 * random.unit();
                let rate = scene.link[0].1;
                if random.below(2) == 0 {
                    scene.link = vec![(0, rate), (from, rate / by), (to, rate)];
                } else {
                    scene.peer_slow = vec![(0, 1.0), (from, by), (to, 1.0)];
                }
            }
            Group::ManyWorkers => {
                let workers = [8, 16][random.below(2)];
                many_workers(&mut scene, workers, 2500.0 * 16.0_f64.powf(random.unit()));
                span = MANY_WORKERS_NS;
            }
        }
        Self {
            group,
            scene,
            config,
            span_ns: span,
        }
    }

    /// Raw bytes that the program, and raw, could deliver between two moments.
    fn possible(&self, offers: &[Offer], from_ns: f64, to_ns: f64) -> [f64; 2] {
        let changes = self.scene.link.iter().chain(&self.scene.peer_slow);
        let mut moments: Vec<f64> = changes
            .map(|(moment, _)| *moment as f64)
            .filter(|&moment| moment > from_ns && moment < to_ns)
            .chain([from_ns, to_ns])
            .collect();
        moments.sort_by(f64::total_cmp);
        let mut sums = [0.0; 2];
        for pair in moments.windows(2) {
            let limits = self.scene.limits(offers, pair[0], CHUNK_LEN_DEFAULT);
            let span = pair[1] - pair[0];
            sums[0] += span / f64::from(limits.bound);
            sums[1] += span / f64::from(limits.raw);
        }
        sums
    }

    /// Runs the adaptive policy.
    #[must_use]
    pub fn measure(&self, offers: &[Offer]) -> Measured {
        let mut run = Run::new(&self.scene, offers);
        let mut policy = Adaptive::new(offers.to_vec(), self.config.clone());
        run.until(self.span_ns, &mut policy);
        let from_ns = (0.1 * self.span_ns).max(2e8).min(0.5 * self.span_ns);
        let [bound, raw] = self.possible(offers, from_ns, self.span_ns);
        let span = self.span_ns - from_ns;
        let reached = if self.group == Group::Changing {
            run.delivered(from_ns, self.span_ns)
        } else {
            run.throughput(from_ns, self.span_ns) * span
        };
        let first = self.scene.limits(offers, 0.0, CHUNK_LEN_DEFAULT).bound;
        let start_ns = (START_BYTES * f64::from(first)).clamp(5e7, 0.5 * self.span_ns);
        Measured {
            steady: (reached / bound) as f32,
            start: (run.delivered(0.0, start_ns) / self.possible(offers, 0.0, start_ns)[0]) as f32,
            raw: (reached / raw) as f32,
        }
    }
}

/// What a policy made of a case, as shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Of what is possible, once begun.
    pub steady: f32,
    /// Of what is possible in the time that 4 MB would take, from the first byte on.
    pub start: f32,
    /// Of what raw would have delivered, once begun.
    pub raw: f32,
}

/// What [`Measured::start`] is about.
const START_BYTES: f64 = 4e6;

/// A recording on one link, two processors that both ends share.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The world.
    pub scene: Scene,
    /// Raw bytes to deliver.
    pub bytes: f64,
    /// The time of the best fixed candidate, and of raw, in nanoseconds.
    pub best_ns: [f64; 2],
}

impl Replay {
    /// Finds out what the best fixed candidate takes.
    #[must_use]
    pub fn new(recording: &Arc<Recording>, offers: &[Offer], mbit: f64, workers: u32) -> Self {
        let mut scene = Scene::new(Vec::new(), mbit, workers);
        (scene.shared, scene.recording) = (true, Some(Arc::clone(recording)));
        scene.noise = 0.03;
        let bytes = (0.3 * mbit / 8000.0 * 1e9).clamp(24e6, 480e6);
        let mut replay = Self {
            scene,
            bytes,
            best_ns: [f64::INFINITY; 2],
        };
        for offer in offers {
            // Slow levels are out of the question on fast links, and slow to simulate.
            if offer.candidate.level.0 >= 10 && mbit >= 200.0 {
                continue;
            }
            let took = replay.time(offers, &mut Fixed::new(offer.candidate));
            replay.best_ns[0] = replay.best_ns[0].min(took);
            if offer.name == "raw" {
                replay.best_ns[1] = took;
            }
        }
        replay
    }

    /// When the last byte is delivered, in nanoseconds.
    fn time(&self, offers: &[Offer], policy: &mut dyn Policy) -> f64 {
        let mut run = Run::new(&self.scene, offers);
        let (mut until, mut sum, mut at) = (0.0, 0.0, 0);
        loop {
            until += self.bytes / self.scene.link[0].1 / 20.0;
            run.until(until, policy);
            while let Some(trip) = run
                .trips
                .get(at)
                .filter(|trip| trip.delivered_ns.is_finite())
            {
                sum += f64::from(trip.raw_len);
                at += 1;
                if sum >= self.bytes {
                    return trip.delivered_ns;
                }
            }
        }
    }

    /// Runs the adaptive policy: time of the best fixed candidate, and of raw, over its own.
    #[must_use]
    pub fn measure(&self, offers: &[Offer]) -> Measured {
        let took = self.time(
            offers,
            &mut Adaptive::new(offers.to_vec(), Config::default()),
        );
        let [steady, raw] = self.best_ns.map(|best| (best / took) as f32);
        Measured {
            steady,
            start: steady,
            raw,
        }
    }
}
