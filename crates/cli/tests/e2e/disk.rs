//! `narrows disk` as its users see it: made and served, a file system on it, killed and started again, full, misused.

use std::{
    fs,
    os::unix::{fs::MetadataExt, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{
    DEADLINE, Ended, NARROWS, Process, eventually, full, has, is_root, narrows, run, skip, start,
};

/// A disk on a file in a directory of its own. The server may be killed and started again.
struct Disk {
    dir: TempDir,
    server: Option<Process>,
}

impl Disk {
    /// Made with `create`'s options, not served yet.
    fn create(options: &[&str]) -> Self {
        let disk = Self {
            dir: TempDir::new().unwrap(),
            server: None,
        };
        let backing = disk.text("backing");
        let mut args = vec!["disk", "create", "--backing", &backing];
        args.extend(options);
        run(args).expect(0);
        disk
    }

    fn served(options: &[&str]) -> Self {
        let mut disk = Self::create(options);
        disk.start(&[]);
        disk
    }

    fn start(&mut self, options: &[&str]) {
        let [backing, socket, control] =
            ["backing", "socket", "control"].map(|name| self.text(name));
        let _ = fs::remove_file(&socket);
        let mut args = vec!["disk", "serve", "--backing", &backing];
        args.extend(["--unix", &socket, "--control", &control]);
        args.extend(options);
        let server = start(args);
        server.heard("to watch it");
        self.server = Some(server);
    }

    fn kill(&mut self) {
        let server = self.server.take().expect("it is served");
        server.signal(Signal::KILL);
        server.wait().expect(128 + 9);
    }

    fn stop(&mut self) -> Ended {
        let server = self.server.take().expect("it is served");
        server.signal(Signal::INT);
        server.wait().expect(0)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name)
            .to_str()
            .expect("temporary paths are text")
            .to_owned()
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.text("socket"))
    }

    fn stat(&self) -> serde_json::Value {
        let control = self.text("control");
        let stat = run(["disk", "stat", "--json", "--control", &control]);
        stat.expect(0).json()["disks"][0].clone()
    }

    /// `narrows disk COMMAND --backing …`
    fn tool(&self, command: &str) -> Ended {
        run(["disk", command, "--backing", &self.text("backing")])
    }
}

fn tool(program: &str, args: &[&str]) -> Ended {
    Process::start(Command::new(program).args(args).stdin(Stdio::null())).wait()
}

fn bash(script: &str) -> Ended {
    tool("bash", &["-c", &format!("set -e; {script}")])
}

/// A script with libnbd's `h` connected. Debian's Python has the module; another may come first in the path.
fn nbdsh(disk: &Disk, script: &str) -> Option<Ended> {
    let python = |script: &str| tool("/usr/bin/python3", &["-c", script]);
    if !Path::new("/usr/bin/python3").exists() || python("import nbd").code != 0 {
        skip("libnbd's Python module (package python3-libnbd) is missing");
        return None;
    }
    let uri = disk.uri();
    Some(python(&format!(
        "import nbd\nh = nbd.NBD()\nh.connect_uri('{uri}')\n{script}"
    )))
}

/// A loop device over nbdfuse over the disk: a block device without a kernel client.
struct Mounted {
    device: String,
    fuse: PathBuf,
    nbdfuse: Option<Process>,
}

impl Mounted {
    /// `None`, and a word on why, where that cannot be.
    fn on(disk: &Disk) -> Option<Self> {
        let missing = ["nbdfuse", "losetup", "mount"]
            .into_iter()
            .find(|program| !has(program));
        if let (false, _) | (_, Some(_)) = (is_root(), missing) {
            skip(&format!(
                "a file system needs root, loop devices and {}",
                missing.unwrap_or("the right to mount")
            ));
            return None;
        }
        let fuse = disk.at("fuse");
        fs::create_dir_all(&fuse).unwrap();
        let mut command = Command::new("nbdfuse");
        command.arg(&fuse).arg(disk.uri()).stdin(Stdio::null());
        let nbdfuse = Process::start(&mut command);
        eventually("nbdfuse mounts", || fuse.join("nbd").exists());
        let file = fuse.join("nbd");
        let made = tool("losetup", &["--find", "--show", file.to_str().unwrap()]);
        if made.code != 0 {
            let _ = tool("umount", &[fuse.to_str().unwrap()]);
            skip(&format!("no loop device here: {}", made.stderr));
            return None;
        }
        Some(Self {
            device: String::from_utf8(made.stdout).unwrap().trim().to_owned(),
            fuse,
            nbdfuse: Some(nbdfuse),
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = tool("losetup", &["--detach", &self.device]);
        let _ = tool("umount", &["--lazy", self.fuse.to_str().unwrap()]);
        drop(self.nbdfuse.take());
    }
}

/// What is copied: a megabyte or so in CI, all of /usr/share in the long form.
fn tree() -> &'static Path {
    let long = Path::new("/usr/share");
    let short = Path::new("/usr/share/doc");
    match (full(), short.exists()) {
        (true, _) => long,
        (false, true) => short,
        (false, false) => Path::new(env!("CARGO_MANIFEST_DIR")),
    }
}

// Goal: the first thing that anybody does with it, over a crash. Method: copy a tree, unmount, kill -9, start again, compare,
// let e2fsck and fsck judge.
#[test]
fn a_file_system_outlives_its_server() {
    let size = if full() { "16G" } else { "1G" };
    let mut disk = Disk::served(&["--size", size]);
    let mnt = disk.at("mnt");
    fs::create_dir(&mnt).unwrap();
    let (mnt, tree) = (mnt.display(), tree().display());
    {
        let Some(mounted) = Mounted::on(&disk) else {
            return;
        };
        let device = &mounted.device;
        bash(&format!(
            "mkfs.ext4 -q {device}; mount {device} {mnt}; cp -a {tree} {mnt}/copy; umount {mnt}"
        ))
        .expect(0);
    }
    let stat = disk.stat();
    assert!(stat["ratio"].as_f64().unwrap() > 1.3, "{stat}");
    disk.kill();
    disk.start(&[]);
    {
        let Some(mounted) = Mounted::on(&disk) else {
            return;
        };
        let device = &mounted.device;
        bash(&format!(
            "mount {device} {mnt}; diff -r --no-dereference {tree} {mnt}/copy
            rm -r {mnt}/copy; fstrim {mnt}; umount {mnt}; e2fsck -fn {device} >&2"
        ))
        .expect(0);
    }
    disk.stop();
    disk.tool("fsck").expect(0);
    disk.tool("scrub").expect(0);
}

/// A journal is replayed over what the server lost; whatever was synced is there.
fn survives_a_kill_while_mounted(mkfs: &str, repair: &str) {
    if !has(mkfs.split(' ').next().unwrap()) {
        return skip(&format!("{mkfs} is missing"));
    }
    let mut disk = Disk::served(&["--size", "1G"]);
    let mnt = disk.at("mnt");
    fs::create_dir(&mnt).unwrap();
    let (at, tree) = (
        mnt.display(),
        Path::new(env!("CARGO_MANIFEST_DIR")).display(),
    );
    {
        let Some(mounted) = Mounted::on(&disk) else {
            return;
        };
        let device = &mounted.device;
        let made = bash(&format!("{mkfs} {device} >&2; mount {device} {at}"));
        if made.code != 0 {
            return skip(&format!("{mkfs}: {}", made.stderr));
        }
        bash(&format!("cp -a {tree} {at}/synced; sync -f {at}")).expect(0);
        let busy = format!("while cp -a {tree} {at}/lost; do rm -rf {at}/lost; done");
        let load = Process::start(
            Command::new("bash")
                .args(["-c", &busy])
                .stdin(Stdio::null()),
        );
        std::thread::sleep(std::time::Duration::from_millis(300));
        disk.kill();
        drop(load);
        let _ = tool("umount", &["--lazy", mnt.to_str().unwrap()]);
    }
    disk.start(&[]);
    {
        let Some(mounted) = Mounted::on(&disk) else {
            return;
        };
        let device = &mounted.device;
        bash(&format!(
            "mount {device} {at}; diff -r {tree} {at}/synced; umount {at}; {repair} {device} >&2"
        ))
        .expect(0);
    }
    disk.stop();
    disk.tool("fsck").expect(0);
}

#[test]
fn ext4_survives_a_kill_while_mounted() {
    survives_a_kill_while_mounted("mkfs.ext4 -q", "e2fsck -fn");
}

#[test]
fn xfs_survives_a_kill_while_mounted() {
    survives_a_kill_while_mounted("mkfs.xfs -q", "xfs_repair -n");
}

#[test]
fn btrfs_survives_a_kill_while_mounted() {
    survives_a_kill_while_mounted("mkfs.btrfs -q", "btrfs check --readonly");
}

// Goal: what was flushed outlives any kill, nothing is mixed. Method: `bench/disk/crash.py`, which keeps a model of each block;
// NARROWS_KILL_ROUNDS rounds of it, once with room and once with the collector at work.
#[test]
fn blocks_are_what_they_may_be_after_kills() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/disk/crash.py");
    if tool("/usr/bin/python3", &["-c", "import nbd"]).code != 0 {
        return skip("libnbd's Python module (package python3-libnbd) is missing");
    }
    let rounds = std::env::var("NARROWS_KILL_ROUNDS").unwrap_or_else(|_| "10".into());
    for more in [
        &["--size", "64M"][..],
        &["--size", "48M", "--physical", "40M"],
    ] {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(&script).args(["--rounds", &rounds]).args(more);
        command.env("NARROWS", NARROWS).stdin(Stdio::null());
        // Longer than any test: so no deadline.
        let done = command.output().unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
}

// Goal: a kernel's own client, journal and barriers. Method: `bench/disk/guest.py`, an emulated guest with Debian's kernel, which
// is cut off and comes back; the long form only, since it fetches that kernel.
#[test]
fn a_kernels_own_client_is_served() {
    if !full() {
        return skip("a guest's kernel is fetched and booted with NARROWS_FULL_TESTS=1 only");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/disk/guest.py");
    let mut command = Command::new("python3");
    command
        .arg(script)
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"));
    let done = command
        .env("NARROWS", NARROWS)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.code() {
        Some(77) => skip(&format!("no guest here: {said}")),
        code => assert_eq!(code, Some(0), "{said}"),
    }
}

#[test]
fn a_second_writer_is_refused() {
    let mut disk = Disk::served(&["--size", "64M"]);
    let (backing, socket) = (disk.text("backing"), disk.text("other"));
    run(["disk", "serve", "--backing", &backing, "--unix", &socket])
        .expect(1)
        .says("in use");
    for command in ["compact", "fsck"] {
        disk.tool(command).expect(1).says("in use");
    }
    run([
        "disk",
        "create",
        "--force",
        "--backing",
        &backing,
        "--size",
        "1M",
    ])
    .expect(1)
    .says("in use");
    disk.stop();
    disk.tool("fsck").expect(0);
}

// Goal: a full backing refuses writes, keeps what was acknowledged, and trims bring it back. Method: noise until ENOSPC.
#[test]
fn a_full_backing_says_so_and_trims_bring_it_back() {
    let mut disk = Disk::served(&["--size", "256M", "--physical", "48M"]);
    let script = r"
import errno, os
kept, refused = {}, 0
for at in range(0, 200 << 20, 65536):
    data = os.urandom(65536)
    try: h.pwrite(data, at)
    except nbd.Error as error:
        assert error.errnum == errno.ENOSPC, error
        refused += 1
        if refused > 20: break
    else: kept[at] = data
assert refused > 20 and len(kept) * 65536 > 24 << 20, (refused, len(kept))
h.flush()
for at, data in kept.items(): assert h.pread(65536, at) == data, at
for at in list(kept)[::2]:
    h.trim(65536, at)
    del kept[at]
h.flush()
for at in range(200 << 20, 208 << 20, 65536):
    kept[at] = os.urandom(65536)
    h.pwrite(kept[at], at)
h.flush()
for at, data in kept.items(): assert h.pread(65536, at) == data, at
";
    let Some(ended) = nbdsh(&disk, script) else {
        return;
    };
    ended.expect(0);
    disk.kill();
    disk.start(&[]);
    disk.stop();
    disk.tool("scrub").expect(0);
    disk.tool("fsck").expect(0);
}

// Goal: nobody's bytes are taken for ours, nor overwritten. Method: hash before and after.
#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    let text = path.to_str().unwrap();
    let mut foreign = vec![0; 64 << 20];
    foreign[1080..1082].copy_from_slice(&[0x53, 0xef]);
    foreign[5 << 20..][..4].copy_from_slice(b"mine");
    fs::write(&path, &foreign).unwrap();
    let create = ["disk", "create", "--backing", text, "--size", "64M"];
    run(create).expect(1).says("not empty");
    let socket = dir.path().join("socket");
    let serve = [
        "disk",
        "serve",
        "--backing",
        text,
        "--unix",
        socket.to_str().unwrap(),
    ];
    run(serve).expect(1).says("no narrows disk");
    for command in ["fsck", "scrub", "dump", "compact"] {
        let ended = run(["disk", command, "--backing", text]);
        assert!(
            ended.code != 0 && ended.stderr.contains("no narrows disk"),
            "{ended:?}"
        );
    }
    assert!(fs::read(&path).unwrap() == foreign);
    run([
        "disk",
        "serve",
        "--backing",
        "/nonexistent/x",
        "--unix",
        text,
    ])
    .expect(1)
    .says("/nonexistent/x");
}

#[test]
fn a_truncated_image_is_refused_and_left_alone() {
    let mut disk = Disk::served(&["--size", "64M"]);
    disk.stop();
    let backing = disk.at("backing");
    let whole = fs::read(&backing).unwrap();
    let file = fs::File::options().write(true).open(&backing).unwrap();
    file.set_len(20 << 20).unwrap();
    disk.tool("fsck").expect(3).says("truncated");
    let (text, socket) = (disk.text("backing"), disk.text("socket"));
    run(["disk", "serve", "--backing", &text, "--unix", &socket])
        .expect(3)
        .says("truncated");
    assert!(fs::read(&backing).unwrap() == whole[..20 << 20]);
}

// Goal: flipped bits are errors or nothing, never other bytes. Method: flip bits all over the image, read all by nbdcopy.
#[test]
fn flipped_bits_never_read_as_other_bytes() {
    if !has("nbdcopy") {
        return skip("nbdcopy (package libnbd-bin) is missing");
    }
    let mut disk = Disk::served(&["--size", "16M", "--physical", "16M"]);
    let data = Command::new("cat").arg(NARROWS).output().unwrap().stdout;
    let data = &data[..data.len().min(12 << 20) / 4096 * 4096];
    let from = disk.text("from");
    fs::write(&from, data).unwrap();
    tool("nbdcopy", &["--flush", &from, &disk.uri()]).expect(0);
    disk.stop();
    let sound = fs::read(disk.at("backing")).unwrap();
    // Where nothing was written a flip means nothing.
    let written: Vec<usize> = (0..sound.len())
        .step_by(4096)
        .filter(|at| sound[*at..at + 4096].iter().any(|byte| *byte != 0))
        .collect();
    let (mut wrong, mut noticed) = (0, 0);
    for flip in 0..if full() { 400 } else { 24 } {
        let scattered = flip * 2_654_435_761_usize;
        let at = written[scattered % written.len()] + scattered / 7 % 4096;
        let mut image = sound.clone();
        image[at] ^= 1 << (flip % 8);
        fs::write(disk.at("backing"), &image).unwrap();
        match read_all(&disk) {
            Some(read) => wrong += usize::from(read[..data.len()] != *data),
            None => noticed += 1,
        }
    }
    assert!(noticed > 0, "no flip was noticed");
    assert_eq!(wrong, 0);
}

/// The whole device by a read-only server; `None` if that refuses, or a read fails.
fn read_all(disk: &Disk) -> Option<Vec<u8>> {
    let [backing, socket, back] = ["backing", "socket", "back"].map(|name| disk.text(name));
    let control = disk.text("control");
    let _ = fs::remove_file(&socket);
    let mut server = start([
        "disk",
        "serve",
        "--read-only",
        "--backing",
        &backing,
        "--unix",
        &socket,
        "--control",
        &control,
    ]);
    eventually("it serves or refuses", || {
        disk.at("socket").exists() || !server.is_running()
    });
    if !server.is_running() {
        return None;
    }
    let copied = tool("nbdcopy", &[&disk.uri(), &back]);
    (copied.code == 0).then(|| fs::read(&back).unwrap())
}

#[test]
fn stat_is_true_and_metrics_are_there() {
    if !has("nbdcopy") {
        return skip("nbdcopy (package libnbd-bin) is missing");
    }
    let mut disk = Disk::create(&["--size", "256M"]);
    disk.start(&["--metrics", "127.0.0.1:0"]);
    let from = disk.text("from");
    let text: Vec<u8> = (0..8_000_000_u32)
        .flat_map(|i| format!("{i:07} ").into_bytes())
        .collect();
    fs::write(&from, &text[..48 << 20]).unwrap();
    tool("nbdcopy", &["--flush", &from, &disk.uri()]).expect(0);
    let stat = disk.stat();
    let number = |name: &str| {
        stat[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {stat}"))
    };
    assert_eq!(number("size"), 256 << 20);
    assert_eq!(number("data"), 48 << 20);
    let allocated = fs::metadata(disk.at("backing")).unwrap().blocks() * 512;
    let physical = number("occupied");
    // The log is in one segment and has two more; those are not full.
    let segment = number("capacity") / stat["segments"][0].as_u64().unwrap();
    assert!(
        physical >= allocated,
        "{physical} said, {allocated} allocated: {stat}"
    );
    let off = physical - allocated;
    assert!(
        off < allocated / 50 + 3 * segment,
        "{physical} said, {allocated} allocated: {stat}"
    );
    let control = disk.text("control");
    let shown = run(["disk", "stat", "--control", &control]).expect(0);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for word in ["logical", "physical", "ratio", "write amplification"] {
        assert!(shown.contains(word), "no {word} in {shown}");
    }
    disk.stop();
    let dumped = disk.tool("dump").expect(0);
    assert!(!dumped.stdout.is_empty());
}

#[test]
fn several_exports_grow_and_compact() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["one", "two"] {
        run(["disk", "create", "--backing", &at(name), "--size", "64M"]).expect(0);
    }
    let exports = [format!("one={}", at("one")), format!("two={}", at("two"))];
    let server = start([
        "disk",
        "serve",
        "--export",
        &exports[0],
        "--export",
        &exports[1],
        "--unix",
        &at("socket"),
        "--control",
        &at("control"),
    ]);
    server.heard("to watch it");
    if has("nbdinfo") {
        let uri = format!("nbd+unix:///?socket={}", at("socket"));
        let info = tool("nbdinfo", &["--json", "--list", &uri])
            .expect(0)
            .json();
        assert_eq!(info["exports"].as_array().unwrap().len(), 2, "{info}");
    }
    server.signal(Signal::INT);
    server.wait().expect(0);
    run([
        "disk",
        "grow",
        "--backing",
        &at("one"),
        "--size",
        "128M",
        "--physical",
        "96M",
    ])
    .expect(0);
    run(["disk", "compact", "--backing", &at("one")]).expect(0);
    run(["disk", "fsck", "--backing", &at("one")]).expect(0);
    run(["disk", "grow", "--backing", &at("one"), "--size", "1M"])
        .expect(2)
        .says("is possible");
}

// Goal: a service manager learns when clients can connect, and that it ends. Method: be the manager.
#[test]
fn a_service_manager_is_told() {
    let disk = Disk::create(&["--size", "64M"]);
    let manager = UnixDatagram::bind(disk.at("notify")).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let hear = || {
        let mut told = [0; 64];
        let len = manager.recv(&mut told).unwrap();
        String::from_utf8_lossy(&told[..len]).into_owned()
    };
    let [backing, socket, control] = ["backing", "socket", "control"].map(|name| disk.text(name));
    let mut command = narrows(["disk", "serve", "--backing", &backing, "--unix", &socket]);
    command.args(["--control", &control]).stdin(Stdio::null());
    command.env("NOTIFY_SOCKET", disk.at("notify"));
    let server = Process::start(&mut command);
    assert_eq!(hear(), "READY=1");
    assert!(Path::new(&socket).exists());
    server.signal(Signal::TERM);
    assert_eq!(hear(), "STOPPING=1");
    server.wait().expect(0);
}

#[test]
fn tls_is_for_who_has_a_certificate() {
    let disk = Disk::create(&["--size", "64M"]);
    let [backing, keys, control] = ["backing", "keys", "control"].map(|name| disk.text(name));
    run(["keys", &keys]).expect(0);
    run([
        "disk",
        "serve",
        "--backing",
        &backing,
        "--listen",
        "0.0.0.0:0",
    ])
    .expect(2)
    .says("--tls-certificates");
    let mut args = vec![
        "disk",
        "serve",
        "--backing",
        &backing,
        "--listen",
        "127.0.0.1:0",
    ];
    args.extend(["--control", &control, "--tls-certificates", &keys]);
    let server = start(args);
    let uri = server.heard("nbds://");
    let port = uri.trim_end_matches('/').rsplit_once(':').unwrap().1;
    if has("nbdinfo") {
        let trusted = format!("nbds://localhost:{port}/?tls-certificates={keys}");
        let size = tool("nbdinfo", &["--size", &trusted]).expect(0);
        assert_eq!(String::from_utf8_lossy(&size.stdout).trim(), "67108864");
    } else {
        skip("nbdinfo is missing");
    }
    server.signal(Signal::INT);
    server.wait().expect(0);
}

/// A Ceph cluster on loopback, gone when dropped.
struct Ceph(PathBuf);

impl Ceph {
    fn script(args: &[&str]) -> Ended {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/disk/ceph.sh");
        let mut command = Command::new(script);
        command.args(args).stdin(Stdio::null());
        command.env("OSD_SIZE", "4G").env("PORT", "33380");
        Process::start(&mut command).wait()
    }

    fn up(dir: &Path) -> Option<Self> {
        let dir = dir.join("ceph");
        let made = Self::script(&["up", dir.to_str().unwrap()]);
        if made.code != 0 {
            skip(&format!("no Ceph cluster here: {}", made.stderr));
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        Self::script(&["down", self.0.to_str().unwrap()]);
    }
}

// Goal: an image is a backing like a file: made by us, one writer, sound after a kill. Method: a real cluster; after the kill
// its lock must be broken first, which takes Ceph half a minute.
#[test]
fn an_image_in_ceph_is_a_backing() {
    if !has("nbdcopy") {
        return skip("nbdcopy (package libnbd-bin) is missing");
    }
    let dir = TempDir::new().unwrap();
    let Some(ceph) = Ceph::up(dir.path()) else {
        return;
    };
    let at = ceph.0.to_str().unwrap();
    Ceph::script(&["pool", at, "p", "none"]).expect(0);
    let image = format!("rbd:p/vm:conf={at}/ceph.conf");
    let text = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    run(["disk", "create", "--backing", &image, "--size", "256M"]).expect(0);
    let (socket, control) = (text("socket"), text("control"));
    let serve = [
        "disk",
        "serve",
        "--backing",
        &image,
        "--unix",
        &socket,
        "--control",
        &control,
    ];
    let server = start(serve);
    server.heard("to watch it");
    let uri = format!("nbd+unix:///?socket={socket}");
    tool("nbdcopy", &["--flush", NARROWS, &uri]).expect(0);
    let other = text("other");
    run(["disk", "serve", "--backing", &image, "--unix", &other])
        .expect(1)
        .says("in use");
    server.signal(Signal::KILL);
    server.wait();
    run(["disk", "fsck", "--backing", &image]).expect(0);
    fs::remove_file(&socket).unwrap();
    let server = start(serve);
    server.heard("to watch it");
    let back = text("back");
    tool("nbdcopy", &[&uri, &back]).expect(0);
    let (written, read) = (fs::read(NARROWS).unwrap(), fs::read(&back).unwrap());
    assert!(read[..written.len()] == written);
    server.signal(Signal::INT);
    server.wait().expect(0);
}

#[test]
fn what_makes_no_sense_is_wrong_usage() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x");
    let text = path.to_str().unwrap();
    for (more, said) in [
        (&["--size", "0"][..], "size"),
        (
            &[
                "--size",
                "1G",
                "--physical",
                "512M",
                "--provision",
                "guaranteed",
            ],
            "guaranteed",
        ),
        (&["--size", "1G", "--physical", "64K"], "small"),
    ] {
        let mut args = vec!["disk", "create", "--backing", text];
        args.extend(more);
        let ended = run(args).expect(2);
        assert!(ended.stderr.contains(said), "{ended:?}");
        assert!(!path.exists(), "nothing is left of it: {more:?}");
    }
    run(["disk", "serve", "--backing", "rbd:nonsense"])
        .expect(1)
        .says("POOL/IMAGE");
}
