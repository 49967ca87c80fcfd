//! `narrows advise`: what to send this data with, over this link, and what that will take; and then whether it did.
//!
//! Calibration ([`calibrate`]) measures codecs on the user's data and this machine's overhead; the model ([`model`]) predicts
//! each setting; the goal chooses among the predictions. [`verify`] runs the choice, or every setting, over an emulated link
//! on this machine, where both ends share the processors; so what it predicts then is that.
//!
//! Settings are fixed codecs at the default chunk length, raw, and adaptive. Adaptive is not modelled by its decisions: it is
//! taken to reach [`ADAPTIVE_SHARE`] of the best fixed setting, as it was measured to.

pub mod calibrate;
pub mod model;

use std::time::Duration;

use narrows::core::units::Rate;
use serde::Serialize;

use self::{
    calibrate::CalibrationError,
    model::{Cost, Overhead, Place, Prediction, predict},
};
use crate::{
    bench::Bencher,
    data::{Data, Excerpt},
    race::{Contestant, LinkSpec, Racer},
    result::{Case, Row},
    trial::median,
};

/// What is wanted most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The shortest transfer.
    Time,
    /// The least processor time among settings nearly as fast as the fastest.
    Cpu,
    /// The least money for egress and processors.
    Cost,
}

/// The question.
#[derive(Debug, Clone)]
pub struct Question {
    /// The link. Its delay is each way.
    pub link: LinkSpec,
    /// Processors of each end.
    pub processors: usize,
    /// What is wanted.
    pub goal: Goal,
    /// USD per GB of egress, and per thread-hour.
    pub prices: (f64, f64),
    /// Settings to weigh.
    pub codecs: Vec<String>,
    /// Both ends on this machine, as [`verify`] has them; its processors are counted once then.
    pub shared: bool,
    /// Bytes that the prediction is for.
    pub len: u64,
}

/// One setting and what it is expected to do.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// `none`, `zstd:3`, `adaptive`.
    pub name: String,
    /// What it was calibrated to cost; none for adaptive.
    pub cost: Option<Cost>,
    /// What it is expected to take.
    pub prediction: Prediction,
    /// USD of egress and processors.
    pub usd: f64,
}

/// The answer.
#[derive(Debug, Clone)]
pub struct Advice {
    /// Every setting weighed, the best for the goal first.
    pub options: Vec<Setting>,
    /// Why the first is first.
    pub reason: String,
    /// What the machine takes besides codecs.
    pub overhead: Overhead,
    /// Of the calibration.
    pub rows: Vec<Row>,
}

/// What is weighed where the user names nothing. Slow ones are only measured where the link is slow enough for them.
pub const CODECS_DEFAULT: [&str; 12] = [
    "lz4",
    "zstd:-200",
    "zstd:-20",
    "zstd:-5",
    "deflate",
    "zstd:1",
    "zstd:3",
    "zstd:6",
    "zstd:9",
    "zstd:12",
    "zstd:15",
    "zstd:19",
];

/// Calibrates and weighs. `told` hears what is being measured.
///
/// # Errors
/// [`CalibrationError`].
pub fn ask(
    bencher: &Bencher,
    racer: &Racer,
    data: &Data,
    question: &Question,
    mut told: impl FnMut(&str),
) -> Result<Advice, CalibrationError> {
    told("what transfers take besides codecs");
    let overhead = calibrate::overhead(racer)?;
    told("how long a session takes to begin");
    let start_s = calibrate::start(racer, &question.link)?;
    let packed_start_s = calibrate::packed_start(racer, &question.link, &overhead, start_s)?;
    let link_bytes_per_s = question.link.rate.map_or(f64::INFINITY, |rate| rate.0);
    told("how much of the processors transfers get");
    let processors = (question.processors as f64 * calibrate::processors(racer)?).max(1.0);
    let threads = if racer.threads == 0 { question.processors as f64 } else { racer.threads as f64 };
    let place = Place { link_bytes_per_s, start_s, threads, processors, shared: question.shared };
    let weigh = |setting: &str, cost: Cost, place: &Place| {
        let prediction = predict(question.len as f64, &cost, &overhead, place);
        let usd = usd(&prediction, question.prices);
        Setting { name: setting.into(), cost: Some(cost), prediction, usd }
    };
    let raw = Cost { size: 1.0, pack_s: 0.0, unpack_s: 0.0, serial_unpack: false, chunk_bytes: RAW_CHUNK_BYTES };
    let mut options = vec![weigh("none", raw, &place)];
    let mut rows = Vec::new();
    let sample = data.excerpt(SAMPLE_LEN)?;
    let mut codecs = question.codecs.clone();
    if codecs.is_empty() {
        codecs = CODECS_DEFAULT.map(String::from).into();
        codecs.extend(crate::trial::typed(&data.excerpt(SUGGEST_LEN)?));
    }
    let mut too_slow = false;
    for codec in &codecs {
        // Levels of zstd come in order: once packing alone takes twice the best whole transfer, higher ones are hopeless.
        if too_slow && question.codecs.is_empty() && codec.starts_with("zstd:") {
            continue;
        }
        told(codec);
        let threads = (threads as u64).clamp(1, 64);
        let (cost, row) = match calibrate::codec(bencher, &sample, codec, threads) {
            // ISA-L is not everywhere, and the list is ours.
            Err(CalibrationError::Codec { .. }) if question.codecs.is_empty() => continue,
            measured => measured?,
        };
        let place = Place { start_s: packed_start_s, ..place };
        let option = weigh(codec, cost, &place);
        let best = options.iter().map(|option| option.prediction.seconds).fold(f64::INFINITY, f64::min);
        too_slow |= codec.starts_with("zstd:") && option.prediction.seconds > 2.0 * best;
        options.push(option);
        rows.push(row);
    }
    Ok(choose(options, question.goal, question.prices, overhead, rows))
}

fn choose(mut options: Vec<Setting>, goal: Goal, prices: (f64, f64), overhead: Overhead, rows: Vec<Row>) -> Advice {
    let best_s = options.iter().map(|option| option.prediction.seconds).fold(f64::INFINITY, f64::min);
    let raw_s = options[0].prediction.seconds;
    if let Some(best) = options.iter().find(|option| option.prediction.seconds <= best_s) {
        let seconds = best_s / ADAPTIVE_SHARE;
        let prediction = Prediction {
            seconds,
            effective_mbit_s: best.prediction.effective_mbit_s * ADAPTIVE_SHARE,
            ..best.prediction
        };
        let usd = usd(&prediction, prices);
        options.push(Setting { name: "adaptive".into(), cost: None, prediction, usd });
    }
    let enough = |option: &Setting| option.prediction.seconds <= best_s / CPU_SPEED_SHARE;
    let near = |option: &Setting| option.prediction.seconds <= best_s / TIME_SHARE;
    let key = |option: &Setting| match goal {
        // Who takes little of the processors is least hurt by whoever else wants them.
        Goal::Time if near(option) => option.prediction.cpu_s * 1e-9,
        Goal::Time => option.prediction.seconds,
        Goal::Cpu if enough(option) => option.prediction.cpu_s,
        // Behind all that are fast enough, by time.
        Goal::Cpu => 1e9 + option.prediction.seconds,
        Goal::Cost => option.usd,
    };
    options.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.prediction.cpu_s.total_cmp(&b.prediction.cpu_s)));
    let first = &options[0];
    let times = raw_s / first.prediction.seconds;
    let why = match goal {
        Goal::Time => format!(
            "it is expected to be the fastest, or within 3 % of that with less processor time; {times:.2} times raw; {} is its \
             slowest stage",
            first.prediction.slowest
        ),
        Goal::Cpu => format!(
            "of the settings within {:.0} % of the fastest it takes the least processor time, {:.2} s; {times:.2} times raw",
            (1.0 - CPU_SPEED_SHARE) * 100.0,
            first.prediction.cpu_s
        ),
        Goal::Cost => format!("egress and processors come to the least, {:.6} USD; {times:.2} times raw", first.usd),
    };
    Advice { reason: format!("{}: {why}.", first.name), options, overhead, rows }
}

fn usd(prediction: &Prediction, (per_gb, per_hour): (f64, f64)) -> f64 {
    prediction.wire_bytes / 1e9 * per_gb + prediction.cpu_s / 3600.0 * per_hour
}

/// What came of a setting.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Which.
    pub setting: String,
    /// What was expected, Mbit/s.
    pub predicted_mbit_s: f64,
    /// The median of the runs.
    pub measured_mbit_s: f64,
    /// Predicted over measured, less 1.
    pub error: f64,
}

/// Runs settings over the emulated link, `repeat` times each, interleaved; also as rows.
///
/// # Errors
/// [`CalibrationError::Race`].
pub fn verify(
    racer: &Racer,
    link: &LinkSpec,
    excerpt: &Excerpt,
    options: &[&Setting],
    repeat: usize,
    mut told: impl FnMut(&str),
) -> Result<(Vec<Outcome>, Vec<Row>), CalibrationError> {
    let mut rates = vec![Vec::new(); options.len()];
    let mut rows = Vec::new();
    for _ in 0..repeat {
        for (option, rates) in options.iter().zip(&mut rates) {
            told(&option.name);
            let who: Contestant = option.name.parse().expect("settings are contestants");
            let run = racer.run(link, &who, excerpt, None)?;
            rates.push(run.effective_mbit_s);
            rows.push(
                run.row(Case { part: Some("verification".into()), ..case(option, link, excerpt.len) }, excerpt.len),
            );
        }
    }
    let outcomes = options.iter().zip(rates).map(|(option, rates)| {
        let (predicted_mbit_s, measured_mbit_s) = (option.prediction.effective_mbit_s, median(rates));
        let error = predicted_mbit_s / measured_mbit_s - 1.0;
        Outcome { setting: option.name.clone(), predicted_mbit_s, measured_mbit_s, error }
    });
    Ok((outcomes.collect(), rows))
}

/// The prediction of an option as a row.
#[must_use]
pub fn row(option: &Setting, link: &LinkSpec, len: u64, chosen: bool) -> Row {
    let mut row = Row::new(
        Case { part: Some("prediction".into()), ..case(option, link, len) },
        [
            ("effective_mbit_s", option.prediction.effective_mbit_s),
            ("seconds", option.prediction.seconds),
            ("wire_bytes", option.prediction.wire_bytes),
            ("cpu_s", option.prediction.cpu_s),
            ("usd", option.usd),
        ],
    );
    if chosen {
        row.marks.insert("chosen".into());
    }
    row
}

fn case(option: &Setting, link: &LinkSpec, len: u64) -> Case {
    let who = option.name.parse::<Contestant>().map_or_else(|_| Case::default(), |who| who.case());
    Case {
        data_bytes: Some(len),
        link_mbit_s: link.rate.map(Rate::mbit),
        delay_ms: Some(link.delay.as_secs_f64() * 1e3),
        ..who
    }
}

/// How much of the data a link is asked to carry: what it carries raw in `raw`, at least a megabyte, at most `len_max`.
#[must_use]
pub fn len(data: &Data, link: &LinkSpec, raw: Duration, len_max: u64) -> u64 {
    let fits = link.rate.map_or(u64::MAX, |rate| (rate.0 * raw.as_secs_f64()) as u64);
    data.len().min(fits.max(1 << 20)).min(len_max)
}

/// What adaptive reached of the best fixed setting, the geometric mean of `docs/results/wire.md`.
pub const ADAPTIVE_SHARE: f64 = 0.953;
/// How near the fastest another setting is as good: no prediction is better than that.
const TIME_SHARE: f64 = 0.97;
/// How much slower than the fastest a frugal setting may be.
const CPU_SPEED_SHARE: f64 = 0.9;
/// As much as a codec of middling speed packs in the time it is given.
const SAMPLE_LEN: u64 = 4 << 20;
const SUGGEST_LEN: u64 = 4 << 20;
/// Raw chunks are short: `narrows_policy::length`.
const RAW_CHUNK_BYTES: f64 = 65_536.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn option(setting: &str, seconds: f64, cpu_s: f64, usd: f64) -> Setting {
        let prediction =
            Prediction { seconds, effective_mbit_s: 80.0 / seconds, wire_bytes: usd * 1e9, cpu_s, slowest: "link" };
        Setting { name: setting.into(), cost: None, prediction, usd }
    }

    #[test]
    fn each_goal_takes_what_it_asks_for() {
        let free = Overhead { send_raw_s: 0.0, send_wire_s: 0.0, recv_raw_s: 0.0, recv_wire_s: 0.0, relay_s: 0.0 };
        let first = |goal| {
            let options = vec![
                option("none", 10.0, 0.1, 1.0),
                option("zstd:1", 4.2, 1.0, 0.4),
                option("zstd:3", 4.0, 2.0, 0.35),
                option("zstd:6", 3.95, 9.0, 0.34),
                option("zstd:19", 9.0, 30.0, 0.3),
            ];
            let advice = choose(options, goal, (1.0, 0.0), free, Vec::new());
            assert!(advice.reason.starts_with(&advice.options[0].name) && advice.options.len() == 6);
            advice.options[0].name.clone()
        };
        assert_eq!(
            (first(Goal::Time), first(Goal::Cpu), first(Goal::Cost)),
            ("zstd:3".into(), "zstd:1".into(), "zstd:19".into())
        );
    }
}
