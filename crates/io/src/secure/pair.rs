//! Two hosts that share nothing but a code which a person reads from one and types at the other.
//!
//! SPAKE2 over Ed25519 (RFC 9382, crate `spake2`) makes a key of the code; Noise with that key follows, as for a
//! [`Psk`], and it is Noise that proves to each side that the other's key, and so its code, was the same. Who listens
//! learns nothing to try codes against, and who takes part tries one: the listening side takes one first message of
//! Noise, and after a wrong one the code is worth nothing. Of 2^40 codes that leaves a stranger one in 2^40, however many
//! connections are made.
//!
//! On the wire: client `MAGIC, len, message`; server the same, or `len` 0 where the code is spent. Once paired, later
//! connections of the session begin with Noise.

use std::{
    fmt,
    io::{Read, Write},
    sync::Arc,
};

use parking_lot::Mutex;
use spake2::{Ed25519Group, Identity, Password, Spake2};

use super::{Bounded, Halves, Psk, SecureError, noise};
use crate::transport::Transport;

/// First bytes of either side: narrows, pairing, version 1.
const MAGIC: &[u8; 8] = b"NRWPAIR1";
/// A side's letter and a point.
const MESSAGE_LEN: usize = 33;
/// Letters and digits that are not taken for one another.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const CODE_LEN: usize = 8;

/// A code, and what became of it. Clones share that.
#[derive(Clone)]
pub struct Pairing {
    code: String,
    state: Arc<Mutex<State>>,
}

enum State {
    Fresh,
    /// A first message of Noise is being judged, or was wrong.
    Spent,
    Paired(Psk),
}

impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pairing")
    }
}

impl Pairing {
    /// A new code, of 40 random bits.
    ///
    /// # Panics
    /// Where the system has no random numbers.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; CODE_LEN];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        let letters = bytes.map(|byte| char::from(ALPHABET[usize::from(byte & 31)]));
        Self::fresh(letters.iter().collect())
    }

    /// The code that a person typed; `None` where it is none. Case, hyphens and letters that look like digits do not
    /// matter.
    #[must_use]
    pub fn typed(text: &str) -> Option<Self> {
        let letters = text.chars().filter(|c| !"- ".contains(*c));
        let code: String = letters
            .map(|c| match c.to_ascii_lowercase() {
                'o' => '0',
                'i' | 'l' => '1',
                c => c,
            })
            .collect();
        let known = |c: u8| ALPHABET.contains(&c);
        (code.len() == CODE_LEN && code.bytes().all(known)).then(|| Self::fresh(code))
    }

    fn fresh(code: String) -> Self {
        Self {
            code,
            state: Arc::new(Mutex::new(State::Fresh)),
        }
    }

    /// As a person reads it.
    #[must_use]
    pub fn code(&self) -> String {
        format!("{}-{}", &self.code[..4], &self.code[4..])
    }

    /// Somebody had another code: this one is worth nothing any more.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        matches!(*self.state.lock(), State::Spent)
    }

    fn paired(&self) -> Option<Psk> {
        match &*self.state.lock() {
            State::Paired(psk) => Some(psk.clone()),
            _ => None,
        }
    }

    fn password(&self) -> Password {
        Password::new(self.code.as_bytes())
    }
}

fn names() -> (Identity, Identity) {
    (
        Identity::new(b"narrows send"),
        Identity::new(b"narrows recv"),
    )
}

pub(super) fn connect(link: &mut Transport, pairing: &Pairing) -> Result<Halves, SecureError> {
    if let Some(psk) = pairing.paired() {
        return noise::connect(link, &psk);
    }
    let (here, there) = names();
    let (pake, message) = Spake2::<Ed25519Group>::start_a(&pairing.password(), &here, &there);
    send(link, &message)?;
    let answer = receive(link)?.ok_or(SecureError::CodeSpent)?;
    let psk = key(pake, &answer)?;
    let halves = noise::connect(link, &psk).map_err(wrong_code)?;
    *pairing.state.lock() = State::Paired(psk);
    Ok(halves)
}

pub(super) fn accept(link: &mut Transport, pairing: &Pairing) -> Result<Halves, SecureError> {
    if let Some(psk) = pairing.paired() {
        return noise::accept(link, &[psk], &|| true).map(anonymous);
    }
    let message = receive(link)?.ok_or(SecureError::Closed)?;
    if pairing.is_spent() {
        send(link, &[])?;
        return Err(SecureError::CodeSpent);
    }
    let (there, here) = names();
    let (pake, answer) = Spake2::<Ed25519Group>::start_b(&pairing.password(), &there, &here);
    send(link, &answer)?;
    let psk = key(pake, &message)?;
    // One guess for all: taken when the message is here that shows whether it was right.
    let take = || {
        let mut state = pairing.state.lock();
        let fresh = matches!(*state, State::Fresh);
        if fresh {
            *state = State::Spent;
        }
        fresh
    };
    let halves = noise::accept(link, std::slice::from_ref(&psk), &take).map_err(wrong_code)?;
    *pairing.state.lock() = State::Paired(psk);
    Ok(anonymous(halves))
}

/// A code says nothing of who typed it.
fn anonymous(halves: Halves) -> Halves {
    Halves {
        identity: None,
        ..halves
    }
}

fn key(pake: Spake2<Ed25519Group>, theirs: &[u8]) -> Result<Psk, SecureError> {
    let key = pake.finish(theirs).map_err(|_| SecureError::WrongCode)?;
    Ok(Psk::new("code", &key))
}

fn wrong_code(error: SecureError) -> SecureError {
    match error {
        SecureError::KeyMismatch => SecureError::WrongCode,
        error => error,
    }
}

fn send(link: &mut Transport, message: &[u8]) -> Result<(), SecureError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(message.len() as u16).to_be_bytes());
    bytes.extend_from_slice(message);
    link.writer.write_all(&bytes).map_err(SecureError::Io)
}

/// The peer's message; `None` where it has none.
fn receive(link: &mut Transport) -> Result<Option<[u8; MESSAGE_LEN]>, SecureError> {
    let mut reader = Bounded::new(&mut *link.reader);
    let mut head = [0; 10];
    reader
        .read_exact(&mut head)
        .map_err(|error| noise::explain(error, &reader))?;
    if head[..8] != MAGIC[..] {
        return Err(SecureError::Protocol {
            expected: "a one-time code",
            found: reader.speaks().words(),
        });
    }
    match usize::from(u16::from_be_bytes([head[8], head[9]])) {
        0 => Ok(None),
        MESSAGE_LEN => {
            let mut message = [0; MESSAGE_LEN];
            reader
                .read_exact(&mut message)
                .map_err(|error| noise::explain(error, &reader))?;
            Ok(Some(message))
        }
        _ => Err(SecureError::Protocol {
            expected: "a one-time code",
            found: "is of another version",
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::{
        secure::{self, Auth},
        transport::from_unix,
    };

    fn meet(client: &Pairing, server: &Pairing) -> [Result<(), SecureError>; 2] {
        let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        let (one, other) = (from_unix(one, "s".into()), from_unix(other, "c".into()));
        let auth = Auth::Code(server.clone());
        let served = thread::spawn(move || secure::accept(one, &auth).map(drop));
        let connected = secure::connect(other, &Auth::Code(client.clone()), "x").map(drop);
        [connected, served.join().unwrap()]
    }

    #[test]
    fn the_same_code_pairs_and_serves_the_next_connection_as_well() {
        let server = Pairing::random();
        let client = Pairing::typed(&server.code().to_uppercase()).unwrap();
        for _ in 0..2 {
            assert!(meet(&client, &server).iter().all(Result::is_ok));
        }
        // Nobody else pairs by it.
        let late = Pairing::typed(&server.code()).unwrap();
        assert!(meet(&late, &server).iter().all(Result::is_err));
        assert!(meet(&client, &server).iter().all(Result::is_ok));
    }

    // Goal: a wrong code ends it: the right one is refused from then on.
    #[test]
    fn there_is_one_guess() {
        let server = Pairing::random();
        let wrong = Pairing::random();
        let [here, there] = meet(&wrong, &server);
        assert!(matches!(here, Err(SecureError::WrongCode)), "{here:?}");
        assert!(matches!(there, Err(SecureError::WrongCode)), "{there:?}");
        assert!(server.is_spent());
        let right = Pairing::typed(&server.code()).unwrap();
        let [here, there] = meet(&right, &server);
        assert!(matches!(here, Err(SecureError::CodeSpent)), "{here:?}");
        assert!(there.is_err());
    }

    // Goal: strangers who break off before they have shown a guess use nothing up.
    #[test]
    fn who_breaks_off_has_not_guessed() {
        let server = Pairing::random();
        let (_, message) = Spake2::<Ed25519Group>::start_a(
            &Password::new(b"x"),
            &Identity::new(b"a"),
            &Identity::new(b"b"),
        );
        let cuts = [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &MAGIC[..], &message];
        for cut in cuts {
            let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
            let (one, mut other) = (from_unix(one, "s".into()), from_unix(other, "c".into()));
            let auth = Auth::Code(server.clone());
            let served = thread::spawn(move || secure::accept(one, &auth).map(drop));
            if cut.len() == MESSAGE_LEN {
                send(&mut other, cut).unwrap();
                receive(&mut other).unwrap().unwrap();
            } else {
                other.writer.write_all(cut).unwrap();
            }
            drop(other);
            assert!(served.join().unwrap().is_err());
        }
        let client = Pairing::typed(&server.code()).unwrap();
        assert!(meet(&client, &server).iter().all(Result::is_ok));
    }

    #[test]
    fn codes_are_read_as_people_type_them() {
        let pairing = Pairing::typed("OI23-4abc").unwrap();
        assert_eq!(pairing.code(), "0123-4abc");
        for text in ["", "0123-4ab", "0123-4abcd", "0123-4abu", "0123-4ab\u{e9}"] {
            assert!(Pairing::typed(text).is_none(), "{text}");
        }
        assert_ne!(Pairing::random().code(), Pairing::random().code());
    }
}
