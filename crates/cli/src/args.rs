//! The command line. Flag beats environment (`NARROWS_…`) beats default.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use narrows::core::units::{Rate, Size};
use narrows_lab::{
    race::{Contestant, LinkSpec},
    synthetic::Kind,
};

/// Adaptive, parallel lossless compression for data paths.
#[derive(Debug, Parser)]
#[command(name = "narrows", version, after_help = crate::exit::HELP, propagate_version = true)]
pub struct Args {
    /// Say more on stderr (twice: even more)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Only errors on stderr, no progress
    #[arg(short, long, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send files, directories or standard input to a receiver
    Send(Send),
    /// Receive files into a directory, or a stream to standard output
    Recv(Recv),
    /// Carry TCP or Unix connections of other programs through one compressed session
    Tunnel(Tunnel),
    /// Move a running virtual machine between two QEMUs through a compressed session
    #[command(subcommand)]
    Migrate(Migrate),
    /// Pack files on a host that has the accelerators, into files that gzip, zstd and lz4 read
    #[command(subcommand)]
    Offload(Offload),
    /// List every codec and backend: available, chosen, or why not
    Codecs(Codecs),
    /// Emulate a slow link: relay connections at a rate and delay
    LinkEmulator(LinkEmulator),
    /// Race policies over emulated links with your data, and make a report with pictures
    Try(Try),
    /// A RAM disk that holds several times its memory, served over NBD
    Memory(Memory),
    /// Measure codecs on your data: ratio, speed, processor time, memory
    Bench(Bench),
    /// Say what to send your data with over a link, from seconds of calibration; and try whether that holds
    Advise(Advise),
    /// Measure the published study again: threads × chunks × lengths × codecs × data × links
    Study(Study),
    /// Reckon what compressing storage or a link costs and saves over the years
    Tco(Tco),
    /// Make one offline HTML file with pictures of any results
    Report(Report),
    /// Write generated data: the kinds of the published study
    Gen(Gen),
    /// Make keys: certificates for TLS and a pre-shared key
    Keys(Keys),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Write the manual pages
    #[command(hide = true)]
    Man(Man),
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "narrows send [OPTIONS] <PATH>... <TO>")]
pub struct Send {
    /// Files and directories, or `-` for standard input; and last, where to: HOST[:PORT], unix:/PATH, or HOST:DIR, which
    /// starts the receiver there over ssh
    // One list: clap cannot part two when flags stand between them.
    #[arg(required = true, value_names = ["PATH", "TO"], num_args = 1..)]
    pub paths_and_to: Vec<OsString>,
    /// Program that reaches the remote host for HOST:DIR
    #[arg(long, default_value = "ssh", value_name = "COMMAND", env = "NARROWS_RSH")]
    pub rsh: String,
    /// The narrows program on the remote host
    #[arg(long, default_value = "narrows", value_name = "PATH")]
    pub remote_program: String,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Recv {
    /// Directory to receive into (made if absent), or `-` for a stream to standard output
    #[arg(default_value = ".")]
    pub into: PathBuf,
    /// Address to listen on: HOST[:PORT] or unix:/PATH
    #[arg(short, long, default_value = "127.0.0.1:4242", env = "NARROWS_LISTEN")]
    pub listen: String,
    /// Be the remote end of `narrows send … HOST:DIR`: the session is on standard input and output
    #[arg(long, conflicts_with_all = ["listen", "keep"])]
    pub stdio: bool,
    /// Receive a stream, check it and throw it away; the result says its XXH3-64. For measuring
    #[arg(long, conflicts_with_all = ["into", "stdio"])]
    pub discard: bool,
    /// Go on receiving until interrupted, instead of ending after one transfer
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
    /// Print the result as JSON, a line for each transfer
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Near the program:  narrows tunnel --listen 127.0.0.1:5432 --peer HOST:4242
Near the server:   narrows tunnel --listen 0.0.0.0:4242 --to 127.0.0.1:5432")]
pub struct Tunnel {
    /// Address to listen on: for programs (with --peer), or for the other end (with --to)
    #[arg(short, long)]
    pub listen: String,
    /// The other end of the tunnel; makes this the near end
    #[arg(long, conflicts_with = "to", required_unless_present = "to")]
    pub peer: Option<String>,
    /// The server that connections are for; makes this the far end
    #[arg(long)]
    pub to: Option<String>,
    /// Connections open at once, at most
    #[arg(long, default_value_t = 256)]
    pub connections_max: u16,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
}

#[derive(Debug, Subcommand)]
pub enum Migrate {
    /// Beside the destination: take migrations and hand them to its QEMU
    Serve(MigrateServe),
    /// Beside the source: move its guest now, and print what that took
    Run(MigrateRun),
    /// Beside the source: a socket that QEMU, libvirt or a script migrates to
    Tunnel(MigrateTunnel),
    /// Ask a `run`, `tunnel` or `serve` with --status how far it is
    Status(MigrateStatus),
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Beside the destination:  qemu-system-x86_64 … -incoming defer -S -qmp unix:/run/d.qmp,server,nowait
                         narrows migrate serve --listen 0.0.0.0:4242 --to unix:/run/d.sock --qmp unix:/run/d.qmp
Beside the source:       narrows migrate run --qmp unix:/run/s.qmp --to HOST

A QEMU started with -S lets its guest run only when the source has let go of it: the guest never runs twice."
)]
pub struct MigrateServe {
    /// Address to listen on, for the source's side
    #[arg(short, long, default_value = "127.0.0.1:4242", env = "NARROWS_LISTEN")]
    pub listen: String,
    /// Where the destination's QEMU waits for a migration; with --qmp it is told to
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
    /// QMP socket of the destination's QEMU: it is set up as the source's is. Start it with `-incoming defer`
    #[arg(long, value_name = "ADDRESS")]
    pub qmp: Option<String>,
    #[command(flatten)]
    pub carrying: Carrying,
    #[command(flatten)]
    pub security: Security,
}

#[derive(Debug, ClapArgs)]
pub struct MigrateRun {
    /// QMP socket of the source's QEMU
    #[arg(long, value_name = "ADDRESS")]
    pub qmp: String,
    /// The destination's `narrows migrate serve`: HOST[:PORT]
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
    /// Multifd channels; 0 sends everything over one
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=32))]
    pub channels: u8,
    /// How long the guest may stand still, in milliseconds; QEMU's setting if not given
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub downtime_ms: Option<Duration>,
    /// Most that QEMU may send, `800mbit`; no limit if not given
    #[arg(long, value_name = "RATE")]
    pub max_bandwidth: Option<Rate>,
    /// A capability to switch on at both sides: `auto-converge`, `zero-copy-send`, … May be given again
    #[arg(long = "capability", value_name = "NAME")]
    pub capabilities: Vec<String>,
    /// Address that QEMU connects to here; a Unix socket in a directory of its own if not given
    #[arg(short, long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    #[command(flatten)]
    pub carrying: Carrying,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub security: Security,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Then, in the source's QEMU: migrate-set-capabilities return-path on, multifd as you like; and
migrate unix:/run/s.sock. Set avail-switchover-bandwidth (QEMU 8.2) to the number of bytes a second that
`narrows migrate status` shows, or give --pace.")]
pub struct MigrateTunnel {
    /// Address to listen on for the source's QEMU: one for each virtual machine
    #[arg(short, long)]
    pub listen: String,
    /// The destination's `narrows migrate serve`: HOST[:PORT]
    #[arg(long, value_name = "ADDRESS")]
    pub peer: String,
    /// Take in no more than what the link carries of it, for a QEMU that was not told the link's rate
    #[arg(long)]
    pub pace: bool,
    /// How long the guest may stand still, in milliseconds: what QEMU was given
    #[arg(long, value_name = "MS", default_value = "300", value_parser = milliseconds)]
    pub downtime_ms: Duration,
    #[command(flatten)]
    pub carrying: Carrying,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub security: Security,
}

#[derive(Debug, ClapArgs)]
pub struct MigrateStatus {
    /// Address that was given to --status
    pub at: String,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// How a migration is carried.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Carrying")]
pub struct Carrying {
    /// Carry multifd packets as any bytes: leave no page out, send no differences
    #[arg(long)]
    pub opaque: bool,
    /// Seconds a cut session waits for its peer before the migration is given up
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub resume_within: Duration,
    /// Seconds of silence after which a link counts as cut
    #[arg(long, default_value = "6", value_name = "SECONDS", value_parser = seconds)]
    pub silence: Duration,
    /// Answer `narrows migrate status` at this address
    #[arg(long, value_name = "ADDRESS")]
    pub status: Option<String>,
}

/// How to pack.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Packing")]
pub struct Packing {
    /// How to choose codecs
    #[arg(long, value_enum, default_value_t, env = "NARROWS_POLICY")]
    pub policy: PolicyName,
    /// Codec of the fixed and naive policies, with its level: `zstd:3`, `lz4`. Alone it means --policy fixed
    #[arg(long, value_name = "NAME[:LEVEL]", env = "NARROWS_CODEC")]
    pub codec: Option<String>,
    /// Threads that pack and unpack; 0 means one for each processor
    #[arg(short = 'T', long, default_value_t = 0, env = "NARROWS_THREADS")]
    pub threads: usize,
    /// Length of chunks, 512 to 16M; the policy's choice if not given
    #[arg(long, value_name = "SIZE")]
    pub chunk: Option<Size>,
    /// Chunks under way at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: u16,
    /// Send what the codec made even where it is no smaller (the published pipeline's plain variant)
    #[arg(long)]
    pub keep_larger: bool,
    /// What a second of processor time is worth, in seconds of the link's: 0 spends whatever saves time, 0.1 wants one second
    /// saved for ten spent. [default: 0; 0.1 for a migration, whose processors are other guests']
    #[arg(long, value_name = "SECONDS", value_parser = price)]
    pub cpu_price: Option<f64>,
    /// Pack every chunk on its own, without reference to those before it
    #[arg(long)]
    pub no_history: bool,
    /// Write each decision, its estimate and its outcome to this file as JSON Lines
    #[arg(long, value_name = "FILE")]
    pub explain: Option<PathBuf>,
}

/// A policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PolicyName {
    /// Follow link, processors and data, chunk by chunk
    #[default]
    Adaptive,
    /// Send raw
    None,
    /// The whole message packed, then sent, then unpacked
    Naive,
    /// One codec and level for all
    Fixed,
}

/// What the session may hold and how it recovers.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Session")]
pub struct Session {
    /// TCP connections to stripe over
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,
    /// Packed bytes the sender may have outstanding, per channel
    #[arg(long, default_value = "16M", value_name = "SIZE")]
    pub window: Size,
    /// Seconds a cut session waits for its peer
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub resume_within: Duration,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS", env = "NARROWS_METRICS")]
    pub metrics: Option<String>,
}

/// Who may talk to whom. Anything but loopback and Unix sockets needs one of these.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Security")]
pub struct Security {
    /// Mutual TLS 1.3 with the certificates in this directory (ca-cert.pem, server-cert.pem, …)
    #[arg(long, value_name = "DIR", env = "NARROWS_TLS_CERTIFICATES")]
    pub tls_certificates: Option<PathBuf>,
    /// Name the server's certificate must carry, if not the host connected to
    #[arg(long, value_name = "NAME", requires = "tls_certificates")]
    pub tls_hostname: Option<String>,
    /// Pre-shared key file, lines of `user:hex`
    #[arg(long, value_name = "FILE", conflicts_with = "tls_certificates", env = "NARROWS_TLS_PSK")]
    pub tls_psk: Option<PathBuf>,
    /// Whose key of the file; the first if not given
    #[arg(long, value_name = "USER", requires = "tls_psk")]
    pub psk_user: Option<String>,
    /// Allow a plain connection beyond this host: anybody on the way can read and change the data
    #[arg(long)]
    pub insecure: bool,
}

#[derive(Debug, Subcommand)]
pub enum Offload {
    /// On the host with the accelerators: pack and unpack for others
    Serve(OffloadServe),
    /// Have a file packed there, check what comes back, and write a file that gzip, zstd or lz4 reads
    Pack(OffloadPack),
    /// Have such a file unpacked there
    Unpack(OffloadUnpack),
    /// Measure packing here, packing there, and the copying, side by side
    Table(OffloadTable),
}

#[derive(Debug, ClapArgs)]
pub struct OffloadServe {
    /// Address to listen on: HOST[:PORT] or unix:/PATH
    #[arg(short, long, default_value = "127.0.0.1:4242", env = "NARROWS_LISTEN")]
    pub listen: String,
    /// Blocks worked on at once; one for each processor if not given, more where a device does the work
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Blocks that one client may have under way; twice the workers and four if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: Option<u16>,
    /// Most memory that all jobs together may come to hold; a job beyond it is refused
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub memory: Size,
    /// Clients connected at once, at most
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub clients_max: u16,
    /// Seconds after which a block that waits for a worker goes back undone, for its client to pack
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub queue_max: Duration,
    #[command(flatten)]
    pub security: Security,
    /// Print where it listens and what it has as JSON
    #[arg(long)]
    pub json: bool,
}

/// How a job is done.
#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Job")]
pub struct Offloading {
    /// The server: `narrows offload serve` at HOST[:PORT] or unix:/PATH
    #[arg(long, value_name = "ADDRESS", required_unless_present = "local")]
    pub to: Option<String>,
    /// Do everything here, in the same way
    #[arg(long, conflicts_with = "to")]
    pub local: bool,
    /// Threads that check what comes back, and pack what the server does not; 0 means one for each processor
    #[arg(short = 'T', long, default_value_t = 0, env = "NARROWS_THREADS")]
    pub threads: usize,
    /// Do not unpack and compare what comes back: a wrong block is found by whoever unpacks the file
    #[arg(long)]
    pub no_verify: bool,
    /// Seconds the server may owe a block before this side helps; if not given, four times what this side would take, and
    /// a quarter of a second at least
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub spill_after: Option<Duration>,
    /// Fail where the server cannot do a block, instead of doing it here
    #[arg(long, conflicts_with = "spill_after")]
    pub no_spill: bool,
    /// Seconds a cut session waits for the server
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub resume_within: Duration,
}

#[derive(Debug, ClapArgs)]
pub struct OffloadPack {
    /// File to pack
    pub file: PathBuf,
    /// What to pack with; the file ends in .gz, .zst or .lz4
    #[arg(long, value_enum, default_value_t)]
    pub codec: MethodName,
    /// How hard: deflate 0..12, zstd -200..22, lz4 -64..12; 6, 3 and 0 if not given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub level: Option<i16>,
    /// Length of a block, 4K to 8M; lz4 files have blocks of 64K, 256K, 1M or 4M
    #[arg(long, value_name = "SIZE")]
    pub block: Option<Size>,
    /// Where the result goes; beside the file if not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,
    /// Before, send the same bytes to be copied only: what of the turn-around is the link's
    #[arg(long, conflicts_with = "local")]
    pub copy: bool,
    #[command(flatten)]
    pub job: Offloading,
    #[command(flatten)]
    pub security: Security,
    /// Print the result as JSON Lines, `narrows.result/1`
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct OffloadUnpack {
    /// File to unpack: one that `narrows offload pack` wrote, or another whose blocks can be found
    pub file: PathBuf,
    /// Where the result goes; the name without its ending if not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub job: Offloading,
    #[command(flatten)]
    pub security: Security,
    /// Print the result as JSON Lines, `narrows.result/1`
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct OffloadTable {
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
    pub job: Offloading,
    #[command(flatten)]
    pub security: Security,
    #[command(flatten)]
    pub out: Out,
}

/// A method by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum MethodName {
    /// gzip files
    #[default]
    #[value(alias = "gzip")]
    Deflate,
    /// zstd files
    Zstd,
    /// LZ4 files
    Lz4,
}

#[derive(Debug, ClapArgs)]
pub struct Codecs {
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct LinkEmulator {
    /// Address to listen on
    #[arg(short, long)]
    pub listen: String,
    /// Where the link leads
    #[arg(long)]
    pub to: String,
    /// Rate each way, `100mbit`; unlimited if not given
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Delay each way, in milliseconds
    #[arg(long, default_value = "0", value_parser = milliseconds)]
    pub delay_ms: Duration,
    /// Most additional delay each way, in milliseconds; bytes stay in order
    #[arg(long, default_value = "0", value_parser = milliseconds)]
    pub jitter_ms: Duration,
    /// Reset the connections after this many bytes towards the target
    #[arg(long, value_name = "SIZE")]
    pub reset_after: Option<Size>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Runs both ends on this machine, over a link it emulates; needs no root and no set-up. A link takes up to a
minute and a half with the defaults."
)]
pub struct Try {
    /// Files and directories to send, as one stream; a bundled sample of real data if none are given
    pub paths: Vec<PathBuf>,
    /// Links to race over: rates, or `none` for no limit
    #[arg(long, value_name = "RATE,…", default_value = "100mbit", value_delimiter = ',')]
    pub link: Vec<LinkSpec>,
    /// Delay each way, in milliseconds
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    pub delay_ms: Duration,
    /// Who races: none, adaptive, naive:CODEC, or a codec for all chunks (`zstd:3`); a choice of them if not given
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    pub race: Vec<Contestant>,
    /// Rounds; results are medians
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Seconds that sending raw may take on a link: a slow link gets an excerpt of the data, spread evenly
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub seconds: Duration,
    /// Most bytes a link gets
    #[arg(long, default_value = "256M")]
    pub size: Size,
    /// Threads of each end; 0 means one for each processor
    #[arg(short = 'T', long, default_value_t = 0)]
    pub threads: usize,
    /// Add the results to this file, as lines of `narrows.result/1`
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "narrows-try.html")]
    pub report: PathBuf,
    /// Make no report
    #[arg(long, conflicts_with = "report")]
    pub no_report: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Files may be any: dumps of memory, disk images, data. Generated ones have names: jacobi:sine:LINES:ITERATIONS,
jacobi:borders:LINES:ITERATIONS, hpcg:SIDE:ITERATIONS, table:ROWS, noise:PAGES."
)]
pub struct BenchPages {
    /// Files whose pages are packed; with --paper NAME=FILE for data that cannot be made here: linux, isabel-p, isabel-tc,
    /// isabel-cloud
    #[arg(required_unless_present = "paper")]
    pub files: Vec<String>,
    /// Make the published tables again, with what was published beside
    #[arg(long)]
    pub paper: bool,
    /// Who packs: lz4, lzo, zstd-1, zstd-3, deflate-6, 842, zbewalgo, zbewalgo:STEPS, fast, balanced, ratio, chain:STEPS;
    /// all without steps if not given
    #[arg(long = "codec", value_name = "NAME,…", value_delimiter = ',')]
    pub codecs: Vec<String>,
    /// Also each chain of zBeWalgo and each of ours alone
    #[arg(long)]
    pub every_chain: bool,
    /// Also the kernel's /dev/zram0 with each algorithm it has; needs root and that nobody uses it
    #[arg(long)]
    pub zram: bool,
    /// The device that holds what memory does not: hdd (100 MB/s), ssd (500 MB/s), or bytes a second
    #[arg(long, default_value = "hdd", value_name = "DEVICE", value_parser = backing)]
    pub backing: Rate,
    /// Pages of each file, in 16 contiguous runs if it has more
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    pub pages: u32,
    /// Threads that share the pages; /dev/zram0 has one all the same
    #[arg(short = 'T', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub threads: u32,
    /// Longest packed page worth storing; longer ones count as 4096 bytes
    #[arg(long, default_value = "3264", value_name = "SIZE")]
    pub limit: Size,
    /// Rounds; speeds are medians
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    pub what: Option<BenchWhat>,
    #[command(flatten)]
    pub codecs: BenchCodecs,
}

#[derive(Debug, Subcommand)]
pub enum BenchWhat {
    /// Codecs on files; what `bench` does where nothing else is named
    Codecs(BenchCodecs),
    /// Pages of memory, 4 KiB each and packed alone: every page codec, zBeWalgo and our profiles
    Pages(BenchPages),
}

#[derive(Debug, ClapArgs)]
pub struct BenchCodecs {
    /// Files and directories, as one stream; a bundled sample of real data if none are given
    pub paths: Vec<PathBuf>,
    /// Codecs: `zstd:3`, a range of levels `zstd:1..9`, or all; a choice of them if not given
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',')]
    pub codec: Vec<String>,
    /// Lengths of chunks
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "64K,1M")]
    pub chunk: Vec<Size>,
    /// Numbers of threads; 1 and one for each processor if not given
    #[arg(short = 'T', long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Vec<u64>,
    /// Bytes before a chunk that it may refer to
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub history: Size,
    /// Seconds that packing is repeated, and unpacking again; the fastest pass counts
    #[arg(long, default_value = "0.2", value_parser = seconds)]
    pub seconds: Duration,
    /// Most bytes to measure on, spread evenly over all
    #[arg(long, default_value = "16M")]
    pub size: Size,
    /// Measure each file for itself
    #[arg(long)]
    pub each: bool,
    #[command(flatten)]
    pub out: Out,
    /// Be the process that measures one case of standard input
    #[arg(long, hide = true, value_name = "JSON")]
    pub worker: Option<String>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The whole study has some ten thousand transfers. To share it among machines:  narrows study --shard 0/4 --results part0.jsonl  and so
on; then  narrows report part*.jsonl. A study that was cut goes on where its --results file ends."
)]
pub struct Study {
    /// Three minutes' worth: ends and middles of the axes
    #[arg(long)]
    pub quick: bool,
    /// Real data beside the generated kinds, as `traced`: buffers of a training for instance (bench/study/capture.py)
    #[arg(long, value_name = "FILE")]
    pub traced: Vec<PathBuf>,
    /// Only this part of the cells: 0/4 is the first of four
    #[arg(long, value_name = "I/N", default_value = "0/1", value_parser = shard)]
    pub shard: (usize, usize),
    /// Begin no case after this many minutes
    #[arg(long, value_name = "N")]
    pub minutes: Option<f64>,
    /// Seed of generated data
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Where rows go as they are measured; what it holds already is not measured again
    #[arg(long, value_name = "FILE", default_value = "narrows-study.jsonl")]
    pub results: PathBuf,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "narrows-study.html")]
    pub report: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct Advise {
    /// Files and directories to send, as one stream; a bundled sample of real data if none are given
    pub paths: Vec<PathBuf>,
    /// What the link carries, `100mbit`, or none for no limit
    #[arg(long, value_name = "RATE")]
    pub link: LinkSpec,
    /// Milliseconds there and back
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    pub rtt: Duration,
    /// Processors of each end; those of this machine if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cpu: Option<u16>,
    /// What counts
    #[arg(long, value_enum, default_value_t)]
    pub goal: GoalName,
    /// Codecs to weigh besides raw and adaptive; a choice of them if not given
    #[arg(long, value_name = "CODEC,…", value_delimiter = ',')]
    pub codec: Vec<String>,
    /// Run the choice over an emulated link, both ends on this machine, and say how far off the prediction was
    #[arg(long)]
    pub verify: bool,
    /// Run every setting, and say how far the choice is from the best
    #[arg(long, conflicts_with = "verify")]
    pub sweep: bool,
    /// Times that each is run
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub repeat: u16,
    /// Seconds that sending raw takes in a verification: a slow link gets an excerpt of the data
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub seconds: Duration,
    #[command(flatten)]
    pub out: Out,
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum GoalName {
    /// The shortest transfer
    #[default]
    Time,
    /// Little processor time, nearly as fast
    Cpu,
    /// Egress and processors, at the prices of `narrows tco link`
    Cost,
}

/// Where results go.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Results")]
pub struct Out {
    /// Add the results to this file, as lines of `narrows.result/1`
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Make a report with pictures
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print the results as JSON Lines
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Without inputs it reckons a published example: zstd on storage servers against drives that compress. To change
any number:  narrows tco --print-inputs > mine.toml;  narrows tco --inputs mine.toml --report tco.html"
)]
pub struct Tco {
    /// What to reckon: storage servers, or a link
    #[arg(value_enum, default_value_t)]
    pub what: TcoWhat,
    /// TOML file with every input, its unit, range and source
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
    /// Change one input: `usd_per_kwh=0.3`, `link.ratio=2`; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Take ratio and processor time from results of `narrows bench`, as a design of its own
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Which codec of the results; the one with the best ratio among the fastest if not given
    #[arg(long, value_name = "NAME:LEVEL", requires = "results")]
    pub codec: Option<String>,
    /// Length of chunks of those results
    #[arg(long, value_name = "SIZE", requires = "results")]
    pub chunk: Option<Size>,
    /// Print the inputs, to be changed
    #[arg(long)]
    pub print_inputs: bool,
    /// Make a report with pictures
    #[arg(long, visible_alias = "html", value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// What to reckon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TcoWhat {
    /// Storage servers over their years
    #[default]
    Storage,
    /// A month of transfers over a link
    Link,
}

#[derive(Debug, ClapArgs)]
pub struct Report {
    /// Files of results, as --results of other commands writes them
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// Where the report goes
    #[arg(short, long, value_name = "FILE", default_value = "narrows-report.html")]
    pub output: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct Gen {
    /// lineal (consecutive 32-bit integers), random, or sparse (runs of zeros and of random bytes)
    pub kind: Kind,
    /// How many bytes: 64K, 100M, 2G
    pub size: Size,
    /// The same seed always gives the same bytes
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// File to write; standard output if not given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct Memory {
    #[command(subcommand)]
    pub command: MemoryCommand,
}

#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Serve a RAM disk of packed pages until interrupted; its content ends with it
    Serve(Box<MemoryServe>),
    /// Show what a RAM disk holds, costs and does
    Stat(MemoryStat),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Use it:   nbdinfo nbd://localhost          nbdcopy FILE nbd://localhost
Mount it: mkdir /tmp/nbd; nbdfuse /tmp/nbd nbd://localhost &
          losetup --find --show /tmp/nbd/nbd       then mkfs and mount what it prints")]
pub struct MemoryServe {
    /// Size of the device: 512M, 8G
    #[arg(long)]
    pub size: Size,
    /// Most memory for its pages; beyond it writes fail with ENOSPC, and nothing written before is lost
    #[arg(long, value_name = "SIZE")]
    pub mem_limit: Option<Size>,
    /// Name of its export; nameless if not given
    #[arg(long, default_value = "", value_name = "NAME")]
    pub name: String,
    /// One more device under a name of its own, within the same memory limit; may be repeated
    #[arg(long = "export", value_name = "NAME=SIZE", value_parser = export)]
    pub exports: Vec<(String, Size)>,
    /// TCP address to listen on: HOST[:PORT]
    #[arg(
        short,
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:10809",
        default_value_if("unix", clap::builder::ArgPredicate::IsPresent, None),
        env = "NARROWS_MEMORY_LISTEN"
    )]
    pub listen: Option<String>,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// How hard to pack as pages are written
    #[arg(long, value_enum, default_value_t)]
    pub profile: ProfileName,
    /// File or block device for pages that do not pack, and for cold ones while memory is short
    #[arg(long, value_name = "FILE")]
    pub backing: Option<PathBuf>,
    /// Most bytes of the backing file
    #[arg(long, value_name = "SIZE", requires = "backing")]
    pub backing_size: Option<Size>,
    /// Seconds after which an untouched page is cold, and packed harder
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub idle_after: Duration,
    /// Leave cold pages as they were written
    #[arg(long)]
    pub no_recompress: bool,
    /// Connections open at once, at most
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub connections_max: u16,
    /// Socket that `narrows memory stat` asks
    #[arg(long, value_name = "PATH", env = "NARROWS_MEMORY_CONTROL")]
    pub control: Option<PathBuf>,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS", env = "NARROWS_METRICS")]
    pub metrics: Option<String>,
    /// Mutual TLS 1.3 with the certificates in this directory (ca-cert.pem, server-cert.pem, server-key.pem)
    #[arg(long, value_name = "DIR", env = "NARROWS_TLS_CERTIFICATES")]
    pub tls_certificates: Option<PathBuf>,
    /// Allow plain connections from beyond this host: anybody on the way can read and change the data
    #[arg(long)]
    pub insecure: bool,
    /// Print where it listens as JSON
    #[arg(long)]
    pub json: bool,
}

/// A profile of the packer by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ProfileName {
    /// Least processor time; cold pages are packed harder later
    #[default]
    Fast,
    /// Between the two
    Balanced,
    /// Least memory
    Ratio,
}

#[derive(Debug, ClapArgs)]
pub struct MemoryStat {
    /// Socket of the server: its --control
    #[arg(long, value_name = "PATH", env = "NARROWS_MEMORY_CONTROL")]
    pub control: Option<PathBuf>,
    /// Go on, once a second
    #[arg(short, long)]
    pub watch: bool,
    /// Print as JSON, a line each time
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Keys {
    /// Directory for the files; made if absent, nothing in it is overwritten
    pub dir: PathBuf,
    /// Names and addresses under which the receiver is reached
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Completions {
    /// Which shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, ClapArgs)]
pub struct Man {
    /// Directory for the pages
    pub dir: PathBuf,
}

fn export(text: &str) -> Result<(String, Size), String> {
    let (name, size) = text.rsplit_once('=').ok_or("write it as NAME=SIZE")?;
    Ok((name.into(), size.parse().map_err(|fault: narrows::core::units::ParseUnitError| fault.to_string())?))
}

fn backing(text: &str) -> Result<Rate, String> {
    match text {
        "hdd" => Ok(Rate(100e6)),
        "ssd" => Ok(Rate(500e6)),
        _ => match text.parse::<Size>() {
            Ok(Size(0)) => Err("a device of no speed".into()),
            Ok(size) => Ok(Rate(size.0 as f64)),
            Err(fault) => Err(fault.to_string()),
        },
    }
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    parts.filter(|(part, parts)| part < parts).ok_or_else(|| "write it like 0/4, 1/4, 2/4, 3/4".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(|| "not a number of seconds".into())
}

fn price(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|price| (0.0..=1e6).contains(price)).ok_or_else(|| "not a number of seconds".into())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    seconds(text).map(|duration| duration / 1000).map_err(|_| "not a number of milliseconds".into())
}
