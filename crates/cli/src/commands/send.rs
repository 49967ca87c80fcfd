//! `narrows send`

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use narrows::{Auth, Connector, Endpoint, Pairing, dial_once};
use narrows_core::units::{Rate, Size};
use narrows_io::transport::{self, ChildHandle};
use narrows_wire::{
    dialogue::Request,
    keep::Keep,
    send::{self, Moment, Wishes},
    source::{Filter, Source},
};

use super::{
    common,
    options::{Packing, Security, Session},
    remote::{self, Reach},
};
use crate::{
    exit::{LeftOut, Usage},
    links::Links,
    output::{self, Watched},
};

#[derive(Debug, clap::Args)]
#[command(override_usage = "narrows send [OPTIONS] <PATH>... <TO>")]
pub struct Args {
    /// Files and directories, or `-` for standard input; and last, where to: HOST[:PORT], unix:/PATH, or HOST:DIR,
    /// which starts the receiver there over ssh
    // One list: clap cannot part two when flags stand between them.
    #[arg(value_names = ["PATH", "TO"], num_args = 0..)]
    pub paths_and_to: Vec<OsString>,
    /// Be the remote end of `narrows recv HOST:PATH… DIR`: the session is on standard input and output, and all names
    /// are paths
    #[arg(long, hide = true, conflicts_with = "json")]
    pub stdio: bool,
    /// With --stdio: the one path's content as a stream
    #[arg(long, hide = true, requires = "stdio")]
    pub content: bool,
    /// Send no more than so many bits a second on the links, all together: 10mbit
    #[arg(long, value_name = "RATE")]
    pub bwlimit: Option<Rate>,
    /// The one-time code that `narrows recv --code` shows, instead of keys
    #[arg(long, value_name = "CODE", value_parser = code, conflicts_with_all = ["stdio", "tls_certificates", "tls_psk", "insecure"])]
    pub code: Option<Pairing>,
    /// Neither use nor keep what links were measured to carry; ~/.cache/narrows/links has it
    #[arg(long)]
    pub no_cache: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub compare: Compare,
    #[command(flatten)]
    pub kept: Kept,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
}

/// What of the paths is sent.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "What is sent")]
pub struct Choice {
    /// Leave out what fits: a pattern as in .gitignore; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Send what fits though --exclude leaves it out; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Send the paths that this file lists, a line each, by their whole names; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// Paths in that file end with a zero byte, as `find -print0` writes them
    #[arg(long, requires = "files_from")]
    pub from0: bool,
    /// Print what would be sent, and send nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// What becomes of files that are there already. Those of the same length and time are not sent again.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "What is there already")]
pub struct Compare {
    /// Compare files by their content, and not by their time
    #[arg(short = 'c', long)]
    pub checksum: bool,
    /// Leave files alone that are newer there
    #[arg(short = 'u', long)]
    pub update: bool,
    /// Leave files alone that are there
    #[arg(long)]
    pub ignore_existing: bool,
    /// Keep what is cut short, under a hidden name, and continue it the next time
    #[arg(short = 'P', long)]
    pub partial: bool,
}

/// What is kept of files beside content, mode, time and holes. Who owns what, and who may do what with it, is set by a
/// receiver that has the same flags.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "What is kept")]
pub struct Kept {
    /// Keep hard links: names of one file are names of one file there
    #[arg(short = 'H', long)]
    pub hard_links: bool,
    /// Keep access lists, by the numbers of users and groups; where one listens, both ends need this
    #[arg(short = 'A', long)]
    pub acls: bool,
    /// Keep extended attributes, `user.` and for root `trusted.`; where one listens, both ends need this
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// Keep who owns files, by name where there is one (the receiver must be root); both ends need this
    #[arg(short = 'o', long)]
    pub owner: bool,
    /// Keep the group of files, by name where there is one; both ends need this
    #[arg(short = 'g', long)]
    pub group: bool,
    /// Keep owners and groups by number and not by name
    #[arg(long)]
    pub numeric_ids: bool,
}

impl Kept {
    /// What is asked for, or allowed.
    pub fn keep(&self) -> Keep {
        Keep {
            hard_links: self.hard_links,
            user: self.owner,
            group: self.group,
            acls: self.acls,
            attributes: self.xattrs,
        }
    }

    /// The same for a remote end.
    pub fn words(&self) -> impl Iterator<Item = OsString> {
        let flags = [
            (self.hard_links, "--hard-links"),
            (self.acls, "--acls"),
            (self.xattrs, "--xattrs"),
            (self.owner, "--owner"),
            (self.group, "--group"),
            (self.numeric_ids, "--numeric-ids"),
        ];
        flags
            .into_iter()
            .filter(|(set, _)| *set)
            .map(|(_, word)| word.into())
    }
}

impl Compare {
    fn wishes(&self, kept: &Kept) -> Wishes {
        Wishes {
            numeric_ids: kept.numeric_ids,
            request: Request {
                ask: true,
                update: self.update,
                ignore_existing: self.ignore_existing,
                partial: self.partial,
                keep: kept.keep(),
            },
            checksum: self.checksum,
        }
    }

    /// The same for a remote sender.
    pub fn words(&self) -> impl Iterator<Item = OsString> {
        let flags = [
            (self.checksum, "--checksum"),
            (self.update, "--update"),
            (self.ignore_existing, "--ignore-existing"),
            (self.partial, "--partial"),
        ];
        flags
            .into_iter()
            .filter(|(set, _)| *set)
            .map(|(_, word)| word.into())
    }
}

/// What goes out.
enum Goods {
    Stdin,
    Content(PathBuf),
    Files(Source),
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    let (to, paths) = match args.paths_and_to.split_last() {
        _ if args.stdio => (None, &args.paths_and_to[..]),
        Some((to, paths)) => (Some(to.as_os_str()), paths),
        None if args.choice.dry_run => (None, &[][..]),
        None => (None, &[][..]),
    };
    let no_target = to.is_none() && !args.stdio;
    if no_target || (paths.is_empty() && args.choice.files_from.is_none()) {
        return Err(Usage("what to send, and where to? narrows send PATH… HOST".into()).into());
    }
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let goods = goods(&args, &paths)?;
    if let (Goods::Stdin, Some((_, dir))) = (&goods, to.and_then(remote::split)) {
        return Err(stream_to_dir(dir));
    }
    if let Some((_, dir)) = to.and_then(remote::split)
        && dir == "-"
    {
        return Err(stream_to_dir(dir));
    }
    if args.choice.dry_run {
        return dry_run(&goods);
    }
    let engine = common::engine(&args.packing);
    let mut settings = common::settings(&engine, &args.packing, &args.session)?;
    let address = to.and_then(|to| lasting(to, &args));
    let known = || Links::read().filter(|_| !args.no_cache);
    settings.link_bytes_per_s = address.and_then(|address| known()?.rate_of(address));
    let endpoint = match to {
        None => Endpoint::connect(
            &engine,
            settings,
            dial_once(throttled(&args, transport::stdio()?)),
        )?,
        Some(to) => connect(to, &args, &engine, settings)?,
    };
    let endpoint = Arc::new(endpoint);
    common::interruptible(&endpoint)?;
    common::metered(&args.session, &endpoint)?;
    let result = deliver(&args, &endpoint, goods, quiet);
    if let (Some(address), Some(rate), Some(links)) =
        (address, endpoint.link_bytes_per_s(), known())
    {
        links.keep(address, rate);
    }
    result
}

/// The address of a link that is likely to be the same the next time: neither a Unix socket nor a remote shell's nor this
/// host's own, and not made slower by ourselves.
fn lasting<'a>(to: &'a OsStr, args: &Args) -> Option<&'a str> {
    let is_lasting = remote::split(to).is_none() && args.bwlimit.is_none();
    let is_link = |to: &&str| {
        let near = ["unix:", "127.", "localhost", "[::1]", "::1"];
        !near.iter().any(|near| to.starts_with(near)) && !to.contains(char::is_whitespace)
    };
    to.to_str().filter(is_link).filter(|_| is_lasting)
}

fn code(text: &str) -> Result<Pairing, String> {
    Pairing::typed(text).ok_or_else(|| "not a code of eight letters and digits".into())
}

fn stream_to_dir(_: &OsStr) -> anyhow::Error {
    let text = "HOST:DIR takes files into a directory; for a stream start `narrows recv -` there and send to its address";
    Usage(text.into()).into()
}

fn goods(args: &Args, paths: &[PathBuf]) -> anyhow::Result<Goods> {
    if args.content {
        return match paths {
            [path] => Ok(Goods::Content(path.clone())),
            _ => Err(Usage("one file makes one stream".into()).into()),
        };
    }
    let filter = Filter {
        exclude: &args.choice.exclude,
        include: &args.choice.include,
    };
    if let Some(list) = &args.choice.files_from {
        if !paths.is_empty() {
            return Err(Usage("paths, or a list of them: not both".into()).into());
        }
        let mut bytes = Vec::new();
        let read = if list == Path::new("-") {
            io::stdin().read_to_end(&mut bytes)
        } else {
            File::open(list).and_then(|mut file| file.read_to_end(&mut bytes))
        };
        read.with_context(|| format!("cannot read {}", list.display()))?;
        let source = Source::listed(&bytes, args.choice.from0, filter)?;
        return Ok(Goods::Files(source));
    }
    if paths == [Path::new("-")] {
        if io::stdin().is_terminal() {
            let text = "standard input is a terminal; give files, or pipe something in";
            return Err(Usage(text.into()).into());
        }
        return Ok(Goods::Stdin);
    }
    Ok(Goods::Files(Source::named(paths, filter)?))
}

fn dry_run(goods: &Goods) -> anyhow::Result<()> {
    let Goods::Files(source) = goods else {
        return Err(Usage("--dry-run lists files; a stream has none".into()).into());
    };
    let (mut lines, mut bytes, mut files) = (Ok(()), 0, 0_u64);
    source.walk(&mut |name, meta| {
        if lines.is_ok() {
            let mark = if meta.is_dir() { "/" } else { "" };
            lines = output::print(&format!("{}{mark}", name.display()));
        }
        if meta.is_file() {
            (bytes, files) = (bytes + meta.len(), files + 1);
        }
    });
    lines?;
    crate::log::tell!("{files} files, {}; nothing was sent", Size(bytes));
    Ok(())
}

fn throttled(args: &Args, transport: narrows::Transport) -> narrows::Transport {
    match args.bwlimit {
        Some(rate) => transport::throttled(transport, rate.0),
        None => transport,
    }
}

fn connect(
    to: &OsStr,
    args: &Args,
    engine: &narrows::Engine,
    settings: narrows::Settings,
) -> anyhow::Result<Endpoint> {
    if let Some((host, dir)) = remote::split(to) {
        let words = ["recv", "--quiet", "--stdio"].map(OsString::from);
        let last = [OsString::from("--"), remote::quote(dir)];
        let words: Vec<_> = words
            .into_iter()
            .chain(args.kept.words())
            .chain(last)
            .collect();
        let (transport, child): (_, ChildHandle) = args.reach.start(host, &words)?;
        let dial = dial_once(throttled(args, transport));
        return Endpoint::connect(engine, settings, dial)
            .map_err(|error| args.reach.explain(error, host, &child));
    }
    // A path of a Unix socket need not be text, but an address is.
    let to = to
        .to_str()
        .ok_or_else(|| Usage(format!("{} is no address", to.display())))?;
    let share = args
        .bwlimit
        .map(|rate| rate.0 / f64::from(args.session.connections));
    let mut access = common::access(&args.security)?;
    if let Some(pairing) = &args.code {
        access.auth = Auth::Code(pairing.clone());
    }
    let connector = Connector::new(to, access)?.throttled(share);
    Ok(connector.connect(engine, settings)?)
}

fn deliver(args: &Args, endpoint: &Arc<Endpoint>, goods: Goods, quiet: bool) -> anyhow::Result<()> {
    let watched = Watched::start(quiet, endpoint);
    let mut progress = |moment: &Moment<'_>| watched.show(moment);
    let received = match goods {
        Goods::Stdin => {
            let mut input = common::descriptor(&io::stdin())?;
            let sent = send::stream(endpoint, &mut input, &mut progress);
            common::last_words(endpoint, sent)?
        }
        Goods::Content(path) => {
            let mut input =
                File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
            watched.expect(fs::metadata(&path).map_or(0, |meta| meta.len()), 1);
            let sent = send::stream(endpoint, &mut input, &mut progress);
            common::last_words(endpoint, sent)?
        }
        Goods::Files(source) => {
            let source = Arc::new(source);
            watched.count(&source);
            let sent = send::paths(
                endpoint,
                &source,
                &args.compare.wishes(&args.kept),
                &mut progress,
            );
            common::last_words(endpoint, sent)?.received
        }
    };
    drop(watched);
    let transfer = output::Transfer::new("send", received, &endpoint.stats());
    endpoint.close();
    if args.json {
        output::print(&serde_json::to_string(&transfer)?)?;
    } else if !quiet {
        crate::log::tell!("{}", transfer.line());
    }
    LeftOut::check(&[received])
}
