//! How long a transfer takes, from what its setting costs and what the link carries.
//!
//! Sender, link and receiver work at once, so a transfer takes as long as the slowest of them, and a
//! little more where two are nearly as slow: neither ever has the other's buffer just full. Where both ends share their
//! processors, they are one stage with the link: what the transfer took without a link to hold it up.
//!
//! Units: seconds, bytes. Does no I/O and reads no clock.

use serde::Serialize;

/// What a setting costs per raw byte of some data, everything from reading to writing counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// On the wire, over raw.
    pub size: f64,
    /// Processor seconds of the sender.
    pub send_s: f64,
    /// Processor seconds of the receiver.
    pub recv_s: f64,
    /// Seconds, both ends on this machine and no link to hold them up.
    pub alone_s: f64,
    /// Seconds from the session's begin until bytes flow, whatever their number.
    pub begin_s: f64,
    /// Whether unpacking goes chunk after chunk, since each refers to the one before.
    pub serial_unpack: bool,
}

/// Where the transfer happens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Place {
    /// What the link carries; infinite where it has no limit.
    pub link_bytes_per_s: f64,
    /// What the link's delay adds to the begin and the end.
    pub delay_s: f64,
    /// Threads that pack, and as many that unpack, at each end.
    pub threads: f64,
    /// Processors of each end that the transfer gets.
    pub processors: f64,
    /// Both ends, and the emulated link, on this machine.
    pub shared: bool,
    /// Processor seconds that one thread takes to send a byte of the wire; the receiver's to take it.
    pub wire_s: (f64, f64),
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
pub fn predict(len: f64, cost: &Cost, place: &Place) -> Prediction {
    let wire_bytes = len * cost.size;
    let mut stages = vec![("the link", wire_bytes / place.link_bytes_per_s)];
    if place.shared {
        stages.push(("the shared processors", len * cost.alone_s));
    } else {
        let threads = place.threads.min(place.processors).max(1.0);
        let unpack_threads = if cost.serial_unpack { 1.0 } else { threads };
        stages.extend([
            (
                "the sender",
                (len * cost.send_s / threads).max(wire_bytes * place.wire_s.0),
            ),
            (
                "the receiver",
                (len * cost.recv_s / unpack_threads).max(wire_bytes * place.wire_s.1),
            ),
        ]);
    }
    let slowest = stages
        .iter()
        .rev()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or("the link", |stage| stage.0);
    let together = stages
        .iter()
        .map(|(_, seconds)| seconds.powf(SHARPNESS))
        .sum::<f64>()
        .powf(1.0 / SHARPNESS);
    let seconds = place.delay_s + cost.begin_s + together;
    let cpu_s = len * (cost.send_s + cost.recv_s);
    Prediction {
        seconds,
        effective_mbit_s: len * 8.0 / 1e6 / seconds,
        wire_bytes,
        cpu_s,
        slowest,
    }
}

/// The norm that joins the stages: two equal ones take an eighth longer than one, as transfers with two equally slow
/// stages were seen to. One that takes half as long as the slowest adds next to nothing.
const SHARPNESS: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost {
        size: 0.5,
        send_s: 4e-9,
        recv_s: 1e-9,
        alone_s: 3e-9,
        begin_s: 0.01,
        serial_unpack: false,
    };

    fn place(mbit: f64) -> Place {
        let link_bytes_per_s = mbit / 8e-6;
        Place {
            link_bytes_per_s,
            delay_s: 0.0,
            threads: 2.0,
            processors: 2.0,
            shared: false,
            wire_s: (1e-9, 1e-9),
        }
    }

    // By hand: 100 MB at a ratio of 2 over 100 Mbit/s is 4 s; over 100 Gbit/s the sender's 0.4 s on two processors, or,
    // with both ends on one machine, the 0.3 s that they took there.
    #[test]
    fn the_slowest_stage_takes_the_time() {
        let slow = predict(1e8, &COST, &place(100.0));
        assert!(
            (slow.seconds - 4.01).abs() < 0.03 && slow.slowest == "the link",
            "{slow:?}"
        );
        let fast = predict(1e8, &COST, &place(1e5));
        assert!(
            (fast.seconds - 0.21).abs() < 0.01 && fast.slowest == "the sender",
            "{fast:?}"
        );
        let here = predict(
            1e8,
            &COST,
            &Place {
                shared: true,
                ..place(1e5)
            },
        );
        assert!(
            (here.seconds - 0.31).abs() < 0.01 && here.slowest == "the shared processors",
            "{here:?}"
        );
        assert!((fast.cpu_s - 0.5).abs() < 1e-9);
    }

    // Goal: the model never says that doing more work or having less to do it with is faster.
    #[test]
    #[allow(clippy::too_many_lines, reason = "a scenario is told in one go")]
    fn more_work_or_fewer_processors_are_never_faster() {
        for (mbit, shared) in [1.0, 100.0, 1e3, 1e4, f64::INFINITY]
            .iter()
            .flat_map(|&mbit| [(mbit, false), (mbit, true)])
        {
            let place = |mbit| Place {
                shared,
                ..place(mbit)
            };
            let base = predict(1e7, &COST, &place(mbit)).seconds;
            for worse in [
                predict(1.1e7, &COST, &place(mbit)),
                predict(
                    1e7,
                    &Cost {
                        send_s: 9e-9,
                        ..COST
                    },
                    &place(mbit),
                ),
                predict(
                    1e7,
                    &Cost {
                        recv_s: 9e-9,
                        ..COST
                    },
                    &place(mbit),
                ),
                predict(
                    1e7,
                    &Cost {
                        alone_s: 9e-9,
                        ..COST
                    },
                    &place(mbit),
                ),
                predict(
                    1e7,
                    &Cost {
                        serial_unpack: true,
                        ..COST
                    },
                    &place(mbit),
                ),
                predict(1e7, &Cost { size: 0.9, ..COST }, &place(mbit)),
                predict(
                    1e7,
                    &COST,
                    &Place {
                        threads: 1.0,
                        ..place(mbit)
                    },
                ),
                predict(
                    1e7,
                    &COST,
                    &Place {
                        processors: 1.0,
                        ..place(mbit)
                    },
                ),
                predict(
                    1e7,
                    &COST,
                    &Place {
                        wire_s: (9e-9, 1e-9),
                        ..place(mbit)
                    },
                ),
                predict(
                    1e7,
                    &COST,
                    &Place {
                        delay_s: 0.1,
                        ..place(mbit)
                    },
                ),
                predict(1e7, &COST, &place(mbit * 0.5)),
            ] {
                assert!(
                    worse.seconds >= base && worse.seconds.is_finite(),
                    "{mbit}: {worse:?} {base}"
                );
            }
        }
    }
}
