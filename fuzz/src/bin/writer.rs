//! Trees from anybody into a real directory, by each version of the service: placed or refused, nothing outside is
//! touched, and where it is refused no part is left.
#![no_main]

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, mpsc},
    thread,
    time::Duration,
};

use libfuzzer_sys::fuzz_target;
use narrows::{Acceptor, Endpoint, Engine, Settings};
use narrows_io::{Address, Listener, Tuning, transport};
use narrows_wire::{
    SERVICE_TREE, SERVICE_TREE_2, SERVICE_TREE_3,
    keep::Keep,
    recv,
    tree::{Attribute, Entry, Extent, Extras, Meta, Offer, Owner},
};

/// Both ends of a session that carries all trees, and a place to work in.
struct Scene {
    sender: Endpoint,
    receiver: Endpoint,
    dir: PathBuf,
}

static SCENE: LazyLock<Mutex<Scene>> = LazyLock::new(|| {
    let engine = Engine::new(1);
    let any = Address::parse("127.0.0.1:0", 0).unwrap();
    let listener = Listener::bind(&any, &Tuning::default()).unwrap();
    let to = listener.local().clone();
    let acceptor = Acceptor::new(engine.clone(), Settings::default());
    let (found, sessions) = mpsc::channel();
    thread::spawn(move || {
        let transport = listener.accept().unwrap().unwrap();
        let _ = found.send(acceptor.take(transport).unwrap().unwrap());
        // Another link of the session is not wanted; the listener stays for as long as the process.
        thread::park();
    });
    let dial = Box::new(move || {
        transport::connect(&to, &Tuning::default()).map_err(std::io::Error::other)
    });
    let sender = Endpoint::connect(&engine, Settings::default(), dial).unwrap();
    let receiver = sessions.recv_timeout(Duration::from_secs(10)).unwrap();
    let base = Path::new("/dev/shm");
    let base = if base.is_dir() {
        base.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let dir = base.join(format!("narrows-fuzz-writer-{}", std::process::id()));
    Mutex::new(Scene {
        sender,
        receiver,
        dir,
    })
});

const NAMES: [&[u8]; 14] = [
    b"a",
    b"b",
    b"d",
    b"d/a",
    b"d/e",
    b"d/e/f",
    b"out",
    b"out/secret",
    b"../outside/secret",
    b"/etc/x",
    b"A",
    b".",
    b"d/",
    b"deep/a",
];

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn name(&mut self) -> Option<Vec<u8>> {
        Some(NAMES[usize::from(self.byte()?) % NAMES.len()].to_vec())
    }

    fn meta(&mut self) -> Option<Meta> {
        Some(Meta {
            mode: u32::from(self.byte()?) << 4 & 0o7777,
            mtime_s: i64::from(self.byte()?) - 100,
            mtime_ns: 0,
            path: self.name()?,
        })
    }

    fn extents(&mut self, out: &mut Vec<u8>) -> Option<()> {
        for _ in 0..self.byte()? % 4 {
            match self.byte()? {
                0 => Extent::Abandoned.write(out),
                1 => Extent::Hole(u64::MAX - 5).write(out),
                hole @ 2..60 => Extent::Hole(u64::from(hole) << 12).write(out),
                data => {
                    Extent::Data(data.into()).write(out);
                    out.extend(std::iter::repeat_n(data, data.into()));
                }
            }
        }
        Extent::End.write(out);
        Some(())
    }

    fn entry(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let entry = match self.byte()? % 10 {
            0 | 1 => Entry::Dir(self.meta()?),
            2 | 3 => {
                Entry::File(self.meta()?).write(out);
                return self.extents(out);
            }
            4 => Entry::Link(self.meta()?, self.name()?),
            5 => Entry::HardLink(self.meta()?, self.name()?),
            6 => {
                let len = u64::from(self.byte()?);
                Entry::Offer(self.meta()?, Offer { len, hash: None })
            }
            7 => {
                Entry::Content(
                    Meta {
                        path: Vec::new(),
                        ..self.meta()?
                    },
                    u64::from(self.byte()?),
                )
                .write(out);
                return self.extents(out);
            }
            8 => Entry::Extras(Extras {
                user: (self.byte()? % 2 == 0).then(Owner::default),
                group: None,
                attributes: Some(vec![Attribute {
                    name: b"user.x".to_vec(),
                    value: vec![self.byte()?],
                }]),
            }),
            _ => match self.byte()? % 3 {
                0 => Entry::Withdrawn,
                1 => Entry::LeftOut(self.byte()?.into()),
                _ => Entry::End(self.byte()?.into()),
            },
        };
        entry.write(out);
        Some(())
    }
}

fn tree(data: &[u8], version: u8) -> Vec<u8> {
    let mut out = Vec::new();
    if version > 1 {
        let request = br#"{"partial":true,"keep":{"hard_links":true,"attributes":true}}"#;
        out.extend_from_slice(&(request.len() as u16).to_le_bytes());
        out.extend_from_slice(request);
    }
    let mut input = Input(data);
    while input.entry(&mut out).is_some() {}
    // What is left, as it is.
    out.extend_from_slice(input.0);
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let version = first % 3 + 1;
    let scene = SCENE.lock().unwrap();
    let (dir, outside) = (scene.dir.join("in"), scene.dir.join("outside"));
    fs::create_dir_all(&dir).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), b"secret").unwrap();
    symlink(&outside, dir.join("out")).unwrap();
    fs::write(dir.join("b"), b"there").unwrap();
    let service = [SERVICE_TREE, SERVICE_TREE_2, SERVICE_TREE_3][usize::from(version) - 1];
    let bytes = if first & 128 == 0 {
        tree(data, version)
    } else {
        data.to_vec()
    };
    let (mut writer, mut reader) = scene.sender.open(service).unwrap();
    let result = thread::scope(|scope| {
        scope.spawn(move || {
            let _ = writer.write_all(&bytes);
            let _ = writer.finish();
            let _ = reader.read_to_end(&mut Vec::new());
        });
        let incoming = scene.receiver.accept().unwrap().unwrap();
        let allowed = Keep {
            attributes: true,
            ..Keep::default()
        };
        recv::incoming(incoming, recv::Sink::Dir(&dir, allowed), &mut |_| {})
    });
    let names: Vec<_> = fs::read_dir(&outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["secret"], "outside was written to");
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
    clean(&dir, result.is_err());
    fs::remove_dir_all(&scene.dir).unwrap();
});

/// Opens every directory, and looks for what should be gone.
fn clean(dir: &Path, failed: bool) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().into_encoded_bytes();
        assert!(
            !name.ends_with(b".part"),
            "a part is left, failed: {failed}"
        );
        if entry.file_type().unwrap().is_dir() {
            clean(&entry.path(), failed);
        }
    }
}
