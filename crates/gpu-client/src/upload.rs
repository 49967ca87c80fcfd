//! Copies to the device: with the message that announces them, on a lane, or not at all where the server has the bytes.

use std::time::Instant;

use narrows_gpu_wire::{CONTENT_LEN_MAX, CONTENT_LEN_MIN, INLINE_LEN_MAX, Request, Span};

use crate::{
    contents::{COPY_LEN_MIN, Piece, Way, hash_of},
    ffi::Answer,
    host::HostSpan,
    lane::{Lane, Upload},
    state::{Client, Stream},
    task::Mode,
};

impl Client {
    pub(crate) fn upload(&self, stream: &Stream, dst: Span, src: Span, mode: Mode) -> Answer {
        self.check_span(&dst)?;
        let from = HostSpan::new(src)?;
        self.before(stream)?;
        let len = from.len();
        if len == 0 {
            return self.remote.check();
        }
        if len <= INLINE_LEN_MAX as u64 {
            self.remote.send(&Request::WriteInline {
                stream: stream.id,
                dst,
                bytes: from.to_vec(),
            })?;
        } else {
            let lane = stream.lane(&self.remote)?;
            let copy = Copy {
                client: self,
                stream: stream.id,
                lane,
                dst: dst.joined(),
                len,
            };
            copy.run(&mut lane.begin(from))
                .or_else(|status| self.remote.check().and(Err(status)))?;
        }
        if mode == Mode::Sync {
            self.copied();
        }
        Ok(())
    }
}

/// A copy on a lane.
struct Copy<'a> {
    client: &'a Client,
    stream: u64,
    lane: &'a Lane,
    dst: Span,
    len: u64,
}

impl Copy<'_> {
    fn run(&self, upload: &mut Upload<'_>) -> Answer {
        let contents = &self.client.remote.contents;
        // Only a plain range can be cut into ranges.
        let plain = self.dst.rows == 1 && self.dst.slices == 1;
        if !plain || self.len < COPY_LEN_MIN || !contents.is_on() {
            self.announce(self.dst, Way::Sent, [0; 32])?;
            return upload.send_next(self.len);
        }
        let link_ns = self.client.remote.link_ns_a_byte();
        while upload.left() > 0 {
            let len = upload.left().min(CONTENT_LEN_MAX as u64);
            if len >= CONTENT_LEN_MIN as u64 && contents.is_worth_it() {
                self.piece(upload, len, link_ns)?;
            } else {
                let len = upload.left().min(contents.plain_len());
                let (dst, began) = (self.range(upload, len), Instant::now());
                self.announce(dst, Way::Sent, [0; 32])?;
                upload.send_next(len)?;
                contents.sent(len, ns_since(began), len as f64 * link_ns);
            }
        }
        Ok(())
    }

    /// Where the next bytes go.
    fn range(&self, upload: &Upload<'_>, len: u64) -> Span {
        Span::linear(self.dst.base + (self.len - upload.left()), len)
    }

    /// Copies a piece: what is hashed is what is sent, whatever the program does to its memory meanwhile.
    fn piece(&self, upload: &mut Upload<'_>, len: u64, link_ns: f64) -> Answer {
        let contents = &self.client.remote.contents;
        let dst = self.range(upload, len);
        let bufs = upload.gather(len);
        let (hash, took_ns) = hash_of(bufs.iter().map(|buf| &buf[..]));
        contents.hashed(took_ns);
        let piece = Piece {
            hash,
            len,
            stream: self.stream,
        };
        let way = contents.place(&piece, |way| self.announce(dst, way, hash))?;
        if way == Way::Held {
            contents.found(len);
            return Ok(());
        }
        let began = Instant::now();
        upload.send(bufs)?;
        contents.sent(len, ns_since(began), len as f64 * link_ns);
        Ok(())
    }

    fn announce(&self, dst: Span, way: Way, hash: [u8; 32]) -> Answer {
        let (stream, lane) = (self.stream, self.lane.number);
        self.client.remote.send(&match way {
            Way::Sent => Request::Write { stream, lane, dst },
            Way::Kept => Request::WriteKept {
                stream,
                lane,
                dst,
                hash,
            },
            Way::Held => Request::WriteHeld { stream, dst, hash },
        })?;
        // The server reads the lane when it knows what for.
        match way {
            Way::Held => Ok(()),
            Way::Sent | Way::Kept => self.client.remote.flush_now(),
        }
    }
}

fn ns_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e9
}
