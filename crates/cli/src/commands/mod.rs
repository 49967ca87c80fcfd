//! One module a command: its flags, and what it does.

mod advise;
mod bench;
mod block;
mod codecs;
pub mod common;
mod disk;
mod gen_;
mod gpu;
mod keys;
mod lab;
mod link_emulator;
mod manual;
mod memory;
mod migrate;
mod offload;
pub mod options;
mod recv;
mod remote;
mod report;
mod seats;
mod send;
mod study;
mod tco;
mod try_;
mod tunnel;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Send files, directories or standard input to a receiver
    Send(send::Args),
    /// Receive files into a directory, or a stream to standard output
    Recv(recv::Args),
    /// Carry TCP or Unix connections of other programs through one compressed session
    Tunnel(tunnel::Args),
    /// Move a running virtual machine between two QEMUs through a compressed session
    #[command(subcommand)]
    Migrate(migrate::Command),
    /// Pack files on a host that has the accelerators, into files that gzip, zstd and lz4 read
    #[command(subcommand)]
    Offload(offload::Command),
    /// Run CUDA programs here with their GPU elsewhere, or with none
    #[command(subcommand)]
    Gpu(gpu::Command),
    /// List every codec and backend: available, chosen, or why not
    Codecs(codecs::Args),
    /// Emulate a slow link: relay connections at a rate and delay
    LinkEmulator(link_emulator::Args),
    /// Race policies over emulated links with your data, and make a report with pictures
    Try(try_::Args),
    /// A RAM disk that holds several times its memory, served over NBD
    Memory(memory::Args),
    /// A block device that compresses, on a file, a disk or a Ceph RBD image, served over NBD
    Disk(disk::Args),
    /// Measure codecs on your data: ratio, speed, processor time, memory
    Bench(bench::Args),
    /// Say what to send your data with over a link, from seconds of calibration; and try whether that holds
    Advise(advise::Args),
    /// Measure the published study again: threads × chunks × lengths × codecs × data × links
    Study(study::Args),
    /// Reckon what compressing storage or a link costs and saves over the years
    Tco(tco::Args),
    /// Make one offline HTML file with pictures of any results
    Report(report::Args),
    /// Write generated data: the kinds of the published study
    Gen(gen_::Args),
    /// Make keys: certificates for TLS and a pre-shared key
    Keys(keys::Args),
    /// Print a completion script for a shell
    Completions(manual::CompletionsArgs),
    /// Write the manual pages
    Man(manual::PagesArgs),
}

/// Runs the command that was asked for.
///
/// # Errors
/// With a sentence that says what to do next.
pub fn run(command: Command, quiet: bool) -> anyhow::Result<()> {
    match command {
        Command::Send(args) => send::run(args, quiet),
        Command::Recv(args) => recv::run(args, quiet),
        Command::Tunnel(args) => tunnel::run(args),
        Command::Migrate(command) => migrate::run(command, quiet),
        Command::Offload(command) => offload::run(command, quiet),
        Command::Gpu(command) => gpu::run(command, quiet),
        Command::Codecs(args) => codecs::run(&args),
        Command::LinkEmulator(args) => link_emulator::run(args),
        Command::Try(args) => try_::run(args, quiet),
        Command::Memory(args) => memory::run(args, quiet),
        Command::Disk(args) => disk::run(args, quiet),
        Command::Bench(args) => bench::run(args, quiet),
        Command::Advise(args) => advise::run(&args, quiet),
        Command::Study(args) => study::run(&args, quiet),
        Command::Tco(args) => tco::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Gen(args) => gen_::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::pages(&args),
    }
}
