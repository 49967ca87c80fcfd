//! Every constant that the policy's choices depend on, with unit, range and default, and a switch for every rule of choice.
//!
//! Why one table: a constant or a rule whose worth nobody measured cannot be changed without fear. The example `ablation` halves and
//! doubles each constant and takes each rule off, over scenes of the simulator and recordings, and writes what each is worth
//! (`docs/results/policy-ablation.md`).
//!
//! In an ordinary build the values are constants and the compiler folds them: nothing can be set. Only tests and the feature
//! `ablation` may have others, each thread its own set (`with`), so that the policy stays a pure function of its calls. What is not here: lengths of
//! rings and tables in memory, the accuracy of the solver, the priors ([`crate::prior`]) and the steps that divide kinds into
//! classes ([`crate::probe`]), which are measured tables.

/// Makes [`Tuning`] and the lists of what is in it.
macro_rules! tuning {
    (
        constants { $($(#[doc = $about:literal])+ $name:ident: $type:ty = $default:expr, $unit:literal, $least:literal..=$most:literal;)+ }
        rules { $($(#[doc = $rule_about:literal])+ $rule:ident, $lacks:literal;)+ }
    ) => {
        /// Every constant and every rule's switch. See the module.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Tuning {
            $($(#[doc = $about])+ pub $name: $type,)+
            $($(#[doc = $rule_about])+ pub $rule: bool,)+
        }

        impl Tuning {
            /// What ships: every rule on.
            pub const DEFAULT: Self = Self { $($name: $default,)+ $($rule: true,)+ };
        }

        /// All constants, in the order of the table.
        #[cfg(any(test, feature = "ablation"))]
        pub const CONSTANTS: &[Constant] = &[$(Constant {
            name: stringify!($name),
            about: concat!($($about),+),
            unit: $unit,
            range: ($least, $most),
            default: Tuning::DEFAULT.$name as f64,
            get: |tuning| tuning.$name as f64,
            set: |tuning, value| tuning.$name = value as $type,
        },)+];

        /// All rules, in the order of the table.
        #[cfg(any(test, feature = "ablation"))]
        pub const RULES: &[Rule] = &[$(Rule {
            name: stringify!($rule),
            about: concat!($($rule_about),+),
            lacks: $lacks,
            set: |tuning, is_on| tuning.$rule = is_on,
        },)+];
    };
}

tuning! {
constants {
    // Choice among candidates: `adaptive`.
    /// A chunk up to this length that leaves alone is a message that somebody waits for: a request, a copy to a GPU.
    choice_message_len_max: usize = 64 << 10, "bytes", 1.0..=1e6;
    /// A message up to this length is answered before anything could be learnt from it.
    choice_answered_len: usize = 16 << 10, "bytes", 1.0..=1e6;
    /// What packing takes of a message's time beside the codecs' own, at both ends together: tables and code that are in no
    /// cache, as measured round a tunnel with messages of 1 and 4 KiB.
    choice_message_ns: f32 = 15e3, "ns", 0.0..=1e6;
    /// Least saving worth unpacking for, as zstd has it.
    choice_saving_min: f32 = 1.0 / 64.0, "share", 0.0..=0.5;
    /// What a codec of numbers must be better by where none were seen, in deviations of its size.
    choice_caution: f32 = 2.0, "deviations", 0.0..=10.0;
    /// Share of the time the queue needs to drain that one chunk may take to pack.
    choice_drain_share: f32 = 0.67, "share", 0.0..=2.0;
    /// A chunk packed in less holds nobody up.
    choice_hold_up_ns: f32 = 1e6, "ns", 0.0..=1e8;
    /// Nor does one packed in this share of the time that the link takes for it raw.
    choice_hold_up_share: f32 = 0.1, "share", 0.0..=1.0;
    /// What all that is in work may take at most, on the worst assumption, however little is queued before it.
    choice_late_ns: f32 = 2e7, "ns", 0.0..=1e9;
    /// No chunk may take longer: what is in work when the link recovers must be done well within a second.
    choice_hold_up_max_ns: f32 = 3e8, "ns", 1e6..=1e10;
    /// Chunks packed at once that a link which only was guessed is taken to have room for.
    choice_unmeasured_workers: f32 = 2.0, "chunks", 0.5..=64.0;
    /// Numbers that pack to this have no need of a codec of bytes that nobody tried.
    choice_packs_well: f32 = 0.1, "share", 0.0..=1.0;
    /// Size of a chunk over that of its slice where no reference says.
    choice_slice_bias: f32 = 0.95, "factor", 0.3..=2.0;
    /// A packed length this far off is a surprise.
    choice_surprise: f32 = 0.15, "logarithm", 0.0..=3.0;
    /// Longest queue before the link, in its time.
    choice_queue_ns: f64 = 5e8, "ns", 1e6..=1e10;
    /// Bytes that the queue may hold in any case.
    choice_queue_len_min: u64 = 192 << 10, "bytes", 0.0..=1e8;
    /// What a fast link's socket holds, as far as it cannot be seen.
    choice_in_kernel: u64 = 512 << 10, "bytes", 0.0..=1e8;
    /// Raw wins clearly if everything else costs this much more.
    choice_clear: f32 = 1.1, "factor", 1.0..=10.0;
    /// Bytes after which the packed share of lately is mostly forgotten.
    choice_size_memory: f32 = (2 << 20) as f32, "bytes", 1e4..=1e9;
    /// Least weight of one chunk in the packed share of lately.
    choice_size_weight_min: f32 = 0.125, "share", 0.0..=0.5;
    /// Most of the same.
    choice_size_weight_max: f32 = 0.5, "share", 0.5..=1.0;
    /// How far off a chunk's cost may be when its charge is corrected.
    choice_correct_max: f32 = 4.0, "factor", 0.0..=100.0;
    /// Share of the time without credit from which the receiver is behind.
    choice_starved: f32 = 0.2, "share", 0.0..=1.0;
    /// Time between two solutions.
    choice_solve_ns: u64 = 4_000_000, "ns", 0.0..=1e9;
    /// What a forecast must beat raw by.
    choice_raw_margin: f32 = 0.01, "share", 0.0..=0.5;

    // Raw or packed messages: `answer_duel`.
    /// Messages of each way before one is believed to be the better.
    answer_tried: u32 = 16, "messages", 1.0..=1000.0;
    /// Every so many messages go the other way.
    answer_again: u32 = 32, "messages", 2.0..=1e4;
    /// Raw must take less than this of the time: packed takes less of the link from others.
    answer_sooner: f32 = 0.92, "share", 0.1..=1.0;
    /// Least step of a running median, as a share of it.
    answer_step_min: f32 = 1.0 / 64.0, "share", 0.0..=1.0;

    // Level stages: `balance`.
    /// Chunks after which a charge has faded to a third: about what a pipeline holds in flight.
    balance_horizon: f32 = 16.0, "chunks", 1.0..=1000.0;
    /// A stage with 10 % slack gets a tenth of this off.
    balance_gain: f32 = 1.0, "factor", 0.0..=10.0;
    /// A stage that takes 10 % more than foreseen weighs a tenth of this more.
    balance_over: f32 = 0.5, "factor", 0.0..=10.0;

    // Processors that packing gets: `cpu_capacity`.
    /// What is left of the sums of processor and clock time after a chunk.
    cpu_fade: f32 = 0.96, "share", 0.1..=0.999;
    /// Shorter work fits between two interruptions and says nothing.
    cpu_short_ns: u64 = 30_000, "ns", 0.0..=1e7;
    /// Least share of its time that packing is taken to spend on a processor.
    cpu_efficiency_min: f32 = 0.05, "share", 0.0..=1.0;
    /// Least of the workers' time that packing is reckoned with.
    cpu_trim_min: f32 = 0.6, "share", 0.0..=0.97;
    /// Most of the same. With 1.1, as where the link was full for long, three times as many scenes of the simulator fell
    /// short of the bound as with 0.97 or 0.98.
    cpu_trim_max: f32 = 0.97, "share", 0.6..=1.2;
    /// Times this in a window in which the link ran dry.
    cpu_trim_down: f32 = 0.96, "factor", 0.3..=1.0;
    /// Times this in a window in which more waited than was in work.
    cpu_trim_up: f32 = 1.02, "factor", 1.0..=2.0;

    // Raw or packed on links as fast as memory: `duel`.
    /// Slower links are the price rule's own: 5.6 Gbit/s.
    duel_fast: f64 = 0.7, "bytes/ns", 0.01..=10.0;
    /// A look at raw that has begun is given up if the link is believed to carry no more than this.
    duel_slow: f64 = 0.2, "bytes/ns", 0.01..=10.0;
    /// What a link on which raw bytes got through fast is taken for. Buffers that took the first megabytes made a link of 2.5
    /// Gbit/s look fast; what was compared there changed with the data, and half of a mixture went raw.
    duel_peak_max: f64 = 1.4, "bytes/ns", 0.1..=100.0;
    /// How that fades with each raw span in which they do not: in six spans to what is no longer fast.
    duel_fade: f64 = 0.89, "share", 0.1..=0.999;
    /// Raw bytes that sockets and queues on the way take at once when packing left them empty: counted, they make a link look
    /// half as fast again as it is. No more than go in one span where the link is as slow as it is believed to be.
    duel_buffers: u64 = 4 << 20, "bytes", 0.0..=1e9;
    /// Length of one comparison.
    duel_span_ns: u64 = 5_000_000, "ns", 1e5..=1e9;
    /// Weight of the last span in what a way is held to carry: one span may hit a pause, or what waited during one.
    duel_memory: f64 = 0.6, "share", 0.0..=1.0;
    /// What packing must gain to stay.
    duel_gain_min: f64 = 1.03, "factor", 0.5..=2.1;
    /// A way that gets less than this of the other's through is seldom tried: each trial takes two or three spans, and what
    /// it leaves in caches and buffers slows the next ten.
    duel_clear: f64 = 0.7, "share", 0.0..=1.0;
    /// How many times what the link carries packing must get through for raw not to be tried.
    duel_beyond: f64 = 2.0, "factor", 1.0..=100.0;
    /// Spans between two trials at first.
    duel_patience_min: u32 = 12, "spans", 1.0..=1e4;
    /// The same after a trial that lost clearly.
    duel_patience_clear: u32 = 128, "spans", 1.0..=1e4;
    /// The same at most. Only raw, which is what was promised, stays for so long.
    duel_patience_max: u32 = 384, "spans", 1.0..=1e4;
    /// How much sooner it is looked whether raw is better after all.
    duel_haste: u32 = 2, "factor", 1.0..=100.0;

    // How far an outcome moves what is believed: `estimate`.
    /// How far priors of zstd's levels are off, beside each other.
    estimate_levels_prior: f32 = 0.05, "logarithm", 0.001..=3.0;
    /// The same of one class against others of its kind.
    estimate_levels_class: f32 = 0.04, "logarithm", 0.001..=3.0;
    /// The same on a slice against the whole chunk.
    estimate_levels_slice: f32 = 0.04, "logarithm", 0.001..=3.0;
    /// How far priors of LZ4, DEFLATE and zstd's negative levels are off.
    estimate_plain_prior: f32 = 0.12, "logarithm", 0.001..=3.0;
    /// The same of one class against others of its kind.
    estimate_plain_class: f32 = 0.08, "logarithm", 0.001..=3.0;
    /// The same on a slice against the whole chunk.
    estimate_plain_slice: f32 = 0.09, "logarithm", 0.001..=3.0;
    /// How far priors of codecs of numbers are off.
    estimate_typed_prior: f32 = 0.3, "logarithm", 0.001..=3.0;
    /// The same of one class against others of its kind.
    estimate_typed_class: f32 = 0.08, "logarithm", 0.001..=3.0;
    /// The same on a slice against the whole chunk.
    estimate_typed_slice: f32 = 0.2, "logarithm", 0.001..=3.0;
    /// How far packing times are off in the priors, whatever the candidate. Candidates differ by factors, so that noise changes their
    /// order little; one taken for fast that is not must show at once.
    estimate_pack_prior: f32 = 0.3, "logarithm", 0.001..=3.0;
    /// The same on a slice.
    estimate_pack_slice: f32 = 0.3, "logarithm", 0.001..=3.0;
    /// What a guess's variance grows by with every sample, as a share of the prior's.
    estimate_drift: f32 = 0.03, "share", 0.0..=1.0;
    /// Squares of how far off a sample may be, in variances.
    estimate_far: f32 = 4.0, "variances", 0.1..=100.0;
    /// Share of a sample in a guess that only follows.
    estimate_follow: f32 = 0.2, "share", 0.0..=1.0;
    /// How unlike chunks of a class are until it was seen.
    estimate_noise_start: f32 = 0.15, "logarithm", 0.001..=3.0;
    /// The same at least.
    estimate_noise_min: f32 = 0.02, "logarithm", 0.001..=3.0;
    /// Chunks after which what was measured of it has faded to a third.
    estimate_noise_memory: f32 = 8.0, "chunks", 1.0..=1000.0;
    /// Share of a surprise, in powers, that is taken for the class's, at first.
    estimate_share_start: f32 = 0.6, "share", 0.0..=1.0;
    /// The same at least.
    estimate_share_min: f32 = 0.05, "share", 0.0..=0.8;
    /// The same at most.
    estimate_share_max: f32 = 0.8, "share", 0.05..=1.0;
    /// By how much one surprise moves that share.
    estimate_adapt: f32 = 0.1, "logarithm", 0.0..=3.0;
    /// Most that one chunk may show.
    estimate_step_max: f32 = 1.5, "factor", 1.0..=100.0;
    /// Most that a class may be off its kind.
    estimate_level_max: f32 = 30.0, "factor", 1.0..=1000.0;
    /// Most that the first chunk of a class may show of packed sizes: one that packs to a hundredth as differences of
    /// numbers does not show that any other candidate would do as well.
    estimate_first_size_max: f32 = 4.0, "factor", 1.0..=1000.0;
    /// What is left of a level, in powers, after a chunk that travelled raw.
    estimate_fade: f32 = 0.97, "share", 0.0..=1.0;

    // Trials: `explore`.
    /// Start-up allowance of processor time: enough for a first round on a slice, should the priors be far off. More of it keeps
    /// the first chunks from being packed.
    explore_start_ns: f32 = 1e6, "ns", 0.0..=1e9;
    /// Share of the whole time that auditions may cost where the workers' has a price.
    explore_cost: f32 = 0.0015, "share", 0.0..=1.0;
    /// Share of the workers' time that auditions may cost, at least.
    explore_budget: f32 = 0.01, "share", 0.0..=0.15;
    /// The same where it has no price.
    explore_budget_idle: f32 = 0.15, "share", 0.01..=1.0;
    /// Most processor time that may be saved up.
    explore_saved_max_ns: f32 = 30e6, "ns", 0.0..=1e10;
    /// Chunks of a new class with which auditions are held, but for those that wait for one to be paid for.
    explore_rounds: u64 = 6, "chunks", 0.0..=1000.0;
    /// Chunks of a class between two re-auditions.
    explore_again: u64 = 400, "chunks", 2.0..=1e6;
    /// Chunks of a class between two whole-chunk trials.
    explore_every: u64 = 48, "chunks", 2.0..=1e6;
    /// What a prior may be off by besides, on data unlike those measured.
    explore_unseen: f32 = 0.1, "logarithm", 0.0..=3.0;
    /// What a candidate known from chunks or slices would have to be off by to be tried again.
    explore_hope_again: f32 = 0.95, "factor", 0.1..=1.0;
    /// The same for a trial on a whole chunk.
    explore_hope_whole: f32 = 0.95, "factor", 0.1..=1.0;
    /// Share of the queue's time that a trial on a whole chunk may take.
    explore_room: f32 = 0.5, "share", 0.0..=2.0;
    /// Or so many times what the choice takes.
    explore_room_chosen: f32 = 2.0, "factor", 0.0..=100.0;
    /// Slices that tell of a candidate while it is unsure.
    explore_slices: u32 = 4, "slices", 1.0..=1000.0;
    /// A size that may be off by more than this is unsure.
    explore_sure: f32 = 0.12, "logarithm", 0.0..=3.0;
    /// Auditions with one chunk.
    explore_per_round: usize = 5, "candidates", 1.0..=32.0;

    // How long chunks are: `length`.
    /// Chunks before the first long one.
    length_slow_start: u64 = 8, "chunks", 0.0..=1e6;
    /// Longest chunk.
    length_long: usize = 1 << 20, "bytes", 262144.0..=1048576.0;
    /// What a chunk longer than usual may pack to.
    length_next_to_nothing: f32 = (32 << 10) as f32, "bytes", 0.0..=1e6;
    /// Longest time for which one of them may hold the link after all, if a codec is tried that does not pack it.
    length_mistake_ns: f64 = 2e7, "ns", 0.0..=1e10;
    /// The same where chunks have shown what they pack to.
    length_mistake_settled_ns: f64 = 5e7, "ns", 0.0..=1e10;
    /// Share of the bytes lately from which on most are packed with history.
    length_most: f32 = 0.5, "share", 0.0..=1.0;
    /// Least time of the link for a chunk of twice the usual length, raw, for that to be worth it where most are.
    length_refers_min_ns: f64 = 1e7, "ns", 0.0..=1e10;
    /// Most of the same.
    length_refers_max_ns: f64 = 5e7, "ns", 0.0..=1e10;
    /// Chunks after which mistakes are rare.
    length_settled: u64 = 128, "chunks", 0.0..=1e6;
    /// Longest time one chunk may hold the link.
    length_hold_ns: f64 = 150e6, "ns", 1e6..=1e10;

    // Kinds of data: `probe`.
    /// How much likelier equal bytes must be in a plane than in a wider one; below, it is chance.
    probe_stride_gain_min: f32 = 1.25, "factor", 1.0..=10.0;
    /// How much likelier equal differences must be than equal bytes, and than equal differences of neighbours: pictures of
    /// single bytes have 1.3.
    probe_smooth_gain_min: f32 = 1.5, "factor", 1.0..=10.0;
    /// Share of words that may repeat among numbers, by how much order they show.
    probe_repeats_by_order: f32 = 0.05, "share", 0.0..=1.0;
    /// The same at most.
    probe_repeats_max: f32 = 0.2, "share", 0.0..=1.0;
    /// Share of zero bytes above which data are sparse.
    probe_sparse: f32 = 0.7, "share", 0.0..=1.0;
    /// Share of zero bytes above which numbers are half zeros.
    probe_relu: f32 = 0.2, "share", 0.0..=1.0;
    /// Collision entropy above which bytes are random.
    probe_random_entropy: f32 = 7.5, "bits", 0.0..=8.0;
    /// Share of words that may repeat among random bytes.
    probe_random_repeats: f32 = 0.05, "share", 0.0..=1.0;
    /// Share of words that repeat in a log.
    probe_log_repeats: f32 = 0.45, "share", 0.0..=1.0;
    /// Collision entropy below which bytes may be text.
    probe_text_entropy: f32 = 4.6, "bits", 0.0..=8.0;
    /// Share of zero bytes that text may have.
    probe_text_zeros: f32 = 0.05, "share", 0.0..=1.0;

    // What the link carries: `rate`.
    /// Shortest window: many chunks of a fast link, a fraction of one of a slow link.
    rate_window_ns: u64 = 8_000_000, "ns", 1e5..=1e9;
    /// Part of a window that is enough while nothing was measured and hardly anything waits.
    rate_hurry: u64 = 4, "parts", 1.0..=100.0;
    /// The shortest window while the receiver is behind.
    rate_behind_ns: u64 = 100_000_000, "ns", 1e5..=1e10;
    /// What a receiver that falls behind takes to say so, at most.
    rate_report_ns: u64 = 150_000_000, "ns", 0.0..=1e10;
    /// Fewer bytes than this in a window say nothing, unless the window is long.
    rate_window_bytes: u64 = 128 << 10, "bytes", 0.0..=1e8;
    /// Share of a window in which bytes waited for the link above which the link is taken for the bottleneck.
    rate_held_up: f64 = 0.6, "share", 0.0..=1.0;
    /// Share of that below which the link was idle.
    rate_idle: f64 = 0.9, "share", 0.0..=1.0;
    /// Share of a window without credit above which the receiver is the bottleneck.
    rate_starved: f64 = 0.2, "share", 0.0..=1.0;
    /// Share of a window above which bytes waited for the link from its beginning to its end.
    rate_held_whole: f64 = 0.9, "share", 0.0..=1.0;
    /// A sample below this share of what the link is believed to carry may be a pause.
    rate_paused: f64 = 0.5, "share", 0.0..=1.0;
    /// No token bucket lets this many bytes through at once.
    rate_burst_bytes: u64 = 768 << 10, "bytes", 0.0..=1e8;
    /// What the token bucket of a slow link lets through at once.
    rate_bucket_bytes: u64 = 256 << 10, "bytes", 0.0..=1e8;
    /// A link that took n times this many bytes, and not as many as a relay may swallow, may be n times as fast as guessed.
    rate_unseen_bytes: f64 = (128 << 10) as f64, "bytes", 1.0..=1e8;
    /// What sockets and relays on the way may take at once though the link behind them is slow: a sender's largest buffer
    /// by default (Linux's `tcp_wmem`) is twice that.
    rate_swallowed_bytes: u64 = 2 << 20, "bytes", 0.0..=1e9;
    /// What sockets and queues on the way take at most, a receiver's included.
    rate_hoarded_bytes: u64 = 8 << 20, "bytes", 0.0..=1e9;
    /// Fewer bytes that came through while more waited are no sample.
    rate_carried_bytes: u64 = 64 << 10, "bytes", 0.0..=1e8;
    /// Unless it took so long.
    rate_carried_ns: u64 = 400_000_000, "ns", 0.0..=1e10;
    /// What the estimate climbs by in a window in which hardly anything waited.
    rate_climb: f64 = 2.0, "factor", 1.0..=10.0;
    /// The same where something did.
    rate_climb_slow: f64 = 1.15, "factor", 1.0..=10.0;
    /// Share of a window up to which hardly anything waited.
    rate_climb_share: f64 = 0.25, "share", 0.0..=1.0;
    /// Time of waits that add up to a sample.
    rate_held_min_ns: u64 = 4_000_000, "ns", 0.0..=1e9;
    /// For how long waits are added up.
    rate_pool_ns: u64 = 100_000_000, "ns", 0.0..=1e10;
    /// How far the estimate may climb beyond what passed at the start.
    rate_ahead: f64 = 1.5, "factor", 1.0..=100.0;
    /// The same once there was a sample.
    rate_ahead_measured: f64 = 1.2, "factor", 1.0..=100.0;
    /// So long a measured link is believed though it is not the bottleneck.
    rate_fresh_ns: u64 = 300_000_000, "ns", 0.0..=1e10;
    /// How much faster than believed a link may be by the first sample after an idle window, which may begin with a full bucket.
    rate_first_max: f64 = 1.5, "factor", 1.0..=100.0;
    /// A sample below this share of what is believed is taken at its word.
    rate_far_low: f64 = 0.7, "share", 0.0..=1.0;
    /// Or above this.
    rate_far_high: f64 = 1.4, "factor", 1.0..=100.0;
    /// Share of any other sample that is followed.
    rate_follow: f64 = 0.4, "share", 0.01..=1.0;

    // The receiver: `receiver`.
    /// Frames a worker that are a heap, besides those of a burst.
    receiver_heap: f32 = 4.0, "frames", 0.0..=1000.0;
    /// A burst is what the link carries in so long.
    receiver_burst_ns: f32 = 1e7, "ns", 0.0..=1e9;
    /// Least share of its processors that a receiver is taken to get.
    receiver_efficiency_min: f32 = 0.01, "share", 0.0..=1.0;
    /// Weight of a report in that share, in its pace and in how it is served.
    receiver_follow: f32 = 0.5, "share", 0.0..=1.0;
    /// Weight of a report in what reading and writing take.
    receiver_io_follow: f32 = 0.3, "share", 0.0..=1.0;
    /// What the share grows by with a report in which nothing waited, of itself or of what it lacks.
    receiver_climb: f32 = 0.3, "share", 0.0..=1.0;
    /// How far it may grow beyond what was used while the receiver counts as behind.
    receiver_ahead: f32 = 1.5, "factor", 1.0..=100.0;
    /// That is until so many reports on end were calm, since one that works off what piled up does so in bursts.
    receiver_calm: u32 = 6, "reports", 1.0..=1000.0;
    /// Share of the time in which they have work that a receiver's threads have processors, where it lacks none.
    receiver_served: f32 = 0.5, "share", 0.0..=1.0;
    /// Share of a report's time in its sink from which a receiver is held up by that.
    receiver_sink_max: f32 = 0.6, "share", 0.0..=1.0;
    /// What is under way to a receiver that is behind, in time of its pace.
    receiver_unconsumed_ns: f32 = 2.5e8, "ns", 0.0..=1e10;
    /// The way to it and back, until one was seen.
    receiver_way_max_ns: f32 = 1e9, "ns", 0.0..=1e11;
    /// What is under way to it at least: what it says at once that it consumed.
    receiver_unconsumed_min: u64 = 1 << 20, "bytes", 0.0..=1e9;
    /// Reports closer together are joined.
    receiver_span_ns: u64 = 10_000_000, "ns", 0.0..=1e9;
    /// Reports on fewer raw bytes are joined, within reason.
    receiver_raw_min: u64 = 1 << 20, "bytes", 0.0..=1e9;

    // Classes seen lately: `rows`.
    /// What the kernels at both ends take to carry a byte within one machine: of raw data all takes 1.2 to 1.4 between
    /// namespaces, of data that pack to nothing 0.7 less.
    rows_kernel: f32 = 0.7, "ns/byte", 0.0..=100.0;
    /// How many times as long as a certain candidate raw takes where it is ruled out; 3 gains half as much.
    rows_lump: f32 = 2.0, "factor", 1.0..=100.0;
    /// Classes kept.
    rows_max: usize = 16, "classes", 1.0..=64.0;
    /// Least share of the bytes lately with which a class has a part in the prices.
    rows_share_min: f32 = 0.005, "share", 0.0..=0.5;
    /// Chunks after which a class's mass has faded to a third.
    rows_memory: f32 = 24.0, "chunks", 1.0..=10000.0;
    /// Longest span without a look, in time of the link.
    rows_rest_ns: f32 = 2e6, "ns", 0.0..=1e9;
    /// Most chunks without a look.
    rows_rest_max: u32 = 15, "chunks", 0.0..=1000.0;
    /// Dull looks before any chunk goes without: data of which one chunk in a dozen packs well is still seen.
    rows_dull_min: u32 = 24, "looks", 0.0..=1000.0;

    // What candidates cost: `table`.
    /// How many times longer than estimated a candidate that nobody tried may take to pack, at least.
    table_doubt_min: f32 = 1.4, "factor", 1.0..=100.0;
    /// How that grows, in powers of how much longer than the nearest one tried it was thought to take: eighteen kinds of data on
    /// one machine were up to three times off the priors at seven times zstd 3's time, and packing on all processors at
    /// once doubles that.
    table_doubt: f32 = 0.7, "power", 0.0..=3.0;
    /// How much is believed of what another family shows, in powers.
    table_trust: f32 = 0.5, "power", 0.0..=1.0;
    /// How far two candidates may differ from their priors beside each other.
    table_beside_max: f32 = 5.0, "factor", 1.0..=100.0;
    /// How unpacking time follows packed size, in powers: zstd's on logs and on mostly zeros, of the priors.
    table_unpack_by_size: f32 = 0.8, "power", 0.0..=3.0;
    /// How much is believed of what a report says unpacking was off by, in powers.
    table_unpack_follow: f32 = 0.5, "power", 0.0..=1.0;
    /// Data that pack to less are next to nothing, such as zeros: they take one codec a hundredth and the other a
    /// thousandth, in no time, and say nothing of how these compare.
    table_nothing: f32 = 0.02, "share", 0.0..=0.5;
    /// How many times longer than believed to pack one outcome may show. The time that the kernel takes from a thread for
    /// packets that just came counts as the thread's, so a slice can seem to take thirty times as long as it does; and
    /// whoever is thought to be so slow is never tried again.
    table_pack_step_max: f32 = 2.5, "factor", 1.0..=1000.0;
    /// Auditions after which how unlike they were has faded to a third.
    table_audition_memory: f32 = 8.0, "auditions", 1.0..=1000.0;
    /// What a slice is off by at least where priors say more: a short one favours some codecs, however alike slices are.
    table_slice_noise_min: f32 = 0.08, "logarithm", 0.001..=0.2;
}
rules {
    /// A codec of numbers where none were seen takes a whole chunk to prove it.
    rule_unfit_needs_proof, "";
    /// And is believed with caution even then.
    rule_unfit_caution, "records that pack as numbers now and then";
    /// On one machine, what takes processors and link more than another is charged for both.
    rule_rule_out_worse, "what the kernel takes to carry bytes";
    /// Raw that takes the link several times as long as a certain candidate takes any stage is out.
    rule_rule_out_lumps, "";
    /// What packs well as numbers leaves untried codecs of bytes to slices.
    rule_left_to_slices, "";
    /// A chunk that takes longer to pack than the queue lasts is charged with the time in which the link is idle.
    rule_hold_up, "";
    /// None may take longer with all in work, on the worst assumption.
    rule_late, "";
    /// A link that was only guessed has room for few chunks at once.
    rule_unmeasured_workers, "";
    /// A message is charged the sum of its stages and one worker.
    rule_message, "messages";
    /// Messages go raw where they are answered sooner so.
    rule_answer_duel, "messages";
    /// On links as fast as memory raw and packed are compared by what got through.
    rule_raw_duel, "processor time of sending";
    /// Chunks behind many dull ones go without a look.
    rule_rest, "time of looks";
    /// The queue before the link is bounded.
    rule_queue_bound, "";
    /// What is under way to a receiver that is behind is bounded.
    rule_unconsumed_bound, "";
    /// A receiver that left us without credit is behind.
    rule_starved, "";
    /// What a chunk was charged is corrected by its outcome.
    rule_correct, "";
    /// Slices of a chunk that travelled raw tell of its class.
    rule_learn_from_slices, "";
    /// A surprise begins a new round of auditions.
    rule_surprise, "";
    /// A candidate whose size is unsure is asked for again.
    rule_ask_unsure, "";
    /// A new class and a new length of chunks are solved for at once.
    rule_solve_at_once, "";

    /// Stages with slack are discounted.
    rule_balance_slack, "";
    /// Stages that take more than foreseen are dearer.
    rule_balance_over, "";

    /// Processor time over clock time says what packing gets.
    rule_cpu_efficiency, "";
    /// A link that runs dry trims what packing is reckoned with.
    rule_cpu_trim, "";

    /// Until all in hand went one way its pace is the other's.
    rule_duel_since, "";
    /// And so for what buffers take.
    rule_duel_buffers, "sockets that take megabytes at once";
    /// Two spans, not one, show that the other way is better.
    rule_duel_doubted, "pauses";
    /// A link on which bytes got through fast stays a fast one for a while.
    rule_duel_peak, "sockets that take megabytes at once";
    /// Raw is not tried where packing gets clearly more through than the link was measured to carry.
    rule_duel_beyond, "";
    /// What lost clearly is seldom tried.
    rule_duel_clear, "processor time of sending";
    /// What was found in a trial may have been a pause: the better of two counts.
    rule_duel_trial_max, "pauses";
    /// A look at raw that has begun is finished on a link somewhat slower.
    rule_duel_finish_look, "pauses";

    /// How much of a surprise is the class's adapts to whether surprises go on.
    rule_estimate_adapt, "";
    /// Of a run of one candidate's outcomes the later ones move its guess less.
    rule_estimate_run, "transfers of minutes";
    /// A sample far off a firm guess loosens the guess.
    rule_estimate_far, "";
    /// Outcomes of candidates not tried before say nothing of how unlike chunks are.
    rule_estimate_tried, "";
    /// A level comes back while chunks travel raw.
    rule_estimate_fade, "";
    /// The first chunk of a class may show only so much of sizes.
    rule_estimate_first_size, "";

    /// Candidates are tried on slices.
    rule_audition, "";
    /// Candidates are tried on whole chunks.
    rule_whole, "";
    /// Auditions may cost more where the workers have time to spare.
    rule_budget_idle, "";
    /// One of each family is tried, whatever the priors say.
    rule_family_tried, "";
    /// Candidates that only few slices told of are tried again.
    rule_hasty, "pauses";
    /// A round waits for auditions that idle processors will have paid for.
    rule_refused_waits, "";
    /// Rounds of auditions are held again and again.
    rule_rounds_again, "";

    /// The first chunks are short.
    rule_length_slow_start, "";
    /// Chunks that would hold a slow link for long are short.
    rule_length_hold, "links below 10 Mbit/s";
    /// Chunks that pack to next to nothing are long.
    rule_length_tiny, "time of handing chunks on";
    /// Chunks packed with history are twice as long.
    rule_length_refers, "";

    /// Floats that are short decimals are a kind.
    rule_probe_decimals, "";
    /// Numbers that take all values are known by their differences.
    rule_probe_smooth, "numbers that take all values";
    /// Order is looked for among bytes other than zero, too.
    rule_probe_without_zeros, "";
    /// Bytes that show order and repeat are classes of their own.
    rule_probe_ordered, "";

    /// Until a link was measured, what buffers may have taken does not show its rate.
    rule_rate_unseen, "sockets that take megabytes at once";
    /// A link as fast as memory must be measured, or have taken much.
    rule_rate_surely, "sockets that take megabytes at once";
    /// What was measured since a receiver fell behind is forgotten.
    rule_rate_remember, "";
    /// Short waits tell of the link only together.
    rule_rate_pool, "acknowledgements in bursts";
    /// A wait that begins within a window is no slower link.
    rule_rate_begins, "acknowledgements that are late";
    /// One short window may be a pause.
    rule_rate_pause, "pauses";
    /// A link that is idle is believed to be faster.
    rule_rate_climb, "";
    /// What passed is a lower bound where nothing was measured lately.
    rule_rate_passed, "";
    /// Windows are short while nothing was measured.
    rule_rate_hurry, "";
    /// What a token bucket may have let through is left out.
    rule_rate_bucket, "token buckets";
    /// A sample far off is taken at its word.
    rule_rate_far, "";
    /// A sample that was clamped is stale at once.
    rule_rate_stale, "token buckets";
    /// Acknowledgements in bursts are waited for.
    rule_rate_carried, "acknowledgements in bursts";

    /// The receiver's share of its processors is followed.
    rule_receiver_efficiency, "";
    /// A share that rises does so no further than what was used, while it is behind.
    rule_receiver_ahead, "";
    /// A receiver without processors is starved though nothing waits for it.
    rule_receiver_served, "a receiver without processors";
    /// What reading and writing take is counted.
    rule_receiver_io, "time of reading and writing";
    /// The receiver is behind until several reports were calm.
    rule_receiver_calm, "";

    /// Classes too rare to count have no part in the prices.
    rule_rows_share, "time of solving";

    /// A class has sizes of its own beside its kind's.
    rule_table_own_sizes, "";
    /// Chunks that pack to nothing say nothing of candidates.
    rule_table_nothing, "chunks of zeros among others";
    /// A candidate never tried is corrected by one of its family.
    rule_table_family, "";
    /// And if there is none by any other.
    rule_table_other_family, "";
    /// What was never tried is doubted.
    rule_table_doubt, "";
    /// How two candidates compare is carried from kind to kind.
    rule_table_beside, "";
    /// Slices that say the same again and again are believed more.
    rule_table_unlike, "";
    /// One outcome may show only so much of packing time.
    rule_table_pack_step, "pauses";
    /// A candidate slower than thought shows at once.
    rule_table_slower_at_once, "";
    /// Packing time that few chunks exceed is at least the prior's.
    rule_table_most, "";
    /// What packs to less is unpacked sooner.
    rule_table_unpack_by_size, "";
    /// Unpacking times are learnt from the receiver's reports.
    rule_table_unpack, "";
    /// Indexing history costs more before short chunks.
    rule_table_indexing, "";
}
}

/// One constant.
#[cfg(any(test, feature = "ablation"))]
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// Its field.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// Least and most that make sense.
    pub range: (f64, f64),
    /// What ships.
    pub default: f64,
    /// Its value.
    pub get: fn(&Tuning) -> f64,
    /// Sets it, rounded to its type.
    pub set: fn(&mut Tuning, f64),
}

/// One rule.
#[cfg(any(test, feature = "ablation"))]
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its field.
    pub name: &'static str,
    /// What it says.
    pub about: &'static str,
    /// What it is about that the simulator lacks, so that no scene shows its worth; empty where there is no such thing.
    pub lacks: &'static str,
    /// Switches it.
    pub set: fn(&mut Tuning, bool),
}

/// The values in force.
#[cfg(not(any(test, feature = "ablation")))]
#[inline(always)]
pub(crate) const fn tuning() -> &'static Tuning {
    &Tuning::DEFAULT
}

#[cfg(any(test, feature = "ablation"))]
pub(crate) use switched::tuning;
#[cfg(any(test, feature = "ablation"))]
pub use switched::with;

/// Values that tests and the example `ablation` set, a thread each.
#[cfg(any(test, feature = "ablation"))]
mod switched {
    use std::cell::Cell;

    use super::Tuning;

    thread_local! {
        static CURRENT: Cell<&'static Tuning> = const { Cell::new(&Tuning::DEFAULT) };
    }

    /// The values in force on this thread.
    #[inline]
    pub(crate) fn tuning() -> &'static Tuning {
        CURRENT.get()
    }

    /// Runs `work` with other values on this thread.
    pub fn with<T>(tuning: &'static Tuning, work: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(tuning);
        let found = work();
        CURRENT.set(before);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every constant is within its range, and may be set and read back at both ends of it.
    #[test]
    fn constants_lie_within_their_ranges_and_can_be_set() {
        for constant in CONSTANTS {
            let (least, most) = constant.range;
            assert!((least..=most).contains(&constant.default), "{constant:?}");
            let mut tuning = Tuning::DEFAULT;
            for value in [least, most] {
                (constant.set)(&mut tuning, value);
                let found = (constant.get)(&tuning);
                assert!(
                    (found - value).abs() <= 0.5_f64.max(1e-6 * value),
                    "{constant:?} {found}"
                );
            }
        }
    }

    // Goal: switching a rule changes the values of this thread alone, and only while asked to.
    #[test]
    fn other_values_are_this_threads_and_end() {
        let mut off = Tuning::DEFAULT;
        for rule in RULES {
            (rule.set)(&mut off, false);
        }
        let off: &'static Tuning = Box::leak(Box::new(off));
        with(off, || {
            assert!(!tuning().rule_audition);
            assert!(
                std::thread::spawn(|| tuning().rule_audition)
                    .join()
                    .unwrap()
            );
        });
        assert_eq!(*tuning(), Tuning::DEFAULT);
    }
}
