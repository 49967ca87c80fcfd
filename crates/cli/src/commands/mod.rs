//! One module a command.

mod advise;
mod bench;
mod codecs;
pub mod common;
mod gen_;
mod lab;
mod link_emulator;
mod memory;
mod migrate;
mod offload;
mod recv;
mod report;
mod send;
mod study;
mod tco;
mod try_;
mod tunnel;

use std::{fs, io};

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Args, Command, Keys, Man};

/// Runs the command that was asked for.
///
/// # Errors
/// With a sentence that says what to do next.
pub fn run(args: Args) -> anyhow::Result<()> {
    let quiet = args.quiet;
    match args.command {
        Command::Send(send) => send::run(send, quiet),
        Command::Recv(recv) => recv::run(recv, quiet),
        Command::Tunnel(tunnel) => tunnel::run(tunnel),
        Command::Migrate(migrate) => migrate::run(migrate, quiet),
        Command::Offload(args) => offload::run(args, quiet),
        Command::Codecs(codecs) => codecs::run(&codecs),
        Command::LinkEmulator(emulator) => link_emulator::run(emulator),
        Command::Try(args) => try_::run(args, quiet),
        Command::Memory(args) => memory::run(args, quiet),
        Command::Bench(args) => bench::run(args, quiet),
        Command::Advise(args) => advise::run(&args, quiet),
        Command::Study(args) => study::run(&args, quiet),
        Command::Tco(args) => tco::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Gen(args) => gen_::run(&args),
        Command::Keys(keys) => self::keys(&keys),
        Command::Completions(completions) => {
            clap_complete::generate(completions.shell, &mut Args::command(), "narrows", &mut io::stdout());
            Ok(())
        }
        Command::Man(man) => self::man(&man),
    }
}

fn keys(keys: &Keys) -> anyhow::Result<()> {
    use narrows::io::secure::keys::{Request, generate};
    let request = Request { server_names: &keys.hosts, ..Request::default() };
    for path in generate(&keys.dir, &request)? {
        crate::output::print(&path.display().to_string())?;
    }
    Ok(())
}

fn man(man: &Man) -> anyhow::Result<()> {
    fs::create_dir_all(&man.dir).with_context(|| format!("cannot make {}", man.dir.display()))?;
    clap_mangen::generate_to(Args::command(), &man.dir)
        .with_context(|| format!("cannot write to {}", man.dir.display()))
}
