//! Sends a file over TLS and prints what packing saved.
//!
//! `cargo run --release -p narrows --example send -- FILE HOST:PORT CERTIFICATES`

use std::{env, fs::File, io};

use narrows::{Auth, Error};

fn main() -> Result<(), Error> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [path, address, certificates] = &words[..] else {
        return Err(Error::Usage(
            "usage: send FILE HOST:PORT CERTIFICATES".into(),
        ));
    };
    let auth = Auth::Tls {
        dir: certificates.into(),
        server_name: None,
    };
    let session = narrows::connect(address, auth)?;
    let (mut writer, _) = session.open("file")?;
    io::copy(&mut File::open(path)?, &mut writer)?;
    writer.finish()?;
    writer.wait_consumed()?;
    let stats = session.stats();
    let (raw, wire) = (stats.sent_raw, stats.sent_wire);
    println!(
        "{raw} bytes went as {wire}: {:.2} times less",
        raw as f64 / wire as f64
    );
    session.close();
    Ok(())
}
