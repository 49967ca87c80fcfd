//! What the bindings' tests share: a stand-in in this process, and what any device backend must survive.
#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use narrows_backends::Usage;
use narrows_core::{Backend, Codec, Level, Workspace};
use narrows_testkit::{
    data::{KINDS, Kind, Random, make},
    standin,
    suite::Suite,
};

/// A device library that does as it is told.
pub(crate) struct StandIn {
    pub(crate) path: PathBuf,
    library: libloading::Library,
    /// Removes the file at the end.
    _file: standin::StandIn,
}

/// What may befall an operation; the numbers are those of `standin.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None = 0,
    Absent = 1,
    Status = 2,
    Short = 3,
    Long = 4,
    Wrong = 5,
    Unread = 6,
    Busy = 7,
    Hang = 8,
    Slow = 9,
}

impl StandIn {
    /// Builds `source` with `flags`; `None`, and a line that says why, where that cannot be.
    pub(crate) fn build(source: &str, flags: &[&str]) -> Option<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(folder).expect("a folder for tests");
        let file = standin::StandIn::build(source, flags, folder)?;
        // SAFETY: built just now from our own source.
        let library =
            unsafe { libloading::Library::new(file.path()) }.expect("a library of our own");
        Some(Self {
            path: file.path().into(),
            library,
            _file: file,
        })
    }

    /// After `skip` operations, the next `count` suffer `fault`.
    pub(crate) fn fault(&self, fault: Fault, skip: u32, count: u32) {
        // SAFETY: declared so in `standin.h`.
        let told = unsafe {
            let set = self
                .library
                .get::<unsafe extern "C" fn(i32, i64, i64) -> i32>(b"standin_fault\0");
            set.expect("a stand-in")(fault as i32, skip.into(), count.into())
        };
        assert_eq!(told, 1, "{fault:?} is known");
    }

    /// Calls that the real library would not have forgiven.
    pub(crate) fn misuses(&self) -> i32 {
        self.number(b"standin_misuses\0")
    }

    /// Objects made and not destroyed.
    pub(crate) fn live(&self) -> i32 {
        self.number(b"standin_live\0")
    }

    fn number(&self, name: &[u8]) -> i32 {
        // SAFETY: declared so in `standin.h`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> i32>(name)
                .expect("a stand-in")()
        }
    }
}

/// Every promise that a codec keeps.
pub(crate) fn conforms(codecs: Vec<Arc<dyn Codec>>) {
    for codec in codecs {
        let name = codec.info().name;
        // What the CPU cannot make in this format it declines.
        let declines = if name == "deflate-w4k" {
            4 << 10
        } else {
            usize::MAX
        };
        let suite = Suite::new(codec).declines_above(declines);
        suite.round_trips();
        suite.output_too_small_is_none();
        suite.truncations_are_refused();
        suite.other_lengths_are_refused();
        suite.flipped_bits_never_leave_old_bytes();
        suite.garbage_never_panics();
    }
}

/// The suite's chunks are mostly too short for a device, so here are some that are not: whole, cut, lengthened,
/// damaged.
pub(crate) fn conforms_at_length(codecs: &[Arc<dyn Codec>], lens: &[usize]) {
    let mut random = Random(1);
    let mut ws = Workspace::default();
    for codec in codecs {
        let name = codec.info().name;
        for kind in KINDS {
            for &len in lens {
                let raw = make(kind, len, 1);
                let mut packed = vec![0; 2 * len + 1024];
                let packed_len = codec
                    .pack(&raw, Level(1), &[], &mut packed, &mut ws)
                    .expect("room enough");
                packed.truncate(packed_len);
                let unpack = |packed: &[u8], len: usize, ws: &mut Workspace| {
                    let mut back = vec![0xa5; len];
                    codec.unpack(packed, &[], &mut back, ws).map(|()| back)
                };
                assert!(
                    unpack(&packed, len, &mut ws).unwrap() == raw,
                    "{name}: {kind:?} of {len}"
                );
                assert!(
                    unpack(&packed, len - 1, &mut ws).is_err(),
                    "{name}: {kind:?} unpacked to less"
                );
                assert!(
                    unpack(&packed, len + 1, &mut ws).is_err(),
                    "{name}: {kind:?} unpacked to more"
                );
                let cut = random.below(packed_len);
                assert!(
                    unpack(&packed[..cut], len, &mut ws).is_err(),
                    "{name}: {kind:?} cut at {cut}"
                );
                let mut longer = packed.clone();
                longer.extend([0x5a; 9]);
                assert!(
                    unpack(&longer, len, &mut ws).is_err(),
                    "{name}: {kind:?} with bytes behind"
                );
                for _ in 0..20 {
                    let at = random.below(packed_len);
                    let was = packed[at];
                    packed[at] ^= 1 << random.below(8);
                    // A checksum tells; without one, that nothing panics is all there is to ask. Some bits mean
                    // nothing. Adler-32 is a sum, so now and then a table with other digits in it has the same.
                    let damaged = unpack(&packed, len, &mut ws);
                    let same_sum = |back: &[u8]| name == "zlib" && adler32(back) == adler32(&raw);
                    let wrong = damaged.is_ok_and(|back| back != raw && !same_sum(&back));
                    assert!(
                        name.starts_with("deflate") || !wrong,
                        "{name}: {kind:?} damaged at {at}"
                    );
                    packed[at] = was;
                }
                let mut short = vec![0; packed_len - 1];
                if let Some(len) = codec.pack(&raw, Level(1), &[], &mut short, &mut ws) {
                    assert!(
                        unpack(&short[..len], raw.len(), &mut ws).unwrap() == raw,
                        "{name}: pressed"
                    );
                }
            }
        }
    }
}

/// The checksum of RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}

/// One chunk there and back; panics where it does not come back.
pub(crate) fn there_and_back(codec: &dyn Codec, raw: &[u8], ws: &mut Workspace) {
    let mut packed = vec![0; 2 * raw.len() + 1024];
    let len = codec.pack(raw, Level(1), &[], &mut packed, ws);
    let Some(len) = len else {
        assert_eq!(
            codec.info().name,
            "deflate-w4k",
            "only this may be declined, and travels raw"
        );
        return;
    };
    let mut back = vec![0xa5; raw.len()];
    codec
        .unpack(&packed[..len], &[], &mut back, ws)
        .expect("what was packed unpacks");
    assert!(back == raw, "{} of {} bytes", codec.info().name, raw.len());
}

/// The device does the work, fails once as `fault` says while packing and, if it `unpacks`, once while unpacking;
/// nobody gets wrong bytes, the counters say what happened, and afterwards the device is used again.
///
/// `counted` picks the counter that shows it.
pub(crate) fn survives(
    standin: &StandIn,
    codec: &dyn Codec,
    usage: impl Fn() -> (Usage, Usage),
    fault: Fault,
    unpacks: bool,
    counted: impl Fn(&Usage) -> u64,
) {
    let raw = make(Kind::Text, 64 << 10, 5);
    let mut ws = Workspace::default();
    there_and_back(codec, &raw, &mut ws);
    let before = usage();
    // The first operation is the packing, the second the unpacking.
    for skip in 0..=u32::from(unpacks) {
        standin.fault(fault, skip, 1);
        there_and_back(codec, &raw, &mut ws);
        standin.fault(Fault::None, 0, 0);
        // The chunk that it rests for.
        there_and_back(codec, &raw, &mut ws);
    }
    let between = usage();
    assert_eq!(
        counted(&between.0),
        counted(&before.0) + 1,
        "{fault:?} while packing: {between:?}"
    );
    assert_eq!(
        counted(&between.1),
        counted(&before.1) + u64::from(unpacks),
        "{fault:?} while unpacking: {between:?}"
    );
    there_and_back(codec, &raw, &mut ws);
    let after = usage();
    assert_eq!(
        after.0.device,
        between.0.device + 1,
        "{fault:?}: in use again: {after:?}"
    );
    assert!(
        after.1.device >= between.1.device + u64::from(unpacks),
        "{fault:?}: in use again: {after:?}"
    );
}

/// A thousand faults at random, on chunks of all kinds: each comes back right.
pub(crate) fn a_thousand_faults(
    standin: &StandIn,
    codecs: &[Arc<dyn Codec>],
    usage: impl Fn() -> (Usage, Usage),
) {
    let mut random = Random(2);
    let mut ws = Workspace::default();
    let kinds = [
        Fault::Status,
        Fault::Short,
        Fault::Long,
        Fault::Wrong,
        Fault::Unread,
        Fault::Busy,
        Fault::Slow,
    ];
    let suffered = |(packed, unpacked): (Usage, Usage)| {
        [packed, unpacked]
            .iter()
            .map(|usage| usage.busy + usage.failed + usage.wrong)
            .sum::<u64>()
    };
    for round in 0.. {
        assert!(round < 20_000, "{:?}", usage());
        let fault = kinds[random.below(kinds.len())];
        standin.fault(fault, random.below(2) as u32, 1 + random.below(3) as u32);
        let raw = make(
            KINDS[random.below(KINDS.len())],
            (16 << 10) + random.below(32 << 10),
            round,
        );
        there_and_back(&*codecs[random.below(codecs.len())], &raw, &mut ws);
        if suffered(usage()) >= 1000 {
            break;
        }
    }
    standin.fault(Fault::None, 0, 0);
    let (packed, unpacked) = usage();
    println!("packing {packed:?}; unpacking {unpacked:?}");
    assert!(
        packed.failed > 20 && packed.wrong > 20 && packed.busy > 20 && packed.resting > 20,
        "{packed:?}"
    );
}

/// Four threads pack and unpack at once, each in a workspace of its own.
pub(crate) fn four_threads(codecs: &[Arc<dyn Codec>]) {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let mut ws = Workspace::default();
                for round in 0..50 {
                    let raw = make(KINDS[round % KINDS.len()], (32 << 10) + 100 * round, seed);
                    there_and_back(&*codecs[round % codecs.len()], &raw, &mut ws);
                }
            });
        }
    });
}

/// The reason that `backend` gives for not being there.
pub(crate) fn reason(backend: &dyn Backend) -> String {
    backend.probe().expect_err("nothing there").to_string()
}
