//! QEMU's control protocol, without I/O: bytes come in, messages come out.
//!
//! One JSON object a line, both ways (QEMU's `docs/interop/qmp-spec`). QEMU greets; `qmp_capabilities` must be the
//! first command; a command's answer carries its id; events come in between at any time.

use serde::Deserialize;
use serde_json::{Value, json};

/// Longest message taken, in bytes: the largest known, a schema, has 300 KiB.
pub const LINE_MAX: usize = 4 << 20;

/// Why QEMU's control socket is of no use any more, or said no.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QmpError {
    /// The socket cannot be had or broke. Is QEMU running, and nobody else connected to it?
    #[error("cannot talk to QEMU at {at}: {fault}; is it running, and its QMP socket free?")]
    Socket {
        /// The socket.
        at: String,
        /// The system's word.
        fault: std::io::Error,
    },
    /// What came is no QMP. Look at what listens there.
    #[error("what answers is not QEMU's QMP: {0}")]
    Protocol(String),
    /// QEMU refused a command, in its words.
    #[error("QEMU refuses {command}: {text}")]
    Refused {
        /// The command.
        command: String,
        /// Its words.
        text: String,
    },
    /// No answer in time.
    #[error("QEMU does not answer {command} within {seconds} s")]
    Silent {
        /// The command.
        command: String,
        /// How long was waited.
        seconds: u64,
    },
}

/// Something that happened in QEMU.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// `STOP`, `RESUME`, `MIGRATION`, …
    pub name: String,
    /// What belongs to it.
    pub data: Value,
    /// When, by the clock of QEMU's host, in microseconds since 1970.
    pub at_us: u64,
}

/// One message from QEMU.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The first, with QEMU's version: major, minor, micro.
    Greeting([u64; 3]),
    /// Answer to the command of this id.
    Return(u64, Value),
    /// Refusal of the command of this id, in words.
    Error(u64, String),
    /// Something happened.
    Event(Event),
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "QMP")]
    qmp: Option<Value>,
    #[serde(rename = "return")]
    value: Option<Value>,
    error: Option<Value>,
    event: Option<String>,
    id: Option<u64>,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    timestamp: Value,
}

/// The client's side.
#[derive(Debug, Default)]
pub struct Qmp {
    buf: Vec<u8>,
    last_id: u64,
}

impl Qmp {
    /// A command's line, and the id its answer will carry.
    pub fn command(&mut self, name: &str, arguments: &Value) -> (u64, Vec<u8>) {
        self.last_id += 1;
        let mut command = json!({ "execute": name, "id": self.last_id });
        if !arguments.is_null() {
            command["arguments"] = arguments.clone();
        }
        let mut line = command.to_string().into_bytes();
        line.push(b'\n');
        (self.last_id, line)
    }

    /// Takes bytes that came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// The next message that is whole; `None` until more bytes come.
    ///
    /// # Errors
    /// [`QmpError::Protocol`] where a line is none, or too long.
    pub fn message(&mut self) -> Result<Option<Message>, QmpError> {
        loop {
            let Some(end) = self.buf.iter().position(|&byte| byte == b'\n') else {
                if self.buf.len() > LINE_MAX {
                    return Err(QmpError::Protocol("a message without end".into()));
                }
                return Ok(None);
            };
            let line: Vec<u8> = self.buf.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                return parse(&line).map(Some);
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Message, QmpError> {
    let line: Line =
        serde_json::from_slice(line).map_err(|fault| QmpError::Protocol(fault.to_string()))?;
    if let Some(name) = line.event {
        let time = |field: &str| line.timestamp[field].as_u64().unwrap_or(0);
        let at_us = time("seconds")
            .saturating_mul(1_000_000)
            .saturating_add(time("microseconds"));
        return Ok(Message::Event(Event {
            name,
            data: line.data,
            at_us,
        }));
    }
    if let Some(error) = line.error {
        let text = error["desc"]
            .as_str()
            .unwrap_or("no reason given")
            .to_owned();
        // An error without id answers what QEMU could not even read, which is then the command before.
        return Ok(Message::Error(line.id.unwrap_or(0), text));
    }
    if let Some(qmp) = line.qmp {
        let version = &qmp["version"]["qemu"];
        let part = |name: &str| {
            version[name]
                .as_u64()
                .ok_or_else(|| QmpError::Protocol("a greeting without version".into()))
        };
        return Ok(Message::Greeting([
            part("major")?,
            part("minor")?,
            part("micro")?,
        ]));
    }
    match (line.value, line.id) {
        (Some(value), Some(id)) => Ok(Message::Return(id, value)),
        // serde reads `"return": null` as none; QEMU sends `{}` instead.
        _ => Err(QmpError::Protocol(
            "neither greeting, answer nor event".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TALK: &str = concat!(
        r#"{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10}, "package": ""}, "capabilities": ["oob"]}}"#,
        "\r\n",
        r#"{"return": {}, "id": 1}"#,
        "\r\n",
        r#"{"timestamp": {"seconds": 1700000000, "microseconds": 42}, "event": "MIGRATION", "data": {"status": "active"}}"#,
        "\r\n",
        r#"{"id": 2, "error": {"class": "GenericError", "desc": "no"}}"#,
        "\r\n"
    );

    #[test]
    fn a_talk_is_read_however_it_is_cut() {
        let want = [
            Message::Greeting([10, 0, 2]),
            Message::Return(1, json!({})),
            Message::Event(Event {
                name: "MIGRATION".into(),
                data: json!({ "status": "active" }),
                at_us: 1_700_000_000_000_042,
            }),
            Message::Error(2, "no".into()),
        ];
        for step in 1..TALK.len() {
            let (mut qmp, mut got) = (Qmp::default(), Vec::new());
            for piece in TALK.as_bytes().chunks(step) {
                qmp.feed(piece);
                while let Some(message) = qmp.message().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, want, "in pieces of {step}");
        }
    }

    #[test]
    fn commands_carry_rising_ids() {
        let mut qmp = Qmp::default();
        assert_eq!(
            qmp.command("stop", &Value::Null),
            (1, b"{\"execute\":\"stop\",\"id\":1}\n".to_vec())
        );
        let (id, line) = qmp.command("migrate", &json!({ "uri": "unix:/x" }));
        assert_eq!(id, 2);
        assert_eq!(
            serde_json::from_slice::<Value>(&line).unwrap()["arguments"]["uri"],
            "unix:/x"
        );
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut qmp = Qmp::default();
        qmp.feed(&vec![b'x'; LINE_MAX + 1]);
        assert!(matches!(qmp.message(), Err(QmpError::Protocol(_))));
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut qmp = Qmp::default();
            qmp.feed(&bytes);
            for _ in 0..bytes.len() + 1 {
                if !matches!(qmp.message(), Ok(Some(_))) {
                    break;
                }
            }
        }
    }
}
