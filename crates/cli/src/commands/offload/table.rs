//! `narrows offload table`: packing here, packing there, and the copying, as published tables of such devices have it.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use narrows_core::units::Size;
use narrows_lab::{
    result::{Case, Origin, Row, Run},
    sample,
    trial::digits,
};
use narrows_offload::{Method, Options, Report, file};

use super::{
    super::{
        common,
        lab::{self, Out},
        options::Security,
    },
    Desk, JobOptions, options,
};
use crate::{exit::Usage, output};

/// A published BlueField-2 run of 100 MB through its DEFLATE engine, in seconds: there and back, packing, all of it.
///
/// The steps come one after the other there; here they overlap.
const PUBLISHED: (f64, f64, f64) = (0.190, 0.128, 0.330);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files to pack, each for itself; a bundled sample of real data if none are given
    pub files: Vec<PathBuf>,
    /// Codecs with their levels
    #[arg(
        long = "codec",
        value_name = "NAME:LEVEL,…",
        value_delimiter = ',',
        default_value = "deflate:6,zstd:3,deflate:1,lz4:0"
    )]
    pub codecs: Vec<String>,
    /// Length of a block, 4K to 8M
    #[arg(long, value_name = "SIZE")]
    pub block: Option<Size>,
    /// Rounds; figures are medians
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub repeat: u16,
    /// Directory for what is packed, which is removed again; the system's for temporary files if not given
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    #[command(flatten)]
    pub job: JobOptions,
    #[command(flatten)]
    pub security: Security,
    #[command(flatten)]
    pub out: Out,
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    lab::places_of(&args.out)?;
    if args.job.to.is_none() {
        return Err(Usage(
            "what a server does is what is compared here; name one with --to".into(),
        )
        .into());
    }
    args.files
        .iter()
        .try_for_each(|path| file::readable(path))?;
    let settings = args
        .codecs
        .iter()
        .map(|text| setting(text, args))
        .collect::<Result<Vec<_>, _>>()?;
    let desk = Desk::new(&args.job, &args.security)?;
    let scratch = Scratch::make(args.scratch.as_deref())?;
    let files = if args.files.is_empty() {
        vec![scratch.sample()?]
    } else {
        args.files.clone()
    };
    let mut run = Run::new(Origin::now("offload", &common::command_line(), Vec::new()));
    let bar = output::bar(quiet);
    bar.set_length((files.len() * settings.len() * usize::from(args.repeat)) as u64);
    for path in &files {
        for setting in &settings {
            let mut rounds = Vec::new();
            for _ in 0..args.repeat {
                bar.set_message(format!("{}, {}", path.display(), setting.0));
                rounds.push(Round::measure(&desk, &setting.1, path, &scratch.0)?);
                bar.inc(1);
            }
            run.rows.push(row(path, setting, &rounds));
        }
    }
    bar.finish_and_clear();
    if lab::deliver(&args.out, &run, quiet)? {
        Ok(())
    } else {
        print(&run, &settings)
    }
}

/// A codec with its level, and the job that follows.
fn setting(text: &str, args: &Args) -> Result<(String, Options), Usage> {
    let (name, level) = text
        .split_once(':')
        .map_or((text, None), |(name, level)| (name, Some(level)));
    let fault = || {
        Usage(format!(
            "`{text}` is no codec of this table; there are deflate:6, zstd:3, lz4:0"
        ))
    };
    let method = [Method::Deflate, Method::Zstd, Method::Lz4]
        .into_iter()
        .find(|method| method.name() == name);
    let level = level.map(str::parse).transpose().map_err(|_| fault())?;
    // What a length suits one file format suits the others.
    Ok((
        text.into(),
        options(method.ok_or_else(fault)?, level, args.block, &args.job)?,
    ))
}

/// One file, packed here, copied, and packed there.
struct Round {
    here: Report,
    copy: Report,
    there: Report,
}

impl Round {
    fn measure(
        desk: &Desk,
        options: &Options,
        path: &Path,
        scratch: &Path,
    ) -> anyhow::Result<Self> {
        let to = scratch.join("packed");
        let local = Desk {
            engine: desk.engine.clone(),
            way: None,
            settings: desk.settings.clone(),
        };
        let here = local.run(options, |job| file::pack(job, path, &to))?;
        let there = desk.run(options, |job| file::pack(job, path, &to))?;
        let back = there.packed_bytes as f64 / there.raw_bytes.max(1) as f64;
        let copy = desk.run(options, |job| file::copy(job, path, back))?;
        Ok(Self { here, copy, there })
    }
}

fn row(path: &Path, (name, options): &(String, Options), rounds: &[Round]) -> Row {
    let median = |of: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (here_s, copy_s) = (
        median(|round| round.here.total_s),
        median(|round| round.copy.total_s),
    );
    let (device_s, total_s) = (
        median(|round| round.there.device_s),
        median(|round| round.there.total_s),
    );
    let there = &rounds[0].there;
    let case = Case {
        part: Some("table".into()),
        data: Some(
            path.file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy()
                .into_owned(),
        ),
        data_bytes: Some(there.raw_bytes),
        codec: Some(name.clone()),
        chunk_bytes: Some(options.block_len as u64),
        threads: there
            .server
            .as_ref()
            .map(|(.., workers)| u64::from(*workers)),
        ..Case::default()
    };
    let mut row = Row::new(
        case,
        [
            ("here_s", here_s),
            ("device_s", device_s),
            ("copy_and_back_s", copy_s),
            ("turn_around_s", total_s),
            ("over_slowest_part", total_s / copy_s.max(device_s)),
            ("packed_bytes", there.packed_bytes as f64),
            ("ratio", there.ratio()),
            ("here_cpu_s", median(|round| round.here.client_cpu_s)),
            ("client_cpu_s", median(|round| round.there.client_cpu_s)),
            (
                "spilled_blocks",
                rounds
                    .iter()
                    .map(|round| round.there.spilled.total())
                    .sum::<u64>() as f64,
            ),
        ],
    );
    if let Some((backend, ..)) = &there.server {
        row.marks.insert(format!("by {backend}"));
    }
    row.marks
        .insert(format!("here by {}", rounds[0].here.own_backend));
    row
}

fn print(run: &Run, settings: &[(String, Options)]) -> anyhow::Result<()> {
    for rows in run.rows.chunks(settings.len()) {
        let case = &rows[0].case;
        let bytes = case.data_bytes.unwrap_or(0) as f64;
        let mut table = Table::new();
        let header = [
            "codec",
            "here s",
            "device s",
            "copy s",
            "turn-around s",
            "over slowest",
            "MB",
            "%",
            "CPU here s",
            "CPU s",
            "by",
        ];
        table.load_style(NOTHING).set_header(header);
        for column in table.column_iter_mut().skip(1).take(9) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for row in rows {
            let value = |name| row.value(name).unwrap_or(f64::NAN);
            let s = |name| format!("{:.3}", value(name));
            let by = row
                .marks
                .iter()
                .find_map(|mark| mark.strip_prefix("by "))
                .unwrap_or("nobody");
            let here = row
                .marks
                .iter()
                .find_map(|mark| mark.strip_prefix("here by "))
                .unwrap_or("nobody");
            table.add_row([
                row.case.codec.clone().unwrap_or_default(),
                s("here_s"),
                s("device_s"),
                s("copy_and_back_s"),
                s("turn_around_s"),
                format!("{:.2}", value("over_slowest_part")),
                digits(value("packed_bytes") / 1e6),
                format!("{:.1}", value("packed_bytes") * 100.0 / bytes.max(1.0)),
                s("here_cpu_s"),
                s("client_cpu_s"),
                format!("{by} (here {here})"),
            ]);
        }
        output::print(&format!(
            "{}, {} MB",
            case.data.as_deref().unwrap_or("data"),
            digits(bytes / 1e6)
        ))?;
        output::print(&format!("{table}\n"))?;
    }
    let (copy, device, total) = PUBLISHED;
    output::print(&format!(
        "here: packed by this machine alone. device: the server's workers, all at once. copy: the same bytes there and back,\n\
         nothing being packed. Published for a BlueField-2 and DEFLATE, 100 MB: device {device:.3}, copy {copy:.3}, turn-around \
         {total:.3} s ({:.2} over slowest).",
        total / copy.max(device),
    ))
}

/// A directory that nobody else enters, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn make(dir: Option<&Path>) -> anyhow::Result<Self> {
        let dir = dir.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = dir.join(format!("narrows-offload-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    fn sample(&self) -> anyhow::Result<PathBuf> {
        let path = self.0.join("sample");
        fs::write(&path, sample::unpack())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
