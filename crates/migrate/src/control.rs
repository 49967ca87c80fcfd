//! What `run` and `serve` say to each other, on a channel of the migration's session: one JSON document a chunk.
//!
//! ```text
//! run                                     serve
//!  Prepare {lanes, capabilities}  ──▶      sets its QEMU up
//!                                 ◀──      Offer {port}: only of TLS, if both sides have it
//!  Listen {direct}                ──▶
//!                                          has its QEMU listen
//!                                 ◀──      Ready {version, port}, or Failed
//!  (the migration)                ◀──      Running: the guest runs here
//!  Done {resume} or Failed        ──▶      lets a guest that waits run
//!                                 ◀──      Summary
//! ```

use narrows::{ChannelReader, ChannelWriter, Code, End};
use serde::{Deserialize, Serialize};

/// Longest document, in bytes.
const LEN_MAX: usize = 16 << 10;

/// One document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Message {
    /// What the source is going to do; the destination must be set up alike.
    Prepare {
        /// Multifd channels; 0 for a stream without.
        multifd_channels: u8,
        /// Capabilities that both sides switch on besides.
        capabilities: Vec<String>,
        /// The QEMU there could connect by itself under TLS: an [`Message::Offer`] is welcome.
        #[serde(default)]
        tls: bool,
    },
    /// Where the QEMU here could be reached by itself under TLS. It does not listen yet: it takes either that or what comes plain from this
    /// host, and only once in its life.
    Offer {
        /// Port of this host, as that of [`Message::Ready`]. Something listens there, which shows whether it is reached. Or why not.
        port: Result<u16, String>,
    },
    /// Answers [`Message::Offer`]: where QEMU shall listen.
    Listen {
        /// At that port, rather than for the tunnel.
        direct: bool,
    },
    /// The destination waits for the migration.
    Ready {
        /// Version of the QEMU there; `None` where nobody drives it.
        qemu: Option<[u64; 3]>,
        /// Port of this host at which the QEMU here may be reached without a tunnel. The host is the one that `run` was given: nobody
        /// sends a guest elsewhere. After an [`Message::Offer`] under TLS alone.
        #[serde(default)]
        direct_port: Option<u16>,
        /// Why the QEMU here listens for the tunnel though [`Message::Listen`] said otherwise.
        #[serde(default)]
        refused: Option<String>,
    },
    /// The guest runs at the destination.
    Running,
    /// The source has nothing left to send, and has let go of the guest.
    Done {
        /// The guest was running, so it shall run again.
        resume: bool,
    },
    /// It did not work, on the side that says so.
    Failed {
        /// Why.
        text: String,
    },
    /// What it cost at the destination.
    Summary(Cost),
}

/// What a migration cost at one end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time of QEMU but for its virtual processors, in seconds; `None` where that cannot be seen.
    pub qemu_cpu_s: Option<f64>,
    /// Processor time of narrows, in seconds.
    pub tunnel_cpu_s: f64,
    /// Most memory that narrows had resident, in bytes.
    pub tunnel_rss_bytes: Option<u64>,
}

/// Says something.
///
/// # Errors
/// [`End`] when the session has ended.
pub fn say(writer: &mut ChannelWriter, message: &Message) -> Result<(), End> {
    let text = serde_json::to_vec(message).expect("the documents are plain data");
    let chunk = writer.buffer_of(&text);
    writer.push(chunk)
}

/// Waits for the next document; `None` at the end.
///
/// # Errors
/// [`End`] when the session has ended, or what came is no document.
pub fn hear(reader: &mut ChannelReader) -> Result<Option<Message>, End> {
    let refused = |text: String| End { code: Code::PROTOCOL, text: format!("refused from the peer: {text}") };
    match reader.next_chunk()? {
        None => Ok(None),
        Some(chunk) if chunk.len() > LEN_MAX => Err(refused("a document that is too long".into())),
        Some(chunk) => serde_json::from_slice(chunk).map(Some).map_err(|fault| refused(fault.to_string())),
    }
}
