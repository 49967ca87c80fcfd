//! What `run` and `serve` say to each other, on a channel of the migration's session: one JSON document a chunk.
//!
//! ```text
//! run                                     serve
//!  Prepare {lanes, capabilities}  ──▶      sets its QEMU up
//!                                 ◀──      Offer {port}: where both sides could have QEMU connect under TLS, or packing
//!  Listen {direct, zstd_level}    ──▶
//!                                          has its QEMU listen
//!                                 ◀──      Ready {version, port}, or Failed
//!  Postcopy                       ──▶      lets a guest that waits run, whose memory has yet to follow
//!  (the migration)                ◀──      Running: the guest runs here
//!  Done {resume} or Failed        ──▶      lets a guest that waits run
//!                                 ◀──      Summary
//! ```

use narrows::{ChannelReader, ChannelWriter, Code, Error};
use serde::{Deserialize, Serialize};

/// Longest document, in bytes.
const LEN_MAX: usize = 16 << 10;
/// Documents that may wait until somebody looks at them; then the peer waits.
pub const WAITING_MAX: usize = 16;

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
        /// The QEMU there packs by zstd, should it connect by itself: an [`Message::Offer`] is welcome without TLS too.
        #[serde(default)]
        zstd: bool,
    },
    /// Where the QEMU here could be reached by itself. It does not listen yet: it takes either that or what comes
    /// through the tunnel, under TLS or not, packed or not, and only once in its life.
    Offer {
        /// Port of this host, as that of [`Message::Ready`]. Something listens there, which shows whether it is
        /// reached. Or why not.
        port: Result<u16, String>,
        /// It unpacks zstd.
        #[serde(default)]
        zstd: bool,
    },
    /// Answers [`Message::Offer`]: where QEMU shall listen.
    Listen {
        /// At that port, rather than for the tunnel.
        direct: bool,
        /// And for what the QEMU there packs by zstd of this level.
        #[serde(default)]
        zstd_level: Option<u8>,
    },
    /// The destination waits for the migration.
    Ready {
        /// Version of the QEMU there; `None` where nobody drives it.
        qemu: Option<[u64; 3]>,
        /// Port of this host at which the QEMU here may be reached without a tunnel. The host is the one that `run` was
        /// given: nobody sends a guest elsewhere. After an [`Message::Offer`] only as that was answered.
        #[serde(default)]
        direct_port: Option<u16>,
        /// Why the QEMU here listens for the tunnel though [`Message::Listen`] said otherwise.
        #[serde(default)]
        refused: Option<String>,
    },
    /// The source has let go of a guest that was running, and sends the rest of its memory after it.
    Postcopy,
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
/// [`Error`] when the session has ended.
pub fn say(writer: &mut ChannelWriter, message: &Message) -> Result<(), Error> {
    let text = serde_json::to_vec(message).expect("the documents are plain data");
    let chunk = writer.buffer_of(&text);
    writer.push(chunk)
}

/// Waits for the next document; `None` at the end.
///
/// # Errors
/// [`Error`] when the session has ended, or what came is no document.
pub fn hear(reader: &mut ChannelReader) -> Result<Option<Message>, Error> {
    let refused =
        |text: String| Error::new(Code::PROTOCOL, format!("refused from the peer: {text}"));
    match reader.next_chunk()? {
        None => Ok(None),
        Some(chunk) if chunk.len() > LEN_MAX => Err(refused("a document that is too long".into())),
        Some(chunk) => serde_json::from_slice(chunk)
            .map(Some)
            .map_err(|fault| refused(fault.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a peer that knows nothing of QEMU's zstd, nor of its TLS, is neither asked for it nor thought to ask.
    #[test]
    fn an_older_peer_is_understood() {
        let heard = |text: &str| serde_json::from_str::<Message>(text).unwrap();
        let capabilities = Vec::new();
        assert_eq!(
            heard(r#"{"what":"prepare","multifd_channels":2,"capabilities":[]}"#),
            Message::Prepare {
                multifd_channels: 2,
                capabilities,
                tls: false,
                zstd: false
            }
        );
        assert_eq!(
            heard(r#"{"what":"offer","port":{"Ok":4444}}"#),
            Message::Offer {
                port: Ok(4444),
                zstd: false
            }
        );
        assert_eq!(
            heard(r#"{"what":"listen","direct":true}"#),
            Message::Listen {
                direct: true,
                zstd_level: None
            }
        );
        let newer = heard(r#"{"what":"listen","direct":false,"of later versions":1}"#);
        assert_eq!(
            newer,
            Message::Listen {
                direct: false,
                zstd_level: None
            }
        );
    }
}
