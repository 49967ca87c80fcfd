//! Peers that must not get in: each is refused in bounded time, in words that say whose fault it is.

use std::{
    collections::HashSet,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use narrows_io::{
    Address, Listener, Transport, Tuning,
    secure::{self, Auth, HANDSHAKE_LEN_MAX, Pairing, Psk, SecureError, keys},
    transport,
};

fn tls(dir: &Path) -> Auth {
    Auth::Tls {
        dir: dir.into(),
        server_name: None,
    }
}

fn pki(valid_for: Duration) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    keys::generate(
        dir.path(),
        &keys::Request {
            valid_for,
            ..keys::Request::default()
        },
    )
    .unwrap();
    dir
}

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// What both sides say when `client` meets `server`.
fn meet(
    client: &Auth,
    server: &Auth,
) -> (
    Result<Transport, SecureError>,
    Result<Transport, SecureError>,
) {
    let tuning = Tuning::default();
    let listener = Listener::bind(&Address::parse("127.0.0.1:0", 0).unwrap(), &tuning).unwrap();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| secure::accept(listener.accept().unwrap().unwrap(), server));
        let plain = transport::connect(listener.local(), &tuning).unwrap();
        let connected = secure::connect(plain, client, "127.0.0.1");
        (connected, accepting.join().unwrap())
    })
}

/// What the server says to a client that does `behave` on a plain connection.
fn accept_from(
    server: &Auth,
    time: Duration,
    behave: impl FnOnce(TcpStream) + Send,
) -> (SecureError, Duration) {
    let listener = Listener::bind(
        &Address::parse("127.0.0.1:0", 0).unwrap(),
        &Tuning::default(),
    )
    .unwrap();
    thread::scope(|scope| {
        let address = listener.local().resolve().unwrap()[0];
        scope.spawn(move || behave(TcpStream::connect(address).unwrap()));
        let plain = listener.accept().unwrap().unwrap();
        let begin = Instant::now();
        let err = secure::accept_within(plain, server, time).unwrap_err();
        (err, begin.elapsed())
    })
}

#[test]
fn another_authority_is_refused_by_both_sides() {
    let (ours, theirs) = (pki(YEAR), pki(YEAR));
    let (client, server) = meet(&tls(theirs.path()), &tls(ours.path()));
    assert!(
        matches!(client, Err(SecureError::Untrusted(_))),
        "{client:?}"
    );
    assert!(matches!(server, Err(SecureError::Refused(_))), "{server:?}");

    // The client trusts the server, but comes with another authority's certificate.
    fs::copy(
        ours.path().join("ca-cert.pem"),
        theirs.path().join("ca-cert.pem"),
    )
    .unwrap();
    let (client, server) = meet(&tls(theirs.path()), &tls(ours.path()));
    assert!(
        matches!(server, Err(SecureError::Untrusted(_))),
        "{server:?}"
    );
    assert!(
        matches!(client, Err(SecureError::Refused(_))),
        "the client learns it in connect: {client:?}"
    );
}

#[test]
fn a_further_host_is_trusted_by_those_that_were_there() {
    let first = pki(YEAR);
    let dir = tempfile::tempdir().unwrap();
    let made = keys::generate(
        dir.path(),
        &keys::Request {
            authority: Some(first.path()),
            ..keys::Request::default()
        },
    )
    .unwrap();
    assert!(!made.contains(&dir.path().join(keys::CA_KEY_FILE)));
    for (client, server) in [(&first, &dir), (&dir, &first)] {
        let (client, server) = meet(&tls(client.path()), &tls(server.path()));
        client.unwrap();
        server.unwrap();
        let psk = |dir: &tempfile::TempDir| fs::read(dir.path().join(keys::PSK_FILE)).unwrap();
        assert_eq!(psk(&first), psk(&dir));
    }

    // A host that only sends and receives has no authority to sign with.
    let from_a_host = keys::Request {
        authority: Some(dir.path()),
        ..keys::Request::default()
    };
    let words = keys::generate(&dir.path().join("more"), &from_a_host);
    let words = words.unwrap_err().to_string();
    assert!(words.contains("ca-key.pem"), "{words}");
}

#[test]
fn an_expired_certificate_is_refused() {
    let expired = pki(Duration::ZERO);
    thread::sleep(Duration::from_millis(1100));
    let (client, _) = meet(&tls(expired.path()), &tls(expired.path()));
    let words = client.unwrap_err().to_string();
    assert!(words.contains("expired"), "{words}");
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let dir = pki(YEAR);
    let elsewhere = Auth::Tls {
        dir: dir.path().into(),
        server_name: Some("elsewhere.example".into()),
    };
    let (client, server) = meet(&elsewhere, &tls(dir.path()));
    assert!(
        matches!(client, Err(SecureError::Untrusted(_))),
        "{client:?}"
    );
    assert!(server.is_err());
}

#[test]
fn different_keys_are_named_on_both_sides() {
    let (a, b) = (Psk::new("a", &[1; 32]), Psk::new("a", &[2; 32]));
    let (client, server) = meet(&Auth::Psk(a), &Auth::Psk(b));
    assert!(
        matches!(client, Err(SecureError::KeyMismatch)),
        "{client:?}"
    );
    assert!(
        matches!(server, Err(SecureError::KeyMismatch)),
        "{server:?}"
    );
}

// Goal: a server knows a client again and takes no other for it. Method: certificates of two names, keys of two users, each
// twice; a code and nothing, which say nothing of who it is. The client is told of no identity.
#[test]
fn the_identity_is_who_proved_it() {
    let certificates = ["ann", "bob"].map(|client| {
        let dir = tempfile::tempdir().unwrap();
        let request = keys::Request {
            client,
            ..keys::Request::default()
        };
        keys::generate(dir.path(), &request).unwrap();
        dir
    });
    let users = ["ann", "bob"].map(|user| Psk::new(user, user.repeat(16).as_bytes()));
    let server = Auth::Psk(users[0].clone().with_others(vec![users[1].clone()]));
    let code = Pairing::random();
    let typed = Pairing::typed(&code.code()).unwrap();
    let named = [
        (tls(certificates[0].path()), tls(certificates[0].path())),
        (tls(certificates[1].path()), tls(certificates[1].path())),
        (Auth::Psk(users[0].clone()), server.clone()),
        (Auth::Psk(users[1].clone()), server),
    ];
    let nameless = [
        (Auth::Code(typed), Auth::Code(code)),
        (Auth::None, Auth::None),
    ];
    let identity = |(client, server): &(Auth, Auth)| {
        let (here, there) = meet(client, server);
        assert_eq!(here.unwrap().identity, None);
        there.unwrap().identity
    };
    let found = named.each_ref().map(|sides| {
        let found = identity(sides).expect("it was proved");
        assert_eq!(identity(sides).as_ref(), Some(&found), "again");
        found
    });
    let different: HashSet<_> = found.into_iter().collect();
    assert_eq!(different.len(), 4);
    for sides in &nameless {
        assert_eq!(identity(sides), None);
    }
}

#[test]
fn mixed_authentication_is_named() {
    let dir = pki(YEAR);
    let (tls, psk) = (tls(dir.path()), Auth::Psk(Psk::new("a", &[1; 32])));
    let (client, server) = meet(&psk, &tls);
    assert!(
        matches!(
            server,
            Err(SecureError::Protocol {
                found: "uses a pre-shared key",
                ..
            })
        ),
        "{server:?}"
    );
    assert!(client.is_err());
    let (client, server) = meet(&tls, &psk);
    assert!(
        matches!(
            server,
            Err(SecureError::Protocol {
                found: "speaks TLS",
                ..
            })
        ),
        "{server:?}"
    );
    assert!(client.is_err());
}

#[test]
fn plain_clients_garbage_and_silence_are_refused_in_bounded_time() {
    let dir = pki(YEAR);
    let limit = Duration::from_millis(700);
    for auth in [tls(dir.path()), Auth::Psk(Psk::new("a", &[1; 32]))] {
        let (err, took) = accept_from(&auth, limit, |mut link| {
            let _ = link.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            let _ = link.read(&mut [0; 64]);
        });
        assert!(
            matches!(err, SecureError::Protocol { .. }),
            "{auth:?}: {err}"
        );
        assert!(took < 3 * limit, "{took:?}");

        let (err, took) = accept_from(
            &auth,
            limit,
            |mut link| while link.write_all(&[0xa5; 4096]).is_ok() {},
        );
        assert!(!matches!(err, SecureError::Timeout(_)), "{auth:?}: {err}");
        assert!(took < 3 * limit, "{took:?}");

        // One byte at a time keeps a socket timeout from ever firing.
        let (err, took) = accept_from(&auth, limit, |mut link| {
            for byte in [0x16, 3, 1, 0x3f].into_iter().chain([1; 100]) {
                thread::sleep(Duration::from_millis(100));
                if link.write_all(&[byte]).is_err() {
                    break;
                }
            }
        });
        assert!(
            matches!(err, SecureError::Timeout(_) | SecureError::Protocol { .. }),
            "{auth:?}: {err}"
        );
        assert!(took >= limit && took < 4 * limit, "{took:?}");
    }
}

#[test]
fn endless_well_formed_records_before_authentication_are_cut_off() {
    let dir = pki(YEAR);
    let (err, _) = accept_from(&tls(dir.path()), Duration::from_secs(5), |mut link| {
        // A ClientHello that announces 16 MiB and comes in whole records.
        let mut record = vec![0x16, 3, 1, 0x40, 0];
        record.resize(5 + 0x4000, 0);
        record[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
        for _ in 0..4 * HANDSHAKE_LEN_MAX / record.len() {
            if link.write_all(&record).is_err() {
                break;
            }
        }
    });
    assert!(
        matches!(err, SecureError::TooLong(_) | SecureError::Tls(_)),
        "{err}"
    );
}

#[test]
fn tls_1_2_clients_are_refused() {
    let dir = pki(YEAR);
    let roots = {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(dir.path().join("ca-cert.pem")).unwrap())
            .unwrap();
        roots
    };
    let config = rustls::ClientConfig::builder_with_provider(
        rustls::crypto::ring::default_provider().into(),
    )
    .with_protocol_versions(&[&rustls::version::TLS12])
    .unwrap()
    .with_root_certificates(roots)
    .with_no_client_auth();
    let (err, _) = accept_from(&tls(dir.path()), Duration::from_secs(5), move |mut link| {
        let mut client =
            rustls::ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
        assert!(client.complete_io(&mut link).is_err());
    });
    assert!(err.to_string().contains("TLS 1.3"), "{err}");
}

#[test]
fn a_client_meets_a_silent_or_leaving_server_with_words() {
    let kept = pki(YEAR);
    for auth in [tls(kept.path()), Auth::Psk(Psk::new("a", &[1; 32]))] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::from(listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let mut link = listener.accept().unwrap().0;
            let _ = link.read(&mut [0; 16]);
        });
        let plain = transport::connect(&address, &Tuning::default()).unwrap();
        let err = secure::connect(plain, &auth, "localhost").unwrap_err();
        server.join().unwrap();
        assert!(
            matches!(err, SecureError::Closed | SecureError::Io(_)),
            "{err}"
        );
    }
}

// Goal: Unix tools can make our key files and certificates; skips where openssl is absent.
#[test]
fn openssl_accepts_the_generated_certificates() {
    let dir = pki(YEAR);
    for side in ["server", "client"] {
        let run = std::process::Command::new("openssl")
            .args(["verify", "-CAfile"])
            .arg(dir.path().join("ca-cert.pem"))
            .arg(dir.path().join(format!("{side}-cert.pem")))
            .output();
        match run {
            Err(err) => return eprintln!("skipped: openssl is not here: {err}"),
            Ok(out) => assert_eq!(
                out.status.code(),
                Some(0),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            ),
        }
    }
}

// Goal: a certificate that the authority took back is refused from the next handshake on, the other one is not; a list
// that cannot be read is an error. Method: `openssl ca` makes the list; skips where openssl is absent.
#[test]
fn a_revoked_certificate_is_refused_from_the_next_handshake_on() {
    let dir = pki(YEAR);
    let at = |name: &str| dir.path().join(name);
    let place = dir.path().display().to_string();
    fs::write(
        at("ca.conf"),
        format!(
            "[ca]\ndefault_ca=d\n[d]\ndatabase={place}/index.txt\ncrlnumber={place}/crlnumber\ndefault_md=sha256\ndefault_crl_days=1\n"
        ),
    )
    .unwrap();
    fs::write(at("index.txt"), "").unwrap();
    fs::write(at("crlnumber"), "01\n").unwrap();
    let openssl = |words: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        command
            .current_dir(dir.path())
            .args(["ca", "-config", "ca.conf"]);
        command.args(["-cert", "ca-cert.pem", "-keyfile", "ca-key.pem"]);
        command.args(words).output()
    };
    let list = ["-gencrl", "-out", "ca-crl.pem"];
    match openssl(&list) {
        Err(fault) => return eprintln!("skipped: openssl is not here: {fault}"),
        Ok(out) => assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        ),
    }
    let auth = tls(dir.path());
    let (client, server) = meet(&auth, &auth);
    assert!(
        client.is_ok() && server.is_ok(),
        "an empty list: {client:?}, {server:?}"
    );
    for words in [&["-revoke", "client-cert.pem"][..], &list] {
        let out = openssl(words).unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    let (client, server) = meet(&auth, &auth);
    assert!(server.is_err(), "{server:?}");
    assert!(client.is_err());
    fs::write(at("ca-crl.pem"), "no list").unwrap();
    let (_, server) = meet(&auth, &auth);
    assert!(matches!(server, Err(SecureError::Files(_))), "{server:?}");
}

// Goal: an altered byte never reaches the application, what came before it does. Method: a relay flips one byte far
// into the stream.
#[test]
fn altered_streams_are_refused_after_their_good_part() {
    let dir = pki(YEAR);
    for auth in [tls(dir.path()), Auth::Psk(Psk::new("a", &[1; 32]))] {
        let listener = Listener::bind(
            &Address::parse("127.0.0.1:0", 0).unwrap(),
            &Tuning::default(),
        )
        .unwrap();
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let entrance = Address::from(relay.local_addr().unwrap());
        let target = listener.local().resolve().unwrap()[0];
        thread::scope(|scope| {
            scope.spawn(move || {
                let near = relay.accept().unwrap().0;
                let far = TcpStream::connect(target).unwrap();
                let (mut back, mut out) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut back, &mut out));
                let (mut near, mut far, mut buf) = (near, far, vec![0; 200_000]);
                std::io::copy(&mut (&near).take(500_000), &mut far).unwrap();
                near.read_exact(&mut buf).unwrap();
                buf[100_000] ^= 1;
                let _ = far
                    .write_all(&buf)
                    .and_then(|()| std::io::copy(&mut near, &mut far).map(drop));
            });
            let client = scope.spawn(|| {
                let plain = transport::connect(&entrance, &Tuning::default()).unwrap();
                let mut link = secure::connect(plain, &auth, "127.0.0.1").unwrap();
                let _ = link.writer.write_all(&vec![3; 1 << 20]);
                link.shutdown.abort();
            });
            let mut link = secure::accept(listener.accept().unwrap().unwrap(), &auth).unwrap();
            let mut got = Vec::new();
            assert!(link.reader.read_to_end(&mut got).is_err(), "{auth:?}");
            assert!(
                got.len() > 400_000 && got.len() < 600_000 && got.iter().all(|&byte| byte == 3),
                "{}",
                got.len()
            );
            assert!(
                link.reader.read(&mut [0]).is_err(),
                "it stays refused: {auth:?}"
            );
            link.shutdown.abort();
            drop(link);
            client.join().unwrap();
        });
    }
}
