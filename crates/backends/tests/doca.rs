//! The DOCA binding, against the stand-in alone: it was never run on a device.

mod common;

use std::time::Instant;

use common::{
    Fault, StandIn, a_thousand_faults, conforms, conforms_at_length, four_threads, reason,
    survives, there_and_back,
};
use narrows_backends::{Usage, doca::Doca};
use narrows_core::{Backend, Workspace};
use narrows_testkit::data::{Kind, make};

const BLUEFIELD_3: &[&str] = &["-DUNPACKS_ONLY"];

#[test]
fn keeps_every_promise() {
    let Some(standin) = StandIn::build("doca", &[]) else {
        return;
    };
    let doca = Doca::at(&standin.path);
    conforms(doca.probe().unwrap());
    let (packed, unpacked) = doca.usage().unwrap();
    assert!(packed.device > 100 && packed.declined > 100, "{packed:?}");
    assert!(unpacked.device > 10, "{unpacked:?}");
    assert_eq!(
        (packed.failed, packed.wrong, packed.busy),
        (0, 0, 0),
        "{packed:?}"
    );
    conforms_at_length(
        &doca.probe().unwrap(),
        &[16 << 10, 64 << 10, 100_000, 1 << 20, 2 << 20],
    );
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn bluefield_3_unpacks_and_the_cpu_packs() {
    let Some(standin) = StandIn::build("doca", BLUEFIELD_3) else {
        return;
    };
    let doca = Doca::at(&standin.path);
    conforms_at_length(&doca.probe().unwrap(), &[16 << 10, 100_000, 1 << 20]);
    let (packed, unpacked) = doca.usage().unwrap();
    assert!(packed.device == 0 && packed.declined > 10, "{packed:?}");
    assert!(unpacked.device > 10, "{unpacked:?}");
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn every_fault_is_survived_and_counted() {
    let Some(standin) = StandIn::build("doca", &[]) else {
        return;
    };
    let doca = Doca::at(&standin.path);
    let failed: fn(&Usage) -> u64 = |usage| usage.failed;
    let wrong: fn(&Usage) -> u64 = |usage| usage.wrong;
    for codec in doca.probe().unwrap() {
        let usage = || doca.usage().unwrap();
        survives(&standin, &*codec, usage, Fault::Status, true, failed);
        survives(&standin, &*codec, usage, Fault::Short, true, wrong);
        survives(&standin, &*codec, usage, Fault::Long, true, wrong);
        survives(&standin, &*codec, usage, Fault::Busy, true, |usage| {
            usage.busy
        });
        // Bare DEFLATE has no checksum: what unpacked to wrong bytes is found by the frame around it.
        survives(
            &standin,
            &*codec,
            usage,
            Fault::Wrong,
            codec.info().name != "deflate",
            wrong,
        );
    }
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn slow_is_no_fault() {
    let Some(standin) = StandIn::build("doca", &[]) else {
        return;
    };
    let doca = Doca::at(&standin.path);
    let codec = doca.probe().unwrap().remove(0);
    standin.fault(Fault::Slow, 0, 2);
    there_and_back(
        &*codec,
        &make(Kind::Text, 50_000, 1),
        &mut Workspace::default(),
    );
    let (packed, unpacked) = doca.usage().unwrap();
    assert_eq!(
        (packed.device, unpacked.device),
        (1, 1),
        "{packed:?} {unpacked:?}"
    );
}

// Goal: a task that never ends costs a second, not the worker, and what the device writes afterwards hits nobody.
// Method: the stand-in writes over the buffer it was given 0.3 s after the time limit, while other chunks go on.
#[test]
fn a_hang_ends_and_late_writes_hit_nothing() {
    let Some(standin) = StandIn::build("doca", &[]) else {
        return;
    };
    let doca = Doca::at(&standin.path);
    let codecs = doca.probe().unwrap();
    let raw = make(Kind::Text, 256 << 10, 1);
    let mut ws = Workspace::default();
    let began = Instant::now();
    standin.fault(Fault::Hang, 1, 1);
    there_and_back(&*codecs[2], &raw, &mut ws);
    let took = began.elapsed().as_secs_f64();
    assert!((0.9..5.0).contains(&took), "{took} s");
    assert_eq!(doca.usage().unwrap().1.failed, 1);
    while began.elapsed().as_secs_f64() < took + 0.6 {
        there_and_back(&*codecs[2], &raw, &mut ws);
    }
    assert!(doca.usage().unwrap().1.device > 10, "in use again");
    drop(ws);
    assert_eq!(standin.misuses(), 0);
    // Engine, context, mapping, inventory, two buffers and the task.
    assert_eq!(
        standin.live(),
        7,
        "what the task in flight needs is left where it is"
    );
}

#[test]
fn a_thousand_faults_none_silent() {
    let Some(standin) = StandIn::build("doca", &[]) else {
        return;
    };
    let doca = Doca::at(&standin.path);
    // Those with checksums: bare DEFLATE cannot tell a wrong byte after unpacking.
    let codecs = doca.probe().unwrap().split_off(1);
    a_thousand_faults(&standin, &codecs, || doca.usage().unwrap());
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn threads_have_contexts_of_their_own() {
    let Some(standin) = StandIn::build("doca", &[]) else {
        return;
    };
    four_threads(&Doca::at(&standin.path).probe().unwrap());
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
}

#[test]
fn without_a_device_the_reason_is_said() {
    let Some(standin) = StandIn::build("doca", &[]) else {
        return;
    };
    standin.fault(Fault::Absent, 0, 0);
    let why = reason(&Doca::at(&standin.path));
    assert!(
        why.contains("of 1 devices none packs or unpacks DEFLATE"),
        "{why}"
    );
    assert_eq!((standin.misuses(), standin.live()), (0, 0));
    assert!(
        reason(&Doca::at("/nonexistent/libdoca_compress.so.2")).contains("libdoca_compress.so")
    );
}
