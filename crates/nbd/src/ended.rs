//! How connections end.

use std::io;

use narrows_io::secure::{HANDSHAKE_TIME, SecureError};

use crate::{handshake::HandshakeError, inbox::ReceiveError, transmission::TransmissionError};

/// Why a connection ended before its client said so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("{0} connections are served already")]
    Busy(usize),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("the handshake took longer than {} s", HANDSHAKE_TIME.as_secs())]
    Slow,
    #[error("bytes came with the request for TLS, before it")]
    Smuggled,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Secure(#[from] SecureError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Transmission(#[from] TransmissionError),
}
