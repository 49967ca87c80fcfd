use std::{
    io::Cursor,
    process::{Command, Stdio},
    thread,
};

use narrows_core::Workspace;
use narrows_testkit::data::{KINDS, Kind, Random, make};

use super::*;

const METHODS: [Method; 3] = [Method::Deflate, Method::Zstd, Method::Lz4];

#[derive(Default)]
struct Memory(Vec<u8>);

impl Out for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn rewrite_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// `raw` as a file; every block that packing does not shrink, and every one where `store`, as it is.
fn file(method: Method, raw: &[u8], block_len: usize, store: bool, engine: &Engine) -> Vec<u8> {
    let packer = method
        .packer(&engine.registry, method.level_default())
        .unwrap();
    let mut writer = writer(method, block_len);
    let mut out = Memory::default();
    let mut ws = Workspace::default();
    for block in raw.chunks(block_len) {
        let mut packed = vec![0; block.len()];
        let len = packer.pack(block, &mut packed, &mut ws).filter(|_| !store);
        writer
            .block(
                block,
                len.map(|len| &packed[..len]),
                method.check(block),
                &mut out,
            )
            .unwrap();
    }
    writer.end(&mut out).unwrap();
    out.0
}

fn unpack(file: Vec<u8>, engine: &Engine) -> Result<Vec<u8>, String> {
    let (method, mut pieces) = pieces(Cursor::new(file)).map_err(|fault| fault.to_string())?;
    let unpacker = method.checker(&engine.registry).unwrap();
    let mut ws = Workspace::default();
    let mut raw = Vec::new();
    while let Some(piece) = pieces.next(engine).map_err(|fault| fault.to_string())? {
        let packed = &piece.bytes[Question::HEAD_LEN..];
        let mut block = vec![0; piece.raw_len as usize];
        if piece.stored {
            block.copy_from_slice(packed);
        } else if !unpacker.unpack(packed, &mut block, &mut ws) {
            return Err("a block".into());
        }
        if piece
            .check
            .is_some_and(|check| check != method.check(&block))
        {
            return Err("a check".into());
        }
        raw.extend(block);
    }
    let content = pieces.content_check();
    if content.is_some_and(|check| check != xxhash_rust::xxh32::xxh32(&raw, 0)) {
        return Err("the content's check".into());
    }
    Ok(raw)
}

/// What a program makes of its standard input; `None` where it is not there.
fn pipe(program: &str, args: &[&str], input: &[u8]) -> Option<(bool, Vec<u8>)> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: there is no {program} here");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = thread::spawn(move || drop(io::Write::write_all(&mut stdin, &input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    Some((output.status.success(), output.stdout))
}

fn program(method: Method) -> &'static str {
    match method {
        Method::Deflate => "gzip",
        Method::Zstd => "zstd",
        Method::Lz4 => "lz4",
    }
}

#[test]
fn files_come_back_whatever_they_hold() {
    let engine = Engine::new(1);
    for method in METHODS {
        for (kind, len, store) in [
            (Kind::Text, 300_000, false),
            (Kind::Text, 300_000, true),
            (Kind::Random, 200_001, false),
            (Kind::Zeros, 1 << 20, false),
            (Kind::Mixed, 65_536, false),
            (Kind::Text, 1, false),
            (Kind::Text, 0, false),
        ] {
            let raw = make(kind, len, 1);
            let file = file(method, &raw, 64 << 10, store, &engine);
            let back = unpack(file.clone(), &engine);
            assert!(
                back.as_ref() == Ok(&raw),
                "{method:?} {kind:?} {len}: {:?}",
                back.map(|back| back.len())
            );
            // The format's own program reads it too.
            if let Some((good, out)) = pipe(program(method), &["-d", "-c"], &file) {
                assert!(good && out == raw, "{method:?} {kind:?} {len}");
                assert!(pipe(program(method), &["-t"], &file).unwrap().0);
            }
        }
    }
}

// Goal: a frame that names a window too short or too long for its block is read by zstd all the same.
#[test]
fn a_frames_window_is_as_long_as_its_block() {
    let engine = Engine::new(1);
    let raw = make(Kind::Text, 1 << 20, 3);
    let packer = Method::Zstd
        .packer(&engine.registry, Method::Zstd.level_default())
        .unwrap();
    let mut packed = vec![0; raw.len()];
    let len = packer
        .pack(&raw, &mut packed, &mut Workspace::default())
        .unwrap();
    packed.truncate(len);
    for descriptor in [0, 0xa0] {
        packed[5] = descriptor;
        let (mut writer, mut out) = (writer(Method::Zstd, raw.len()), Memory::default());
        writer
            .block(&raw, Some(&packed), Method::Zstd.check(&raw), &mut out)
            .unwrap();
        writer.end(&mut out).unwrap();
        if let Some((good, back)) = pipe("zstd", &["-d", "-c"], &out.0) {
            assert!(good && back == raw, "{descriptor:#x}");
        }
    }
    for (descriptor, plain) in [
        (0, true),
        (0b0001_0000, true),
        (0b0000_1000, false),
        (0b0000_0001, false),
    ] {
        packed[4] = descriptor;
        assert_eq!(zstd::is_plain(&packed), plain);
    }
    assert!(!zstd::is_plain(&[]) && !zstd::is_plain(&packed[..5]));
}

// lz4 writes frames whose blocks can be found when it is told to; of gzip and zstd only those that other programs make.
#[test]
fn a_frame_of_lz4s_own_is_read() {
    let engine = Engine::new(1);
    let raw = make(Kind::Text, 1 << 20, 2);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("raw");
    std::fs::write(&path, &raw).unwrap();
    let made = Command::new("lz4")
        .args(["-q", "--content-size", "-B4"])
        .arg(&path)
        .arg(dir.path().join("p"))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no lz4 here");
        return;
    }
    let file = std::fs::read(dir.path().join("p")).unwrap();
    assert!(unpack(file, &engine) == Ok(raw));
}

#[test]
fn files_without_findable_blocks_are_told_from_damaged_ones() {
    let engine = Engine::new(1);
    let raw = make(Kind::Text, 100_000, 3);
    for method in METHODS {
        let Some((_, file)) = pipe(program(method), &["-c"], &raw) else {
            continue;
        };
        let fault = match pieces(Cursor::new(file)) {
            Ok((_, mut pieces)) => pieces.next(&engine).map(|_| ()).unwrap_err(),
            Err(fault) => fault,
        };
        assert!(
            matches!(fault, Unreadable::NoBlocks(_)),
            "{method:?}: {fault}"
        );
    }
    assert!(matches!(
        pieces(Cursor::new(b"a text".to_vec())),
        Err(Unreadable::NoBlocks(_))
    ));
}

// Goal: a file that was cut or changed never gives other bytes, and never more memory than its length allows. Method:
// every cut of a small file, and seeded changes.
#[test]
fn cuts_and_changes_are_found() {
    let engine = Engine::new(1);
    let raw: Vec<u8> = KINDS.iter().flat_map(|kind| make(*kind, 900, 4)).collect();
    for method in METHODS {
        let whole = file(method, &raw, 64 << 10, false, &engine);
        for cut in 0..whole.len() {
            assert!(
                unpack(whole[..cut].to_vec(), &engine).is_err(),
                "{method:?} cut at {cut}"
            );
        }
        let mut random = Random(5);
        for _ in 0..2000 {
            let mut changed = whole.clone();
            let at = random.below(changed.len());
            changed[at] ^= 1 << random.below(8);
            // Times and systems of gzip's members mean nothing here; all else must be found.
            if let Ok(back) = unpack(changed, &engine) {
                assert!(back == raw, "{method:?} changed at {at}");
            }
        }
    }
}

#[test]
fn lengths_that_a_file_only_claims_are_refused() {
    let engine = Engine::new(1);
    let raw = make(Kind::Text, 5000, 6);
    let mut gzip = file(Method::Deflate, &raw, 64 << 10, false, &engine);
    gzip[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(unpack(gzip, &engine).is_err());
    let mut zstd = file(Method::Zstd, &raw, 64 << 10, false, &engine);
    let at = zstd.len() - 9;
    zstd[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(
        unpack(zstd, &engine)
            .unwrap_err()
            .contains("longer than the file")
    );
    let mut lz4 = file(Method::Lz4, &raw, 64 << 10, false, &engine);
    lz4[15..19].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    assert!(unpack(lz4, &engine).is_err());
}
