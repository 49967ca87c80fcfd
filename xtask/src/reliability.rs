//! `cargo xtask reliability`: what narrows survives, as one sheet of figures.
//!
//! Runs tests, fuzzers and harnesses that are there anyway, with more seeds than a test run has, reads the counts that they
//! print, and writes `reliability.json` and `reliability.md`. A row that failed, was left out or has nothing to run stays on
//! the sheet. A run that was cut goes on where its file ends: rows are done in rounds, each with other seeds, and counts add up.

mod counts;
mod rows;
mod sheet;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::{
    rows::{ROWS, Spec, Test},
    sheet::{Entry, Sheet, State},
};
pub(crate) use sheet::render;

const USAGE: &str = "usage: cargo xtask reliability [--quick|--full] [--workspace] [--out DIR] [--minutes N] [--only ID] [--again]";

struct Options {
    full: bool,
    /// Build as `cargo test --workspace` does, so that what that built is used.
    workspace: bool,
    out: PathBuf,
    minutes: Option<u64>,
    only: Option<String>,
    again: bool,
}

/// Runs the sheet.
///
/// # Errors
/// A row failed, or nothing could be built.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = options(args)?;
    fs::create_dir_all(&options.out)?;
    let path = options.out.join("reliability.json");
    let mut sheet = if options.again {
        Sheet::default()
    } else {
        Sheet::read(&path)?
    };
    let until = options
        .minutes
        .map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let over = || until.is_some_and(|until| Instant::now() >= until);
    let wanted = |spec: &&Spec| options.only.as_ref().is_none_or(|only| spec.id == *only);
    let programs = if over() {
        Programs::new()
    } else {
        build(ROWS.iter().filter(wanted), options.workspace)?
    };
    let most = ROWS.iter().map(|spec| spec.rounds).max().unwrap_or(1);
    // Every row once before any a second time: a sheet that is cut has all of them.
    for round in 0..if options.full { most } else { 1 } {
        for spec in ROWS.iter().filter(wanted) {
            let entry = sheet.entry(&spec.id);
            let done = matches!(entry.state, State::Passed) && entry.rounds > round;
            if done || round >= spec.rounds || over() {
                continue;
            }
            eprintln!("reliability: {}, round {}", spec.id, round + 1);
            *entry = one(spec, &options, round, &programs, entry.clone());
            eprintln!("   {:?} {}", entry.state, entry.figure());
            sheet.full = options.full;
            sheet.write(&path)?;
        }
    }
    sheet.write(&path)?;
    fs::write(options.out.join("reliability.md"), render(&path)?)?;
    println!("reliability: {}", sheet.summary());
    let failed = sheet.failed();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        full: false,
        workspace: false,
        out: PathBuf::new(),
        minutes: None,
        only: None,
        again: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().context(USAGE);
        match arg.as_str() {
            "--quick" => options.full = false,
            "--full" => options.full = true,
            "--workspace" => options.workspace = true,
            "--again" => options.again = true,
            "--out" => options.out = value()?.into(),
            "--minutes" => options.minutes = Some(value()?.parse().context(USAGE)?),
            "--only" => options.only = Some(value()?),
            _ => bail!("{USAGE}"),
        }
    }
    if options.out.as_os_str().is_empty() {
        // The committed sheet is a full one.
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        options.out = if options.full {
            "docs/results".into()
        } else {
            target.join("reliability")
        };
    }
    Ok(options)
}

/// Where a test program is, and where it runs.
type Programs = BTreeMap<(String, String), (PathBuf, PathBuf)>;

/// Builds the test programs that rows name, and finds them.
fn build<'a>(specs: impl Iterator<Item = &'a Spec>, workspace: bool) -> Result<Programs> {
    let tests = specs.flat_map(|spec| &spec.tests);
    let mut packages: Vec<&str> = tests.map(|test| test.package.as_str()).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(Programs::new());
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--no-run", "--message-format=json", "--quiet"]);
    if workspace {
        command.arg("--workspace");
    } else {
        command.args(packages.iter().flat_map(|package| ["-p", package]));
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let mut programs = Programs::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let (Some(program), Some(manifest)) = (
            message["executable"].as_str(),
            message["manifest_path"].as_str(),
        ) else {
            continue;
        };
        if message["profile"]["test"] != true {
            continue;
        }
        let dir = Path::new(manifest)
            .parent()
            .context("a manifest is in a directory")?;
        let package = package_of(message["package_id"].as_str().unwrap_or_default(), dir);
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let name = if kind == "test" {
            message["target"]["name"].as_str().unwrap_or_default()
        } else {
            kind
        };
        programs.insert((package, name.to_owned()), (program.into(), dir.to_owned()));
    }
    Ok(programs)
}

/// `path+file:///…/crates/wire#narrows-wire@0.1.0`, or without the name where the directory has it.
fn package_of(id: &str, dir: &Path) -> String {
    let end = id.rsplit('#').next().unwrap_or_default();
    match end.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    }
}

/// One round of one row, added to what earlier rounds found.
fn one(spec: &Spec, options: &Options, round: u64, programs: &Programs, before: Entry) -> Entry {
    let began = Instant::now();
    let env = if options.full {
        &spec.full
    } else {
        &spec.quick
    };
    let value = |value: &String| value.replace("{round}", &(round + 1).to_string());
    let env: Vec<(String, String)> = env
        .iter()
        .map(|(name, text)| (name.clone(), value(text)))
        .collect();
    let first = before.rounds == 0 || !matches!(before.state, State::Passed);
    let mut entry = if first { Entry::default() } else { before };
    entry.note.clear();
    if let Some((_, why)) = env.iter().find(|(name, _)| name == "skip") {
        return Entry {
            state: State::LeftOut,
            note: why.clone(),
            ..entry
        };
    }
    if let Some(why) = &spec.missing {
        return Entry {
            state: State::Missing,
            note: why.clone(),
            ..entry
        };
    }
    let ran = if spec.program.is_empty() {
        let tests = spec.tests.iter();
        tests.map(|test| run_test(test, &env, programs)).collect()
    } else {
        run_program(&spec.program, &env, round).map(|ran| vec![ran])
    };
    entry.seconds += began.elapsed().as_secs_f64();
    entry.stamp();
    match ran {
        Ok(ran) => take(&mut entry, spec, &ran),
        Err(fault) => {
            entry.state = State::Failed;
            entry.note = fault.to_string();
        }
    }
    entry
}

/// What the programs of one round said and how they ended.
fn take(entry: &mut Entry, spec: &Spec, ran: &[Ran]) {
    entry.command = ran
        .iter()
        .map(|ran| ran.command.clone())
        .collect::<Vec<_>>()
        .join("; ");
    for ran in ran {
        counts::add(&mut entry.counts, &spec.says, &ran.said);
    }
    let bad: Vec<&Ran> = ran.iter().filter(|ran| ran.code != Some(0)).collect();
    entry.state = if bad.is_empty() {
        State::Passed
    } else {
        State::Failed
    };
    if bad
        .iter()
        .any(|ran| ran.code == Some(MISSING) || ran.said.contains("ModuleNotFoundError"))
    {
        entry.state = State::Missing;
    }
    entry.note = bad
        .first()
        .map_or_else(String::new, |ran| last_words(&ran.said));
    // What a peer's absence left out is said: it is no failure and no proof.
    let skipped = ran
        .iter()
        .flat_map(|ran| ran.said.lines())
        .filter(|line| line.starts_with("skipped"))
        .count();
    if skipped > 0 {
        entry.note = format!(
            "{skipped} parts skipped for want of a program; {}",
            entry.note
        )
        .trim_end_matches("; ")
        .into();
    }
    entry.rounds += u64::from(bad.is_empty());
}

/// What a program ends with whose peer is not there.
const MISSING: i32 = 77;

struct Ran {
    command: String,
    said: String,
    code: Option<i32>,
}

fn last_words(said: &str) -> String {
    said.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no word")
        .chars()
        .take(160)
        .collect()
}

fn run_test(test: &Test, env: &[(String, String)], programs: &Programs) -> Result<Ran> {
    let key = (test.package.clone(), test.program.clone());
    let (program, dir) = programs
        .get(&key)
        .with_context(|| format!("{} has no test program {}", test.package, test.program))?;
    let mut command = Command::new(program);
    command
        .arg("--nocapture")
        .arg(&test.filter)
        .current_dir(dir);
    let which = if test.program == "lib" {
        "--lib".into()
    } else {
        format!("--test {}", test.program)
    };
    let set: String = env
        .iter()
        .map(|(name, value)| format!("{name}={value} "))
        .collect();
    let told = format!(
        "{set}cargo test -p {} {which} {}",
        test.package, test.filter
    );
    finish(command, env, told.trim_end().into())
}

fn run_program(words: &[String], env: &[(String, String)], round: u64) -> Result<Ran> {
    let fill = |word: &String| {
        let word = word.replace("{round}", &(round + 1).to_string());
        env.iter().fold(word, |word, (name, value)| {
            word.replace(&format!("{{{name}}}"), value)
        })
    };
    let words: Vec<String> = words.iter().map(fill).collect();
    let (program, rest) = words.split_first().context("a program")?;
    let mut command = Command::new(if program.contains('/') {
        Path::new(".").join(program)
    } else {
        program.into()
    });
    command.args(rest);
    finish(command, &[], words.join(" "))
}

/// Runs to the end, or for as long as no row may take; standard output and error come together.
fn finish(mut command: Command, env: &[(String, String)], told: String) -> Result<Ran> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let log = target.join("reliability.log");
    let out = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    command
        .envs(env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    // Harnesses look for a release build; a debug one survives as much.
    let built = ["release/narrows", "debug/narrows"].map(|name| target.join(name));
    if let Some(narrows) = built
        .iter()
        .find(|path| path.exists())
        .filter(|_| std::env::var_os("NARROWS").is_none())
    {
        command.env("NARROWS", narrows);
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {told}"))?;
    let deadline = Instant::now() + LONGEST;
    let code = loop {
        match child.try_wait()? {
            Some(status) => break status.code(),
            None if Instant::now() >= deadline => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    };
    Ok(Ran {
        command: told,
        said: String::from_utf8_lossy(&fs::read(&log)?).into_owned(),
        code,
    })
}

const LONGEST: Duration = Duration::from_secs(3 * 3600);
