//! The destination's QEMU, set up as the source says and let go when the source has let go.
//!
//! Who runs the guest. A QEMU started with `-S` holds a guest that has come until it is told `cont`; that is told only when the source
//! has said [`Message::Done`], so there is no moment at which both sides run it, wherever the connection breaks.
//! Without `-S` the destination runs as soon as it has everything, and a break just then leaves the source in doubt: it
//! goes on too. That is QEMU's own doing with any transport.

use std::{sync::mpsc, time::Duration};

use narrows::{
    ChannelWriter, Code, End, Incoming,
    io::{
        Address,
        meter::{CpuTime, Memory},
    },
};
use serde_json::{Value, json};

use crate::{
    MigrateError,
    control::{self, Cost, Message},
    cpu::QemuCpu,
    monitor::Monitor,
    qmp::QmpError,
    thread::spawn,
};

/// Between two looks at QEMU's events while waiting for the source.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Attends to `run` at the other end, until it is done. `qmp` is the QEMU to drive, if any; `target` where it shall listen, and `direct`
/// whether the source's may connect there itself.
///
/// # Errors
/// [`MigrateError`] with what went wrong; the other end was told.
pub fn attend(incoming: Incoming, qmp: Option<&Address>, target: &Address, direct: bool) -> Result<(), MigrateError> {
    let Incoming { mut writer, mut reader, .. } = incoming;
    let (heard_in, heard) = mpsc::channel();
    spawn("migrate-control", move || {
        loop {
            let message = control::hear(&mut reader);
            let over = !matches!(message, Ok(Some(_)));
            if heard_in.send(message).is_err() || over {
                return;
            }
        }
    });
    let result = converse(&mut writer, &heard, qmp, target, direct);
    match &result {
        Ok(()) => drop(writer.finish()),
        Err(MigrateError::End(_)) => {}
        Err(fault) => drop(control::say(&mut writer, &Message::Failed { text: fault.to_string() })),
    }
    let _ = writer.wait_consumed();
    result
}

fn converse(
    writer: &mut ChannelWriter,
    heard: &mpsc::Receiver<Result<Option<Message>, End>>,
    qmp: Option<&Address>,
    target: &Address,
    direct: bool,
) -> Result<(), MigrateError> {
    let gone = || End { code: Code::FAILED, text: "the source's side ended the talk".into() };
    let Message::Prepare { multifd_channels, capabilities } = heard.recv().map_err(|_| gone())??.ok_or_else(gone)?
    else {
        return Err(End { code: Code::PROTOCOL, text: "the source's side did not say what to prepare".into() }.into());
    };
    let cpu_before = CpuTime::of_process();
    let mut qemu = match qmp {
        Some(address) => Some(Driven::prepare(address, target, multifd_channels, &capabilities)?),
        None => None,
    };
    let direct_port = match target {
        Address::Tcp { port, .. } if direct => Some(*port),
        _ => None,
    };
    control::say(writer, &Message::Ready { qemu: qemu.as_ref().map(|qemu| qemu.monitor.version), direct_port })?;
    let mut said = false;
    loop {
        if let Some(driven) = &mut qemu {
            match driven.monitor.event(Duration::ZERO) {
                Ok(Some(event)) if event.name == "RESUME" => {
                    control::say(writer, &Message::Running)?;
                    said = true;
                }
                Ok(_) => {}
                // The destination's QEMU exits where a migration fails; its sockets tell the source.
                Err(fault) => return Err(fault.into()),
            }
        }
        match heard.recv_timeout(LOOK_EVERY) {
            Ok(Ok(Some(Message::Done { resume }))) => {
                if let Some(driven) = &mut qemu
                    && resume
                    && driven.resume()?
                    && !said
                {
                    control::say(writer, &Message::Running)?;
                }
                break;
            }
            Ok(Ok(Some(Message::Failed { text }))) => {
                tracing::warn!("the source's side gives the migration up: {text}");
                break;
            }
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Ok(Err(end)) => return Err(end.into()),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
    let qemu_cpu_s = qemu.as_ref().and_then(Driven::used_s);
    control::say(writer, &Message::Summary(cost(qemu_cpu_s, cpu_before)))?;
    Ok(())
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
}

impl Driven {
    fn prepare(qmp: &Address, target: &Address, channels: u8, capabilities: &[String]) -> Result<Self, MigrateError> {
        let mut monitor = Monitor::connect(qmp)?;
        capable(&mut monitor, channels, capabilities)?;
        if channels > 0 {
            let parameters = json!({ "multifd-channels": channels, "multifd-compression": "none" });
            monitor.ask("migrate-set-parameters", &parameters)?;
        }
        monitor.ask("migrate-incoming", &json!({ "uri": uri(target) }))?;
        let cpu = cpu_of(&mut monitor)?;
        Ok(Self { cpu_before_ns: cpu.used_ns(), cpu, monitor })
    }

    /// Lets a guest that has come and waits run; whether it runs now.
    fn resume(&mut self) -> Result<bool, QmpError> {
        // The last packets may still be on their way from QEMU's sockets into its memory.
        for _ in 0..500 {
            let status = self.monitor.ask("query-status", &Value::Null)?;
            match status["status"].as_str() {
                Some("inmigrate") => std::thread::sleep(LOOK_EVERY),
                Some("paused") => {
                    self.monitor.ask("cont", &Value::Null)?;
                    return Ok(true);
                }
                _ => return Ok(status["running"] == true),
            }
        }
        Ok(false)
    }

    fn used_s(&self) -> Option<f64> {
        Some(self.cpu.used_ns()?.saturating_sub(self.cpu_before_ns?) as f64 / 1e9)
    }
}

/// Switches on what every migration of ours needs, and `more`; multifd as asked.
pub(crate) fn capable(monitor: &mut Monitor, channels: u8, more: &[String]) -> Result<(), QmpError> {
    let state = |name: &str, on: bool| json!({ "capability": name, "state": on });
    // Without the return path the source calls a migration done when its last byte is with us.
    let mut states = vec![state("return-path", true), state("events", true), state("multifd", channels > 0)];
    states.extend(more.iter().map(|name| state(name, true)));
    monitor.ask("migrate-set-capabilities", &json!({ "capabilities": states })).map(drop)
}

/// Meters for the QEMU behind `monitor`.
pub(crate) fn cpu_of(monitor: &mut Monitor) -> Result<QemuCpu, QmpError> {
    let vcpus = monitor.ask("query-cpus-fast", &Value::Null)?;
    let threads = vcpus.as_array().into_iter().flatten().filter_map(|vcpu| vcpu["thread-id"].as_u64());
    let threads = threads.filter_map(|id| u32::try_from(id).ok()).collect();
    Ok(monitor.pid.map_or_else(QemuCpu::default, |pid| QemuCpu::new(pid, threads)))
}

/// An address as QEMU writes it.
#[must_use]
pub fn uri(address: &Address) -> String {
    match address {
        Address::Tcp { .. } => format!("tcp:{address}"),
        Address::Unix(_) | Address::Stdio => address.to_string(),
    }
}
