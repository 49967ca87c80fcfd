//! The QATzip binding: against the stand-in, and against the real library's software where there is one.

mod common;

use std::{env, fs::File};

use common::{
    Fault, StandIn, a_thousand_faults, conforms, conforms_at_length, four_threads, reason,
    survives, there_and_back,
};
use narrows_backends::{Usage, qat::Qat};
use narrows_core::{Backend, Level, Registry, Workspace};
use narrows_testkit::data::{Kind, make};

#[test]
fn keeps_every_promise() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    let qat = Qat::at(&standin.path);
    conforms(qat.probe().unwrap());
    let (packed, unpacked) = qat.usage().unwrap();
    assert!(packed.device > 100 && packed.declined > 100, "{packed:?}");
    assert!(unpacked.device > 10, "{unpacked:?}");
    assert_eq!(
        (packed.failed, packed.wrong, packed.busy),
        (0, 0, 0),
        "{packed:?}"
    );
    conforms_at_length(
        &qat.probe().unwrap(),
        &[8 << 10, 64 << 10, 100_000, 128 << 10, 1 << 20],
    );
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn every_fault_is_survived_and_counted() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    let qat = Qat::at(&standin.path);
    let failed: fn(&Usage) -> u64 = |usage| usage.failed;
    let wrong: fn(&Usage) -> u64 = |usage| usage.wrong;
    for codec in qat.probe().unwrap() {
        let usage = || qat.usage().unwrap();
        survives(&standin, &*codec, usage, Fault::Status, true, failed);
        survives(&standin, &*codec, usage, Fault::Short, true, wrong);
        survives(&standin, &*codec, usage, Fault::Long, true, wrong);
        survives(&standin, &*codec, usage, Fault::Busy, true, |usage| {
            usage.busy
        });
        if codec.info().name != "deflate" {
            // Bare DEFLATE has no checksum: what unpacked to wrong bytes is found by the frame around it.
            survives(&standin, &*codec, usage, Fault::Wrong, true, wrong);
        }
    }
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn input_left_over_is_a_fault() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    let qat = Qat::at(&standin.path);
    let codec = qat.probe().unwrap().remove(0);
    let raw = make(Kind::Text, 50_000, 1);
    let mut ws = Workspace::default();
    standin.fault(Fault::Unread, 0, 2);
    there_and_back(&*codec, &raw, &mut ws);
    let (packed, unpacked) = qat.usage().unwrap();
    assert_eq!((packed.failed, packed.device), (1, 0), "{packed:?}");
    assert_eq!((unpacked.wrong, unpacked.device), (1, 0), "{unpacked:?}");
}

#[test]
fn a_thousand_faults_none_silent() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    let qat = Qat::at(&standin.path);
    // Those with checksums: `deflate` alone cannot tell a wrong byte after unpacking.
    let codecs = qat.probe().unwrap().split_off(1);
    a_thousand_faults(&standin, &codecs, || qat.usage().unwrap());
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

// Goal: a device that is lost midway costs little. Method: from some chunk on every call fails; of a thousand chunks
// only a few are tried.
#[test]
fn a_lost_device_is_left_alone_and_found_again() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    let qat = Qat::at(&standin.path);
    let codec = qat.probe().unwrap().remove(0);
    let raw = make(Kind::Text, 20_000, 1);
    let mut ws = Workspace::default();
    for _ in 0..10 {
        there_and_back(&*codec, &raw, &mut ws);
    }
    standin.fault(Fault::Status, 0, u32::MAX);
    for _ in 0..1000 {
        there_and_back(&*codec, &raw, &mut ws);
    }
    let (packed, _) = qat.usage().unwrap();
    assert!(
        packed.device == 10 && packed.failed <= 10 && packed.resting >= 990,
        "{packed:?}"
    );
    standin.fault(Fault::None, 0, 0);
    for _ in 0..1100 {
        there_and_back(&*codec, &raw, &mut ws);
    }
    assert!(qat.usage().unwrap().0.device > 10, "used again");
    drop(ws);
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn threads_have_sessions_of_their_own() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    four_threads(&Qat::at(&standin.path).probe().unwrap());
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn levels_are_the_devices_own() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    let codec = Qat::at(&standin.path).probe().unwrap().remove(0);
    let (raw, mut ws) = (make(Kind::Text, 100_000, 1), Workspace::default());
    let mut len = |level| {
        codec
            .pack(&raw, Level(level), &[], &mut vec![0; 100_000], &mut ws)
            .unwrap()
    };
    assert!(len(8) < len(1), "another level, another session");
    assert_eq!((len(0), len(12)), (len(1), len(8)));
}

#[test]
fn without_a_device_the_reason_is_said() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    standin.fault(Fault::Absent, 0, 0);
    let first = reason(&Qat::at(&standin.path));
    assert!(
        first.contains("no QuickAssist device") && first.contains("-101"),
        "{first}"
    );
    let mut registry = Registry::default();
    registry.add(&Qat::at(&standin.path)).unwrap();
    assert!(registry.probed()[0].1.is_err() && registry.ids().next().is_none());
    assert_eq!(standin.live(), 0);
}

// A library that another part of the process asked before says "duplicate" and no more, device or not.
#[test]
fn a_second_asker_is_not_deceived() {
    let Some(standin) = StandIn::build("qatzip", &[]) else {
        return;
    };
    standin.fault(Fault::Absent, 0, 0);
    // SAFETY: as `qzInit` is declared; a session of 40 zeroed bytes.
    unsafe {
        let library = libloading::Library::new(&standin.path).unwrap();
        let quiet = library
            .get::<unsafe extern "C" fn(i32) -> i32>(b"qzSetLogLevel\0")
            .unwrap();
        quiet(0);
        let init = library
            .get::<unsafe extern "C" fn(*mut [u64; 5], u8) -> i32>(b"qzInit\0")
            .unwrap();
        assert_eq!(init(&mut [0; 5], 0), -101);
        assert_eq!(init(&mut [0; 5], 0), 1);
    }
    assert!(reason(&Qat::at(&standin.path)).contains("no QuickAssist device"));
}

#[test]
fn other_files_are_refused() {
    assert!(reason(&Qat::at("relative/libqatzip.so.3")).contains("not an absolute path"));
    assert!(reason(&Qat::at("/nonexistent/libqatzip.so.3")).contains("libqatzip.so.3"));
    let Some(other) = StandIn::build("qpl", &[]) else {
        return;
    };
    assert!(
        reason(&Qat::at(&other.path)).contains("qzInit"),
        "a library without its functions"
    );
    let empty = other.path.with_extension("empty");
    File::create(&empty).unwrap();
    assert!(Qat::at(&empty).probe().is_err());
    std::fs::remove_file(empty).unwrap();
}

// The real library. `with_software` lets zlib do the work; without it there is a device or a reason, whoever asks
// first.
#[test]
fn the_real_librarys_software_conforms() {
    let qat = match env::var_os("NARROWS_QATZIP_LIB") {
        Some(path) => Qat::at(path),
        None => Qat::default(),
    };
    match qat.probe() {
        Ok(codecs) => conforms_at_length(&codecs, &[64 << 10]),
        Err(why) => println!("no device: {why}"),
    }
    let codecs = match qat.clone().with_software().probe() {
        Ok(codecs) => codecs,
        Err(why) => return println!("skipped: {why}"),
    };
    conforms(codecs.clone());
    conforms_at_length(&codecs, &[8 << 10, 64 << 10, 100_000, 128 << 10, 1 << 20]);
    four_threads(&codecs);
    let (packed, unpacked) = qat.with_software().usage().unwrap();
    println!("packing {packed:?}; unpacking {unpacked:?}");
    assert!(
        packed.device > 100 && packed.failed + packed.wrong == 0,
        "{packed:?}"
    );
    assert!(unpacked.device > 100, "{unpacked:?}");
}
