//! Key changes, and hands on the wire.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    thread,
};

use super::*;
use crate::{
    secure::{self, Auth},
    transport::from_unix,
};

fn pair() -> (Transport, Transport) {
    let (near, far) = UnixStream::pair().unwrap();
    let auth = Auth::Psk(Psk::new("a", &[7; 32]));
    let wrap = |stream| from_unix(OwnedFd::from(stream).into(), "test".into());
    thread::scope(|scope| {
        let server = scope.spawn(|| secure::accept(wrap(far), &auth).unwrap());
        (
            secure::connect(wrap(near), &auth, "localhost").unwrap(),
            server.join().unwrap(),
        )
    })
}

#[test]
fn both_directions_go_on_across_many_key_changes() {
    let (mut near, mut far) = pair();
    for round in 0..5 * REKEY_EVERY {
        let word = round.to_le_bytes();
        let mut got = [0; 8];
        near.writer.write_all(&word).unwrap();
        far.reader.read_exact(&mut got).unwrap();
        assert_eq!(got, word);
        far.writer
            .write_slices(&mut [IoSlice::new(&word[..3]), IoSlice::new(&word[3..])])
            .unwrap();
        near.reader.read_exact(&mut got).unwrap();
        assert_eq!(got, word);
    }
}

// Goal: nothing altered, repeated or dropped on the way gets through. Method: a sealer and an opener of one
// session with a hand in between.
#[test]
fn altered_and_repeated_messages_are_refused() {
    let psk = Psk::new("a", &[7; 32]);
    let (mut client, mut server) = (
        builder(&psk).build_initiator().unwrap(),
        builder(&psk).build_responder().unwrap(),
    );
    let (mut wire, mut spare) = ([0; 64], [0; 64]);
    let len = client.write_message(&[], &mut wire).unwrap();
    assert_eq!(len, HANDSHAKE_MESSAGE_LEN);
    server.read_message(&wire[..len], &mut spare).unwrap();
    let len = server.write_message(&[], &mut wire).unwrap();
    client.read_message(&wire[..len], &mut spare).unwrap();
    let state = |noise: HandshakeState| {
        Arc::new(RwLock::new(noise.into_stateless_transport_mode().unwrap()))
    };
    let mut sealer = Sealer::new(state(client));
    sealer.seal(b"one").unwrap();
    let once = sealer.packed[..sealer.len].to_vec();
    let mut altered = once.clone();
    *altered.last_mut().unwrap() ^= 1;
    let server = state(server);
    for (sent, want) in [(altered, &b""[..]), ([once.clone(), once].concat(), b"one")] {
        let (near, far) = UnixStream::pair().unwrap();
        (&near).write_all(&sent).unwrap();
        let inner = from_unix(OwnedFd::from(far).into(), "test".into()).reader;
        let sealer = Sealer::new(server.clone());
        let mut reader = (halves(sealer, 0).reader)(inner);
        let mut got = Vec::new();
        let err = reader.read_to_end(&mut got).unwrap_err();
        assert_eq!(
            (got.as_slice(), err.kind()),
            (want, io::ErrorKind::InvalidData)
        );
    }
}
