//! A codec of one's own: runs of equal bytes as byte and length. Both ends need it, under one id.
//!
//! `cargo run --release -p narrows --example custom_codec`

use std::{
    io::{Read, Write},
    sync::Arc,
    thread,
};

use narrows::{
    Acceptor, Auth, Backend, Codec, CodecId, Connector, DecodeError, Engine, Error, Info, Level,
    Plan, SessionListener, Settings, Unavailable, Workspace, candidate, default_registry,
};

/// Ids from 128 to 254 are never assigned: they are for codecs that two ends agree on by themselves.
static RUNS: Info = Info {
    id: CodecId(200),
    name: "runs",
    levels: 0..=0,
    level_default: 0,
    history: false,
    format: "pairs of a byte and the length of its run, 1 to 255",
};

#[derive(Debug)]
struct Runs;

impl Codec for Runs {
    fn info(&self) -> &'static Info {
        &RUNS
    }

    fn pack(
        &self,
        raw: &[u8],
        _level: Level,
        _history: &[u8],
        out: &mut [u8],
        _ws: &mut Workspace,
    ) -> Option<usize> {
        let mut len = 0;
        for run in raw.chunk_by(|a, b| a == b) {
            for part in run.chunks(255) {
                let pair = out.get_mut(len..len + 2)?;
                pair.copy_from_slice(&[part[0], part.len() as u8]);
                len += 2;
            }
        }
        Some(len)
    }

    fn unpack(
        &self,
        packed: &[u8],
        _history: &[u8],
        out: &mut [u8],
        _ws: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let corrupt = |offset| DecodeError::Corrupt {
            offset,
            what: "runs do not add up to the chunk",
        };
        let mut filled = 0;
        for (number, pair) in packed.chunks(2).enumerate() {
            let &[byte, len] = pair else {
                return Err(corrupt(2 * number));
            };
            let run = out.get_mut(filled..filled + usize::from(len));
            run.ok_or(corrupt(2 * number))?.fill(byte);
            filled += usize::from(len);
        }
        if filled == out.len() {
            Ok(())
        } else {
            Err(corrupt(packed.len()))
        }
    }
}

#[derive(Debug)]
struct Mine;

impl Backend for Mine {
    fn name(&self) -> &'static str {
        "example"
    }

    fn priority(&self) -> i32 {
        0
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
        Ok(vec![Arc::new(Runs)])
    }
}

fn engine() -> Engine {
    let mut registry = default_registry();
    registry.add(&Mine).expect("the id is free");
    Engine::with_registry(0, registry)
}

fn main() -> Result<(), Error> {
    let acceptor = Acceptor::new(engine(), Settings::default());
    let any = narrows::parse("127.0.0.1:0")?;
    let listener = SessionListener::start(&any, Auth::None, acceptor)?;
    let connector = Connector::new(&listener.local().to_string(), Auth::None)?;
    let server = thread::spawn(move || -> Result<Vec<u8>, Error> {
        let session = listener.accept()?;
        let mut bytes = Vec::new();
        // Kept until the session is over: a writer that is dropped unfinished aborts its channel.
        let mut channel = session.accept()?;
        if let Some(channel) = &mut channel {
            channel.reader.read_to_end(&mut bytes)?;
        }
        while session.accept()?.is_some() {}
        Ok(bytes)
    });

    let engine = engine();
    let runs = candidate(&engine.registry, "runs", 0).map_err(|e| Error::Usage(e.to_string()))?;
    let settings = Settings::builder().plan(Plan::Fixed(runs)).build();
    let session = connector.connect(&engine, settings)?;
    let (mut writer, _) = session.open("picture")?;
    let picture: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 5000) as u8).collect();
    writer.write_all(&picture)?;
    writer.finish()?;
    writer.wait_consumed()?;
    println!(
        "{} bytes went as {} by `runs`",
        picture.len(),
        session.stats().sent_wire
    );
    session.close();
    assert!(server.join().expect("the server does not panic")? == picture);
    Ok(())
}
