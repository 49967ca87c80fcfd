//! Receives one file over TLS: the other end of the example `send`.
//!
//! `cargo run --release -p narrows --example recv -- ADDRESS CERTIFICATES FILE`

use std::{env, fs::File, io};

use narrows::{Auth, Error};

fn main() -> Result<(), Error> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [address, certificates, path] = &words[..] else {
        return Err(Error::Usage("usage: recv ADDRESS CERTIFICATES FILE".into()));
    };
    let auth = Auth::Tls {
        dir: certificates.into(),
        server_name: None,
    };
    let listener = narrows::listen(address, auth)?;
    println!("listening on {}", listener.local());
    let session = listener.accept()?;
    // Kept until the session is over: a writer that is dropped unfinished aborts its channel.
    let mut channel = session.accept()?;
    if let Some(channel) = &mut channel {
        let bytes = io::copy(&mut channel.reader, &mut File::create(path)?)?;
        println!("{bytes} bytes of `{}` are in {path}", channel.service);
    }
    // Until the sender has heard that everything arrived.
    while session.accept()?.is_some() {}
    Ok(())
}
