//! A server that sends back what comes, and a client that says something: both ways of a channel.
//!
//! `cargo run --release -p narrows --example echo`

use std::{
    io::{self, Read, Write},
    thread,
};

use narrows::{Auth, Error};

fn main() -> Result<(), Error> {
    let listener = narrows::listen("127.0.0.1:0", Auth::None)?;
    let address = listener.local().to_string();
    let server = thread::spawn(move || -> Result<(), Error> {
        let session = listener.accept()?;
        while let Some(mut channel) = session.accept()? {
            io::copy(&mut channel.reader, &mut channel.writer)?;
            channel.writer.finish()?;
        }
        Ok(())
    });

    let session = narrows::connect(&address, Auth::None)?;
    let (mut writer, mut reader) = session.open("echo")?;
    writer.write_all("down the strait ".repeat(100_000).as_bytes())?;
    writer.finish()?;
    let mut back = String::new();
    reader.read_to_string(&mut back)?;
    let stats = session.stats();
    println!(
        "{} bytes came back; {} went over the link",
        back.len(),
        stats.sent_wire
    );
    session.close();
    server.join().expect("the server does not panic")
}
