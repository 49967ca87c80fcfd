//! Programs under the library, with less memory than they ask for.
//!
//! Each program is a function of this file that is marked `ignored`: a test runs this file again, with the library
//! preloaded, for that function alone. Needs userfaultfd; where it is not allowed, tests say so and pass.

use std::{
    env,
    fs::File,
    io::{Read, Seek, Write},
    process::{Command, Output},
    thread,
};

use narrows_memory::run::{self, Counters, RunReport};

const MIB: usize = 1 << 20;

/// Runs one of the programs below within `limit` bytes. `None` where the system does not allow it.
fn program(name: &str, limit: usize) -> Option<(Output, RunReport)> {
    let library = run::find().unwrap();
    let counters = Counters::new().unwrap();
    let here = env::temp_dir();
    let environment = counters.environment(&library, limit as u64, &here);
    let check = Command::new("/bin/true")
        .envs(environment.clone())
        .env(run::CHECK, "1")
        .output()
        .unwrap();
    if !check.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&check.stderr));
        return None;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            name,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs(environment)
        .output()
        .unwrap();
    Some((output, counters.report().unwrap()))
}

fn assert_done((output, report): &(Output, RunReport), limit: usize) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(report.started);
    let most = limit + limit / 32 + 24 * MIB;
    assert!(
        report.peak_bytes as usize <= most,
        "{} MiB",
        report.peak_bytes >> 20
    );
}

// Goal: no write is lost and no page mixed up, whatever goes and comes. Method: eight threads at random lines of random
// blocks, of which two thirds may be there, against versions that are kept apart; now and then one goes on in order, so
// that blocks are brought ahead, too.
#[test]
fn threads_find_what_they_wrote() {
    let limit = env::var("NARROWS_MODEL_LIMIT_MIB").map_or(64, |text| text.parse().unwrap()) * MIB;
    let Some(done) = program("model", limit) else {
        return;
    };
    assert_done(&done, limit);
    assert!(
        done.1.packed > 500 && done.1.unpacked > 500 && done.1.written > 100,
        "{:?}",
        done.1
    );
}

#[test]
#[ignore = "run by threads_find_what_they_wrote"]
fn model() {
    let accesses = env::var("NARROWS_MODEL_ACCESSES").map_or(200_000, |text| text.parse().unwrap());
    let (threads, lines) = (8, 96 * MIB / 64);
    let mut memory = vec![[0_u64; 8]; lines];
    let at = memory.as_mut_ptr() as usize;
    thread::scope(|scope| {
        for id in 0..threads {
            scope.spawn(move || {
                // Versions in pieces that are too short to be managed.
                let mine = lines / threads;
                let mut versions: Vec<Vec<u32>> = vec![vec![0; 4096]; mine / 4096 + 1];
                // Noise is there from the start, so that some blocks do not pack.
                for n in (0..mine).filter(|n| is_noise(n * threads + id)) {
                    versions[n / 4096][n % 4096] = 1;
                    // SAFETY: as below.
                    unsafe {
                        let line = n * threads + id;
                        (at as *mut [u64; 8]).add(line).write(expected(line, 1));
                    }
                }
                let (mut state, mut block) = (id as u64, 0);
                for access in 0..accesses / threads {
                    state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
                    if access % IN_A_BLOCK == 0 {
                        block = (state >> 8) as usize % (mine / LINES);
                    }
                    let run = if access % 10_000 == 0 { 20_000 } else { 1 };
                    let first = block * LINES + state as usize % LINES;
                    let is_back = state >> 59 & 1 == 1;
                    for step in 0..run {
                        let n = if is_back {
                            first + mine * run - step
                        } else {
                            first + step
                        } % mine;
                        let line = n * threads + id;
                        // SAFETY: the line is this thread's alone, and within the memory, which outlives the scope.
                        let found = unsafe { &mut *(at as *mut [u64; 8]).add(line) };
                        let version = &mut versions[n / 4096][n % 4096];
                        assert_eq!(*found, expected(line, *version), "line {line}");
                        if state >> 57 & 3 == 0 {
                            *version += 1;
                            *found = expected(line, *version);
                        }
                    }
                }
            });
        }
    });
    drop(memory);
}

/// Lines of a block that are one thread's.
const LINES: usize = (64 << 10) / 64 / 8;
/// Random accesses to a block before the next one is chosen: with one, nearly all of the time would go into faults.
const IN_A_BLOCK: usize = 10;

/// Every fourth megabyte is noise, which does not pack.
fn is_noise(line: usize) -> bool {
    (line >> 14).is_multiple_of(4)
}

/// What a line holds.
fn expected(line: usize, version: u32) -> [u64; 8] {
    if version == 0 {
        return [0; 8];
    }
    let version = u64::from(version);
    std::array::from_fn(|n| match is_noise(line) {
        true => mix((line * 8 + n) as u64 + (version << 40)),
        false => version + n as u64,
    })
}

fn mix(mut x: u64) -> u64 {
    for by in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        x = (x ^ x >> 33).wrapping_mul(by);
    }
    x ^ x >> 33
}

#[test]
fn system_calls_and_the_memory_family_see_what_is_not_there() {
    let Some(done) = program("calls", 48 * MIB) else {
        return;
    };
    assert_done(&done, 48 * MIB);
}

#[test]
#[ignore = "run by system_calls_and_the_memory_family_see_what_is_not_there"]
fn calls() {
    let fill = |from: usize, len: usize| (from..from + len).map(|n| (n / 3) as u8);
    // Written from and read into memory of which most is away.
    let mut data: Vec<u8> = fill(0, 96 * MIB).collect();
    let mut file = File::from(rustix_memfd());
    file.write_all(&data).unwrap();
    file.rewind().unwrap();
    data.fill(0);
    file.read_exact(&mut data).unwrap();
    assert!(data.iter().copied().eq(fill(0, 96 * MIB)));
    // Longer, where it is or elsewhere.
    data.reserve_exact(40 * MIB);
    data.extend(fill(96 * MIB, 40 * MIB));
    assert!(data.iter().copied().eq(fill(0, 136 * MIB)));
    drop((data, file));
    // What was freed is zero when it is taken again.
    let zeroes = vec![0_u8; 100 * MIB];
    assert!(zeroes.iter().all(|&byte| byte == 0));
    drop(zeroes);
    mapped();
}

/// A mapping: part of it dropped, longer, part of it unmapped.
fn mapped() {
    let len = 64 * MIB;
    // SAFETY: a new mapping, used by this function alone and within its length.
    unsafe {
        let (all, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let start = libc::mmap(std::ptr::null_mut(), len, all, flags, -1, 0).cast::<u8>();
        for at in 0..len {
            *start.add(at) = (at / 5) as u8;
        }
        let (from, gone) = (3 * MIB + 4096, 5 * MIB + 8192);
        assert_eq!(
            libc::madvise(start.add(from).cast(), gone, libc::MADV_DONTNEED),
            0
        );
        let start =
            libc::mremap(start.cast(), len, len + 20 * MIB, libc::MREMAP_MAYMOVE).cast::<u8>();
        let expected = |at: usize| match at {
            at if (from..from + gone).contains(&at) || at >= len => 0,
            at => (at / 5) as u8,
        };
        for at in 0..len + 20 * MIB {
            assert_eq!(*start.add(at), expected(at), "{at}");
        }
        assert_eq!(libc::munmap(start.add(MIB + 4096).cast(), 10 * MIB), 0);
        for at in (0..MIB).chain(12 * MIB..len) {
            assert_eq!(*start.add(at), expected(at), "{at}");
        }
        assert_eq!(libc::munmap(start.cast(), len + 20 * MIB), 0);
    }
}

fn rustix_memfd() -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the name ends in zero, and the descriptor is new.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(libc::memfd_create(c"data".as_ptr(), 0)) }
}

// Goal: a forked child never reads wrong data. Method: one that touches the memory, one that goes on to run a program.
#[test]
fn a_forked_child_is_ended_with_a_sentence_unless_it_runs_a_program() {
    let Some(done) = program("forks", 32 * MIB) else {
        return;
    };
    assert_done(&done, 32 * MIB);
    let text = String::from_utf8_lossy(&done.0.stderr);
    assert!(
        text.contains("a child made by fork without exec touched large memory"),
        "{text}"
    );
}

#[test]
#[ignore = "run by a_forked_child_is_ended_with_a_sentence_unless_it_runs_a_program"]
fn forks() {
    let data = vec![7_u8; 64 * MIB];
    let spawned = Command::new("/bin/echo").arg("spawned").output().unwrap();
    assert_eq!(spawned.stdout, b"spawned\n");
    // SAFETY: the children make calls that are allowed between fork and exec, and end.
    unsafe {
        let wait = |child: i32| {
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            status
        };
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from((&raw const data[20 * MIB]).read_volatile() == 7));
        }
        let status = wait(child);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 70,
            "{status}"
        );
        let child = libc::fork();
        if child == 0 {
            let program = c"/bin/true".as_ptr();
            libc::execv(program, [program, std::ptr::null()].as_ptr());
        }
        assert_eq!(wait(child), 0);
    }
    assert!(data.iter().all(|&byte| byte == 7));
}

// Goal: no address of managed memory can be locked, which would keep it from going. Method: asked for.
#[test]
fn managed_memory_cannot_be_locked() {
    let Some(done) = program("locks", 32 * MIB) else {
        return;
    };
    assert_done(&done, 32 * MIB);
}

#[test]
#[ignore = "run by managed_memory_cannot_be_locked"]
fn locks() {
    let data = vec![7_u8; 64 * MIB];
    // SAFETY: the range is the vector's.
    let locked = unsafe { libc::mlock(data.as_ptr().cast(), data.len()) };
    assert_eq!(
        (locked, std::io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::EPERM))
    );
}
