//! `narrows try`: policies race over links with the user's data; the result is `narrows.try/1`.
//!
//! Every policy gets the same bytes and starts from nothing. Rounds are interleaved, every other one in reverse, so
//! that a disturbance of the machine falls on all. What is reported is the median of the rounds, with the least and the
//! most. One transfer of the adaptive policy before the first round warms the machine up and shows which codecs it
//! takes; it is not counted. A policy that takes twice the time allowed for raw races in one round only.

mod album;
mod pictures;
mod suggest;
mod timeline;

use serde::Serialize;

pub use self::{album::sections, pictures::report, timeline::Span};
use crate::{
    data::{Data, DataError, Excerpt, Piece},
    machine::{self, Sheet},
    race::{Contestant, LinkSpec, RaceError, Racer, Run},
    result::{self, Case, Origin, Row},
};

/// What is to be raced.
#[derive(Debug, Clone)]
pub struct Plan {
    /// One after the other.
    pub links: Vec<LinkSpec>,
    /// Who races; empty means [`default_contestants`] and a typed codec where the data calls for one.
    pub contestants: Vec<Contestant>,
    /// Rounds.
    pub repeat: u32,
    /// How long sending raw may take on a link: sets how much of the data it gets.
    pub raw_s: f64,
    /// Most bytes a link gets, whatever its rate.
    pub len_max: u64,
    /// The command line, for the document.
    pub command: String,
}

/// Where the trial is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Transfers done.
    pub done: usize,
    /// Transfers in all.
    pub total: usize,
    /// The link at hand.
    pub link: &'a LinkSpec,
    /// Who races now.
    pub who: &'a Contestant,
}

/// Why a trial came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The data cannot be had.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Bytes were damaged: no number counts then.
    #[error("{who} over {link}: {fault}")]
    Damaged {
        /// Who raced.
        who: String,
        /// Over what.
        link: String,
        /// What differs.
        fault: RaceError,
    },
}

/// `narrows.try/1`.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    schema: &'static str,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command line.
    pub command: String,
    /// What it ran on.
    pub machine: Sheet,
    /// What was sent.
    pub data: DataSheet,
    /// Rounds; a policy that was far too slow in the first one has only that.
    pub repeat: u32,
    /// Threads of each end; 0 is one for each processor.
    pub threads: usize,
    /// Whether every transfer that has a number arrived as it was sent, by length and XXH3-64: always, since one that
    /// does not ends the trial.
    pub checked: bool,
    /// Link by link.
    pub links: Vec<LinkResult>,
}

/// All that may be sent.
#[derive(Debug, Clone, Serialize)]
pub struct DataSheet {
    /// For people.
    pub what: String,
    /// In all files.
    pub bytes: u64,
    /// How many.
    pub files: usize,
}

/// What happened on one link.
#[derive(Debug, Clone, Serialize)]
pub struct LinkResult {
    /// For people: `100 Mbit/s`.
    pub link: String,
    /// Decimal megabits; absent where the two ends were connected directly.
    pub rate_mbit_s: Option<f64>,
    /// Each way.
    pub delay_ms: f64,
    /// Bytes each policy had to carry.
    pub sent_bytes: u64,
    /// How many times over these hold the same data: where a link carries all of it in no time.
    pub times: u64,
    /// XXH3-64 of them.
    pub xxh3: String,
    /// Which bytes of the data these are.
    pub pieces: Vec<Piece>,
    /// In the order they were named.
    pub policies: Vec<PolicyResult>,
    /// What adaptive took, in order, from the transfer that is not counted.
    pub timeline: Vec<Span>,
    /// How adaptive did.
    pub verdict: Option<Verdict>,
}

/// What one policy achieved on one link; numbers are medians of the rounds.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyResult {
    /// `adaptive`, `zstd:3`.
    pub name: String,
    /// Raw bits a second from begin to end.
    pub effective_mbit_s: f64,
    /// Slowest round.
    pub effective_mbit_s_min: f64,
    /// Fastest round.
    pub effective_mbit_s_max: f64,
    /// Against sending raw, where that raced.
    pub times_raw: Option<f64>,
    /// Seconds from begin to end.
    pub seconds: f64,
    /// Both directions.
    pub wire_bytes: u64,
    /// Sent bytes over wire bytes.
    pub ratio: f64,
    /// Processor time of the sender.
    pub send_cpu_s: f64,
    /// Processor time of the receiver.
    pub recv_cpu_s: f64,
    /// Whether nobody was faster on this link.
    pub best: bool,
    /// Why it has no number, or fewer than the others.
    pub fault: Option<String>,
    /// Round by round.
    pub runs: Vec<Run>,
}

/// How adaptive did on a link.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The fastest other policy.
    pub best_other: String,
    /// Adaptive's rate over that one's: below 1 it lost.
    pub against_best_other: f64,
    /// Adaptive's rate over raw's.
    pub against_raw: Option<f64>,
    /// The slowest and fastest rounds of the two overlap: another trial may have it the other way round.
    pub within_spread: bool,
    /// Raw took so little time that starting up counts for much.
    pub short: bool,
}

/// Raced where the user names nobody: raw, the best-known fixed choices, one of the published study's, and ours.
#[must_use]
pub fn default_contestants() -> Vec<Contestant> {
    [
        "none",
        "naive:zstd:1",
        "lz4",
        "gipfeli",
        "zstd:1",
        "zstd:3",
        "zstd:9",
        "adaptive",
    ]
    .map(|text| text.parse().expect("these are well formed"))
    .into()
}

/// Races. `progress` is told before each transfer.
///
/// # Errors
/// [`TrialError`]. A policy that fails is reported in the document, not here; damaged data is.
pub fn run(
    racer: &Racer,
    data: &Data,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Document, TrialError> {
    let started = machine::now();
    let machine = Sheet::of_this_machine();
    let mut contestants = plan.contestants.clone();
    if contestants.is_empty() {
        contestants = default_contestants();
        if let Some(typed) = suggest::typed(&data.excerpt(SUGGEST_LEN)?) {
            contestants.insert(contestants.len() - 1, typed);
        }
    }
    let total = plan.links.len() * (plan.repeat as usize * contestants.len() + 1);
    let mut trial = Trial {
        racer,
        contestants: &contestants,
        repeat: plan.repeat,
        slow_s: plan.raw_s * 2.0,
        progress,
        done: 0,
        total,
    };
    let mut links = Vec::new();
    for link in &plan.links {
        let fits = link
            .rate
            .map_or(plan.len_max, |rate| (rate.0 * plan.raw_s).max(1.0) as u64);
        let enough =
            link.rate
                .map_or(f64::INFINITY, |rate| rate.0 * ENOUGH_S.min(plan.raw_s)) as u64;
        links.push(
            trial.link(
                link,
                &data
                    .excerpt(fits.min(plan.len_max))?
                    .lengthened(enough.min(plan.len_max))?,
            )?,
        );
    }
    Ok(Document {
        schema: "narrows.try/1",
        started,
        command: plan.command.clone(),
        machine,
        data: DataSheet {
            what: data.what.clone(),
            bytes: data.len(),
            files: data.files(),
        },
        repeat: plan.repeat,
        threads: racer.threads,
        checked: true,
        links,
    })
}

/// The rounds of a trial as lines of results, a row each.
#[must_use]
pub fn results(document: &Document) -> result::Run {
    let mut run = result::Run::new(Origin {
        started: document.started.clone(),
        machine: document.machine.clone(),
        ..Origin::now("try", &document.command, Vec::new())
    });
    for link in &document.links {
        for policy in &link.policies {
            let case = || Case {
                data: Some(document.data.what.clone()),
                data_bytes: Some(link.sent_bytes),
                delay_ms: Some(link.delay_ms),
                link_mbit_s: link.rate_mbit_s,
                threads: Some(document.threads as u64).filter(|threads| *threads > 0),
                ..policy
                    .name
                    .parse::<Contestant>()
                    .map_or_else(|_| Case::default(), |who| who.case())
            };
            for round in &policy.runs {
                let mut row = round.row(case(), link.sent_bytes);
                if policy.best {
                    row.marks.insert("best".into());
                }
                run.rows.push(row);
            }
            if let Some(fault) = &policy.fault {
                run.rows.push(Row {
                    fault: Some(fault.clone()),
                    ..Row::new(case(), [])
                });
            }
        }
    }
    run
}

struct Trial<'a> {
    racer: &'a Racer,
    contestants: &'a [Contestant],
    repeat: u32,
    /// Whoever takes longer than this races once: a hopeless choice would take most of the user's time.
    slow_s: f64,
    progress: &'a mut dyn FnMut(Progress),
    done: usize,
    total: usize,
}

impl Trial<'_> {
    fn link(&mut self, link: &LinkSpec, excerpt: &Excerpt) -> Result<LinkResult, TrialError> {
        let adaptive = Contestant::plain("adaptive");
        let mut timeline = Vec::new();
        if let Ok(trace) = tempfile::NamedTempFile::with_prefix("narrows-try-") {
            self.tell(link, &adaptive);
            // A failure shows in the rounds that count.
            if self
                .racer
                .run(link, &adaptive, excerpt, Some(trace.path()))
                .is_ok()
            {
                timeline = timeline::read(trace.path());
            }
        }
        let mut outcomes: Vec<(Vec<Run>, Option<String>)> =
            vec![Default::default(); self.contestants.len()];
        for round in 0..self.repeat {
            let mut order: Vec<usize> = (0..self.contestants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for number in order {
                let (who, outcome) = (&self.contestants[number], &mut outcomes[number]);
                if outcome.1.is_some()
                    || outcome
                        .0
                        .first()
                        .is_some_and(|run| run.seconds > self.slow_s)
                {
                    self.done += 1;
                    continue;
                }
                self.tell(link, who);
                match self.racer.run(link, who, excerpt, None) {
                    Ok(run) => outcome.0.push(run),
                    Err(fault @ RaceError::Differs { .. }) => {
                        return Err(TrialError::Damaged {
                            who: who.to_string(),
                            link: link.to_string(),
                            fault,
                        });
                    }
                    Err(fault) => outcome.1 = Some(fault.to_string()),
                }
            }
        }
        let outcomes = self.contestants.iter().zip(outcomes);
        let mut policies: Vec<_> = outcomes
            .map(|(who, (runs, fault))| PolicyResult::new(who, excerpt.len, runs, fault))
            .collect();
        compare(&mut policies);
        Ok(LinkResult {
            link: link.to_string(),
            rate_mbit_s: link.rate.map(narrows_core::units::Rate::mbit),
            delay_ms: link.delay.as_secs_f64() * 1e3,
            sent_bytes: excerpt.len,
            times: excerpt.times,
            xxh3: excerpt.xxh3.clone(),
            pieces: excerpt.pieces.clone(),
            verdict: Verdict::of(&policies),
            policies,
            timeline,
        })
    }

    fn tell(&mut self, link: &LinkSpec, who: &Contestant) {
        (self.progress)(Progress {
            done: self.done,
            total: self.total,
            link,
            who,
        });
        self.done += 1;
    }
}

impl PolicyResult {
    fn new(who: &Contestant, len: u64, runs: Vec<Run>, fault: Option<String>) -> Self {
        let of = |what: fn(&Run) -> f64| median(runs.iter().map(what).collect());
        let rates = || runs.iter().map(|run| run.effective_mbit_s);
        let wire_bytes = of(|run| run.wire_bytes as f64);
        Self {
            name: who.to_string(),
            effective_mbit_s: of(|run| run.effective_mbit_s),
            effective_mbit_s_min: rates().reduce(f64::min).unwrap_or(0.0),
            effective_mbit_s_max: rates().fold(0.0, f64::max),
            times_raw: None,
            seconds: of(|run| run.seconds),
            wire_bytes: wire_bytes as u64,
            ratio: if wire_bytes > 0.0 {
                len as f64 / wire_bytes
            } else {
                0.0
            },
            send_cpu_s: of(|run| run.send_cpu_s),
            recv_cpu_s: of(|run| run.recv_cpu_s),
            best: false,
            fault,
            runs,
        }
    }

    /// Whether it has numbers.
    #[must_use]
    pub fn arrived(&self) -> bool {
        !self.runs.is_empty()
    }
}

fn compare(policies: &mut [PolicyResult]) {
    let raw = policies
        .iter()
        .find(|policy| policy.name == "none" && policy.arrived());
    let raw_mbit_s = raw.map(|policy| policy.effective_mbit_s);
    let most = policies
        .iter()
        .map(|policy| policy.effective_mbit_s)
        .fold(0.0, f64::max);
    for policy in policies.iter_mut().filter(|policy| policy.arrived()) {
        policy.times_raw = raw_mbit_s.map(|raw| policy.effective_mbit_s / raw);
        policy.best = policy.effective_mbit_s >= most;
    }
}

impl Verdict {
    fn of(policies: &[PolicyResult]) -> Option<Self> {
        let ours = policies
            .iter()
            .find(|policy| policy.name == "adaptive" && policy.arrived())?;
        let best = policies
            .iter()
            .filter(|policy| policy.name != "adaptive" && policy.arrived())
            .max_by(|a, b| a.effective_mbit_s.total_cmp(&b.effective_mbit_s))?;
        let raw = policies
            .iter()
            .find(|policy| policy.name == "none" && policy.arrived());
        Some(Self {
            best_other: best.name.clone(),
            against_best_other: ours.effective_mbit_s / best.effective_mbit_s,
            against_raw: ours.times_raw,
            within_spread: ours.effective_mbit_s_min <= best.effective_mbit_s_max
                && best.effective_mbit_s_min <= ours.effective_mbit_s_max,
            short: raw.is_some_and(|raw| raw.seconds < SHORT_S),
        })
    }
}

impl LinkResult {
    /// How adaptive did, in a sentence or two.
    #[must_use]
    pub fn sentence(&self) -> String {
        let ours = self
            .policies
            .iter()
            .find(|policy| policy.name == "adaptive" && policy.arrived());
        let (Some(verdict), Some(ours)) = (&self.verdict, ours) else {
            return format!("{}: adaptive has no number to compare.", self.link);
        };
        let best = self
            .policies
            .iter()
            .find(|policy| policy.name == verdict.best_other);
        let percent = (verdict.against_best_other - 1.0) * 100.0;
        let place = if percent.abs() < 0.05 {
            "level with".into()
        } else {
            format!(
                "{:.1} % {}",
                percent.abs(),
                if percent < 0.0 { "below" } else { "above" }
            )
        };
        let raw = verdict
            .against_raw
            .map_or_else(String::new, |times| format!("{times:.2} × raw, "));
        let spread =
            if verdict.within_spread && self.policies.iter().any(|policy| policy.runs.len() > 1) {
                "; their rounds overlap"
            } else {
                ""
            };
        let short = if verdict.short {
            " Raw took under half a second, so starting up counts for much: give more data to judge by."
        } else {
            ""
        };
        format!(
            "{}: adaptive carried {} Mbit/s: {raw}{place} the best of the others, {} ({} Mbit/s{spread}).{short}",
            self.link,
            digits(ours.effective_mbit_s),
            verdict.best_other,
            digits(best.map_or(0.0, |best| best.effective_mbit_s)),
        )
    }
}

/// Three digits: more would claim a precision nobody measured.
#[must_use]
pub fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// `1 round`, `3 rounds`.
#[must_use]
pub fn rounds(count: u32) -> String {
    if count == 1 {
        "1 round".into()
    } else {
        format!("{count} rounds")
    }
}

/// The typed codec that the data calls for, if one does: `shuffle4-zstd:1`.
#[must_use]
pub fn typed(excerpt: &Excerpt) -> Option<String> {
    suggest::typed(excerpt).map(|who| who.to_string())
}

/// The middle of the values; 0 where there are none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
    }
}

/// How much of the data is looked at for a typed codec.
const SUGGEST_LEN: u64 = 4 << 20;
/// Below this, processes that have just started are a good part of the time.
const SHORT_S: f64 = 0.5;
/// How long sending raw should take: data are sent as often as fit.
const ENOUGH_S: f64 = 1.0;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn policy(name: &str, rates: &[f64]) -> PolicyResult {
        let runs = rates.iter().map(|rate| Run {
            seconds: 80.0 / rate,
            process_seconds: 80.0 / rate + 0.1,
            effective_mbit_s: *rate,
            wire_bytes: (10e6 * 95.0 / rate) as u64,
            send_cpu_s: 0.2,
            recv_cpu_s: 0.1,
            send_rss_bytes: None,
            recv_rss_bytes: None,
        });
        PolicyResult::new(&name.parse().unwrap(), 10_000_000, runs.collect(), None)
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert!(
            [
                median(vec![3.0, 1.0, 2.0]),
                median(vec![1.0, 3.0]),
                median(vec![])
            ] == [2.0, 2.0, 0.0]
        );
    }

    #[test]
    fn a_loss_is_said() {
        let mut policies = vec![
            policy("none", &[95.0, 96.0, 94.0]),
            policy("zstd:3", &[200.0]),
            policy("adaptive", &[190.0]),
        ];
        compare(&mut policies);
        assert!(policies[1].best && !policies[2].best && policies[2].times_raw == Some(2.0));
        let verdict = Verdict::of(&policies).unwrap();
        assert!(
            verdict.best_other == "zstd:3"
                && verdict.against_best_other == 0.95
                && !verdict.within_spread
        );
        let link = LinkResult {
            link: "100 Mbit/s".into(),
            rate_mbit_s: Some(100.0),
            delay_ms: 0.0,
            sent_bytes: 10_000_000,
            times: 1,
            xxh3: String::new(),
            pieces: Vec::new(),
            verdict: Some(verdict),
            policies,
            timeline: Vec::new(),
        };
        let said = link.sentence();
        assert!(
            said.contains("2.00 × raw, 5.0 % below the best of the others, zstd:3 (200"),
            "{said}"
        );
    }

    #[test]
    fn a_policy_that_failed_neither_wins_nor_panics() {
        let mut policies = vec![policy("none", &[]), policy("adaptive", &[10.0])];
        compare(&mut policies);
        assert!(policies[1].best && !policies[0].best && Verdict::of(&policies).is_none());
    }
}
