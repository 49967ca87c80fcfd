//! `narrows advise`: what to send this data with, over this link, and what that will take; and then whether it did.
//!
//! Calibration ([`calibrate`]) measures codecs on the user's data and this machine's overhead; the model ([`model`])
//! predicts each setting; the goal chooses among the predictions. [`verify`] runs the choice, or every setting, over an
//! emulated link on this machine, where both ends share the processors; so what it predicts then is that.
//!
//! Settings are fixed codecs at the default chunk length, raw, and adaptive. Where both ends are on this machine, those
//! that the model has near the best are tried over the emulated link, and adaptive with them, of which no model says
//! what it will decide. Elsewhere adaptive is taken to reach [`ADAPTIVE_SHARE`] of the best fixed setting, as it was
//! measured to.

pub mod calibrate;
pub mod model;

use std::time::Duration;

use narrows_core::{Registry, units::Rate};
use serde::Serialize;

use self::{
    calibrate::{CalibrationError, Look, Sample, UNLIMITED},
    model::{Cost, Place, Prediction, predict},
};
use crate::{
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
    /// What it was calibrated to cost; none for adaptive that was not tried.
    pub cost: Option<Cost>,
    /// What it is expected to take.
    pub prediction: Prediction,
    /// What it is weighed by: where it was tried, the mean of the trials; else what it is expected to take.
    pub sure_s: f64,
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
    /// Of the calibration, and of the trials behind it.
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
/// Every setting is looked at in a hurry. The best of a dozen such looks is the one that noise flattered most, so
/// whoever may be near the best is then looked at again, several times and at more data, and only that counts.
///
/// # Errors
/// [`CalibrationError`].
pub fn ask(
    racer: &Racer,
    data: &Data,
    question: &Question,
    mut told: impl FnMut(&str),
) -> Result<Advice, CalibrationError> {
    // What is predicted is what is measured on: other pieces of a disk or a memory image pack otherwise.
    let data = &data.part(question.len);
    let place = place(racer, question, &mut told)?;
    let first_len = (place.link_bytes_per_s * FIRST_S) as u64;
    let mut field = Field {
        racer,
        place,
        len: question.len as f64,
        settings: Vec::new(),
    };
    let sample = Sample::of(
        data,
        first_len
            .clamp(FIRST_LEN_MIN, FIRST_LEN_MAX)
            .min(question.len),
    )?;
    told("none");
    let raw = field.look("none", &sample)?;
    field.place.wire_s = (
        raw.cost.send_s / raw.cost.size,
        raw.cost.recv_s / raw.cost.size,
    );
    field.settings.push(raw);
    let registry = narrows::default_registry();
    let codecs = codecs(&registry, data, question)?;
    let mut too_slow = false;
    for codec in &codecs {
        // Levels of zstd come in order: once one takes twice the best whole transfer, higher ones are hopeless. Not so
        // those below zero, which differ by less than a hurried look may err.
        let ordered = codec.starts_with("zstd:") && !codec.starts_with("zstd:-");
        if too_slow && question.codecs.is_empty() && ordered {
            continue;
        }
        told(codec);
        narrows::candidate(&registry, codec, 0)?;
        let looked = field.look(codec, &sample)?;
        too_slow |= ordered && looked.prediction.seconds > 2.0 * field.best_s();
        field.settings.push(looked);
    }
    field.look_again(data, question.len, &mut told)?;
    let mut rows: Vec<Row> = field.settings.iter().map(Looked::row).collect();
    if question.shared {
        rows.extend(field.try_best(data, &question.link, question.len, &mut told)?);
    }
    let options = field.settings.into_iter().map(|looked| {
        let usd = usd(&looked.prediction, question.prices);
        let sure_s = looked.prediction.seconds * looked.skew;
        Setting {
            name: looked.name,
            cost: Some(looked.cost),
            prediction: looked.prediction,
            sure_s,
            usd,
        }
    });
    Ok(choose(
        options.collect(),
        question.goal,
        question.prices,
        rows,
    ))
}

/// What is known of the place before anything is packed.
fn place(
    racer: &Racer,
    question: &Question,
    told: &mut impl FnMut(&str),
) -> Result<Place, CalibrationError> {
    told("what the link's delay takes");
    let mut place = Place {
        link_bytes_per_s: question.link.rate.map_or(f64::INFINITY, |rate| rate.0),
        delay_s: calibrate::delay(racer, &question.link)?,
        threads: if racer.threads == 0 {
            question.processors as f64
        } else {
            racer.threads as f64
        },
        processors: question.processors as f64,
        shared: question.shared,
        wire_s: (0.0, 0.0),
    };
    if !question.shared {
        told("how much of the processors transfers get");
        place.processors = (place.processors * calibrate::processors(racer)?).max(1.0);
    }
    Ok(place)
}

/// The codecs asked about; of our own list those that are here.
fn codecs(
    registry: &Registry,
    data: &Data,
    question: &Question,
) -> Result<Vec<String>, CalibrationError> {
    if !question.codecs.is_empty() {
        return Ok(question.codecs.clone());
    }
    // ISA-L is not everywhere.
    let here = |name: &String| narrows::candidate(registry, name, 0).is_ok();
    let ours = CODECS_DEFAULT.map(String::from);
    let mut codecs: Vec<_> = ours.into_iter().filter(here).collect();
    codecs.extend(crate::trial::typed(&data.excerpt(SUGGEST_LEN)?));
    Ok(codecs)
}

/// Settings as far as they are known.
struct Field<'a> {
    racer: &'a Racer,
    place: Place,
    len: f64,
    settings: Vec<Looked>,
}

struct Looked {
    name: String,
    cost: Cost,
    prediction: Prediction,
    /// The first of its looks.
    look: Look,
    again: bool,
    /// How much longer than expected it takes in the mean.
    skew: f64,
}

impl Looked {
    /// The row of a calibration; trials have rows of their own.
    fn row(&self) -> Row {
        let who: Contestant = self.name.parse().expect("settings are contestants");
        self.look.row(Case {
            part: Some("calibration".into()),
            ..who.case()
        })
    }
}

impl Field<'_> {
    /// The faster of two looks: nobody is to be left out because something disturbed it.
    fn look(&self, name: &str, sample: &Sample) -> Result<Looked, CalibrationError> {
        let who: Contestant = name.parse().expect("settings are contestants");
        let one = Look::at(self.racer, &UNLIMITED, sample, &who)?;
        if one.seconds() > LOOK_S_MAX {
            return Ok(self.known(name, &who, &[one]));
        }
        let other = Look::at(self.racer, &UNLIMITED, sample, &who)?;
        let faster = if one.seconds() <= other.seconds() {
            one
        } else {
            other
        };
        Ok(self.known(name, &who, &[faster]))
    }

    /// Adaptive and the best of the others over the link itself, in turns; what they take there is what a byte takes. A
    /// row for each trial.
    fn try_best(
        &mut self,
        data: &Data,
        link: &LinkSpec,
        len: u64,
        told: &mut impl FnMut(&str),
    ) -> Result<Vec<Row>, CalibrationError> {
        self.settings
            .sort_by(|a, b| a.prediction.seconds.total_cmp(&b.prediction.seconds));
        let near = self.best_s() / TRY_SHARE;
        let fixed = self
            .settings
            .iter()
            .filter(|looked| looked.prediction.seconds <= near)
            .take(TRY_FIXED_MAX);
        let mut names: Vec<String> = fixed.map(|looked| looked.name.clone()).collect();
        names.push("adaptive".into());
        let carried = link
            .rate
            .map_or(TRY_LEN_MAX, |rate| (rate.0 * TRY_S) as u64);
        let sample = Sample::of(data, carried.clamp(1 << 20, TRY_LEN_MAX).min(len))?;
        let mut looks = vec![Vec::new(); names.len()];
        let mut rows = Vec::new();
        for _ in 0..TRY_TIMES {
            for (name, looks) in names.iter().zip(&mut looks) {
                told(name);
                let look = Look::at(
                    self.racer,
                    link,
                    &sample,
                    &name.parse().expect("settings are contestants"),
                )?;
                rows.push(look.row(Case {
                    part: Some("trial".into()),
                    ..case(name, link, sample.len())
                }));
                looks.push(look);
            }
        }
        self.settings.retain(|looked| !names.contains(&looked.name));
        for (name, looks) in names.iter().zip(&looks) {
            self.settings.push(self.tried(name, looks));
        }
        Ok(rows)
    }

    fn tried(&self, name: &str, looks: &[Look]) -> Looked {
        let place = Place {
            link_bytes_per_s: f64::INFINITY,
            delay_s: 0.0,
            ..self.place
        };
        let who: Contestant = name.parse().expect("settings are contestants");
        let mut looked = Field {
            place,
            settings: Vec::new(),
            ..*self
        }
        .known(name, &who, looks);
        let Prediction {
            wire_bytes,
            seconds,
            slowest,
            ..
        } = &mut looked.prediction;
        if *wire_bytes / self.place.link_bytes_per_s > LINK_SHARE * *seconds {
            *slowest = "the link";
        }
        // Trials differ by what disturbs the machine, and adaptive's by what it learns, anew each time.
        let long_s = || looks.iter().map(Look::long_seconds);
        looked.skew = long_s().sum::<f64>() / looks.len() as f64 / median(long_s().collect());
        looked
    }

    fn known(&self, name: &str, who: &Contestant, looks: &[Look]) -> Looked {
        let cost = calibrate::cost(looks, who);
        let prediction = predict(self.len, &cost, &self.place);
        Looked {
            name: name.into(),
            cost,
            prediction,
            look: looks[0].clone(),
            again: looks.len() > 1,
            skew: 1.0,
        }
    }

    fn best_s(&self) -> f64 {
        self.settings
            .iter()
            .map(|looked| looked.prediction.seconds)
            .fold(f64::INFINITY, f64::min)
    }

    /// Until everyone near the best has been looked at again.
    fn look_again(
        &mut self,
        data: &Data,
        len: u64,
        told: &mut impl FnMut(&str),
    ) -> Result<(), CalibrationError> {
        let mut sample = None;
        loop {
            let near = self.best_s() / AGAIN_SHARE;
            let some: Vec<usize> = (0..self.settings.len())
                .filter(|&number| {
                    !self.settings[number].again && self.settings[number].prediction.seconds <= near
                })
                .collect();
            if some.is_empty() {
                return Ok(());
            }
            if sample.is_none() {
                let slowest = some
                    .iter()
                    .map(|&number| self.settings[number].cost.alone_s)
                    .fold(1e-12, f64::max);
                let long = ((AGAIN_S / slowest) as u64).clamp(AGAIN_LEN_MIN, AGAIN_LEN_MAX);
                sample = Some(Sample::of(data, long.min(len))?);
            }
            let sample = sample.as_ref().expect("it was just taken");
            // In turns: what disturbs the machine for a while disturbs all of them.
            let mut looks = vec![Vec::new(); some.len()];
            let names: Vec<String> = some
                .iter()
                .map(|&number| self.settings[number].name.clone())
                .collect();
            let slowest = some
                .iter()
                .map(|&number| self.settings[number].cost.alone_s)
                .fold(1e-12, f64::max);
            let times =
                (AGAIN_ALL_S / (slowest * sample.len() as f64)).clamp(AGAIN_TIMES.0, AGAIN_TIMES.1);
            for _ in 0..times as usize {
                for (name, looks) in names.iter().zip(&mut looks) {
                    told(name);
                    let who: Contestant = name.parse().expect("settings are contestants");
                    looks.push(Look::at(self.racer, &UNLIMITED, sample, &who)?);
                }
            }
            for ((number, name), looks) in some.into_iter().zip(names).zip(looks) {
                let who: Contestant = name.parse().expect("settings are contestants");
                self.settings[number] = self.known(&name, &who, &looks);
            }
        }
    }
}

fn choose(mut options: Vec<Setting>, goal: Goal, prices: (f64, f64), rows: Vec<Row>) -> Advice {
    let best_s = options
        .iter()
        .map(|option| option.sure_s)
        .fold(f64::INFINITY, f64::min);
    let raw = options
        .iter()
        .find(|option| option.name == "none")
        .expect("raw is always weighed");
    let raw_s = raw.prediction.seconds;
    let tried = options.iter().any(|option| option.name == "adaptive");
    if let Some(best) = options
        .iter()
        .filter(|_| !tried)
        .find(|option| option.prediction.seconds <= best_s)
    {
        let seconds = best_s / ADAPTIVE_SHARE;
        let prediction = Prediction {
            seconds,
            effective_mbit_s: best.prediction.effective_mbit_s * ADAPTIVE_SHARE,
            ..best.prediction
        };
        let usd = usd(&prediction, prices);
        options.push(Setting {
            name: "adaptive".into(),
            cost: None,
            prediction,
            sure_s: seconds,
            usd,
        });
    }
    let enough = |option: &Setting| option.sure_s <= best_s / CPU_SPEED_SHARE;
    let near = |option: &Setting| option.sure_s <= best_s / TIME_SHARE;
    let key = |option: &Setting| match goal {
        // Who takes little of the processors is least hurt by whoever else wants them.
        Goal::Time if near(option) => option.prediction.cpu_s * 1e-9,
        Goal::Time => option.sure_s,
        Goal::Cpu if enough(option) => option.prediction.cpu_s,
        // Behind all that are fast enough, by time.
        Goal::Cpu => 1e9 + option.sure_s,
        Goal::Cost => option.usd,
    };
    options.sort_by(|a, b| {
        key(a)
            .total_cmp(&key(b))
            .then(a.prediction.cpu_s.total_cmp(&b.prediction.cpu_s))
    });
    let first = &options[0];
    let times = raw_s / first.prediction.seconds;
    let why = match goal {
        Goal::Time => format!(
            "it is expected to be the fastest, or within {:.0} % of that with less processor time; {times:.2} times raw; {} is \
             its slowest stage",
            (1.0 - TIME_SHARE) * 100.0,
            first.prediction.slowest
        ),
        Goal::Cpu => format!(
            "of the settings within {:.0} % of the fastest it takes the least processor time, {:.2} s; {times:.2} times raw",
            (1.0 - CPU_SPEED_SHARE) * 100.0,
            first.prediction.cpu_s
        ),
        Goal::Cost => format!(
            "egress and processors come to the least, {:.6} USD; {times:.2} times raw",
            first.usd
        ),
    };
    Advice {
        reason: format!("{}: {why}.", first.name),
        options,
        rows,
    }
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
            let case = Case {
                part: Some("verification".into()),
                ..case(&option.name, link, excerpt.len)
            };
            rows.push(run.row(case, excerpt.len));
        }
    }
    let outcomes = options.iter().zip(rates).map(|(option, rates)| {
        let (predicted_mbit_s, measured_mbit_s) =
            (option.prediction.effective_mbit_s, median(rates));
        let error = predicted_mbit_s / measured_mbit_s - 1.0;
        Outcome {
            setting: option.name.clone(),
            predicted_mbit_s,
            measured_mbit_s,
            error,
        }
    });
    Ok((outcomes.collect(), rows))
}

/// The prediction of an option as a row.
#[must_use]
pub fn row(option: &Setting, link: &LinkSpec, len: u64, chosen: bool) -> Row {
    let mut row = Row::new(
        Case {
            part: Some("prediction".into()),
            ..case(&option.name, link, len)
        },
        [
            ("effective_mbit_s", option.prediction.effective_mbit_s),
            ("seconds", option.prediction.seconds),
            ("sure_s", option.sure_s),
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

fn case(name: &str, link: &LinkSpec, len: u64) -> Case {
    let who = name
        .parse::<Contestant>()
        .map_or_else(|_| Case::default(), |who| who.case());
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
    let fits = link
        .rate
        .map_or(u64::MAX, |rate| (rate.0 * raw.as_secs_f64()) as u64);
    data.len().min(fits.max(1 << 20)).min(len_max)
}

/// What adaptive reached of the best fixed setting, the geometric mean without lineal of `docs/results/wire.md`.
pub const ADAPTIVE_SHARE: f64 = 0.985;
/// How near the fastest another setting is as good: no prediction is better than that.
const TIME_SHARE: f64 = 0.98;
/// How much slower than the fastest a frugal setting may be.
const CPU_SPEED_SHARE: f64 = 0.9;
/// Seconds of raw that the first look at each setting takes: the slower the link, the slower the codecs that are worth
/// their time.
const FIRST_S: f64 = 0.15;
/// What takes longer is disturbed by little.
const LOOK_S_MAX: f64 = 1.0;
const FIRST_LEN_MIN: u64 = 4 << 20;
const FIRST_LEN_MAX: u64 = 16 << 20;
/// Whoever may be this near the best is looked at again.
const AGAIN_SHARE: f64 = 0.75;
/// Least and most looks, as many as fit into about so many seconds for the slowest, each of about so many.
const AGAIN_TIMES: (f64, f64) = (3.0, 5.0);
const AGAIN_ALL_S: f64 = 3.0;
const AGAIN_S: f64 = 0.6;
/// How near the best a fixed setting is tried over the link, and how many at most.
const TRY_SHARE: f64 = 0.93;
const TRY_FIXED_MAX: usize = 4;
/// Seconds of raw that a trial takes; adaptive learns all the while, most in the first.
const TRY_S: f64 = 2.0;
const TRY_LEN_MAX: u64 = 256 << 20;
const TRY_TIMES: usize = 3;
/// What waits for the link this much of the time is held up by it.
const LINK_SHARE: f64 = 0.9;
const AGAIN_LEN_MIN: u64 = 12 << 20;
const AGAIN_LEN_MAX: u64 = 64 << 20;
const SUGGEST_LEN: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn option(setting: &str, seconds: f64, cpu_s: f64, usd: f64) -> Setting {
        let prediction = Prediction {
            seconds,
            effective_mbit_s: 80.0 / seconds,
            wire_bytes: usd * 1e9,
            cpu_s,
            slowest: "link",
        };
        Setting {
            name: setting.into(),
            cost: None,
            prediction,
            sure_s: seconds,
            usd,
        }
    }

    #[test]
    fn each_goal_takes_what_it_asks_for() {
        let first = |goal| {
            let options = vec![
                option("none", 10.0, 0.1, 1.0),
                option("zstd:1", 4.2, 1.0, 0.4),
                option("zstd:3", 4.0, 2.0, 0.35),
                option("zstd:6", 3.95, 9.0, 0.34),
                option("zstd:19", 9.0, 30.0, 0.3),
            ];
            let advice = choose(options, goal, (1.0, 0.0), Vec::new());
            assert!(
                advice.reason.starts_with(&advice.options[0].name) && advice.options.len() == 6
            );
            advice.options[0].name.clone()
        };
        assert_eq!(
            (first(Goal::Time), first(Goal::Cpu), first(Goal::Cost)),
            ("zstd:3".into(), "zstd:1".into(), "zstd:19".into())
        );
    }
}
