//! Key files and certificates, codes that people type, and verdicts of a receiver, from anybody: read or refused.
#![no_main]

use std::{fs, path::PathBuf, sync::LazyLock, time::Duration};

use libfuzzer_sys::fuzz_target;
use narrows_io::secure::{
    Auth, Pairing, Psk, Side,
    keys::{self, Request},
};
use narrows_wire::dialogue::Verdict;

/// Files of an authority, made once.
static KEYS: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("narrows-fuzz-keys-{}", std::process::id()));
    let request = Request {
        server_names: &["localhost".into()],
        client: "client",
        psk_user: "ann",
        valid_for: Duration::from_secs(3600),
        ..Request::default()
    };
    keys::generate(&dir, &request).unwrap();
    dir
});

/// One of an authority's files is `data`.
fn certificates(data: &[u8], which: u8) {
    let names = [
        "ca-cert.pem",
        "ca-crl.pem",
        "server-cert.pem",
        "server-key.pem",
        "client-cert.pem",
        "client-key.pem",
    ];
    let path = KEYS.join(names[usize::from(which) % names.len()]);
    let before = fs::read(&path).ok();
    fs::write(&path, data).unwrap();
    let auth = Auth::Tls {
        dir: KEYS.clone(),
        server_name: None,
    };
    for side in [Side::Server, Side::Client] {
        let _ = auth.check(side);
    }
    match before {
        Some(before) => fs::write(&path, before).unwrap(),
        None => fs::remove_file(&path).unwrap(),
    }
}

fuzz_target!(|data: &[u8]| {
    if let Some((&which, data)) = data.split_first() {
        certificates(data, which);
    }
    let mut from = data;
    while let Ok(verdict) = Verdict::read(&mut from) {
        let mut again = Vec::new();
        verdict.write(&mut again);
        assert_eq!(Verdict::read(&mut &again[..]).unwrap(), verdict);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        for user in [None, Some("ann")] {
            let _ = Psk::parse(text, user);
        }
        if let Some(pairing) = Pairing::typed(text) {
            assert_eq!(
                Pairing::typed(&pairing.code()).unwrap().code(),
                pairing.code()
            );
        }
    }
});
