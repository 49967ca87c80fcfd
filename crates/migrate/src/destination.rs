//! The destination's QEMU, set up as the source says and let go when the source has let go.
//!
//! Who runs the guest. A QEMU started with `-S` holds a guest that has come until it is told `cont`; that is told only
//! when the source has said [`Message::Done`], so there is no moment at which both sides run it, wherever the
//! connection breaks. Without `-S` the destination runs as soon as it has everything, and a break just then leaves the
//! source in doubt: it goes on too. That is QEMU's own doing with any transport.

use std::{
    path::PathBuf,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use narrows::{ChannelWriter, Code, Error, Incoming};
use narrows_io::{
    Address, Listener, Tuning,
    meter::{CpuTime, Memory},
};
use serde_json::{Value, json};

use crate::{
    MigrateError,
    control::{self, Cost, Message},
    cpu::QemuCpu,
    monitor::Monitor,
    qmp::QmpError,
    thread::spawn,
    tls::{LendError, Lent, Part},
    zstd::Zstd,
};

/// Between two looks at QEMU's events while waiting for the source.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a guest may take to be here once the source has let go of it.
pub const COME_WITHIN: Duration = Duration::from_secs(10);

/// How the source's QEMU may connect to the destination's by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direct {
    /// Not at all.
    No,
    /// As it is.
    Plain,
    /// With the certificates in this directory.
    Tls(PathBuf),
}

/// The destination's QEMU.
#[derive(Debug, Clone)]
pub struct Target {
    /// How to drive it, if somebody shall.
    pub qmp: Option<Address>,
    /// Where it listens.
    pub at: Address,
    /// Whether the source's may connect there itself.
    pub direct: Direct,
}

impl Target {
    /// Where it listens for the tunnel. A QEMU that is reached under TLS would be open to all who reach it without: so
    /// only from this host.
    #[must_use]
    pub fn tunnel(&self) -> Address {
        match (&self.direct, &self.at) {
            (Direct::Tls(_), Address::Tcp { port, .. }) if !self.at.is_local() => Address::Tcp {
                host: "127.0.0.1".into(),
                port: *port,
            },
            _ => self.at.clone(),
        }
    }
}

/// What the source's side may switch on in the destination's QEMU. Not among them: what reads or writes files and devices
/// there (`mapped-ram`, `block`), keeps guests in step for ever (`x-colo`), or pins memory (`rdma-pin-all`).
const CAPABILITIES: [&str; 17] = [
    "auto-converge",
    "compress",
    "dirty-bitmaps",
    "dirty-limit",
    "events",
    "late-block-activate",
    "multifd",
    "pause-before-switchover",
    "postcopy-blocktime",
    "postcopy-preempt",
    "postcopy-ram",
    "release-ram",
    "return-path",
    "switchover-ack",
    "validate-uuid",
    "xbzrle",
    "zero-copy-send",
];

fn check_capabilities(asked: &[String]) -> Result<(), Error> {
    match asked
        .iter()
        .find(|name| !CAPABILITIES.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => Err(Error::new(
            Code::PROTOCOL,
            format!(
                "the source's side may not switch on `{}` here",
                name.escape_debug()
            ),
        )),
    }
}

/// Attends to `run` at the other end, until it is done.
///
/// # Errors
/// [`MigrateError`] with what went wrong; the other end was told.
pub fn attend(incoming: Incoming, target: &Target) -> Result<(), MigrateError> {
    let Incoming {
        mut writer,
        mut reader,
        ..
    } = incoming;
    let (heard_in, heard) = mpsc::sync_channel(control::WAITING_MAX);
    spawn("migrate-control", move || {
        loop {
            let message = control::hear(&mut reader);
            let over = !matches!(message, Ok(Some(_)));
            if heard_in.send(message).is_err() || over {
                return;
            }
        }
    });
    let result = converse(&mut writer, &heard, target);
    match &result {
        Ok(()) => drop(writer.finish()),
        Err(MigrateError::Session(_)) => {}
        Err(fault) => drop(control::say(
            &mut writer,
            &Message::Failed {
                text: fault.to_string(),
            },
        )),
    }
    let _ = writer.wait_consumed();
    result
}

fn converse(
    writer: &mut ChannelWriter,
    heard: &mpsc::Receiver<Result<Option<Message>, Error>>,
    target: &Target,
) -> Result<(), MigrateError> {
    let gone = || Error::new(Code::FAILED, "the source's side ended the talk");
    let hear = || Ok::<_, MigrateError>(heard.recv().map_err(|_| gone())??.ok_or_else(gone)?);
    let Message::Prepare {
        multifd_channels,
        capabilities,
        tls,
        zstd,
    } = hear()?
    else {
        return Err(Error::new(
            Code::PROTOCOL,
            "the source's side did not say what to prepare",
        )
        .into());
    };
    check_capabilities(&capabilities)?;
    let cpu_before = CpuTime::of_process();
    let mut qemu = match &target.qmp {
        Some(address) => Some(Driven::prepare(address, multifd_channels, &capabilities)?),
        None => None,
    };
    let mut direct_port = match &target.at {
        Address::Tcp { port, .. } if target.direct == Direct::Plain => Some(*port),
        _ => None,
    };
    let is_offered = match &target.direct {
        Direct::No => false,
        Direct::Plain => zstd,
        Direct::Tls(_) => tls,
    };
    let mut refused = None;
    if let (Some(driven), true) = (&mut qemu, is_offered) {
        direct_port = None;
        if let Some((port, zstd_level)) =
            offer(writer, &target.at, driven.zstd.is_possible(), hear)?
        {
            match driven.lend(&target.direct) {
                Ok(()) => direct_port = Some(port),
                Err(why) => refused = Some(why.to_string()),
            }
            if let (Some(level), Some(_)) = (zstd_level, direct_port) {
                driven.zstd.switch_on(&mut driven.monitor, level)?;
            }
        }
    }
    if let Some(driven) = &mut qemu {
        driven.listen(&if driven.lent.is_some() {
            target.at.clone()
        } else {
            target.tunnel()
        })?;
    }
    let version = qemu.as_ref().map(|qemu| qemu.monitor.version);
    control::say(
        writer,
        &Message::Ready {
            qemu: version,
            direct_port,
            refused,
        },
    )?;
    let followed = follow(writer, heard, qemu.as_mut());
    if let (Some(driven), Some(_), Ok(false) | Err(_)) = (&mut qemu, direct_port, &followed) {
        driven.hang_up();
    }
    followed?;
    let qemu_cpu_s = qemu.as_ref().and_then(Driven::used_s);
    control::say(writer, &Message::Summary(cost(qemu_cpu_s, cpu_before)))?;
    Ok(())
}

/// Lets the guest run when the source has let go of it, and says when it does; whether it came to that.
fn follow(
    writer: &mut ChannelWriter,
    heard: &mpsc::Receiver<Result<Option<Message>, Error>>,
    mut qemu: Option<&mut Driven>,
) -> Result<bool, MigrateError> {
    let mut said = false;
    loop {
        let mut runs = false;
        if let Some(driven) = &mut qemu {
            // The destination's QEMU exits where a migration fails; its sockets tell the source.
            while let Some(event) = driven.monitor.event(Duration::ZERO)? {
                runs |= event.name == "RESUME";
            }
        }
        let mut over = None;
        match heard.recv_timeout(LOOK_EVERY) {
            Ok(Ok(Some(message @ (Message::Postcopy | Message::Done { .. })))) => {
                over = matches!(message, Message::Done { .. }).then_some(true);
                if let (Some(driven), Message::Postcopy | Message::Done { resume: true }) =
                    (&mut qemu, message)
                {
                    driven.resume()?;
                    runs = true;
                }
            }
            Ok(Ok(Some(Message::Failed { text }))) => {
                tracing::warn!("the source's side gives the migration up: {text}");
                over = Some(false);
            }
            Ok(Ok(Some(_))) | Err(mpsc::RecvTimeoutError::Timeout) => {}
            Ok(Ok(None)) | Err(mpsc::RecvTimeoutError::Disconnected) => over = Some(false),
            Ok(Err(end)) => return Err(end.into()),
        }
        if runs && !said {
            control::say(writer, &Message::Running)?;
            said = true;
        }
        if let Some(over) = over {
            return Ok(over);
        }
    }
}

/// Listens in QEMU's place while the source's side finds out what comes through; the port, if QEMU shall, and the level
/// if for zstd.
fn offer(
    writer: &mut ChannelWriter,
    at: &Address,
    zstd: bool,
    hear: impl Fn() -> Result<Message, MigrateError>,
) -> Result<Option<(u16, Option<u8>)>, MigrateError> {
    let listener = Listener::bind(at, &Tuning::default());
    let port = match (&listener, at) {
        (Ok(_), Address::Tcp { port, .. }) => Ok(*port),
        (Err(fault), _) => Err(fault.to_string()),
        _ => Err(format!("{at} is no HOST:PORT")),
    };
    control::say(
        writer,
        &Message::Offer {
            port: port.clone(),
            zstd,
        },
    )?;
    match hear()? {
        Message::Listen {
            direct: true,
            zstd_level,
        } => Ok(port.ok().map(|port| (port, zstd_level))),
        _ => Ok(None),
    }
}

/// What this process cost since `before`, and QEMU.
pub(crate) fn cost(qemu_cpu_s: Option<f64>, before: CpuTime) -> Cost {
    Cost {
        qemu_cpu_s,
        tunnel_cpu_s: CpuTime::of_process().since(before).total_ns() as f64 / 1e9,
        tunnel_rss_bytes: Memory::of_process().ok().map(|memory| memory.peak),
    }
}

/// A QEMU that waits for a migration.
struct Driven {
    monitor: Monitor,
    cpu: QemuCpu,
    cpu_before_ns: Option<u64>,
    zstd: Zstd,
    lent: Option<Lent>,
    listens: bool,
}

impl Driven {
    fn prepare(qmp: &Address, channels: u8, capabilities: &[String]) -> Result<Self, QmpError> {
        let mut monitor = Monitor::connect(qmp)?;
        capable(&mut monitor, channels, capabilities)?;
        let mut zstd = Zstd::default();
        if channels > 0 {
            monitor.ask(
                "migrate-set-parameters",
                &json!({ "multifd-channels": channels }),
            )?;
            zstd = Zstd::switched_off(&mut monitor)?;
        }
        let cpu = cpu_of(&mut monitor)?;
        Ok(Self {
            cpu_before_ns: cpu.used_ns(),
            cpu,
            monitor,
            zstd,
            lent: None,
            listens: false,
        })
    }

    fn listen(&mut self, at: &Address) -> Result<(), QmpError> {
        self.monitor
            .ask("migrate-incoming", &json!({ "uri": uri(at) }))?;
        self.listens = true;
        Ok(())
    }

    fn lend(&mut self, direct: &Direct) -> Result<(), LendError> {
        if let Direct::Tls(dir) = direct {
            self.lent = Some(Lent::new(&mut self.monitor, dir, Part::Server)?);
        }
        Ok(())
    }

    /// Lets a guest that has come run, if it does not yet.
    fn resume(&mut self) -> Result<(), MigrateError> {
        // The last packets may still be on their way from QEMU's sockets into its memory.
        let until = Instant::now() + COME_WITHIN;
        loop {
            let status = self.monitor.ask("query-status", &Value::Null)?;
            match status["status"].as_str() {
                Some("inmigrate") if Instant::now() < until => thread::sleep(LOOK_EVERY),
                Some("paused") => return Ok(self.monitor.ask("cont", &Value::Null).map(drop)?),
                _ if status["running"] == true => return Ok(()),
                word => {
                    let text = format!(
                        "QEMU does not run it: its state is {}",
                        word.unwrap_or("unknown")
                    );
                    return Err(Error::new(Code::FAILED, text).into());
                }
            }
        }
    }

    /// Ends what the source's QEMU sends by itself, if it still sends: who would let that guest run has gone. That QEMU
    /// then goes on with it, and this one exits or waits anew.
    fn hang_up(&mut self) {
        let Ok(status) = self.monitor.ask("query-status", &Value::Null) else {
            return;
        };
        match status["status"].as_str() {
            Some("inmigrate") => drop(
                self.monitor
                    .ask("yank", &json!({ "instances": [{ "type": "migration" }] })),
            ),
            // The source's QEMU may have seen an error at the last moment, and run its guest on.
            Some("paused") => tracing::warn!(
                "the guest came, and whether the source has let go of it was never said: if QEMU there is not running it, `cont` here lets it run"
            ),
            _ => {}
        }
    }

    fn used_s(&self) -> Option<f64> {
        Some(self.cpu.used_ns()?.saturating_sub(self.cpu_before_ns?) as f64 / 1e9)
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.zstd.put_back(&mut self.monitor);
        let Some(lent) = self.lent.take() else { return };
        // Without certificates a QEMU that still waits would take a guest from anybody.
        let status = self.monitor.ask("query-status", &Value::Null);
        if !self.listens || status.is_ok_and(|status| status["status"] != "inmigrate") {
            lent.take_back(&mut self.monitor);
        }
    }
}

/// Switches on what every migration of ours needs, and `more`; multifd as asked.
pub(crate) fn capable(
    monitor: &mut Monitor,
    channels: u8,
    more: &[String],
) -> Result<(), QmpError> {
    let state = |name: &str, on: bool| json!({ "capability": name, "state": on });
    // Without the return path the source calls a migration done when its last byte is with us.
    let mut states = vec![
        state("return-path", true),
        state("events", true),
        state("multifd", channels > 0),
    ];
    states.extend(more.iter().map(|name| state(name, true)));
    monitor
        .ask(
            "migrate-set-capabilities",
            &json!({ "capabilities": states }),
        )
        .map(drop)
}

/// Meters for the QEMU behind `monitor`.
pub(crate) fn cpu_of(monitor: &mut Monitor) -> Result<QemuCpu, QmpError> {
    let vcpus = monitor.ask("query-cpus-fast", &Value::Null)?;
    let threads = vcpus
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|vcpu| vcpu["thread-id"].as_u64());
    let threads = threads.filter_map(|id| u32::try_from(id).ok()).collect();
    Ok(monitor
        .pid
        .map_or_else(QemuCpu::default, |pid| QemuCpu::new(pid, threads)))
}

/// An address as QEMU writes it.
#[must_use]
pub fn uri(address: &Address) -> String {
    match address {
        Address::Tcp { .. } => format!("tcp:{address}"),
        Address::Unix(_) | Address::Stdio => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a source's side switches on here what migrations need, and nothing that reaches beyond them. Method: every
    // name of the list, and names that QEMU has and the list has not.
    #[test]
    fn capabilities_that_reach_beyond_a_migration_are_refused() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        check_capabilities(&names(&CAPABILITIES)).unwrap();
        check_capabilities(&[]).unwrap();
        for name in [
            "mapped-ram",
            "block",
            "x-colo",
            "rdma-pin-all",
            "",
            "multifd\n",
        ] {
            let error = check_capabilities(&names(&["multifd", name])).unwrap_err();
            assert_eq!(error.code(), Code::PROTOCOL, "{name}");
        }
    }
}
