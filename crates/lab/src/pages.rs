//! `narrows bench pages`: codecs, chains and profiles on 4 KiB pages of files; the result is `narrows.pages/1`.
//!
//! Pages are packed and unpacked one by one, as a store of pages would, by each thread. Contestants take turns in every
//! round, so that a disturbance of the machine falls on all, and what is reported is the median of the rounds. Every
//! page is unpacked and compared once. A page that packs to more than the limit is stored as it is, and its unpacking
//! is a copy. Pages of one repeated word are left out: every store keeps them as that word.

mod contestant;
pub mod paper;
mod set;
mod turn;
mod zram;

use narrows_chains::PAGE;
use serde::Serialize;

use self::turn::Turn;
pub use self::{contestant::Contestant, set::Set};
use crate::machine::Sheet;

type Page = [u8; PAGE];

/// What is to be measured, and how.
#[derive(Debug)]
pub struct Plan {
    /// Who packs.
    pub contestants: Vec<Contestant>,
    /// Timed rounds; a slow contestant, one that takes [`SLOW_NS`] a page or more, has but one.
    pub rounds: u32,
    /// Threads that share each set's pages, 1 or more; if more, one alone is measured besides.
    pub threads: usize,
    /// Longest packed page worth storing, in bytes.
    pub limit: usize,
    /// Devices that hold what memory does not, one or more.
    pub backings: Vec<Backing>,
    /// Also the kernel's, on `/dev/zram0`.
    pub zram: bool,
    /// The command line, for the document.
    pub command: String,
}

/// A device that holds what memory does not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Backing {
    /// What to call it.
    pub name: &'static str,
    /// Bytes a second, each way.
    pub bytes_per_s: f64,
}

/// Where the measuring is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Turns done.
    pub done: usize,
    /// Turns in all.
    pub total: usize,
    /// The set at hand.
    pub set: &'a str,
    /// Whose turn it is.
    pub who: &'a str,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagesError {
    /// A set cannot be had.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing to measure.
    #[error("{0} has no page of 4 KiB that is not one word repeated")]
    Empty(String),
    /// No codec, profile or chain has this name.
    #[error("{0}")]
    Unknown(String),
    /// What was packed came back another: no number counts then.
    #[error("{who} on {set}: page {page} came back another")]
    Damaged {
        /// Who packed it.
        who: String,
        /// Of which set.
        set: String,
        /// Which page.
        page: usize,
    },
    /// The kernel's compressed device was asked for and cannot be used.
    #[error("/dev/zram0: {0}")]
    Zram(String),
}

/// `narrows.pages/1`.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    schema: &'static str,
    /// The command line.
    pub command: String,
    /// What it ran on.
    pub machine: Sheet,
    /// Threads that packed and unpacked, but for the kernel's device, which had one.
    pub threads: usize,
    /// Longest packed page that was stored packed, in bytes.
    pub limit_bytes: usize,
    /// The devices behind memory.
    pub backings: Vec<Backing>,
    /// Each set; and last all together if there are several.
    pub sets: Vec<SetResult>,
    /// Of the paper's data what was not to be had.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<paper::Absent>,
}

/// One set's result.
#[derive(Debug, Clone, Serialize)]
pub struct SetResult {
    /// Of the file or the generator, or of the paper's table.
    pub name: String,
    /// What the paper calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'static str>,
    /// The file, or the generator.
    pub from: String,
    /// Pages measured.
    pub pages: usize,
    /// Pages of one repeated word, which are left out.
    pub same_filled: usize,
    /// Each contestant's.
    pub results: Vec<Measured>,
}

/// How one contestant did.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Who.
    pub name: String,
    /// Raw by stored bytes.
    pub ratio: f64,
    /// Decimal megabytes of raw pages a second.
    pub pack_mb_s: f64,
    /// As `pack_mb_s`.
    pub unpack_mb_s: f64,
    /// See [`effective`]; for each device of the document.
    pub effective_mb_s: Vec<f64>,
    /// By one thread alone, in the same rounds, where there were more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_thread: Option<OneThread>,
    /// What was published for such data, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<paper::Published>,
    /// Bytes of all pages.
    #[serde(skip)]
    pub raw_bytes: f64,
    /// Bytes that they take, a refused page counted whole.
    #[serde(skip)]
    pub stored_bytes: f64,
    /// Bytes of pages that were stored as they are.
    #[serde(skip)]
    pub refused_bytes: f64,
}

/// Speeds of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OneThread {
    /// As [`Measured::pack_mb_s`].
    pub pack_mb_s: f64,
    /// As [`Measured::unpack_mb_s`].
    pub unpack_mb_s: f64,
}

/// A contestant whose page takes this long or longer is timed once.
pub const SLOW_NS: u64 = 100_000;

/// Measures every set.
///
/// # Errors
/// [`PagesError`].
pub fn run(
    sets: &[Set],
    plan: &Plan,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Document, PagesError> {
    let total = sets.len() * plan.contestants.len() * (plan.rounds as usize + 1);
    let mut done = 0;
    let mut results = vec![];
    for set in sets {
        let mut tell = |who: &str| {
            progress(Progress {
                done,
                total,
                set: &set.name,
                who,
            });
            done += 1;
        };
        let mut measured = race(set, plan, &mut tell)?;
        if plan.zram {
            measured.extend(zram::race(&set.pages)?);
        }
        results.push(SetResult {
            name: set.name.clone(),
            title: None,
            from: set.from.clone(),
            pages: set.pages.len(),
            same_filled: set.same_filled,
            results: measured,
        });
    }
    if results.len() > 1 {
        results.push(sum(&results));
    }
    for set in &mut results {
        let most = set
            .results
            .iter()
            .map(|measured| measured.ratio)
            .fold(1.0, f64::max);
        for measured in &mut set.results {
            let behind =
                |backing: &Backing| effective(measured, 1.0 / most, backing.bytes_per_s / 1e6);
            measured.effective_mb_s = plan.backings.iter().map(behind).collect();
        }
    }
    Ok(Document {
        schema: "narrows.pages/1",
        command: plan.command.clone(),
        machine: Sheet::of_this_machine(),
        threads: plan.threads,
        limit_bytes: plan.limit,
        backings: plan.backings.clone(),
        sets: results,
        absent: vec![],
    })
}

/// Megabytes a second of writing pages and reading them back where memory is as large as the best ratio needs, and what
/// does not fit goes to a device: the mean, weighted by bytes, of the time that packing and unpacking take and of that
/// which the device takes (Warnke, zBeWalgo's cover letter, 2018). `memory` is memory by raw bytes, `backing` the
/// device's MB/s.
#[must_use]
pub fn effective(measured: &Measured, memory: f64, backing: f64) -> f64 {
    let fits = (measured.ratio * memory).min(1.0);
    let both = 0.5 * (1.0 / measured.pack_mb_s + 1.0 / measured.unpack_mb_s);
    1.0 / (fits * both + (1.0 - fits) / backing)
}

fn race(set: &Set, plan: &Plan, tell: &mut dyn FnMut(&str)) -> Result<Vec<Measured>, PagesError> {
    let mut turns: Vec<Turn> = plan
        .contestants
        .iter()
        .map(|who| Turn::new(who, plan.limit, plan.threads))
        .collect();
    for turn in &mut turns {
        tell(turn.name());
        turn.pack_all(set)?;
    }
    for _ in 0..plan.rounds {
        for turn in &mut turns {
            tell(turn.name());
            turn.time(set);
        }
    }
    Ok(turns.into_iter().map(|turn| turn.measured(set)).collect())
}

impl Measured {
    fn new(
        name: &str,
        raw_bytes: f64,
        stored_bytes: f64,
        pack_mb_s: f64,
        unpack_mb_s: f64,
    ) -> Self {
        let ratio = raw_bytes / stored_bytes;
        let name = name.to_owned();
        let effective_mb_s = vec![];
        Self {
            name,
            ratio,
            pack_mb_s,
            unpack_mb_s,
            effective_mb_s,
            one_thread: None,
            published: None,
            raw_bytes,
            stored_bytes,
            refused_bytes: 0.0,
        }
    }
}

/// All sets as if they were one.
fn sum(sets: &[SetResult]) -> SetResult {
    let of = |n: usize| {
        let all = || sets.iter().map(|set| &set.results[n]);
        let raw: f64 = all().map(|measured| measured.raw_bytes).sum();
        let time = |speed: &dyn Fn(&Measured) -> f64| {
            raw / all().map(|m| m.raw_bytes / speed(m)).sum::<f64>()
        };
        let stored = all().map(|measured| measured.stored_bytes).sum();
        let one = |m: &Measured| {
            m.one_thread.unwrap_or(OneThread {
                pack_mb_s: 1.0,
                unpack_mb_s: 1.0,
            })
        };
        let first = &sets[0].results[n];
        let one_thread = first.one_thread.map(|_| OneThread {
            pack_mb_s: time(&|m| one(m).pack_mb_s),
            unpack_mb_s: time(&|m| one(m).unpack_mb_s),
        });
        let measured = Measured::new(
            &first.name,
            raw,
            stored,
            time(&|m| m.pack_mb_s),
            time(&|m| m.unpack_mb_s),
        );
        Measured {
            one_thread,
            ..measured
        }
    };
    SetResult {
        name: "all".into(),
        title: None,
        from: "all".into(),
        pages: sets.iter().map(|set| set.pages).sum(),
        same_filled: sets.iter().map(|set| set.same_filled).sum(),
        results: (0..sets[0].results.len()).map(of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: ratios are those of the pages, and one set alone or two together give the same. Method: a table, and noise.
    #[test]
    fn a_set_is_measured_and_two_are_summed() {
        let names = [
            "lz4",
            "zbewalgo",
            "fast",
            "chain:dk8-zz8-pk8",
            "zbewalgo:bwt-mtf-huffman",
        ];
        let contestants = names
            .iter()
            .map(|name| Contestant::named(name).unwrap())
            .collect();
        let plan = Plan {
            contestants,
            rounds: 1,
            threads: 2,
            limit: 3264,
            backings: paper::BACKINGS.to_vec(),
            zram: false,
            command: "test".into(),
        };
        let table = Set::load("table:40", 64).unwrap();
        let noise = Set::load("noise:4", 4).unwrap();
        let document = run(&[table, noise], &plan, &mut |_| {}).unwrap();
        let [table, noise, all] = &document.sets[..] else {
            panic!("two sets and their sum")
        };
        assert_eq!(all.pages, table.pages + noise.pages);
        for ((a, b), both) in table.results.iter().zip(&noise.results).zip(&all.results) {
            assert!(
                a.ratio >= 1.0 && b.ratio >= 1.0 && a.pack_mb_s > 0.0 && a.unpack_mb_s > 0.0,
                "{a:?} {b:?}"
            );
            let least = a.ratio.min(b.ratio);
            assert!(
                (least..=a.ratio.max(b.ratio)).contains(&both.ratio),
                "{both:?}"
            );
            assert!(
                both.effective_mb_s.len() == 3 && both.effective_mb_s[0] <= both.effective_mb_s[1],
                "{both:?}"
            );
        }
        assert!(table.results[2].ratio > table.results[0].ratio, "{table:?}");
    }

    // Goal: no table of the paper goes missing unsaid. Method: what can be made, one file, and the rest is named.
    #[test]
    fn each_of_the_papers_tables_is_made_or_named_as_absent() {
        let files = ["isabel-p=jacobi:borders:64:10".to_owned()];
        let (sets, absent) = paper::sets(&files, 16).unwrap();
        assert_eq!(sets.len() + absent.len(), paper::ROWS.len());
        let given = sets.iter().find(|set| set.name == "isabel-p").unwrap();
        assert_eq!(given.from, "jacobi:borders:64:10");
        assert!(
            absent.iter().any(|absent| absent.name == "linux"),
            "{absent:?}"
        );
        assert!(matches!(
            paper::sets(&["other=x".into()], 16),
            Err(PagesError::Unknown(_))
        ));
    }

    #[test]
    fn what_does_not_fit_waits_for_the_device() {
        let measured = |ratio| Measured {
            ratio,
            ..Measured::new("x", 1.0, 1.0, 1000.0, 1000.0)
        };
        assert!((effective(&measured(4.0), 0.25, 100.0) - 1000.0).abs() < 1e-9);
        // Half of it fits: 0.5 / 1000 + 0.5 / 100 seconds a megabyte.
        assert!((effective(&measured(2.0), 0.25, 100.0) - 1.0 / 0.0055).abs() < 1e-9);
    }
}
