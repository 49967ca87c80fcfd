//! The source's QEMU, driven from its set-up to its end.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime},
};

use narrows_io::Address;
use serde_json::{Value, json};

use crate::{
    MigrateError,
    cpu::QemuCpu,
    destination::{capable, cpu_of, uri},
    migration::Migration,
    monitor::Monitor,
    qmp::{Event, QmpError},
    tls::{self, LendError, Lent, Part},
    zstd::Zstd,
};

/// Between two looks at the migration.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// QEMU is told a new rate of the link at most as often as this, and only if it changed by a twentieth.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// QEMU's own default is 128 MiB/s; the link shall be the limit.
const BANDWIDTH_MAX: u64 = 1 << 40;
/// QEMU's word for one that it was told to give up.
pub(crate) const CANCELLED: &str = "cancelled";
/// How long a migration that was cancelled may take to say so.
const CANCEL_WITHIN: Duration = Duration::from_secs(30);
/// How long QEMU may take to be done with a migration that failed, after it says so: until its guest goes on, and until
/// another may begin.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);
/// How long a completed migration may take to say how long it took. The guest waits for that.
const COUNT_WITHIN: Duration = Duration::from_millis(100);

/// Of a migration whose link broke when the guest was elsewhere already.
const RECOVER: &str = "its link broke, and neither side has the whole guest; `migrate-recover` at the destination and then `migrate` with `resume` here \
                       go on with it, through a new `serve` and `tunnel`";

/// What is asked of the source.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Multifd channels; 0 for none.
    pub multifd_channels: u8,
    /// How long the guest may stand still; QEMU's setting if not given.
    pub downtime_limit: Option<Duration>,
    /// Most bytes a second that QEMU may send; no limit if not given.
    pub max_bandwidth: Option<u64>,
    /// Capabilities to switch on besides.
    pub capabilities: Vec<String>,
}

/// A migration as QEMU sees it. Times in milliseconds, lengths in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// QEMU's word: `setup`, `active`, `completed`, …
    pub status: String,
    /// QEMU's reason, where it failed.
    pub reason: Option<String>,
    /// Since the start.
    pub total_ms: u64,
    /// How long the guest stood still; 0 before it did.
    pub down_ms: u64,
    /// The guest's memory.
    pub ram_total: u64,
    /// Not yet sent.
    pub ram_remaining: u64,
    /// Sent, as QEMU counts: uncompressed.
    pub transferred: u64,
    /// Pages sent, those of zeros included.
    pub pages: u64,
    /// Times that QEMU went through all of memory.
    pub rounds: u64,
}

impl Progress {
    fn of(answer: &Value) -> Self {
        let ram = &answer["ram"];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        Self {
            status: answer["status"].as_str().unwrap_or("none").to_owned(),
            reason: answer["error-desc"].as_str().map(str::to_owned),
            total_ms: number(&answer["total-time"]),
            down_ms: number(&answer["downtime"]),
            ram_total: number(&ram["total"]),
            ram_remaining: number(&ram["remaining"]),
            transferred: number(&ram["transferred"]),
            pages: number(&ram["normal"]) + number(&ram["duplicate"]),
            rounds: number(&ram["dirty-sync-count"]),
        }
    }

    fn is_over(&self) -> bool {
        matches!(
            self.status.as_str(),
            "completed" | "failed" | CANCELLED | "postcopy-paused"
        )
    }

    /// The guest is at the destination, and the rest of its memory follows.
    #[must_use]
    pub fn is_postcopy(&self) -> bool {
        self.status.starts_with("postcopy")
    }
}

/// How a migration ended well.
#[derive(Debug, Clone)]
pub struct Finished {
    /// QEMU's last word.
    pub progress: Progress,
    /// When the guest stopped here, as far as seen.
    pub stopped: Option<Instant>,
    /// Processor time of QEMU but for the guest's, in seconds.
    pub qemu_cpu_s: Option<f64>,
}

/// Where the source's QEMU connects.
#[derive(Debug, Clone, Copy)]
pub enum Through<'a> {
    /// To our socket.
    Tunnel(&'a Address),
    /// To the destination's QEMU. The session's end must then be told to it.
    Direct(&'a Address),
}

/// Where the guest is, as far as the source's QEMU knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// It goes on here, or stands still here as it did.
    Here,
    /// QEMU has handed it over.
    Gone,
    /// QEMU does not answer, or still has hold of a guest that it has stopped.
    Unknown,
}

/// A QEMU whose guest shall move.
#[derive(Debug)]
pub struct Source {
    monitor: Monitor,
    cpu: QemuCpu,
    takes_rate: bool,
    told_rate: u64,
    told_at: Instant,
    zstd: Zstd,
    lent: Option<Lent>,
    /// Capabilities that were switched on because the user asked for them.
    switched_on: Vec<String>,
    /// The guest was running.
    pub running: bool,
    /// How long the guest may stand still, as QEMU has it.
    pub downtime_limit: Duration,
}

impl Source {
    /// Sets capabilities and parameters.
    ///
    /// # Errors
    /// [`QmpError`], in QEMU's words where it refuses.
    pub fn prepare(qmp: &Address, ask: &Ask) -> Result<Self, QmpError> {
        let mut monitor = Monitor::connect(qmp)?;
        let cpu = cpu_of(&mut monitor)?;
        let running = monitor.ask("query-status", &Value::Null)?["running"] == true;
        tls::clear(&mut monitor)?;
        let switched_on = off(&mut monitor, &ask.capabilities)?;
        capable(&mut monitor, ask.multifd_channels, &ask.capabilities)?;
        let mut wanted = json!({ "max-bandwidth": ask.max_bandwidth.unwrap_or(BANDWIDTH_MAX) });
        if ask.multifd_channels > 0 {
            wanted["multifd-channels"] = ask.multifd_channels.into();
        }
        if let Some(limit) = ask.downtime_limit {
            wanted["downtime-limit"] = (limit.as_millis() as u64).into();
        }
        let held = monitor.ask("query-migrate-parameters", &Value::Null)?;
        let takes_rate = held.get("avail-switchover-bandwidth").is_some();
        if takes_rate {
            wanted["avail-switchover-bandwidth"] = 0.into();
        }
        monitor.ask("migrate-set-parameters", &wanted)?;
        let zstd = if ask.multifd_channels > 0 {
            Zstd::switched_off(&mut monitor)?
        } else {
            Zstd::default()
        };
        let limit_ms = wanted["downtime-limit"]
            .as_u64()
            .or_else(|| held["downtime-limit"].as_u64())
            .unwrap_or(300);
        Ok(Self {
            monitor,
            cpu,
            takes_rate,
            told_rate: 0,
            told_at: Instant::now(),
            zstd,
            lent: None,
            switched_on,
            running,
            downtime_limit: Duration::from_millis(limit_ms),
        })
    }

    /// QEMU's version: major, minor, micro.
    #[must_use]
    pub fn version(&self) -> [u64; 3] {
        self.monitor.version
    }

    /// Whether QEMU takes the link's rate from us (`avail-switchover-bandwidth`, QEMU 8.2); else intake must be paced.
    #[must_use]
    pub fn takes_rate(&self) -> bool {
        self.takes_rate
    }

    /// Has QEMU connect under TLS from now on, until it is taken back or this is dropped: with the certificates in
    /// `dir`, to a server of that name.
    ///
    /// # Errors
    /// [`LendError`]; QEMU is then as it was.
    pub fn lend(&mut self, dir: &Path, server_name: &str) -> Result<(), LendError> {
        self.lent = Some(Lent::new(
            &mut self.monitor,
            dir,
            Part::Client(server_name),
        )?);
        Ok(())
    }

    /// Whether QEMU can pack by zstd.
    #[must_use]
    pub fn takes_zstd(&self) -> bool {
        self.zstd.is_possible()
    }

    /// Has QEMU pack by zstd of that level, until it is taken back or this is dropped.
    ///
    /// # Errors
    /// [`QmpError`]
    pub fn pack(&mut self, level: u8) -> Result<(), QmpError> {
        self.zstd.switch_on(&mut self.monitor, level)
    }

    /// The level by which QEMU packs, if it does.
    #[must_use]
    pub fn zstd_level(&self) -> Option<u8> {
        self.zstd.level()
    }

    /// Leaves QEMU as it was before [`Self::lend`] and [`Self::pack`].
    pub fn take_back(&mut self) {
        self.zstd.put_back(&mut self.monitor);
        if let Some(lent) = self.lent.take() {
            lent.take_back(&mut self.monitor);
        }
    }

    /// Whether QEMU connects under TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.lent.is_some()
    }

    /// Asks QEMU where the guest is.
    pub fn whereabouts(&mut self) -> Whereabouts {
        let until = Instant::now() + SETTLED_WITHIN;
        loop {
            let Ok(status) = self.monitor.ask("query-status", &Value::Null) else {
                return Whereabouts::Unknown;
            };
            match status["status"].as_str() {
                // It says that a migration failed a moment before its guest goes on.
                Some("finish-migrate") if Instant::now() < until => thread::sleep(LOOK_EVERY),
                Some("finish-migrate") | None => return Whereabouts::Unknown,
                Some("postmigrate") => return Whereabouts::Gone,
                Some(_) => return Whereabouts::Here,
            }
        }
    }

    /// Migrates, and shows how far it is ten times a second. `cancel` asks QEMU to give up, until the guest is
    /// elsewhere (postcopy).
    ///
    /// # Errors
    /// [`MigrateError`]; where the guest is then, [`Self::whereabouts`] says.
    pub fn migrate(
        &mut self,
        migration: &Migration,
        through: Through<'_>,
        cancel: &AtomicBool,
        show: &mut dyn FnMut(&Progress),
    ) -> Result<Finished, MigrateError> {
        let mut may_cancel = true;
        let finished = self.follow(migration, through, cancel, &mut |progress| {
            may_cancel = !progress.is_over() && !progress.is_postcopy();
            show(progress)
        });
        // Nobody would see the end of what QEMU sends by itself.
        if finished.is_err() && may_cancel && matches!(through, Through::Direct(_)) {
            let _ = self.monitor.ask("migrate_cancel", &Value::Null);
        }
        finished
    }

    /// Waits until QEMU has let go of a migration that failed. It says so a moment before it has, and one asked for
    /// meanwhile leaves it (7.2) with a migration that neither runs nor ends.
    fn wait_let_go(&mut self) -> Result<(), QmpError> {
        let until = Instant::now() + SETTLED_WITHIN;
        while Instant::now() < until {
            match self.monitor.ask("query-yank", &Value::Null) {
                Ok(held)
                    if held
                        .as_array()
                        .is_some_and(|held| held.iter().any(|it| it["type"] == "migration")) =>
                {
                    thread::sleep(LOOK_EVERY);
                }
                // Older ones have no such command.
                Ok(_) | Err(QmpError::Refused { .. }) => break,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn follow(
        &mut self,
        migration: &Migration,
        through: Through<'_>,
        cancel: &AtomicBool,
        show: &mut dyn FnMut(&Progress),
    ) -> Result<Finished, MigrateError> {
        let cpu_before_ns = self.cpu.used_ns();
        let (Through::Tunnel(to) | Through::Direct(to)) = through;
        let is_direct = matches!(through, Through::Direct(_));
        self.wait_let_go()?;
        self.monitor.ask("migrate", &json!({ "uri": uri(to) }))?;
        let mut stopped = None;
        let mut cancelled: Option<Instant> = None;
        let mut warned = false;
        let mut completed: Option<Instant> = None;
        loop {
            let progress = Progress::of(&self.monitor.ask("query-migrate", &Value::Null)?);
            // What came before that answer is no later than it.
            while let Some(event) = self.monitor.event(Duration::ZERO)? {
                stopped = stopped.or_else(|| stop_of(&event));
            }
            show(&progress);
            if progress.is_over() {
                if progress.is_postcopy() || progress.status != "completed" {
                    return Err(failed(progress, cancelled.is_some()));
                }
                // QEMU 7.2 says so a moment before it has counted how long that took.
                let since = *completed.get_or_insert_with(Instant::now);
                if progress.total_ms == 0 && since.elapsed() < COUNT_WITHIN {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let used_ns = self
                    .cpu
                    .used_ns()
                    .zip(cpu_before_ns)
                    .map(|(now, before)| now.saturating_sub(before));
                return Ok(Finished {
                    progress,
                    stopped,
                    qemu_cpu_s: used_ns.map(|ns| ns as f64 / 1e9),
                });
            }
            // Through a tunnel QEMU sees for itself that the session is over.
            let is_alone = is_direct && migration.endpoint.ended().is_some();
            if (cancel.load(Relaxed) || is_alone) && cancelled.is_none() {
                // QEMU would give up a guest of which either side has a part.
                if progress.is_postcopy() {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(
                            "a guest that has left by postcopy cannot be called back; waiting until its memory has followed"
                        );
                    }
                } else {
                    cancelled = Some(Instant::now());
                    self.monitor.ask("migrate_cancel", &Value::Null)?;
                }
            }
            if cancelled.is_some_and(|since| since.elapsed() > CANCEL_WITHIN)
                && !progress.is_postcopy()
            {
                let reason = Some("it does not end".into());
                return Err(MigrateError::Qemu {
                    state: CANCELLED.into(),
                    reason,
                    begun: true,
                });
            }
            if !is_direct {
                self.tell_rate(migration.promise())?;
                migration.set_remaining(progress.ram_remaining);
            }
            if let Some(event) = self.monitor.event(LOOK_EVERY)? {
                stopped = stopped.or_else(|| stop_of(&event));
            }
        }
    }

    fn tell_rate(&mut self, rate: u64) -> Result<(), QmpError> {
        let changed = rate.abs_diff(self.told_rate) > self.told_rate / 20;
        if self.takes_rate && changed && self.told_at.elapsed() >= TELL_EVERY {
            self.monitor.ask(
                "migrate-set-parameters",
                &json!({ "avail-switchover-bandwidth": rate }),
            )?;
            (self.told_rate, self.told_at) = (rate, Instant::now());
        }
        Ok(())
    }
}

/// Why a migration that is over has not come to its end.
fn failed(progress: Progress, was_cancelled: bool) -> MigrateError {
    let begun = progress.is_postcopy() || progress.transferred > 0;
    let (state, reason) = if progress.is_postcopy() {
        ("paused in postcopy".into(), Some(RECOVER.into()))
    } else if was_cancelled {
        // One with a return path that was cancelled QEMU 7.2 calls failed, once in twenty times.
        (CANCELLED.into(), None)
    } else {
        (progress.status, progress.reason)
    };
    MigrateError::Qemu {
        state,
        reason,
        begun,
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.take_back();
        // QEMU 7.2 says that a migration failed before the last of it has ended, which looks at capabilities: not while
        // the guest stands still for it.
        if !self.switched_on.is_empty() && self.whereabouts() != Whereabouts::Unknown {
            let states = self
                .switched_on
                .iter()
                .map(|name| json!({ "capability": name, "state": false }));
            let states = states.collect::<Vec<_>>();
            let _ = self.monitor.ask(
                "migrate-set-capabilities",
                &json!({ "capabilities": states }),
            );
        }
    }
}

/// Which of these capabilities are off.
fn off(monitor: &mut Monitor, names: &[String]) -> Result<Vec<String>, QmpError> {
    let held = monitor.ask("query-migrate-capabilities", &Value::Null)?;
    let is_off = |name: &&String| {
        let mut held = held.as_array().into_iter().flatten();
        held.any(|held| held["capability"] == name.as_str() && held["state"] == false)
    };
    Ok(names.iter().filter(is_off).cloned().collect())
}

/// When the guest stopped, if that is what happened. By QEMU's own stamp, as QEMU says nothing while it finishes; its
/// clock is ours, since `run` is beside it.
fn stop_of(event: &Event) -> Option<Instant> {
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let ago = since_1970.saturating_sub(Duration::from_micros(event.at_us));
    (event.name == "STOP")
        .then(|| Instant::now().checked_sub(ago))
        .flatten()
}
