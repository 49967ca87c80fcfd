//! nvCOMP's binding, against a stand-in with the same ABI whose work our own codecs do: it was never run on a GPU.

use std::{
    path::Path,
    slice,
    sync::{Arc, OnceLock},
};

use narrows::{Codec, Level, Registry, Workspace, default_registry};
use narrows_gpu_server::cuda::{
    Choice, Driver,
    nvcomp::{Area, Format, GpuPacker, Nvcomp, Packed, Refused, Unpacked},
};
use narrows_testkit::{
    data::{Kind, make},
    standin::StandIn,
};

const LEN: usize = 100_000;

/// A device that is the host, and what the stand-in says of itself.
struct Rig {
    packer: GpuPacker,
    library: libloading::Library,
    _file: StandIn,
}

/// The device's work. Formats are numbered as [`Format::ALL`] has them.
extern "C" fn work(
    format: i32,
    packs: i32,
    input: *const u8,
    len: usize,
    out: *mut u8,
    room: usize,
) -> i64 {
    // SAFETY: the stand-in gives what the binding gave it: memory of these lengths.
    let (input, out) = unsafe {
        (
            slice::from_raw_parts(input, len),
            slice::from_raw_parts_mut(out, room),
        )
    };
    let codec = codec(Format::ALL[format as usize]);
    let mut ws = Workspace::default();
    if packs == 1 {
        let level = Level(codec.info().level_default);
        let made = codec.pack(input, level, &[], out, &mut ws);
        return made.map_or(-1, |len| len as i64);
    }
    let unpacked = codec.unpack(input, &[], out, &mut ws);
    unpacked.map_or(-1, |()| room as i64)
}

/// The processor's codec of a format.
fn codec(format: Format) -> &'static Arc<dyn Codec> {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    let registry = REGISTRY.get_or_init(default_registry);
    registry.by_name(format.codec()).expect("a codec of ours")
}

fn build(flags: &[&str]) -> Option<StandIn> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(folder).unwrap();
    StandIn::build("nvcomp", flags, folder)
}

impl Rig {
    fn new() -> Option<Self> {
        let file = build(&[])?;
        let choice = Choice {
            library: Some(file.path().into()),
            ..Choice::default()
        };
        let driver = Driver::open_library(&choice).unwrap();
        let nvcomp = Nvcomp::open(Some(file.path())).unwrap();
        assert_eq!(nvcomp.version(), 6000);
        // SAFETY: built just now from our own source, and declared so there.
        let library = unsafe {
            let library = libloading::Library::new(file.path()).unwrap();
            type Work = extern "C" fn(i32, i32, *const u8, usize, *mut u8, usize) -> i64;
            library
                .get::<unsafe extern "C" fn(Work)>(b"standin_codec\0")
                .unwrap()(work);
            library
        };
        Some(Self {
            packer: GpuPacker::new(&driver, nvcomp).unwrap(),
            library,
            _file: file,
        })
    }

    fn number(&self, name: &str) -> i32 {
        // SAFETY: declared so in `standin.h`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> i32>(name.as_bytes())
                .unwrap()()
        }
    }

    /// After `skip` chunks the next one suffers this.
    fn fault(&self, kind: i32, skip: i64) {
        // SAFETY: declared so in `standin.h`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn(i32, i64, i64) -> i32>(b"standin_fault\0")
                .unwrap()(kind, skip, 1)
        };
    }

    /// Chunks of several kinds, packed by a processor; an area for them, and where in it each goes.
    fn chunks(&self, format: Format) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, Area) {
        let codec = codec(format);
        let kinds = [Kind::Text, Kind::Zeros, Kind::Text, Kind::Text];
        let raw: Vec<_> = (1..)
            .zip(kinds)
            .map(|(seed, kind)| make(kind, LEN, seed))
            .collect();
        let packed = raw.iter().map(|raw| {
            let mut packed = vec![0; 2 * LEN];
            let level = Level(codec.info().level_default);
            let len = codec.pack(raw, level, &[], &mut packed, &mut Workspace::default());
            packed.truncate(len.unwrap());
            packed
        });
        let packed = packed.collect();
        (raw, packed, self.packer.area(4 * SLOT).unwrap())
    }

    fn back(&self, area: &Area) -> Vec<u8> {
        let mut back = vec![0; 4 * SLOT];
        self.packer.read(area, &mut back).unwrap();
        back
    }
}

/// From chunk to chunk in an area: a multiple of what any format wants.
const SLOT: usize = 100_096;

fn placed<'a>(packed: &'a [Vec<u8>], area: &Area) -> Vec<Packed<'a>> {
    let place = |(at, bytes): (usize, &'a Vec<u8>)| Packed {
        bytes,
        to: area.address() + (at * SLOT) as u64,
        len: LEN,
    };
    packed.iter().enumerate().map(place).collect()
}

// Goal: what processors packed the GPU unpacks, and the reverse, in every format. Method: four chunks in one batch, both
// ways; nothing that the real library would not forgive, nothing left.
#[test]
fn both_sides_read_what_the_other_packed() {
    let Some(mut rig) = Rig::new() else { return };
    for format in Format::ALL {
        let (raw, packed, area) = rig.chunks(format);
        let results = rig.packer.unpack(format, &placed(&packed, &area), &area);
        assert_eq!(results.unwrap(), [Ok(()); 4], "{format:?}");
        let back = rig.back(&area);
        for (at, raw) in raw.iter().enumerate() {
            assert!(
                back[at * SLOT..][..LEN] == raw[..],
                "{format:?}, chunk {at}"
            );
        }
        let chunks = (0..4).map(|at| Unpacked {
            at: area.address() + (at * SLOT) as u64,
            len: LEN,
        });
        let chunks: Vec<_> = chunks.collect();
        let made = rig.packer.pack(format, &chunks, &area).unwrap();
        let codec = codec(format);
        for (made, raw) in made.into_iter().zip(&raw) {
            let (made, mut back) = (made.unwrap(), vec![0; LEN]);
            codec
                .unpack(&made, &[], &mut back, &mut Workspace::default())
                .unwrap();
            assert!(back == *raw, "{format:?}");
        }
    }
    let noise = make(Kind::Random, LEN, 1);
    let area = rig.packer.area(LEN).unwrap();
    rig.packer.write(&area, &noise).unwrap();
    let chunk = Unpacked {
        at: area.address(),
        len: LEN,
    };
    let made = rig.packer.pack(Format::Lz4, &[chunk], &area).unwrap();
    assert_eq!(
        made,
        [Err(Refused::NotSmaller)],
        "noise does not get smaller"
    );
    assert_eq!(rig.number("standin_misuses"), 0);
    drop(area);
    let Rig {
        packer,
        library,
        _file,
    } = rig;
    drop(packer);
    // SAFETY: declared so in `standin.h`.
    let live = unsafe {
        library
            .get::<unsafe extern "C" fn() -> i32>(b"standin_live\0")
            .unwrap()()
    };
    assert_eq!(live, 0);
}

// Goal: one chunk's trouble is its own, and none passes for success. Method: every way in which a chunk can go wrong, in
// the second of four.
#[test]
fn a_chunk_that_fails_fails_alone() {
    let Some(mut rig) = Rig::new() else { return };
    let cases = [
        (2, Refused::Status(12), "an error of its own"),
        (3, Refused::Length(LEN / 2), "half of it"),
        (
            4,
            Refused::Length(LEN + 4097),
            "more than there is room for",
        ),
        (
            6,
            Refused::Status(u32::MAX),
            "a status that was never written",
        ),
    ];
    for format in Format::ALL {
        let (_, mut packed, area) = rig.chunks(format);
        for (kind, refused, what) in cases {
            rig.fault(kind, 1);
            let results = rig.packer.unpack(format, &placed(&packed, &area), &area);
            let expected = [Ok(()), Err(refused), Ok(()), Ok(())];
            assert_eq!(results.unwrap(), expected, "{format:?}: {what}");
        }
        rig.fault(0, 0);
        packed[0].truncate(20);
        let results = rig
            .packer
            .unpack(format, &placed(&packed, &area), &area)
            .unwrap();
        assert_eq!(results[0], Err(Refused::Status(12)), "{format:?}: cut");
        assert_eq!(results[1..], [Ok(()); 3]);
    }
    // A batch that does not start at all.
    let (_, packed, area) = rig.chunks(Format::Lz4);
    rig.fault(7, 0);
    let failed = rig
        .packer
        .unpack(Format::Lz4, &placed(&packed, &area), &area);
    assert!(failed.unwrap_err().text.contains("nvCOMP, unpacking: 1000"));
    rig.fault(0, 0);
    assert_eq!(rig.number("standin_misuses"), 0);
}

// Goal: nothing is written beside the area that it is meant for, and an address that the format does not allow is left to
// a processor.
#[test]
fn places_are_checked_before_anything_is_copied() {
    let Some(mut rig) = Rig::new() else { return };
    let (_, packed, area) = rig.chunks(Format::Zstd);
    let mut chunks = placed(&packed, &area);
    chunks[2].to += 4;
    let results = rig.packer.unpack(Format::Zstd, &chunks, &area).unwrap();
    assert_eq!(results, [Ok(()), Ok(()), Err(Refused::Alignment), Ok(())]);
    for (to, len) in [
        (area.address() - 8, LEN),
        (area.address() + (3 * SLOT) as u64, LEN + 97),
        (u64::MAX - 7, LEN),
        (area.address(), usize::MAX),
        (area.address(), 0),
    ] {
        chunks[2] = Packed {
            to,
            len,
            ..chunks[2]
        };
        assert!(
            rig.packer.unpack(Format::Zstd, &chunks, &area).is_err(),
            "{to:#x} {len}"
        );
        let chunk = Unpacked { at: to, len };
        assert!(
            rig.packer.pack(Format::Zstd, &[chunk], &area).is_err(),
            "{to:#x} {len}"
        );
    }
    assert_eq!(rig.packer.unpack(Format::Zstd, &[], &area).unwrap(), []);
    assert_eq!(rig.number("standin_misuses"), 0);
}

// Goal: without the library, or with another, there is one sentence that says so. Method: no file, a relative path,
// another version, a missing function, a file that is no library.
#[test]
fn a_library_that_cannot_be_used_is_told_in_one_sentence() {
    let absent = Nvcomp::open(Some(Path::new("/nothing/libnvcomp.so.6"))).unwrap_err();
    assert!(
        absent.contains("nvCOMP is not there") && !absent.contains('\n'),
        "{absent}"
    );
    let relative = Nvcomp::open(Some(Path::new("libnvcomp.so.6"))).unwrap_err();
    assert!(relative.contains("not an absolute path"), "{relative}");
    let other = Nvcomp::open(Some(Path::new("/etc/passwd"))).unwrap_err();
    assert!(other.contains("not there"), "{other}");
    for (flag, words) in [
        ("-DVERSION=5100", "nvCOMP 5.1 is not known here"),
        (
            "-DNO_SNAPPY",
            "nvCOMP has no nvcompBatchedSnappyCompressGetRequiredAlignments",
        ),
    ] {
        let Some(file) = build(&[flag]) else { return };
        let told = Nvcomp::open(Some(file.path())).unwrap_err();
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(Format::of("lz4-hc"), Some(Format::Lz4));
    assert_eq!(Format::of("shuffle4-zstd"), None);
}
