//! What copies to and from a GPU elsewhere take: NVIDIA's `bandwidthTest` over the driver API, on data that a caller
//! gives, with bytes on the link and processor time of both ends.

use std::time::{Duration, Instant};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::Request;
use narrows_io::meter::CpuTime;

use crate::{
    api::{
        context::{cuCtxSetCurrent, cuCtxSynchronize},
        copy::{
            cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2,
            cuMemcpyHtoDAsync_v2,
        },
        device::{cuDevicePrimaryCtxRetain, cuInit},
        memory::{cuMemAlloc_v2, cuMemFree_v2, cuMemFreeHost, cuMemHostAlloc},
    },
    ffi::{Handle, In, Out},
    state::client,
};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the program to the device.
    HostToDevice,
    /// From the device to the program.
    DeviceToHost,
    /// Within the device.
    DeviceToDevice,
}

impl Direction {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::HostToDevice, Self::DeviceToHost, Self::DeviceToDevice];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::DeviceToDevice => "device_to_device",
        }
    }
}

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// What is copied.
    pub data: &'a [u8],
    /// Which way.
    pub direction: Direction,
    /// From and to pinned memory, by asynchronous copies.
    pub pinned: bool,
    /// How often at least; the first is not counted.
    pub repeats: usize,
    /// Short copies go on for so long: a few of them say little, since what adapts has not done so yet.
    pub lasts: Duration,
}

/// Why a case was not measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A call of the driver API failed, or the session has ended.
    #[error("{0}")]
    Call(String),
    /// The device gave back something else than it was given.
    #[error("the device gave back other bytes")]
    Differs,
}

/// What was measured: a case's copies in order, and what all that were counted took together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Seconds of each copy, from the call until the device has it.
    pub seconds: Vec<f64>,
    /// Bytes that went over the link, both ways.
    pub wire_bytes: u64,
    /// Processor seconds here.
    pub client_cpu_s: f64,
    /// Processor seconds of the server, which may have served others meanwhile.
    pub server_cpu_s: f64,
}

impl Row {
    /// Seconds of the middle copy.
    #[must_use]
    pub fn median_s(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Copies of a case at most, unless more are asked for.
const COPIES_MAX: usize = 200;

/// A device that is ready.
#[derive(Debug)]
pub struct Bench(());

fn ok(what: &str, result: u32) -> Result<(), BenchError> {
    match Status(result) {
        Status::SUCCESS => Ok(()),
        status => Err(BenchError::Call(format!("{what}: {status}"))),
    }
}

fn failed(status: Status) -> BenchError {
    BenchError::Call(status.to_string())
}

impl Bench {
    /// Connects, as the settings say.
    ///
    /// # Errors
    /// [`BenchError::Call`]. Why the server cannot be used was said on stderr.
    pub fn open() -> Result<Self, BenchError> {
        let mut context = Handle::NULL;
        ok("cuInit", cuInit(0))?;
        let place = Out::at(&raw mut context as usize);
        ok(
            "cuDevicePrimaryCtxRetain",
            cuDevicePrimaryCtxRetain(place, 0),
        )?;
        ok("cuCtxSetCurrent", cuCtxSetCurrent(context))?;
        // A copy that is not sent measures nothing.
        let client = client().map_err(failed)?;
        client.remote.contents.turn_off();
        Ok(Self(()))
    }

    /// Seconds of `repeats` bare round trips of the session.
    ///
    /// # Errors
    /// The session has ended.
    pub fn pings(&self, repeats: usize) -> Result<Vec<f64>, BenchError> {
        let remote = &client().map_err(failed)?.remote;
        let ping = |_| {
            let began = Instant::now();
            let answered = remote.ask(|call| Request::Ping { call });
            answered.map_err(failed)?;
            Ok(began.elapsed().as_secs_f64())
        };
        (0..repeats).map(ping).collect()
    }

    /// Measures one case. What comes back is compared with what went.
    ///
    /// # Errors
    /// A call failed, or the device gave back something else.
    pub fn measure(&self, case: Case<'_>) -> Result<Row, BenchError> {
        let mut buffers = Buffers::new(case)?;
        let mut row = Row::default();
        buffers.copy_once()?;
        let before = self.usage()?;
        let cpu = CpuTime::of_process();
        let began = Instant::now();
        while row.seconds.len() < case.repeats
            || began.elapsed() < case.lasts && row.seconds.len() < COPIES_MAX
        {
            row.seconds.push(buffers.copy_once()?);
        }
        row.client_cpu_s = CpuTime::of_process().since(cpu).total_ns() as f64 / 1e9;
        let after = self.usage()?;
        row.wire_bytes = after.0 - before.0;
        row.server_cpu_s = (after.1 - before.1) as f64 / 1e9;
        buffers.compare()?;
        Ok(row)
    }

    /// Bytes of both directions so far, and the server's processor nanoseconds.
    fn usage(&self) -> Result<(u64, u64), BenchError> {
        let remote = &client().map_err(failed)?.remote;
        let asked = remote.ask(|call| Request::Usage { call });
        let (_, cpu_ns) = asked.map_err(failed)?;
        let stats = remote.stats();
        Ok((stats.sent_wire + stats.received_wire, cpu_ns))
    }
}

/// Memory of a case, freed with it.
struct Buffers<'a> {
    case: Case<'a>,
    host: usize,
    plain: Vec<u8>,
    device: [u64; 2],
}

impl<'a> Buffers<'a> {
    fn new(case: Case<'a>) -> Result<Self, BenchError> {
        let len = case.data.len();
        let mut buffers = Self {
            case,
            host: 0,
            plain: Vec::new(),
            device: [0; 2],
        };
        for at in 0..2 {
            let place = Out::at(&raw mut buffers.device[at] as usize);
            ok("cuMemAlloc", cuMemAlloc_v2(place, len))?;
        }
        if case.pinned {
            let place = Out::at(&raw mut buffers.host as usize);
            ok("cuMemHostAlloc", cuMemHostAlloc(place, len, 0))?;
            crate::ffi::put_bytes(Out::at(buffers.host), case.data).map_err(failed)?;
        } else {
            buffers.plain = case.data.to_vec();
            buffers.host = buffers.plain.as_mut_ptr() as usize;
        }
        let fill = cuMemcpyHtoD_v2(buffers.device[0], In::at(buffers.host), len);
        ok("cuMemcpyHtoD", fill)?;
        ok("cuCtxSynchronize", cuCtxSynchronize())?;
        Ok(buffers)
    }

    fn copy_once(&mut self) -> Result<f64, BenchError> {
        let (len, host, none) = (self.case.data.len(), self.host, Handle::NULL);
        let [from, to] = self.device;
        let began = Instant::now();
        let result = match (self.case.direction, self.case.pinned) {
            (Direction::HostToDevice, false) => cuMemcpyHtoD_v2(from, In::at(host), len),
            (Direction::HostToDevice, true) => cuMemcpyHtoDAsync_v2(from, In::at(host), len, none),
            (Direction::DeviceToHost, false) => cuMemcpyDtoH_v2(Out::at(host), from, len),
            (Direction::DeviceToHost, true) => cuMemcpyDtoHAsync_v2(Out::at(host), from, len, none),
            (Direction::DeviceToDevice, _) => cuMemcpyDtoDAsync_v2(to, from, len, none),
        };
        ok("a copy", result)?;
        let waits = self.case.direction != Direction::DeviceToHost || self.case.pinned;
        if waits {
            ok("cuCtxSynchronize", cuCtxSynchronize())?;
        }
        Ok(began.elapsed().as_secs_f64())
    }

    fn compare(&mut self) -> Result<(), BenchError> {
        let mut back = vec![0; self.case.data.len()];
        let place = Out::at(back.as_mut_ptr() as usize);
        ok(
            "cuMemcpyDtoH",
            cuMemcpyDtoH_v2(place, self.device[0], back.len()),
        )?;
        if back == self.case.data {
            Ok(())
        } else {
            Err(BenchError::Differs)
        }
    }
}

impl Drop for Buffers<'_> {
    fn drop(&mut self) {
        for address in self.device {
            cuMemFree_v2(address);
        }
        if self.case.pinned {
            cuMemFreeHost(Out::at(self.host));
        }
    }
}
