//! What is known of QEMU's multifd stream, and what that saves.
//!
//! A multifd channel is a first packet of 64 bytes and then packets of a header (1344 bytes: which pages) and up to 128
//! pages of 4 KiB. A guest that goes on running while it moves sends pages again and again, and many of them unchanged
//! or nearly so. So the sender keeps a keyed hash of every page it sent ([`known`]), leaves out what the destination
//! has already, and sends pages that changed a little as difference against the version sent before, of which both
//! sides keep the last ([`ring`]), and copies bytes out of any page kept. Headers are predicted from the one before and
//! cost a few bytes. What remains is packed as any chunk.
//!
//! When leaving out is right. QEMU parts its stream into rounds: a packet with the SYNC flag on every channel, which
//! the destination's channels wait for one another at. Within a round a page travels once. So what the destination
//! holds of a page when round `r` begins is what was sent of it last in the rounds before, provided that (1) all lanes
//! have passed SYNC `r` here, else an older packet may still come; (2) every page travels in these packets, zero pages
//! too, which QEMU 9.0 and later do and earlier ones do not: the first packet that names a zero page proves it; (3) no
//! lane carries packets that were not understood, or has yet to come: packets are numbered over all lanes, so none is
//! missing. Where one of these does not hold, no page is left out, which is always right.
//!
//! Why nobody waits for ever. Packets that keep pages or refer to some are numbered, and the receiver has one wait for
//! lower numbers only. But a lane stops for another reason too: its QEMU reads nothing past a SYNC until all lanes have
//! come there. So a packet is numbered only when all lanes there will be are in its round; else it goes in full.
//! Numbers of a round are then lower than those of the next. Take the lowest that was not taken: nothing before it on
//! its lane waits for a number. If its QEMU stands at a SYNC, then what other lanes lack up to there is of earlier
//! rounds, and waits for none either. Beneath, lanes share nothing that fills up: each has its own credit and may
//! always have a chunk waiting for the link, and who reads the link waits for nobody. At the sender a lane waits for
//! others a moment and no longer.
//!
//! Pure but for waiting: no I/O, no clock read; [`Encoder::pack`] and [`Decoder::is_ready`] wait for other lanes'
//! threads, up to a bound. All bytes a [`Decoder`] sees are untrusted.

pub mod copies;
mod decoder;
mod encoder;
pub mod known;
mod lanes;
mod numbers;
mod packet;
pub mod ring;
mod sender;
pub mod similar;
pub mod sparse;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, Receiver, Unpacked};
pub use encoder::Encoder;
pub use packet::{HEADER_LEN, INIT_LEN, PAGE_LEN, PAGES_MAX, Packet, Surprise, is_multifd};
pub use sender::{Counts, Sender};

use narrows_core::DecodeError;

/// First byte of every chunk of a lane. 1 and 2 were a first packet and a packet of another layout, and are not used
/// again.
pub mod kind {
    /// Bytes as they are.
    pub const PLAIN: u8 = 0;
    /// A multifd channel's first packet, and how many pages are kept; see [`super::FIRST_LEN`].
    pub const INIT: u8 = 3;
    /// A multifd packet; see [`super::PAGES_AT`].
    pub const PACKET: u8 = 4;
}

/// Length of what follows the kind [`kind::INIT`]: the packet as it is, and the number of pages kept, 32 bits
/// little-endian.
pub const FIRST_LEN: usize = INIT_LEN + 4;

/// Where the pages of a packet's chunk begin.
///
/// Layout: kind; how many pages are made, not sent in full; flags (`TURN` 1, `KEEP` 2; 16 bits little-endian, as
/// lengths here); length of the front, 32 bits. The front: pages in full and the own bytes of pages made of [`copies`],
/// in their order. Then, if `TURN`, the packet's number among those and how many pages were kept before; if `KEEP`, a
/// bitmap of 16 bytes, which of the packet's pages are kept; the header's length and bytes ([`sparse`], against its
/// prediction); and for each page that is made its place among the packet's pages and how: for a difference the
/// position it is against, its length and bytes ([`sparse`]), for `COPIES` its steps. Lengths are LEB128.
pub const PAGES_AT: usize = 8;

/// The packet refers to pages that are kept, or some of it are.
const TURN: u8 = 1;
/// Pages of the packet are kept.
const KEEP: u8 = 2;
/// In the byte that tells a page's place: it is made of copies.
const COPIES: u8 = 0x80;

/// A page is identified by the number its memory block was given here, and its offset there.
type Key = (u16, u64);

/// One page.
type Page = [u8; PAGE_LEN];

/// Names of memory blocks, numbered as they come.
#[derive(Debug, Default)]
struct Blocks(Vec<[u8; packet::BLOCK_LEN]>);

impl Blocks {
    /// Guests have some dozens.
    const MAX: usize = 1024;

    /// The block's number; `None` where there are more than anybody has.
    fn number(&mut self, name: &[u8; packet::BLOCK_LEN]) -> Option<u16> {
        let at = self.0.iter().position(|held| held == name).or_else(|| {
            (self.0.len() < Self::MAX).then(|| {
                self.0.push(*name);
                self.0.len() - 1
            })
        })?;
        Some(at as u16)
    }
}

fn corrupt(offset: usize, what: &'static str) -> DecodeError {
    DecodeError::corrupt(offset, what)
}
