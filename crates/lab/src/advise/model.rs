//! The four stages of a transfer, and how long they take together.
//!
//! Source and packing, link, unpacking and sink run at once, so a transfer takes as long as its slowest stage, and a
//! little more where two are nearly as slow: neither ever has the other's buffer just full. Before the first byte arrives
//! and after the last one leaves, stages wait for each other; that is `fill`. Where both ends share their processors, a
//! fifth stage is all processor time together.
//!
//! Units: seconds, bytes. Does no I/O and reads no clock.

use serde::Serialize;

/// What a setting costs per raw byte of some data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Packed over raw.
    pub size: f64,
    /// Processor seconds of packing.
    pub pack_s: f64,
    /// Processor seconds of unpacking.
    pub unpack_s: f64,
    /// Whether unpacking goes chunk after chunk, since each refers to the one before.
    pub serial_unpack: bool,
    /// Longest chunk, bytes; 0 for the whole data as one.
    pub chunk_bytes: f64,
}

/// What this machine takes for a byte besides codecs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overhead {
    /// Processor seconds of the sender per raw byte: reading, summing.
    pub send_raw_s: f64,
    /// Of the sender per byte on the wire.
    pub send_wire_s: f64,
    /// Of the receiver per raw byte.
    pub recv_raw_s: f64,
    /// Of the receiver per byte on the wire.
    pub recv_wire_s: f64,
    /// Of the emulated link per byte, where there is one.
    pub relay_s: f64,
}

/// Where the transfer happens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Place {
    /// What the link carries; infinite where it has no limit.
    pub link_bytes_per_s: f64,
    /// From the session's begin to the end of a transfer of next to nothing.
    pub start_s: f64,
    /// Threads that pack, and as many that unpack, at each end.
    pub threads: f64,
    /// Processors of each end, or of both together where `shared`.
    pub processors: f64,
    /// Both ends, and the emulated link, on the same processors.
    pub shared: bool,
}

/// What a transfer is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// From begin to end.
    pub seconds: f64,
    /// Raw bits a second.
    pub effective_mbit_s: f64,
    /// On the wire.
    pub wire_bytes: f64,
    /// Processor time of both ends.
    pub cpu_s: f64,
    /// The slowest stage.
    pub slowest: &'static str,
}

/// Predicts the transfer of `len` raw bytes.
#[must_use]
pub fn predict(len: f64, cost: &Cost, overhead: &Overhead, place: &Place) -> Prediction {
    let wire_bytes = len * cost.size + len / cost.chunk_bytes.clamp(1.0, len.max(1.0)) * FRAME_BYTES;
    let threads = place.threads.min(place.processors).max(1.0);
    let (pack, unpack) = (len * cost.pack_s, len * cost.unpack_s);
    let send = len * overhead.send_raw_s + wire_bytes * overhead.send_wire_s;
    let receive = len * overhead.recv_raw_s + wire_bytes * overhead.recv_wire_s;
    let unpack_threads = if cost.serial_unpack { 1.0 } else { threads };
    let relay = if place.shared { wire_bytes * overhead.relay_s } else { 0.0 };
    let mut stages = vec![
        ("packing", pack / threads),
        ("link", wire_bytes / place.link_bytes_per_s),
        ("unpacking", unpack / unpack_threads),
        ("sending", send),
        ("receiving", receive),
    ];
    let cpu_s = pack + unpack + send + receive;
    if place.shared {
        stages.push(("the shared processors", (cpu_s + relay) / place.processors));
    } else {
        stages.push(("the sender's processors", (pack + send) / place.processors));
        stages.push(("the receiver's processors", (unpack + receive) / place.processors));
    }
    // Of equals the first: a stage before the processors that it shares.
    let slowest = stages.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("link", |stage| stage.0);
    let together = stages.iter().map(|(_, seconds)| seconds.powf(SHARPNESS)).sum::<f64>().powf(1.0 / SHARPNESS);
    // The first chunk is packed before anything is sent, the last one unpacked after everything was.
    let chunk = if cost.size < 1.0 { cost.chunk_bytes.min(len) } else { 0.0 };
    let fill = chunk * (cost.pack_s + cost.unpack_s);
    let seconds = place.start_s + fill + together;
    Prediction { seconds, effective_mbit_s: len * 8.0 / 1e6 / seconds, wire_bytes, cpu_s, slowest }
}

/// The norm that joins the stages: two equal ones take an eighth longer than one, as transfers with two equally slow
/// stages were seen to. One that takes half as long as the slowest adds next to nothing.
const SHARPNESS: f64 = 6.0;
/// Header and check of a frame.
const FRAME_BYTES: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { size: 0.5, pack_s: 4e-9, unpack_s: 1e-9, serial_unpack: false, chunk_bytes: 262_144.0 };
    const FREE: Overhead =
        Overhead { send_raw_s: 0.0, send_wire_s: 0.0, recv_raw_s: 0.0, recv_wire_s: 0.0, relay_s: 0.0 };

    fn place(mbit: f64) -> Place {
        Place { link_bytes_per_s: mbit / 8e-6, start_s: 0.01, threads: 2.0, processors: 2.0, shared: false }
    }

    // By hand: 100 MB at a ratio of 2 over 100 Mbit/s is 4 s, over 100 Gbit/s packing's 0.2 s.
    #[test]
    fn the_slowest_stage_takes_the_time() {
        let slow = predict(1e8, &COST, &FREE, &place(100.0));
        assert!((slow.seconds - 4.01).abs() < 0.03 && slow.slowest == "link", "{slow:?}");
        let fast = predict(1e8, &COST, &FREE, &place(1e5));
        assert!((0.2..0.3).contains(&fast.seconds) && fast.slowest == "packing", "{fast:?}");
        assert!((fast.cpu_s - 0.5).abs() < 1e-9);
    }

    // Goal: the model never says that doing more work or having less to do it with is faster.
    #[test]
    fn more_work_or_fewer_processors_are_never_faster() {
        for mbit in [1.0, 100.0, 1e3, 1e4, f64::INFINITY] {
            let base = predict(1e7, &COST, &FREE, &place(mbit)).seconds;
            let overhead = Overhead { send_raw_s: 1e-9, recv_wire_s: 1e-9, relay_s: 1e-9, ..FREE };
            for worse in [
                predict(1.1e7, &COST, &FREE, &place(mbit)),
                predict(1e7, &Cost { pack_s: 9e-9, ..COST }, &FREE, &place(mbit)),
                predict(1e7, &Cost { serial_unpack: true, ..COST }, &FREE, &place(mbit)),
                predict(1e7, &Cost { size: 0.9, ..COST }, &FREE, &place(mbit)),
                predict(1e7, &COST, &overhead, &place(mbit)),
                predict(1e7, &COST, &FREE, &Place { threads: 1.0, ..place(mbit) }),
                predict(1e7, &COST, &FREE, &Place { processors: 1.0, ..place(mbit) }),
                predict(1e7, &COST, &FREE, &Place { start_s: 0.1, ..place(mbit) }),
                predict(1e7, &COST, &FREE, &place(mbit * 0.5)),
            ] {
                assert!(worse.seconds >= base && worse.seconds.is_finite(), "{mbit}: {worse:?} {base}");
            }
        }
    }
}
