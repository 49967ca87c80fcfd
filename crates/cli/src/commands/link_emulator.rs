//! `narrows link-emulator`

use std::thread;

use narrows::io::{
    emulator::{Direction, Emulator, Link},
    secure::{self, Auth},
};

use super::common;
use crate::args::LinkEmulator;

pub fn run(args: LinkEmulator) -> anyhow::Result<()> {
    let listen = common::address(&args.listen)?;
    // It relays what others encrypt, or not; opening a plain relay beyond this host is not its business.
    secure::require_auth(&listen, &Auth::None, false)?;
    let link = Link { rate: args.rate, delay: args.delay_ms, jitter: args.jitter_ms, ..Link::default() };
    let emulator = Emulator::start(&listen, &common::address(&args.to)?, link, link)?;
    if let Some(bytes) = args.reset_after {
        emulator.reset_after(Direction::Up, Some(bytes.0));
    }
    eprintln!("link from {} to {}", emulator.local(), args.to);
    loop {
        thread::park();
    }
}
