//! What is each constant and each rule of the adaptive policy worth? Takes each rule off, halves and doubles each constant, and
//! runs all of it in virtual time.
//!
//! `cargo run --release -p narrows-policy --example ablation -- [--seeds 400] [--first 1000000] [--recordings DIR] [--only TEXT,…]
//! [--together RULE,…] [--minutes M] [--work FILE] [--rows FILE] [--page FILE] [--label TEXT]`
//!
//! Scores of blocks of seeds are appended to the work file, by which a run that was cut goes on. A part that changed no score in the first
//! blocks is not run further: no scene exercises it, so that this says nothing of its worth. When all seeds are done, what each part is
//! worth is written to the rows, and `bench/policy/table.py` makes the page of them. Both processors work, at the priority that the process
//! was given.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use narrows_policy::{
    Offer,
    probe::looks_again,
    sim::{
        data::{Random, SHAPES},
        recording::Recording,
        scene::truth,
        suite::{Case, Group, Measured, Replay, offers, recorded_offers},
    },
    tuning::{CONSTANTS, RULES, Tuning, with},
};

/// Seeds of one task.
const BLOCK: u64 = 50;
/// Blocks after which a part that changed nothing is left.
const UNTOUCHED_AFTER: u64 = 2;
/// Links of the recordings, in Mbit/s, and workers of each.
const REPLAYS: [(f64, u32); 4] = [(100.0, 2), (1000.0, 2), (2500.0, 2), (10000.0, 16)];

fn main() -> Result<(), String> {
    let options = Options::parse()?;
    let suite = Suite::new(&options)?;
    let mut known = read_work(&options.work)?;
    let mut variants = variants(&options.only);
    variants.extend(options.together.as_deref().map(together).transpose()?);
    let began = Instant::now();
    // The recordings are block 0, the seeds the blocks from 1 on.
    for block in 0..=options.seeds / BLOCK {
        let due: Vec<&Variant> = variants
            .iter()
            .filter(|variant| !known.contains_key(&(variant.name.clone(), block)))
            .filter(|variant| {
                let is_base = variant.name == BASE;
                is_base || block <= UNTOUCHED_AFTER || touched(&known, &variant.name, block)
            })
            .collect();
        if options.minutes.is_some_and(|most| began.elapsed() >= most) {
            eprintln!("out of time before block {block}: run it again to go on");
            break;
        }
        let done = suite.measure_all(&due, block, &options.work)?;
        known.extend(done);
        eprintln!(
            "block {block} of {}: {} parts, {:.0?}",
            options.seeds / BLOCK,
            due.len(),
            began.elapsed()
        );
    }
    write_rows(&options, &variants, &known)?;
    let page = std::process::Command::new("python3")
        .arg("bench/policy/table.py")
        .output()
        .map_err(|error| format!("bench/policy/table.py: {error}"))?;
    if !page.status.success() {
        return Err(String::from_utf8_lossy(&page.stderr).into_owned());
    }
    fs::write(&options.page, page.stdout)
        .map_err(|error| format!("{}: {error}", options.page.display()))
}

/// What the command line says.
struct Options {
    seeds: u64,
    first: u64,
    recordings: Option<PathBuf>,
    only: String,
    together: Option<String>,
    minutes: Option<Duration>,
    work: PathBuf,
    rows: PathBuf,
    page: PathBuf,
    label: String,
}

impl Options {
    fn parse() -> Result<Self, String> {
        let mut options = Self {
            seeds: 400,
            first: 1_000_000,
            recordings: None,
            only: String::new(),
            together: None,
            minutes: None,
            work: "target/policy-ablation.txt".into(),
            rows: "docs/results/policy-ablation.jsonl".into(),
            page: "docs/results/policy-ablation.md".into(),
            label: "now".into(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or(format!("{flag} takes a value"))?;
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{flag} takes a number, not {value}"))
            };
            match flag.as_str() {
                "--seeds" => options.seeds = number()?.next_multiple_of(BLOCK),
                "--first" => options.first = number()?,
                "--recordings" => options.recordings = Some(value.into()),
                "--only" => options.only = value,
                "--together" => options.together = Some(value),
                "--minutes" => options.minutes = Some(Duration::from_secs(60 * number()?)),
                "--work" => options.work = value.into(),
                "--rows" => options.rows = value.into(),
                "--page" => options.page = value.into(),
                "--label" => options.label = value,
                other => return Err(format!("unknown flag {other}")),
            }
        }
        Ok(options)
    }
}

/// One change to the policy.
struct Variant {
    name: String,
    tuning: &'static Tuning,
}

/// What ships, then every rule off, then every constant at half and twice, within its range.
fn variants(only: &str) -> Vec<Variant> {
    let mut found = vec![Variant {
        name: BASE.into(),
        tuning: &Tuning::DEFAULT,
    }];
    let mut add = |name: String, tuning: Tuning| {
        if tuning != Tuning::DEFAULT && only.split(',').any(|some| name.contains(some)) {
            found.push(Variant {
                name,
                tuning: Box::leak(Box::new(tuning)),
            });
        }
    };
    for rule in RULES {
        let mut tuning = Tuning::DEFAULT;
        (rule.set)(&mut tuning, false);
        add(format!("{} off", rule.name), tuning);
    }
    for constant in CONSTANTS {
        for (factor, word) in [(0.5, "half"), (2.0, "double")] {
            let mut tuning = Tuning::DEFAULT;
            let value = (factor * constant.default).clamp(constant.range.0, constant.range.1);
            (constant.set)(&mut tuning, value);
            add(format!("{} {word}", constant.name), tuning);
        }
    }
    found
}

/// Several rules off at once: each may cover for another.
fn together(names: &str) -> Result<Variant, String> {
    let mut tuning = Tuning::DEFAULT;
    for name in names.split(',') {
        let rule = RULES.iter().find(|rule| rule.name == name);
        (rule.ok_or(format!("no rule {name}"))?.set)(&mut tuning, false);
    }
    Ok(Variant {
        name: format!("{names} off"),
        tuning: Box::leak(Box::new(tuning)),
    })
}

const BASE: &str = "base";

/// Scores by part and block.
type Known = BTreeMap<(String, u64), Vec<Measured>>;

/// Whether the blocks so far show any difference.
fn touched(known: &Known, name: &str, blocks: u64) -> bool {
    (0..blocks).any(|block| known.get(&(name.into(), block)) != known.get(&(BASE.into(), block)))
}

/// What is run.
struct Suite {
    first: u64,
    offers: Vec<Offer>,
    recorded_offers: Vec<Offer>,
    replays: Vec<Replay>,
    /// All data that policies look at.
    data: Vec<&'static [u8]>,
}

impl Suite {
    fn new(options: &Options) -> Result<Self, String> {
        let (offers, recorded_offers) = (offers(), recorded_offers());
        let mut data = Vec::new();
        for (kind, stride) in SHAPES {
            let bytes = truth(&offers, kind, stride, 0, 1.0).bytes;
            data.push(Box::leak(Box::new(bytes)).as_slice());
        }
        let mut recordings = Vec::new();
        for path in options.recordings.iter().flat_map(|dir| recordings_in(dir)) {
            recordings.push(load(&path, &recorded_offers)?);
        }
        for recording in &recordings {
            data.push(Box::leak(Box::new(Arc::clone(recording))).bytes.as_slice());
        }
        let mut suite = Self {
            first: options.first,
            offers,
            recorded_offers,
            replays: Vec::new(),
            data,
        };
        let wanted: Vec<_> = recordings
            .iter()
            .flat_map(|recording| REPLAYS.map(|(mbit, workers)| (recording, mbit, workers)))
            .collect();
        suite.replays = side_by_side(&wanted, &suite.data, |&(recording, mbit, workers)| {
            Replay::new(recording, &suite.recorded_offers, mbit, workers)
        });
        Ok(suite)
    }

    fn measure(&self, block: u64) -> Vec<Measured> {
        if block == 0 {
            return self
                .replays
                .iter()
                .map(|replay| replay.measure(&self.recorded_offers))
                .collect();
        }
        let first = self.first + (block - 1) * BLOCK;
        (first..first + BLOCK)
            .map(|seed| Case::new(seed, &self.offers).measure(&self.offers))
            .collect()
    }

    /// One block of each of these parts; what is done goes to the work file at once.
    fn measure_all(&self, due: &[&Variant], block: u64, work: &Path) -> Result<Known, String> {
        let file = fs::OpenOptions::new().create(true).append(true).open(work);
        let file = Mutex::new(file.map_err(|error| format!("{}: {error}", work.display()))?);
        let found = side_by_side(due, &self.data, |variant| {
            // Looks are kept as long as the values are the same.
            looks_again(&self.data);
            let scores = with(variant.tuning, || self.measure(block));
            let mut line = format!("{}|{block}|", variant.name);
            for Measured { steady, start, raw } in &scores {
                line += &format!("{steady} {start} {raw} ");
            }
            line.push('\n');
            file.lock()
                .expect("no writer panics")
                .write_all(line.as_bytes())
                .expect("the work file can be written");
            ((variant.name.clone(), block), scores)
        });
        Ok(found.into_iter().collect())
    }
}

/// Does the work of all items on all processors, in order.
fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    data: &[&'static [u8]],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let mut found: Vec<(usize, R)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    looks_again(data);
                    let mut mine = Vec::new();
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = items.get(at) else {
                            return mine;
                        };
                        mine.push((at, work(item)));
                    }
                })
            })
            .collect();
        handles
            .into_iter()
            .flat_map(|handle| handle.join().expect("a scene panicked"))
            .collect()
    });
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, result)| result).collect()
}

fn recordings_in(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "costs")
        })
        .collect();
    found.sort();
    found
}

fn load(costs: &Path, offers: &[Offer]) -> Result<Arc<Recording>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", costs.display());
    let bytes = fs::read(costs.with_extension("bytes")).map_err(said)?;
    let text = fs::read_to_string(costs).map_err(said)?;
    Recording::parse(bytes, &text, offers).map(Arc::new)
}

/// What the work file holds, but for a last line that was cut.
fn read_work(path: &Path) -> Result<Known, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Known::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let mut known = Known::new();
    for line in text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
    {
        let wrong = || format!("{}: not a line of a work file: {line}", path.display());
        let [name, block, scores] = line.split('|').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let numbers: Vec<f32> = scores
            .split_whitespace()
            .map(|word| word.parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        let scores = numbers
            .as_chunks::<3>()
            .0
            .iter()
            .map(|&[steady, start, raw]| Measured { steady, start, raw })
            .collect();
        known.insert((name.into(), block.parse().map_err(|_| wrong())?), scores);
    }
    Ok(known)
}

/// What one part is worth on some scenes, beside what ships.
struct Worth {
    scenes: usize,
    touched: usize,
    mean: f64,
    /// Of the mean, one standard error.
    unsure: f64,
    start: f64,
    /// Mean of the worst hundredth.
    worst: f64,
    /// One standard error of that, by drawing the scenes again and again.
    worst_unsure: f64,
    floors: i64,
}

/// How often scenes are drawn again to see how unsure a figure is.
const DRAWS: u32 = 100;
/// Least share of raw that is promised.
const FLOOR: f32 = 0.97;

impl Worth {
    fn of(pairs: &[(Measured, Measured)]) -> Self {
        let count = pairs.len().max(1) as f64;
        let percent = |of: fn(&Measured) -> f32| -> Vec<f64> {
            pairs
                .iter()
                .map(|(base, other)| {
                    100.0 * (f64::from(of(other).max(0.01)) / f64::from(of(base).max(0.01))).ln()
                })
                .collect()
        };
        let mean = |all: &[f64]| all.iter().sum::<f64>() / count;
        let steady = percent(|score| score.steady);
        let spread = steady
            .iter()
            .map(|one| (one - mean(&steady)).powi(2))
            .sum::<f64>()
            / count;
        let of_worst =
            |which: usize| worst(pairs.iter().map(|pair| [pair.0, pair.1][which].steady));
        let mut random = Random::new(1);
        let drawn: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let again: Vec<usize> = (0..pairs.len())
                    .map(|_| random.below(pairs.len()))
                    .collect();
                let of = |which: usize| {
                    worst(
                        again
                            .iter()
                            .map(|&at| [pairs[at].0, pairs[at].1][which].steady),
                    )
                };
                100.0 * (of(1) / of(0)).ln()
            })
            .collect();
        let drawn_mean = drawn.iter().sum::<f64>() / f64::from(DRAWS);
        let drawn_spread = drawn
            .iter()
            .map(|one| (one - drawn_mean).powi(2))
            .sum::<f64>()
            / f64::from(DRAWS);
        let floors = |of: &dyn Fn(&(Measured, Measured)) -> f32| {
            pairs.iter().filter(|pair| of(pair) < FLOOR).count() as i64
        };
        Self {
            scenes: pairs.len(),
            touched: pairs.iter().filter(|(base, other)| base != other).count(),
            mean: mean(&steady),
            unsure: (spread / count).sqrt(),
            start: mean(&percent(|score| score.start)),
            worst: 100.0 * (of_worst(1) / of_worst(0)).ln(),
            worst_unsure: drawn_spread.sqrt(),
            floors: floors(&|pair| pair.1.raw) - floors(&|pair| pair.0.raw),
        }
    }
}

/// Mean of the worst hundredth, and of five scenes at least.
fn worst(scores: impl Iterator<Item = f32>) -> f64 {
    let mut all: Vec<f64> = scores.map(f64::from).collect();
    all.sort_by(f64::total_cmp);
    let some = all.len().div_ceil(100).max(5).min(all.len());
    all[..some].iter().sum::<f64>() / some.max(1) as f64
}

/// Lines of the controller, without tests, simulator and priors.
fn lines() -> usize {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(source).into_iter().flatten().flatten();
    files
        .map(|entry| entry.path())
        .filter(|path| !path.ends_with("prior.rs"))
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|text| {
            let code = text.lines().take_while(|line| *line != "mod tests {");
            code.count()
        })
        .sum()
}

/// The sorts of scenes of which there are enough to judge a part by.
const JUDGED: [&str; 3] = ["all", "Strange", "recordings"];

/// Appends a row for each part and each sort of scenes: `all` of the ordinary ones, then each group, then recordings.
fn write_rows(options: &Options, variants: &[Variant], known: &Known) -> Result<(), String> {
    let mut text = fs::read_to_string(&options.rows).unwrap_or_default();
    let label = &options.label;
    // A label's rows are replaced.
    let others: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains(&format!("\"label\":\"{label}\"")))
        .collect();
    text = others.iter().map(|line| format!("{line}\n")).collect();
    let constants = CONSTANTS.len();
    let rules = RULES.len();
    text += &format!(
        "{{\"schema\":\"narrows.policy-ablation/1\",\"label\":\"{label}\",\"constants\":{constants},\"rules\":{rules},\"lines\":{},\"seeds\":{},\"first\":{}}}\n",
        lines(),
        options.seeds,
        options.first
    );
    for variant in variants {
        let mut sorts: BTreeMap<String, Vec<(Measured, Measured)>> = BTreeMap::new();
        for block in 0..=options.seeds / BLOCK {
            let of = |name: &str| known.get(&(name.to_string(), block));
            let (Some(base), Some(other)) = (of(BASE), of(&variant.name)) else {
                continue;
            };
            for (at, pair) in base.iter().copied().zip(other.iter().copied()).enumerate() {
                if block == 0 {
                    sorts.entry("recordings".into()).or_default().push(pair);
                    continue;
                }
                let group = Group::of(options.first + (block - 1) * BLOCK + at as u64);
                sorts.entry(format!("{group:?}")).or_default().push(pair);
                if group != Group::Strange {
                    sorts.entry("all".into()).or_default().push(pair);
                }
            }
        }
        let mut about = about(&variant.name);
        for (sort, pairs) in sorts {
            if variant.name == BASE {
                text += &base_row(label, &sort, &pairs);
                continue;
            }
            // Of one group alone there are too few scenes to tell.
            if !JUDGED.contains(&sort.as_str()) {
                continue;
            }
            let Worth {
                scenes,
                touched,
                mean,
                unsure,
                start,
                worst,
                worst_unsure,
                floors,
            } = Worth::of(&pairs);
            text += &format!(
                "{{\"schema\":\"narrows.policy-ablation/1\",\"label\":\"{label}\",\"part\":\"{}\",{about}\"scenes\":\"{sort}\",\"n\":{scenes},\"touched\":{touched},\"mean\":{mean:.3},\"unsure\":{unsure:.3},\"start\":{start:.3},\"worst\":{worst:.3},\"worst_unsure\":{worst_unsure:.3},\"floors\":{floors}}}\n",
                variant.name,
            );
            about.clear();
        }
    }
    fs::write(&options.rows, text).map_err(|error| format!("{}: {error}", options.rows.display()))
}

/// What ships reaches.
fn base_row(label: &str, sort: &str, pairs: &[(Measured, Measured)]) -> String {
    let mut all: Vec<f32> = pairs.iter().map(|(base, _)| base.steady).collect();
    all.sort_by(f32::total_cmp);
    let below = |least: f32| all.iter().filter(|&&score| score < least).count();
    let floors = pairs.iter().filter(|(base, _)| base.raw < FLOOR).count();
    let mean = all.iter().sum::<f32>() / all.len() as f32;
    format!(
        "{{\"schema\":\"narrows.policy-ablation/1\",\"label\":\"{label}\",\"part\":\"{BASE}\",\"scenes\":\"{sort}\",\"n\":{},\"mean_score\":{mean:.4},\"least\":{:.4},\"worst\":{:.4},\"below_95\":{},\"floors\":{floors}}}\n",
        all.len(),
        all[0],
        worst(all.iter().copied()),
        below(0.95),
    )
}

/// Unit, default and meaning of a part, as fields of a row.
fn about(part: &str) -> String {
    let (name, _) = part.split_once(' ').unwrap_or((part, ""));
    let said = |about: &str| about.trim().replace('"', "'");
    if let Some(rule) = RULES.iter().find(|rule| rule.name == name) {
        return format!(
            "\"about\":\"{}\",\"lacks\":\"{}\",",
            said(rule.about),
            rule.lacks
        );
    }
    CONSTANTS
        .iter()
        .find(|constant| constant.name == name)
        .map_or(String::new(), |constant| {
            format!(
                "\"about\":\"{}\",\"unit\":\"{}\",\"default\":{},",
                said(constant.about),
                constant.unit,
                constant.default
            )
        })
}
