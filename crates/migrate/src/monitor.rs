//! A connection to QEMU's QMP socket.
//!
//! A thread reads; the caller asks and waits for the answer, and takes events when it likes.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use narrows_io::{Address, Shutdown, Transport, TransportWrite, Tuning, transport};
use serde_json::Value;

use crate::{
    qmp::{Event, Message, Qmp, QmpError},
    thread::spawn,
};

/// QEMU answers at once, but for commands that wait for the guest's lock while a migration holds it.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A QEMU that can be asked.
pub struct Monitor {
    at: String,
    to: Box<dyn TransportWrite>,
    qmp: Qmp,
    from: mpsc::Receiver<Result<Message, QmpError>>,
    events: VecDeque<Event>,
    shutdown: Shutdown,
    /// Major, minor, micro.
    pub version: [u64; 3],
    /// QEMU's process, where it is on this machine.
    pub pid: Option<u32>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor")
            .field("at", &self.at)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Monitor {
    /// Connects and gets ready for commands.
    ///
    /// # Errors
    /// [`QmpError`] where nobody answers as QEMU does.
    pub fn connect(address: &Address) -> Result<Self, QmpError> {
        let at = address.to_string();
        let Transport {
            mut reader,
            writer,
            shutdown,
            probe,
            ..
        } = transport::connect(address, &Tuning::default()).map_err(|fault| QmpError::Socket {
            at: at.clone(),
            fault: io::Error::other(fault),
        })?;
        let (send, from) = mpsc::channel();
        let reading = at.clone();
        spawn("qmp", move || {
            let (mut qmp, mut buf) = (Qmp::default(), [0; 16 << 10]);
            loop {
                let fault = match reader.read(&mut buf) {
                    Ok(0) => QmpError::Socket {
                        at: reading,
                        fault: io::ErrorKind::UnexpectedEof.into(),
                    },
                    Ok(len) => {
                        qmp.feed(&buf[..len]);
                        match drain(&mut qmp, &send) {
                            Ok(()) => continue,
                            Err(fault) => fault,
                        }
                    }
                    Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
                    Err(fault) => QmpError::Socket { at: reading, fault },
                };
                let _ = send.send(Err(fault));
                return;
            }
        });
        let mut monitor = Self {
            at,
            to: writer,
            qmp: Qmp::default(),
            from,
            events: VecDeque::new(),
            shutdown,
            version: [0; 3],
            pid: probe.peer_pid(),
        };
        // Whoever is connected to a QMP socket that serves one at a time keeps the others waiting.
        match monitor.message(Instant::now() + Duration::from_secs(5))? {
            Some(Message::Greeting(version)) => monitor.version = version,
            Some(_) => return Err(QmpError::Protocol("no greeting".into())),
            None => {
                return Err(QmpError::Silent {
                    command: "the connection".into(),
                    seconds: 5,
                });
            }
        }
        monitor.ask("qmp_capabilities", &Value::Null)?;
        Ok(monitor)
    }

    /// Runs a command and waits for its answer.
    ///
    /// # Errors
    /// [`QmpError::Refused`] where QEMU says no; others where it cannot be asked.
    pub fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let (asked, line) = self.qmp.command(command, arguments);
        self.to.write_all(&line).map_err(|fault| QmpError::Socket {
            at: self.at.clone(),
            fault,
        })?;
        let until = Instant::now() + ANSWER_WITHIN;
        loop {
            match self.message(until)? {
                Some(Message::Return(id, value)) if id == asked => return Ok(value),
                Some(Message::Error(id, text)) if id == asked || id == 0 => {
                    return Err(QmpError::Refused {
                        command: command.into(),
                        text,
                    });
                }
                Some(Message::Event(event)) => self.remember(event),
                // The answer to a command nobody waits for any more.
                Some(_) => {}
                None => {
                    return Err(QmpError::Silent {
                        command: command.into(),
                        seconds: ANSWER_WITHIN.as_secs(),
                    });
                }
            }
        }
    }

    /// The next event, within `wait`.
    ///
    /// # Errors
    /// As for asking.
    pub fn event(&mut self, wait: Duration) -> Result<Option<Event>, QmpError> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        let until = Instant::now() + wait;
        loop {
            match self.message(until)? {
                Some(Message::Event(event)) => return Ok(Some(event)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    fn remember(&mut self, event: Event) {
        // Only a caller that never asks for events lets them pile up.
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn message(&mut self, until: Instant) -> Result<Option<Message>, QmpError> {
        match self
            .from
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            Ok(message) => message.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(QmpError::Socket {
                at: self.at.clone(),
                fault: io::ErrorKind::NotConnected.into(),
            }),
        }
    }
}

const EVENTS_MAX: usize = 1024;

impl Drop for Monitor {
    fn drop(&mut self) {
        // Else the reading thread would keep the socket, and QEMU serves one client at a time.
        self.shutdown.abort();
    }
}

fn drain(qmp: &mut Qmp, send: &mpsc::Sender<Result<Message, QmpError>>) -> Result<(), QmpError> {
    while let Some(message) = qmp.message()? {
        // Nobody listens any more: the socket is about to be shut down.
        if send.send(Ok(message)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}
