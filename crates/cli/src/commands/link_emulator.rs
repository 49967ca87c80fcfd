//! `narrows link-emulator`

use std::{thread, time::Duration};

use narrows_core::units::{Rate, Size};
use narrows_io::emulator::{Direction, Emulator, Link};

use super::{common, options::milliseconds};
use crate::exit::Usage;

#[derive(Debug, clap::Args)]
pub struct Args {
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

pub fn run(args: Args) -> anyhow::Result<()> {
    let listen = common::address(&args.listen)?;
    // It relays what others encrypt, or not; opening a plain relay beyond this host is not its business.
    if !listen.is_local() {
        return Err(Usage(format!(
            "{listen} is beyond this host, and an emulated link is plain; listen on 127.0.0.1 or unix:PATH"
        ))
        .into());
    }
    let link = Link {
        rate: args.rate,
        delay: args.delay_ms,
        jitter: args.jitter_ms,
        ..Link::default()
    };
    let emulator = Emulator::start(&listen, &common::address(&args.to)?, link, link)?;
    if let Some(bytes) = args.reset_after {
        emulator.reset_after(Direction::Up, Some(bytes.0));
    }
    crate::log::tell!("link from {} to {}", emulator.local(), args.to);
    loop {
        thread::park();
    }
}
