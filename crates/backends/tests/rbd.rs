//! The RBD binding against a real Ceph cluster, which `bench/disk/ceph.sh` brings up on loopback.
//!
//! Skips, and says why, where Ceph's daemons or root are missing. Takes 20 seconds, so one test has one cluster and
//! does everything with it.

use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use narrows_backends::rbd::{Image, ImageName, RbdError};

const SIZE: u64 = 64 << 20;

/// A cluster in a directory; dropping it takes it down.
struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    fn script(args: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/disk/ceph.sh");
        Command::new(script)
            .args(args)
            .env("OSD_SIZE", "4G")
            .env("PORT", "33320")
            .output()
            .expect("the script runs")
    }

    /// `None`, and a word on why, where a cluster cannot be brought up.
    fn up(dir: &Path) -> Option<Self> {
        let dir = dir.join("ceph");
        let made = Self::script(&["up", dir.to_str()?]);
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            let _ = writeln!(std::io::stderr(), "skipped: no Ceph cluster here: {why}");
            return None;
        }
        let cluster = Self { dir };
        cluster.must(&["pool", cluster.dir(), "p", "none"]);
        Some(cluster)
    }

    fn dir(&self) -> &str {
        self.dir.to_str().expect("a temporary path is text")
    }

    fn must(&self, args: &[&str]) {
        let done = Self::script(args);
        assert!(done.status.success(), "{args:?}: {done:?}");
    }

    /// One of Ceph's own programs.
    fn rbd(&self, args: &[&str]) -> Output {
        Command::new("rbd")
            .args(args)
            .env("CEPH_CONF", self.dir.join("ceph.conf"))
            .output()
            .expect("rbd runs")
    }

    fn name(&self, image: &str) -> ImageName {
        let text = format!("p/{image}:conf={}/ceph.conf", self.dir());
        text.parse().expect("a name")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        Self::script(&["down", self.dir()]);
    }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

// Goal: bytes come back, over object boundaries, after closing; a second writer is refused here and by librbd itself.
// Method: a real cluster; Ceph's own `rbd export` judges what was written.
#[test]
fn an_image_keeps_what_is_written_and_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::up(dir.path()) else {
        return;
    };
    let name = cluster.name("i");
    Image::create(&name, SIZE).unwrap();
    assert!(matches!(
        Image::create(&name, SIZE),
        Err(RbdError::Exists(_))
    ));

    let image = Image::open(&name).unwrap();
    assert_eq!((image.size().unwrap(), image.object_len()), (SIZE, 4 << 20));
    // Longer than all operations that may be under way, and begins within an object.
    let data = noise(20 << 20, 1);
    let at = (3 << 20) + 4096;
    image.write_at(at, &data).unwrap();
    image.write_at(0, &data[..512]).unwrap();
    image.flush().unwrap();
    let mut back = vec![0; data.len()];
    image.read_at(at, &mut back).unwrap();
    assert!(back == data);
    assert!(image.read_at(SIZE - 5, &mut [0; 10]).is_err());
    assert!(image.write_at(SIZE, b"beyond").is_err());

    second_writer_is_refused(&cluster, &name);
    threads_share_it(&image);

    image.discard(32 << 20, 8 << 20).unwrap();
    image.read_at(32 << 20, &mut back[..4096]).unwrap();
    assert!(back[..4096].iter().all(|byte| *byte == 0));
    assert!(image.grow(SIZE / 2).is_err());
    image.grow(2 * SIZE).unwrap();
    assert_eq!(image.size().unwrap(), 2 * SIZE);
    drop(image);

    let out = dir.path().join("exported");
    let exported = cluster.rbd(&["export", "--no-progress", "p/i", out.to_str().unwrap()]);
    assert!(exported.status.success(), "{exported:?}");
    let exported = std::fs::read(&out).unwrap();
    assert!(exported.len() as u64 == 2 * SIZE && exported[at as usize..][..data.len()] == data);
    // Free again once it was closed.
    drop(Image::open(&name).unwrap());

    for (missing, what) in [("p/none", "the image"), ("none/i", "the pool")] {
        let text = format!("{missing}:conf={}/ceph.conf", cluster.dir());
        let error = Image::open(&text.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    let plain = [
        "create",
        "p/plain",
        "--size",
        "8M",
        "--image-feature",
        "layering",
    ];
    assert!(cluster.rbd(&plain).status.success());
    let error = Image::open(&cluster.name("plain")).unwrap_err();
    assert!(matches!(error, RbdError::NoLock(_)), "{error}");
}

fn second_writer_is_refused(cluster: &Cluster, name: &ImageName) {
    let error = Image::open(name).unwrap_err();
    assert!(matches!(error, RbdError::InUse(_)), "{error}");
    // Not only those who ask for the lock as we do.
    let bench = [
        "bench",
        "--io-type",
        "write",
        "--io-size",
        "4K",
        "--io-total",
        "4K",
        "p/i",
    ];
    let other = Command::new("timeout")
        .args(["5", "rbd"])
        .args(bench)
        .env("CEPH_CONF", cluster.dir.join("ceph.conf"))
        .output()
        .unwrap();
    assert!(!other.status.success(), "{other:?}");
}

fn threads_share_it(image: &Image) {
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            scope.spawn(move || {
                for round in 0..8 {
                    let data = noise(300_000, number * 8 + round);
                    let at = (24 << 20) + number * (1 << 20) + round * 512;
                    image.write_at(at, &data).unwrap();
                    let mut back = vec![0; data.len()];
                    image.read_at(at, &mut back).unwrap();
                    assert!(back == data, "thread {number}, round {round}");
                }
            });
        }
    });
}

#[test]
fn names_are_as_qemu_writes_them() {
    let name: ImageName = "pool/image:id=me:conf=/etc/x.conf".parse().unwrap();
    assert_eq!((name.pool.as_str(), name.image.as_str()), ("pool", "image"));
    assert_eq!(name.user.as_deref(), Some("me"));
    assert_eq!(name.conf.as_deref(), Some("/etc/x.conf"));
    for wrong in [
        "",
        "pool",
        "pool/",
        "/image",
        "pool/image@snap",
        "pool/image:x=y",
        "p/i:id",
    ] {
        assert!(wrong.parse::<ImageName>().is_err(), "{wrong}");
    }
}
