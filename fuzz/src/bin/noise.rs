//! Handshakes by a key and by a code with anybody, and a sealed stream that somebody changes on the way: it is refused,
//! or what arrives is what was sent. What a stranger sends before that is bounded.
#![no_main]

use std::{
    io::{self, IoSlice, Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use libfuzzer_sys::fuzz_target;
use narrows_io::{
    secure::{self, Auth, HANDSHAKE_LEN_MAX, Pairing, Psk},
    transport::{Probe, Security, Shutdown, Transport, TransportRead, TransportWrite},
};

struct Half<T>(T);

impl<T: Read + Send> Read for Half<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<T: Read + Send> TransportRead for Half<T> {}

impl<T: Write + Send> Write for Half<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The end of what a side sends, too.
struct Socket(UnixStream);

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! sends {
    ($kind:ty, $finish:expr) => {
        impl TransportWrite for $kind {
            fn write_slices(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
                bufs.iter().try_for_each(|buf| self.write_all(buf))
            }

            fn finish(&mut self) -> io::Result<()> {
                $finish(self)
            }
        }
    };
}
sends!(Half<io::Sink>, |_: &mut Self| Ok(()));
sends!(Socket, |socket: &mut Self| socket
    .0
    .shutdown(std::net::Shutdown::Write));

fn transport(
    reader: impl TransportRead + 'static,
    writer: impl TransportWrite + 'static,
) -> Transport {
    Transport {
        reader: Box::new(reader),
        writer: Box::new(writer),
        peer: "fuzz".into(),
        shutdown: Shutdown::default(),
        probe: Probe::default(),
        security: Security::Plain,
        identity: None,
    }
}

/// Counts what is taken of a stranger's bytes.
struct Counted(io::Cursor<Vec<u8>>, Arc<AtomicUsize>);

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(buf)?;
        self.1.fetch_add(len, Relaxed);
        Ok(len)
    }
}

static KEY: LazyLock<Psk> = LazyLock::new(|| {
    Psk::parse(
        "ann:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        None,
    )
    .unwrap()
});

/// A stranger's bytes, and more of them than are taken.
fn stranger(data: &[u8], auth: &Auth, accepts: bool) {
    let mut endless = data.to_vec();
    endless.resize(
        data.len() + 3 * HANDSHAKE_LEN_MAX,
        data.last().copied().unwrap_or(0),
    );
    let taken = Arc::default();
    let reader = Half(Counted(io::Cursor::new(endless), Arc::clone(&taken)));
    let link = transport(reader, Half(io::sink()));
    let result = if accepts {
        secure::accept(link, auth)
    } else {
        secure::connect(link, auth, "localhost")
    };
    assert!(result.is_err(), "a stranger was let in");
    // As much again is thrown away, so that the answer is not lost in a reset.
    let taken = taken.load(Relaxed);
    assert!(taken <= 2 * HANDSHAKE_LEN_MAX, "{taken} bytes were taken");
}

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn link(socket: UnixStream) -> Transport {
    transport(Half(socket.try_clone().unwrap()), Socket(socket))
}

/// Both sides have the key; of what the client sends the bytes at `places` are changed on the way.
fn changed(places: &[u8], sent: &[u8]) {
    let (client, mut from) = pair();
    let (server, mut to) = pair();
    let auth = Auth::Psk(KEY.clone());
    let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 256];
            let (mut at, mut places) = (0_usize, places.chunks_exact(2));
            let mut next = places.next();
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                for byte in &mut bytes[..len] {
                    if let Some([distance, change]) = next
                        && at >= usize::from(*distance)
                    {
                        *byte ^= change;
                        (at, next) = (0, places.next());
                    }
                    at += 1;
                }
                if to.write_all(&bytes[..len]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        scope.spawn(move || {
            let _ = io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(std::net::Shutdown::Both);
        });
        scope.spawn(|| {
            if let Ok(mut link) =
                secure::connect(link(client), &Auth::Psk(KEY.clone()), "localhost")
            {
                let _ = link.writer.write_slices(&mut [IoSlice::new(sent)]);
                let _ = link.writer.finish();
                let _ = link.reader.read(&mut [0]);
            }
        });
        let Ok(mut link) = secure::accept(link(server), &auth) else {
            return;
        };
        let mut got = Vec::new();
        let whole = link.reader.read_to_end(&mut got).is_ok();
        assert!(sent.starts_with(&got), "other bytes arrived");
        assert!(!whole || got == sent, "a cut stream looked whole");
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    match first % 4 {
        0 => stranger(data, &Auth::Psk(KEY.clone()), true),
        1 => stranger(data, &Auth::Psk(KEY.clone()), false),
        2 => stranger(data, &Auth::Code(Pairing::random()), first & 64 == 0),
        _ => {
            let (places, sent) = data.split_at(data.len().min(8));
            changed(places, sent);
        }
    }
});
