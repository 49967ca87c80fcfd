//! A server on this machine, and clients of it.
#![allow(unreachable_pub, dead_code, reason = "each test file uses its part")]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::Duration,
};

use narrows::{Acceptor, Dial, Endpoint, Engine, Settings};
use narrows_io::{Address, Listener, Stop, Tuning, transport};
use narrows_offload::{
    Method, OffloadError, Options, Report, Server, ServerOptions, Spill, file, server,
};
use narrows_testkit::data::{Kind, make};
use tempfile::TempDir;

pub const METHODS: [Method; 3] = [Method::Deflate, Method::Zstd, Method::Lz4];

/// Sessions that end soon where nobody is at the other end.
pub fn settings() -> Settings {
    narrows::SettingsBuilder::from(server::settings())
        .resume_within(Duration::from_millis(200))
        .build()
}

/// Listens and hands out sessions until it is dropped.
pub struct Listening {
    pub address: Address,
    stop: Stop,
}

impl Listening {
    pub fn start(engine: &Engine, each: impl Fn(Endpoint) + Send + Sync + 'static) -> Self {
        let listener = Listener::bind(
            &Address::parse("127.0.0.1:0", 0).unwrap(),
            &Tuning::default(),
        )
        .unwrap();
        let (address, stop) = (listener.local().clone(), listener.stopper());
        let acceptor = Arc::new(Acceptor::new(engine.clone(), settings()));
        let each = Arc::new(each);
        thread::spawn(move || {
            while let Ok(Some(transport)) = listener.accept() {
                let (acceptor, each) = (acceptor.clone(), each.clone());
                thread::spawn(move || {
                    if let Ok(Some(endpoint)) = acceptor.take(transport) {
                        each(endpoint);
                    }
                });
            }
        });
        Self { address, stop }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// A server that does its work.
pub fn serve(engine: &Engine, options: ServerOptions) -> Listening {
    let server = Server::start(engine.clone(), options).unwrap();
    Listening::start(engine, move |endpoint| drop(server.attend(&endpoint)))
}

pub fn dial(address: Address) -> Dial {
    Box::new(move || {
        transport::connect(&address, &Tuning::default()).map_err(std::io::Error::other)
    })
}

pub fn connect(engine: &Engine, address: &Address) -> Result<Arc<Endpoint>, OffloadError> {
    Ok(Arc::new(Endpoint::connect(
        engine,
        settings(),
        dial(address.clone()),
    )?))
}

pub fn options(method: Method) -> Options {
    let block_len = if method == Method::Lz4 {
        64 << 10
    } else {
        16 << 10
    };
    Options {
        method,
        level: method.level_default(),
        block_len,
        threads: 2,
        verify: true,
        spill: Spill::Auto,
    }
}

/// A file and where its packed and unpacked forms go.
pub struct Place {
    pub dir: TempDir,
    pub raw: Vec<u8>,
}

impl Place {
    pub fn new(kind: Kind, len: usize, seed: u64) -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
            raw: make(kind, len, seed),
        };
        std::fs::write(place.from(), &place.raw).unwrap();
        place
    }

    pub fn from(&self) -> PathBuf {
        self.dir.path().join("raw")
    }

    pub fn packed(&self) -> PathBuf {
        self.dir.path().join("packed")
    }

    pub fn back(&self) -> PathBuf {
        self.dir.path().join("back")
    }

    /// Nothing that was begun and not finished.
    pub fn is_tidy(&self) -> bool {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        names.flatten().all(|entry| {
            ["raw", "packed", "back"]
                .iter()
                .any(|name| entry.file_name() == *name)
        })
    }
}

/// A job at a server, or here.
pub fn run<T>(
    engine: &Engine,
    server: Option<&Address>,
    options: &Options,
    work: impl FnOnce(&file::Job<'_>) -> Result<T, OffloadError>,
) -> Result<T, OffloadError> {
    let endpoint = server.map(|address| connect(engine, address)).transpose()?;
    let stop = AtomicBool::new(false);
    work(&file::Job {
        engine,
        server: endpoint.as_ref(),
        options,
        stop: &stop,
    })
}

pub fn pack(
    engine: &Engine,
    server: Option<&Address>,
    options: &Options,
    place: &Place,
) -> Result<Report, OffloadError> {
    run(engine, server, options, |job| {
        file::pack(job, &place.from(), &place.packed())
    })
}

pub fn unpack(
    engine: &Engine,
    server: Option<&Address>,
    options: &Options,
    place: &Place,
) -> Result<Report, OffloadError> {
    run(engine, server, options, |job| {
        file::unpack(job, &place.packed(), &place.back())
    })
}

/// Whether a packed file is that of `raw`, by this side's own unpacking and, where it is here, by the format's own
/// program.
pub fn is_packed_form(engine: &Engine, packed: &Path, raw: &[u8]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let back = dir.path().join("back");
    let unpacked = run(engine, None, &options(Method::Deflate), |job| {
        file::unpack(job, packed, &back)
    });
    let program = match std::fs::read(packed).unwrap()[0] {
        0x1f => "gzip",
        0x28 => "zstd",
        _ => "lz4",
    };
    let input = std::fs::File::open(packed).unwrap();
    let by_program = match std::process::Command::new(program)
        .args(["-d", "-c"])
        .stdin(input)
        .output()
    {
        Ok(output) => output.status.success() && output.stdout == raw,
        Err(_) => true,
    };
    by_program && unpacked.is_ok() && std::fs::read(&back).unwrap() == raw
}

/// Waits for `wait` to hear something; longer than any test takes unless it hangs.
pub fn within<T>(wait: &mpsc::Receiver<T>) -> T {
    wait.recv_timeout(Duration::from_secs(60))
        .expect("nothing hangs")
}
