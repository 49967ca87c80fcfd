//! `narrows migrate run`: flags to an order, events to a progress bar, the report to standard output.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::Context;
use indicatif::ProgressBar;
use narrows_core::units::Size;
use narrows_migrate::{
    drive::{self, Event, Order, When},
    migration::Options,
    source::{Ask, Progress},
    status::Status,
};

use super::{
    args::{self, RunArgs},
    serve_status, way,
};
use crate::{commands::common, output};

pub(super) fn run(args: &RunArgs, quiet: bool) -> anyhow::Result<()> {
    let way = way(
        &args.to,
        (&args.packing, args.reading),
        &args.carrying,
        &args.security,
    )?;
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in common::stop_kinds() {
        signal_hook::flag::register(signal, cancel.clone()).context("cannot catch signals")?;
    }
    let current = serve_status(&args.carrying, &args.security)?;
    let bar = output::progress(quiet);
    let report = drive::run(&way, &order(args)?, &cancel, &mut |event| match event {
        Event::Begun(migration) => *current.lock() = Arc::downgrade(migration),
        Event::Progress(qemu, status) => show(&bar, qemu, status),
        _ => {}
    });
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        output::print(&serde_json::to_string(&report)?)
    } else {
        output::print(&report.table())
    }
}

fn order(args: &RunArgs) -> anyhow::Result<Order> {
    Ok(Order {
        qmp: common::address(&args.qmp)?,
        listen: args.listen.as_deref().map(common::address).transpose()?,
        ask: Ask {
            multifd_channels: args.channels,
            downtime_limit: args.downtime_ms,
            max_bandwidth: args.max_bandwidth.map(|rate| rate.0 as u64),
            capabilities: args.capabilities.clone(),
        },
        direct: match args.direct {
            args::When::Auto => When::Auto,
            args::When::Always => When::Always,
            args::When::Never => When::Never,
        },
        insecure: args.security.insecure,
        options: Options {
            aware: !args.reading.opaque,
            ..args.carrying.options()
        },
    })
}

fn show(bar: &ProgressBar, qemu: &Progress, status: &Status) {
    bar.set_position(qemu.transferred);
    bar.set_message(format!(
        "{}: {} left, round {}, {} on the wire, {} pages left out",
        qemu.status,
        Size(qemu.ram_remaining),
        qemu.rounds,
        Size(status.sent_wire_bytes),
        status.pages_left_out,
    ));
}
