//! The QPL binding: against the stand-in, and against the real library's software path where there is one.

mod common;

use std::{env, time::Instant};

use common::{
    Fault, StandIn, a_thousand_faults, conforms, conforms_at_length, four_threads, reason,
    survives, there_and_back,
};
use narrows_backends::{Usage, iaa::Iaa, isal::IsaL};
use narrows_core::{Backend, Codec, Level, Workspace};
use narrows_testkit::data::{KINDS, Kind, make};

#[test]
fn keeps_every_promise() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    let iaa = Iaa::at(&standin.path);
    conforms(iaa.probe().unwrap());
    let (packed, unpacked) = iaa.usage().unwrap();
    assert!(packed.device > 100 && packed.declined > 100, "{packed:?}");
    assert!(unpacked.device > 10, "{unpacked:?}");
    assert_eq!(
        (packed.failed, packed.wrong, packed.busy),
        (0, 0, 0),
        "{packed:?}"
    );
    conforms_at_length(
        &iaa.probe().unwrap(),
        &[4 << 10, 64 << 10, 100_000, 1 << 20],
    );
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn every_fault_is_survived_and_counted() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    let iaa = Iaa::at(&standin.path);
    let failed: fn(&Usage) -> u64 = |usage| usage.failed;
    let wrong: fn(&Usage) -> u64 = |usage| usage.wrong;
    for codec in iaa.probe().unwrap() {
        // Only `deflate-w4k` is unpacked there.
        let w4k = codec.info().name == "deflate-w4k";
        if w4k && IsaL.probe().is_err() {
            println!(
                "skipped: {} spills to ISA-L, which is not here",
                codec.info().name
            );
            continue;
        }
        let usage = || iaa.usage().unwrap();
        survives(&standin, &*codec, usage, Fault::Status, w4k, failed);
        survives(&standin, &*codec, usage, Fault::Short, w4k, wrong);
        survives(&standin, &*codec, usage, Fault::Long, w4k, wrong);
        survives(&standin, &*codec, usage, Fault::Busy, w4k, |usage| {
            usage.busy
        });
        survives(&standin, &*codec, usage, Fault::Wrong, false, wrong);
    }
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn slow_is_no_fault() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    let iaa = Iaa::at(&standin.path);
    let codec = iaa.probe().unwrap().remove(0);
    standin.fault(Fault::Slow, 0, 2);
    there_and_back(
        &*codec,
        &make(Kind::Text, 50_000, 1),
        &mut Workspace::default(),
    );
    let (packed, unpacked) = iaa.usage().unwrap();
    assert_eq!(
        (packed.device, unpacked.device),
        (1, 1),
        "{packed:?} {unpacked:?}"
    );
}

// Goal: an accelerator that never answers costs a second, not the worker, and what it writes afterwards hits nobody.
// Method: the stand-in writes over the buffer it was given 0.3 s after the time limit, while other chunks go on.
#[test]
fn a_hang_ends_and_late_writes_hit_nothing() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    let iaa = Iaa::at(&standin.path);
    let codecs = iaa.probe().unwrap();
    let gzip = codecs
        .iter()
        .find(|codec| codec.info().name == "gzip")
        .unwrap();
    let raw = make(Kind::Text, 256 << 10, 1);
    let mut ws = Workspace::default();
    let began = Instant::now();
    standin.fault(Fault::Hang, 0, 1);
    there_and_back(&**gzip, &raw, &mut ws);
    let took = began.elapsed().as_secs_f64();
    assert!((0.9..5.0).contains(&took), "{took} s");
    assert_eq!(iaa.usage().unwrap().0.failed, 1);
    while began.elapsed().as_secs_f64() < took + 0.6 {
        there_and_back(&**gzip, &raw, &mut ws);
    }
    assert!(iaa.usage().unwrap().0.device > 10, "in use again");
    drop(ws);
    assert_eq!(
        (standin.misuses(), standin.live()),
        (0, 1),
        "the job in flight is left where it is"
    );
}

// Each job left behind keeps its memory, so there is an end to it.
#[test]
fn a_device_that_hangs_for_ever_is_given_up() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    let iaa = Iaa::at(&standin.path);
    let codec = iaa.probe().unwrap().remove(1);
    let raw = make(Kind::Text, 8 << 10, 1);
    let mut ws = Workspace::default();
    standin.fault(Fault::Hang, 0, u32::MAX);
    for _ in 0..4000 {
        there_and_back(&*codec, &raw, &mut ws);
    }
    let (packed, _) = iaa.usage().unwrap();
    assert_eq!(
        (packed.failed, packed.failed + packed.resting),
        (8, 4000),
        "{packed:?}"
    );
    assert_eq!((standin.misuses(), standin.live()), (0, 8));
}

#[test]
fn a_thousand_faults_none_silent() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    let iaa = Iaa::at(&standin.path);
    // Those with checksums: bare DEFLATE cannot tell a wrong byte after unpacking.
    let codecs = iaa.probe().unwrap().split_off(2);
    a_thousand_faults(&standin, &codecs, || iaa.usage().unwrap());
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn threads_have_jobs_of_their_own() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    four_threads(&Iaa::at(&standin.path).probe().unwrap());
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn without_a_device_the_reason_is_said() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    standin.fault(Fault::Absent, 0, 0);
    let why = reason(&Iaa::at(&standin.path));
    assert!(
        why.contains("no enabled work queue") && why.contains("503"),
        "{why}"
    );
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
    assert!(reason(&Iaa::at("/nonexistent/libqpl.so.1")).contains("libqpl.so.1"));
}

// Goal: what another host's IAA sends us, ours reads, and what ISA-L made for it too; and what was made with a larger
// window under the same codec is read all the same, by the CPU.
#[test]
fn a_larger_window_goes_to_the_cpu() {
    let Some(standin) = StandIn::build("qpl", &[]) else {
        return;
    };
    window_is_kept(&Iaa::at(&standin.path));
}

/// `iaa`'s `deflate-w4k` reaches no further than 4 KiB; further than that it does not read.
fn window_is_kept(iaa: &Iaa) {
    let codecs = iaa.probe().unwrap();
    let w4k = codecs
        .iter()
        .find(|codec| codec.info().name == "deflate-w4k")
        .unwrap();
    // A phrase that comes again 6000 bytes later tempts the search beyond the window, and nothing within it helps.
    let raw = make(Kind::Random, 6000, 1).repeat(10);
    let mut ws = Workspace::default();
    let mut packed = vec![0; 2 * raw.len()];
    let len = w4k.pack(&raw, Level(1), &[], &mut packed, &mut ws).unwrap();
    assert!(
        len > raw.len() * 9 / 10,
        "{len} bytes: it found what lies beyond its window"
    );
    let before = iaa.usage().unwrap();
    let far = far(&raw);
    assert!(far.len() < raw.len() / 2, "with 32 KiB the phrase is found");
    let mut back = vec![0; raw.len()];
    w4k.unpack(&far, &[], &mut back, &mut ws).unwrap();
    assert!(back == raw);
    let after = iaa.usage().unwrap();
    assert_eq!(
        (after.1.device, after.1.failed),
        (before.1.device, before.1.failed + 1),
        "{after:?}"
    );
}

/// `raw` as DEFLATE with a window of 32 KiB.
fn far(raw: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; 2 * raw.len()];
    // SAFETY: a compressor of our own, and pointers with their lengths.
    let len = unsafe {
        let compressor = libdeflate_sys::libdeflate_alloc_compressor(6);
        let (from, to) = (raw.as_ptr().cast(), packed.as_mut_ptr().cast());
        let len = libdeflate_sys::libdeflate_deflate_compress(
            compressor,
            from,
            raw.len(),
            to,
            packed.len(),
        );
        libdeflate_sys::libdeflate_free_compressor(compressor);
        len
    };
    packed.truncate(len);
    packed
}

// The real library. `with_software` takes QPL's software path, whose limits are those of the hardware.
#[test]
fn the_real_librarys_software_conforms() {
    let iaa = match env::var_os("NARROWS_QPL_LIB") {
        Some(path) => Iaa::at(path),
        None => Iaa::default(),
    };
    match iaa.probe() {
        Ok(codecs) => conforms_at_length(&codecs, &[64 << 10]),
        Err(why) => println!("no device: {why}"),
    }
    let iaa = iaa.with_software();
    let codecs = match iaa.probe() {
        Ok(codecs) => codecs,
        Err(why) => return println!("skipped: {why}"),
    };
    conforms(codecs.clone());
    conforms_at_length(&codecs, &[4 << 10, 64 << 10, 100_000, 1 << 20]);
    four_threads(&codecs);
    window_is_kept(&iaa);
    let mut ws = Workspace::default();
    for kind in KINDS {
        there_and_back(&*codecs[0] as &dyn Codec, &make(kind, 1 << 20, 1), &mut ws);
    }
    let (packed, unpacked) = iaa.usage().unwrap();
    println!("packing {packed:?}; unpacking {unpacked:?}");
    assert!(
        packed.device > 100 && packed.failed + packed.wrong == 0,
        "{packed:?}"
    );
    assert!(unpacked.device > 100, "{unpacked:?}");
}
