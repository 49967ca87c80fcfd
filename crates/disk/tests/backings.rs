//! What every backing promises, held against each that this machine has: a file by plain calls, a file past the page
//! cache, a block device (root and a loop device), an image in Ceph (root and its daemons). Skips with the reason.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use narrows_disk::backing::{self, Backing, BackingError, DirectBacking, FileBacking};

const SIZE: u64 = 32 << 20;

fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

fn noise(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 23) as u8)
        .collect()
}

fn keeps_its_promises(backing: &dyn Backing) {
    let name = backing.name();
    assert_eq!(backing.size(), SIZE, "{name}");
    let unit = backing.geometry().alignment as usize;
    // One part, many of odd lengths, more than a buffer and more than what is under way at once.
    let lens = [unit, 5 * unit, 1 << 20, (3 << 20) + unit, 20 << 20];
    for (number, len) in lens.into_iter().enumerate() {
        let data = noise(len, number as u32);
        let at = number as u64 * unit as u64;
        let parts: Vec<&[u8]> = data.chunks(len / 7 + 13).collect();
        backing.write(at, &parts).unwrap();
        let mut back = vec![0; len];
        backing.read(at, &mut back).unwrap();
        assert!(back == data, "{name}: {len}");
        if backing.geometry().read_alignment == 1 {
            backing.read(at + 5, &mut back[..len - 5]).unwrap();
            assert!(back[..len - 5] == data[5..], "{name}: {len}");
        }
    }
    backing.write(0, &[]).unwrap();
    backing.flush().unwrap();
    is_bounded(backing, unit);
    let kept = noise(unit, 9);
    backing.write(0, &[&kept]).unwrap();
    match backing.discard(8 << 20, 8 << 20) {
        Ok(()) | Err(BackingError::Unsupported { .. }) => {}
        Err(error) => panic!("{name}: {error}"),
    }
    let mut back = vec![0; unit];
    backing.read(0, &mut back).unwrap();
    assert!(back == kept, "{name}");
    threads_do_not_meet(backing);
}

fn is_bounded(backing: &dyn Backing, unit: usize) {
    let beyond = |result| matches!(result, Err(BackingError::Bounds { .. }));
    let last = SIZE - unit as u64;
    for (offset, len) in [(SIZE, unit), (last, 2 * unit), (u64::MAX - 4095, unit)] {
        let mut out = vec![0; len];
        assert!(beyond(backing.read(offset, &mut out)));
        assert!(beyond(backing.write(offset, &[&out])));
        assert!(beyond(backing.discard(offset, len as u64)));
    }
}

fn threads_do_not_meet(backing: &dyn Backing) {
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            scope.spawn(move || {
                for round in 0..10 {
                    let data = noise(600 << 10, thread * 100 + round);
                    let at = u64::from(thread) << 22;
                    backing.write(at, &[&data]).unwrap();
                    backing.flush().unwrap();
                    let mut back = vec![0; data.len()];
                    backing.read(at, &mut back).unwrap();
                    assert!(back == data, "{}: thread {thread}", backing.name());
                }
            });
        }
    });
}

fn is_one_writers(name: &str) {
    let held = backing::open(name).unwrap();
    let second = backing::open(name);
    assert!(matches!(second, Err(BackingError::Busy { .. })), "{name}");
    drop(held);
    backing::open(name).unwrap();
}

fn grows(backing: &dyn Backing) {
    backing.grow(SIZE / 2).unwrap();
    assert_eq!(backing.size(), SIZE, "never shorter");
    backing.grow(SIZE + (4 << 20)).unwrap();
    assert_eq!(backing.size(), SIZE + (4 << 20));
    backing.write(SIZE, &[&noise(4096, 3)]).unwrap();
}

/// A directory on whatever the build is on, which is a disk; `/tmp` may be memory.
fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_file_by_plain_calls() {
    let dir = dir();
    let path = dir.path().join("backing");
    let backing = FileBacking::create(&path, SIZE).unwrap();
    assert!(
        FileBacking::create(&path, SIZE).is_err(),
        "what is there stays"
    );
    keeps_its_promises(&backing);
    grows(&backing);
    drop(backing);
    is_one_writers(path.to_str().unwrap());
}

#[test]
fn a_file_past_the_page_cache() {
    let dir = dir();
    let path = dir.path().join("backing");
    let plain = FileBacking::create(&path, SIZE).unwrap();
    let backing = match DirectBacking::open(plain) {
        Ok(backing) => backing,
        Err((_, why)) => return skip(&format!("no direct writes by io_uring here: {why}")),
    };
    keeps_its_promises(&backing);
    grows(&backing);
    drop(backing);
    is_one_writers(path.to_str().unwrap());
}

/// A loop device, gone when dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        let made = made.ok().filter(|made| made.status.success())?;
        Some(Self(String::from_utf8(made.stdout).ok()?.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn a_block_device() {
    let dir = dir();
    let file = dir.path().join("image");
    fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let Some(device) = Loop::over(&file) else {
        return skip("no loop device here, or no right to one");
    };
    let name = device.0.to_str().unwrap();
    let backing = backing::open(name).unwrap();
    keeps_its_promises(&*backing);
    let grown = backing.grow(2 * SIZE);
    assert!(matches!(grown, Err(BackingError::Unsupported { .. })));
    drop(backing);
    is_one_writers(name);
}

#[test]
fn an_image_in_ceph() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/disk/ceph.sh");
    let dir = dir();
    let ceph = dir.path().join("ceph");
    let run = |args: &[&str]| {
        let mut command = Command::new(&script);
        command.env("PORT", "33340").env("OSD_SIZE", "4G");
        command.args(args).output().unwrap()
    };
    let at = ceph.to_str().unwrap();
    let made = run(&["up", at]);
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr);
        return skip(&format!("no Ceph cluster here: {why}"));
    }
    let tested = std::panic::catch_unwind(|| {
        assert!(run(&["pool", at, "p", "none"]).status.success());
        let name = format!("rbd:p/i:conf={at}/ceph.conf");
        let backing = backing::create(&name, SIZE).unwrap();
        assert_eq!(backing.name(), "rbd:p/i");
        assert_eq!(backing.geometry().segment_alignment, 4 << 20);
        keeps_its_promises(&*backing);
        grows(&*backing);
        drop(backing);
        is_one_writers(&name);
    });
    run(&["down", at]);
    tested.unwrap();
}
