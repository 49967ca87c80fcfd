//! Two QEMUs, a guest that writes all the time, and a way between them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use narrows_io::Address;
use narrows_migrate::{destination::uri, monitor::Monitor};
use narrows_testkit::data::{KINDS, Random, make};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{self, Process, alone, has, skip, start};

/// Nothing that is waited for here takes longer unless it hangs.
const STEP: Duration = Duration::from_secs(40);

/// Waits for `condition`; one that does not come fails the test.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    process::eventually_within(STEP, what, condition);
}

pub const RAM_MIB: usize = 96;

/// 16-bit code at 7c00: dirties 128 pages from 64 KiB on, and every 16384 rounds prints a number of four letters, `a`
/// being 0.
#[rustfmt::skip]
const BOOT: &[u8] = &[
    0xfa,                                           // cli
    0x31, 0xc0, 0x8e, 0xd8,                         // xor ax,ax; mov ds,ax
    0x66, 0x31, 0xc9,                               // xor ecx,ecx
    // again:
    0xbb, 0x00, 0x10,                               // mov bx,1000
    // next:
    0x8e, 0xc3,                                     // mov es,bx
    0x26, 0xff, 0x06, 0x00, 0x00,                   // inc word [es:0]
    0x81, 0xc3, 0x00, 0x01,                         // add bx,100
    0x81, 0xfb, 0x00, 0x90,                         // cmp bx,9000
    0x72, 0xef,                                     // jb next
    0x66, 0x41,                                     // inc ecx
    0x66, 0xf7, 0xc1, 0xff, 0x3f, 0x00, 0x00,       // test ecx,3fff
    0x75, 0xe1,                                     // jnz again
    0x66, 0x89, 0xc8,                               // mov eax,ecx
    0x66, 0xc1, 0xe8, 0x0e,                         // shr eax,14
    0x89, 0xc5,                                     // mov bp,ax
    0xbf, 0x04, 0x00,                               // mov di,4
    // digit:
    0xc1, 0xc5, 0x04,                               // rol bp,4
    0x89, 0xeb, 0x83, 0xe3, 0x0f,                   // mov bx,bp; and bx,0f
    0x88, 0xd8, 0x04, 0x61,                         // mov al,bl; add al,'a'
    0xe8, 0x0a, 0x00,                               // call putc
    0x4f,                                           // dec di
    0x75, 0xee,                                     // jnz digit
    0xb0, 0x0a,                                     // mov al,'\n'
    0xe8, 0x02, 0x00,                               // call putc
    0xeb, 0xc1,                                     // jmp again
    // putc:
    0x88, 0xc4,                                     // mov ah,al
    0xba, 0xfd, 0x03,                               // mov dx,3fd
    0xec, 0xa8, 0x20, 0x74, 0xfb,                   // in al,dx; test al,20; jz back to in
    0xba, 0xf8, 0x03,                               // mov dx,3f8
    0x88, 0xe0, 0xee, 0xc3,                         // mov al,ah; out dx,al; ret
];

/// What QEMU needs, in a folder of its own.
pub struct Bench {
    dir: TempDir,
    pub binary: String,
    data: Vec<String>,
}

impl Bench {
    /// `None`, with the reason printed, where there is no QEMU.
    pub fn new() -> Option<Self> {
        let named = std::env::var("NARROWS_QEMU").unwrap_or_else(|_| "qemu-system-x86_64".into());
        let mut words = named.split(':').map(str::to_owned);
        let binary = words.next().unwrap_or_default();
        if !has(&binary) && !Path::new(&binary).is_file() {
            skip("no qemu-system-x86_64 (Debian: qemu-system-x86), nor one named by NARROWS_QEMU");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let mut disk = vec![0; 1 << 20];
        disk[..BOOT.len()].copy_from_slice(BOOT);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        fs::write(dir.path().join("disk"), disk).unwrap();
        let mut ram = vec![0; RAM_MIB << 20];
        let mut random = Random(5);
        // From 16 MiB on, where the firmware does not come; every eighth piece stays zero.
        for (index, piece) in ram[16 << 20..].chunks_mut(1 << 20).enumerate() {
            if index % 8 != 7 {
                piece.copy_from_slice(&make(
                    KINDS[random.below(KINDS.len())],
                    piece.len(),
                    index as u64,
                ));
            }
        }
        fs::write(dir.path().join("ram"), ram).unwrap();
        Some(Self {
            dir,
            binary,
            data: words.collect(),
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn unix(&self, name: &str) -> Address {
        Address::Unix(self.path(name))
    }

    pub fn start(&self, name: &str, incoming: bool) -> Qemu {
        self.start_by(Command::new(&self.binary), name, incoming)
    }

    /// By a command that runs QEMU with what it is given.
    pub fn start_by(&self, mut command: Command, name: &str, incoming: bool) -> Qemu {
        let socket = self.path(&format!("{name}.qmp"));
        let _ = fs::remove_file(&socket);
        command
            .args(self.options(name, incoming))
            .stdin(Stdio::null());
        command.args([
            "-qmp",
            &format!("unix:{},server=on,wait=off", socket.display()),
        ]);
        if incoming {
            command.args(["-incoming", "defer", "-S"]);
        }
        self.connect(name, Process::start(&mut command))
    }

    /// What makes the guest, and a second socket to ask QEMU through.
    pub fn options(&self, name: &str, incoming: bool) -> Vec<String> {
        let file = |name: &str| self.path(name).display().to_string();
        let memory = if incoming { "ram" } else { "file" };
        let content = if incoming {
            String::new()
        } else {
            format!(",mem-path={},share=off", file("ram"))
        };
        let asked = self.path(&format!("{name}.qmp2"));
        let _ = fs::remove_file(&asked);
        let options = format!(
            "-accel tcg -machine pc,memory-backend=pc.ram -nodefaults -display none -m {RAM_MIB} \
             -object memory-backend-{memory},id=pc.ram,size={RAM_MIB}M{content} \
             -drive file={},format=raw,if=ide,snapshot=on,file.locking=off -serial file:{} \
             -qmp unix:{},server=on,wait=off",
            file("disk"),
            file(&format!("{name}.console")),
            asked.display()
        );
        let folders = self.data.iter().flat_map(|folder| ["-L", folder]);
        folders
            .chain(options.split_whitespace())
            .map(str::to_owned)
            .collect()
    }

    /// The QEMU that a process is, once it answers.
    pub fn connect(&self, name: &str, process: Process) -> Qemu {
        let socket = self.unix(&format!("{name}.qmp2"));
        let mut monitor = None;
        eventually("QEMU answers", || {
            monitor = Monitor::connect(&socket).ok();
            monitor.is_some()
        });
        Qemu {
            name: name.into(),
            process,
            monitor: monitor.unwrap(),
        }
    }

    /// A source whose guest runs, and a destination that waits.
    pub fn pair(&self) -> (Qemu, Qemu) {
        let source = self.start("s", false);
        eventually("the guest prints", || self.printed("s").len() > 2);
        (source, self.start("d", true))
    }

    /// The numbers that a guest printed on one side.
    pub fn printed(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(&format!("{name}.console"))).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .filter(|line| line.len() == 4 && line.bytes().all(|b| b.is_ascii_lowercase()))
            .map(str::to_owned)
            .collect()
    }

    pub fn memory(&self, qemu: &mut Qemu) -> Vec<u8> {
        let path = self.path(&format!("{}.ram", qemu.name));
        let _ = fs::remove_file(&path);
        qemu.ask(
            "pmemsave",
            json!({ "val": 0, "size": RAM_MIB << 20, "filename": path }),
        );
        fs::read(path).unwrap()
    }

    /// Both sides stand still; they must be the same, and the destination must go on from there.
    pub fn check(&self, source: &mut Qemu, dest: &mut Qemu) {
        // QEMU says that a migration is completed a moment before its guest is in this state.
        eventually("the source stands still", || {
            source.status() == "postmigrate"
        });
        assert_eq!(dest.status(), "paused");
        let (ours, theirs) = (self.memory(source), self.memory(dest));
        let differ: Vec<_> = (0..ours.len())
            .step_by(4096)
            .filter(|&at| ours[at..at + 4096] != theirs[at..at + 4096])
            .collect();
        assert!(
            differ.is_empty(),
            "{} pages differ, the first at {:#x}",
            differ.len(),
            differ[0]
        );
        dest.ask("cont", Value::Null);
        self.check_goes_on();
    }

    pub fn check_goes_on(&self) {
        eventually("the guest prints at the destination", || {
            self.printed("d").len() > 2
        });
        let (before, after) = (self.printed("s"), self.printed("d"));
        // A line may be cut by the move; what is whole rises.
        assert!(
            after.is_sorted() && after[0] >= *before.last().unwrap(),
            "{:?} {:?}",
            before.last(),
            &after[..3]
        );
    }
}

pub struct Qemu {
    name: String,
    pub process: Process,
    pub monitor: Monitor,
}

impl Qemu {
    #[track_caller]
    pub fn ask(&mut self, command: &str, arguments: Value) -> Value {
        self.monitor
            .ask(command, &arguments)
            .unwrap_or_else(|fault| {
                thread::sleep(Duration::from_millis(100));
                panic!(
                    "{}, {command}: {fault}; QEMU said: {}",
                    self.name,
                    self.process.said()
                )
            })
    }

    /// Asks for a migration once QEMU has let go of the last: it says that one is over a moment before that.
    pub fn migrate(&mut self, uri: &str) {
        eventually("QEMU has let go of the last migration", || {
            let held = self.ask("query-yank", Value::Null);
            held.as_array()
                .unwrap()
                .iter()
                .all(|it| it["type"] != "migration")
        });
        self.ask("migrate", json!({ "uri": uri }));
    }

    pub fn status(&mut self) -> String {
        self.ask("query-status", Value::Null)["status"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub fn set_up(&mut self, channels: u8, more: &[&str]) {
        let mut states = vec![
            ("return-path", true),
            ("events", true),
            ("multifd", channels > 0),
        ];
        states.extend(more.iter().map(|name| (*name, true)));
        let states: Vec<_> = states
            .iter()
            .map(|(name, on)| json!({ "capability": name, "state": on }))
            .collect();
        self.ask(
            "migrate-set-capabilities",
            json!({ "capabilities": states }),
        );
        let mut parameters = json!({ "max-bandwidth": 1_u64 << 40 });
        if channels > 0 {
            parameters["multifd-channels"] = channels.into();
        }
        self.ask("migrate-set-parameters", parameters);
    }

    /// QEMU's word for how the migration stands.
    pub fn migration(&mut self) -> String {
        self.ask("query-migrate", Value::Null)["status"]
            .as_str()
            .unwrap_or("none")
            .to_owned()
    }

    #[track_caller]
    pub fn wait_migrated(&mut self) {
        let mut state = String::new();
        eventually("the migration ends", || {
            state = self.migration();
            ["completed", "failed", "cancelled"].contains(&state.as_str())
        });
        assert_eq!(
            state,
            "completed",
            "{}",
            self.ask("query-migrate", Value::Null)
        );
    }
}

/// `serve` beside the destination and `tunnel` beside the source.
pub struct Way {
    pub serve: Process,
    pub tunnel: Process,
}

impl Drop for Way {
    fn drop(&mut self) {
        if thread::panicking() {
            println!(
                "serve said: {}\ntunnel said: {}",
                self.serve.said(),
                self.tunnel.said()
            );
        }
    }
}

impl Way {
    pub fn start(bench: &Bench, flags: &[&str]) -> Self {
        let serve = Self::serve(bench, &[]);
        let at = Self::served_at(&serve);
        let socket = bench.unix("s.sock").to_string();
        let tunnel = start([&["migrate", "tunnel", "-l", &socket, "--peer", &at], flags].concat());
        tunnel.heard("taking a guest at ");
        Self { serve, tunnel }
    }

    pub fn serve(bench: &Bench, flags: &[&str]) -> Process {
        let target = bench.unix("d.sock").to_string();
        start(
            [
                &["migrate", "serve", "-l", &alone(), "--to", &target],
                flags,
            ]
            .concat(),
        )
    }

    pub fn served_at(serve: &Process) -> String {
        serve
            .heard("taking migrations at ")
            .split_once(" for ")
            .unwrap()
            .0
            .to_owned()
    }
}

pub fn begin(
    bench: &Bench,
    source: &mut Qemu,
    dest: &mut Qemu,
    channels: u8,
    capabilities: &[&str],
) {
    source.set_up(channels, capabilities);
    dest.set_up(channels, capabilities);
    dest.ask(
        "migrate-incoming",
        json!({ "uri": uri(&bench.unix("d.sock")) }),
    );
    source.ask("migrate", json!({ "uri": uri(&bench.unix("s.sock")) }));
}
