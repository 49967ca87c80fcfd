//! The nbdkit plugin: a RAM disk and a disk, written and read by the tools of libnbd and by fio; and a disk whose
//! server was killed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use narrows_disk::{backing, fsck};

use crate::prefix::{crate_dir, flags, has, prefix, run, scratch};

/// The plugin, compiled; `None` where something is missing for it, which is printed.
fn plugin() -> Option<&'static Path> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let plugin = PLUGIN.get_or_init(|| {
        if !["nbdkit", "gcc", "pkg-config", "nbdinfo", "nbdcopy"]
            .iter()
            .all(|program| has(program))
        {
            return None;
        }
        let there = Command::new("pkg-config")
            .args(["--exists", "nbdkit"])
            .status();
        if !there.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nbdkit-plugin.h is not installed (Debian: nbdkit-plugin-dev)");
            return None;
        }
        let plugin = scratch("nbdkit-plugin").join("nbdkit-narrows-plugin.so");
        let mut compile = Command::new("gcc");
        compile
            .args([
                "-shared", "-fPIC", "-O2", "-g", "-std=c11", "-Wall", "-Wextra", "-Werror",
            ])
            .arg("-D_POSIX_C_SOURCE=200809L")
            .arg(crate_dir().join("nbdkit/plugin.c"))
            .args(flags(&["--cflags", "--libs", "nbdkit", "narrows"]))
            .arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()))
            .arg("-o")
            .arg(&plugin);
        run(&mut compile);
        Some(plugin)
    });
    plugin.as_deref()
}

/// nbdkit with the plugin. Killed on drop.
struct Nbdkit {
    child: Child,
    uri: String,
}

impl Nbdkit {
    fn start(plugin: &Path, dir: &Path, arguments: &[&str]) -> Self {
        let socket = dir.join("socket");
        // One that was killed left it.
        let _ = fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(&socket);
        command.arg(plugin).args(arguments).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while !socket.exists() {
            assert_eq!(child.try_wait().unwrap(), None, "nbdkit ended");
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "nbdkit does not listen"
            );
            thread::sleep(Duration::from_millis(10));
        }
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        Self { child, uri }
    }

    /// Asks it to end; whether it ended well.
    fn end(mut self) -> bool {
        let pid = self.child.id().to_string();
        run(Command::new("kill").arg(&pid));
        self.child.wait().unwrap().success()
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Text and noise, so that some of it packs.
fn content(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match (bytes.len() >> 16) % 3 {
            0 => bytes.extend(state.to_le_bytes()),
            1 => bytes.extend(format!("{:07} ", state % 1000).bytes()),
            _ => bytes.extend([0; 8]),
        }
    }
    bytes.truncate(len);
    bytes
}

const SIZE: usize = 64 << 20;

/// Copies content there and back, and asks what it is.
fn round_trip(server: &Nbdkit, dir: &Path) {
    let (there, back) = (dir.join("there"), dir.join("back"));
    let content = content(SIZE);
    fs::write(&there, &content).unwrap();
    run(Command::new("nbdcopy")
        .arg("--flush")
        .arg(&there)
        .arg(&server.uri));
    run(Command::new("nbdcopy").arg(&server.uri).arg(&back));
    assert!(
        fs::read(&back).unwrap() == content,
        "what came back differs"
    );
    let info = run(Command::new("nbdinfo").arg(&server.uri));
    let info = String::from_utf8(info.stdout).unwrap();
    for line in [
        "export-size: 67108864",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_fast_zero: true",
        "block_size_preferred: 4096",
    ] {
        assert!(info.contains(line), "{line}\n{info}");
    }
    let map = run(Command::new("nbdinfo")
        .args(["--map", "--totals"])
        .arg(&server.uri));
    let map = String::from_utf8(map.stdout).unwrap();
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
}

/// Writes and reads again what fio remembers, from several threads at once.
fn verify(server: &Nbdkit, dir: &Path) {
    if !has("fio") {
        return;
    }
    let mut fio = Command::new("fio");
    fio.current_dir(dir).args([
        "--name=verify",
        "--ioengine=nbd",
        &format!("--uri={}", server.uri),
        "--rw=randwrite",
        "--bsrange=512-128k",
        "--iodepth=8",
        "--size=16m",
        "--verify=crc32c",
        "--buffer_compress_percentage=50",
        "--fsync=64",
        "--minimal",
    ]);
    let output = fio.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("engine nbd not loadable") {
        return eprintln!("skipped: this fio has no NBD engine");
    }
    assert!(output.status.success(), "{complaint}");
}

#[test]
fn a_ram_disk() {
    let Some(plugin) = plugin() else { return };
    let dir = scratch("nbdkit-memory");
    let server = Nbdkit::start(
        plugin,
        &dir,
        &["memory=64M", "limit=64M", "profile=balanced"],
    );
    round_trip(&server, &dir);
    verify(&server, &dir);
    assert!(server.end());
}

#[test]
fn a_full_ram_disk_says_that_there_is_no_space() {
    let Some(plugin) = plugin() else { return };
    let dir = scratch("nbdkit-full");
    let server = Nbdkit::start(plugin, &dir, &["memory=64M", "limit=4M"]);
    let noise: Vec<u8> = content(1 << 26)
        .chunks(3 << 16)
        .flat_map(|c| c[..1 << 16].to_vec())
        .collect();
    fs::write(dir.join("noise"), noise).unwrap();
    let mut copy = Command::new("nbdcopy");
    let output = copy
        .arg(dir.join("noise"))
        .arg(&server.uri)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && complaint.contains("No space left"),
        "{complaint}"
    );
}

#[test]
fn a_disk() {
    let Some(plugin) = plugin() else { return };
    let dir = scratch("nbdkit-disk");
    let disk = dir.join("disk");
    let arguments = [format!("disk={}", disk.display()), "create=64M".into()];
    let arguments = [arguments[0].as_str(), &arguments[1]];
    let server = Nbdkit::start(plugin, &dir, &arguments);
    round_trip(&server, &dir);
    verify(&server, &dir);
    assert!(server.end());
    is_clean(&disk);

    // A second server, and one that only reads.
    let server = Nbdkit::start(plugin, &dir, &[arguments[0], "readonly=true"]);
    let info = run(Command::new("nbdinfo").arg(&server.uri));
    assert!(String::from_utf8_lossy(&info.stdout).contains("is_read_only: true"));
    assert!(server.end());
}

fn is_clean(disk: &Path) {
    let backing = backing::open(disk.to_str().unwrap()).unwrap();
    let found = fsck(&backing).unwrap();
    assert!(found.is_clean(), "{found:?}");
}

// Goal: what a flush made durable outlives the server. Method: kill -9 in the middle of writes after a flush; then the
// store is checked, opened and compared.
#[test]
fn a_disk_outlives_kill_9() {
    let Some(plugin) = plugin() else { return };
    let dir = scratch("nbdkit-kill");
    let disk = dir.join("disk");
    let name = format!("disk={}", disk.display());
    let mut server = Nbdkit::start(plugin, &dir, &[&name, "create=128M"]);
    let durable = content(16 << 20);
    fs::write(dir.join("durable"), &durable).unwrap();
    run(Command::new("nbdcopy")
        .arg("--flush")
        .arg(dir.join("durable"))
        .arg(&server.uri));
    // The module of libnbd is the system's Python's.
    let python = "/usr/bin/python3";
    let there = Command::new(python).args(["-c", "import nbd"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: the Python module of libnbd is not installed");
    }
    // Writes behind what is durable until the server is gone.
    let script = format!(
        "import nbd, os\nh = nbd.NBD()\nh.connect_uri('{}')\n\
         for i in range(100000): h.pwrite(os.urandom(65536), (32 << 20) + i % 1024 * 65536)",
        server.uri,
    );
    let mut writer = Command::new(python);
    let mut writer = writer
        .args(["-c", &script])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(700));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(!writer.wait().unwrap().success(), "it was still writing");
    is_clean(&disk);

    let server = Nbdkit::start(plugin, &dir, &[&name]);
    run(Command::new("nbdcopy")
        .arg(&server.uri)
        .arg(dir.join("back")));
    let back = fs::read(dir.join("back")).unwrap();
    assert!(back[..durable.len()] == durable, "what was flushed differs");
    assert!(server.end());
}

#[test]
fn mistakes_are_told_before_nbdkit_goes_to_the_background() {
    let Some(plugin) = plugin() else { return };
    let dir = scratch("nbdkit-mistakes");
    fs::write(dir.join("other"), "something else entirely").unwrap();
    let other = format!("disk={}", dir.join("other").display());
    let missing = format!("disk={}", dir.join("missing").display());
    for (arguments, expected) in [
        (&[][..], "give either memory=SIZE or disk=FILE"),
        (&["memory=0"], "must be more than 0"),
        (&["memory=1M", "create=1M"], "are for memory"),
        (&["memory=1M", "profile=best"], "there are fast"),
        (&["memory=1M", "size=1M"], "unknown parameter 'size'"),
        (&[&missing], "No such file"),
        (&[&other], "holds no narrows disk"),
        (&[&other, "create=64M"], "holds no narrows disk"),
    ] {
        let mut command = Command::new("nbdkit");
        command
            .arg("--unix")
            .arg(dir.join("socket"))
            .arg("--pidfile")
            .arg(dir.join("pid"));
        let output = command.arg(plugin).args(arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
    }
    assert_eq!(
        fs::read(dir.join("other")).unwrap(),
        b"something else entirely"
    );
}
