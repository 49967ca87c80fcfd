//! What programs are told of the emulated device: real values of a device of its kind, so that what they compute from
//! them (block sizes, pitches, how to split work) is right here too.

use narrows_gpu_abi::DEVICE_ATTRIBUTES;
use narrows_gpu_wire::{Attribute, DeviceInfo};

use super::Options;

/// Shared memory of a block without asking for more, in bytes.
pub(super) const SHARED_PER_BLOCK: i32 = 48 << 10;
/// With asking.
pub(super) const SHARED_OPTIN: i32 = 99 << 10;
/// Of a multiprocessor.
pub(super) const SHARED_PER_SM: i32 = 164 << 10;
/// Threads of a multiprocessor.
pub(super) const THREADS_PER_SM: i32 = 2048;
/// Threads of a block.
pub(super) const THREADS_PER_BLOCK: i32 = 1024;
/// Alignment of rows of a texture over linear memory, in bytes. Programs divide by it.
const PITCH_ALIGN: i32 = 32;
const TEXTURE_ALIGN: i32 = 512;
/// What the driver there would be.
const DRIVER_VERSION: u32 = narrows_gpu_abi::HEADER_VERSION;

pub(super) fn info(options: &Options, arena: (u64, u64)) -> DeviceInfo {
    DeviceInfo {
        backend: "host".into(),
        name: "narrows host emulation".into(),
        uuid: *b"narrows-host-gpu",
        pci_bus_id: "0000:00:1f.0".into(),
        memory: options.memory,
        driver_version: DRIVER_VERSION,
        attributes: DEVICE_ATTRIBUTES
            .iter()
            .map(|(id, name)| Attribute {
                id: *id,
                value: value(name, options),
            })
            .collect(),
        arena_base: arena.0,
        arena_len: arena.1,
    }
}

/// By name: the numbers are in the table that the names come from.
fn value(name: &str, options: &Options) -> i32 {
    let name = name.strip_prefix("CU_DEVICE_ATTRIBUTE_").unwrap_or(name);
    let mib = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
    match name {
        "MAX_THREADS_PER_BLOCK" | "MAX_BLOCK_DIM_X" | "MAX_BLOCK_DIM_Y" => THREADS_PER_BLOCK,
        "MAX_BLOCK_DIM_Z" => 64,
        "MAX_GRID_DIM_X" => i32::MAX,
        "MAX_GRID_DIM_Y" | "MAX_GRID_DIM_Z" => 65_535,
        "MAX_SHARED_MEMORY_PER_BLOCK" => SHARED_PER_BLOCK,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN" => SHARED_OPTIN,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR" => SHARED_PER_SM,
        "RESERVED_SHARED_MEMORY_PER_BLOCK" => 1024,
        "TOTAL_CONSTANT_MEMORY" => 64 << 10,
        "WARP_SIZE" => 32,
        "MAX_PITCH" => i32::MAX,
        "MAX_REGISTERS_PER_BLOCK" | "MAX_REGISTERS_PER_MULTIPROCESSOR" => 64 << 10,
        "CLOCK_RATE" | "MEMORY_CLOCK_RATE" => 1_000_000,
        "TEXTURE_ALIGNMENT" | "SURFACE_ALIGNMENT" => TEXTURE_ALIGN,
        "TEXTURE_PITCH_ALIGNMENT" => PITCH_ALIGN,
        "MULTIPROCESSOR_COUNT" => i32::try_from(options.workers).unwrap_or(1).max(1),
        "MAX_THREADS_PER_MULTIPROCESSOR" => THREADS_PER_SM,
        "MAX_BLOCKS_PER_MULTIPROCESSOR" => 32,
        "GLOBAL_MEMORY_BUS_WIDTH" => 64,
        "L2_CACHE_SIZE" => mib(4 << 20),
        "COMPUTE_CAPABILITY_MAJOR" => options.capability.0 as i32,
        "COMPUTE_CAPABILITY_MINOR" => options.capability.1 as i32,
        "MAXIMUM_TEXTURE1D_WIDTH" | "MAXIMUM_TEXTURE1D_LINEAR_WIDTH" => 1 << 17,
        "MAXIMUM_TEXTURE2D_WIDTH"
        | "MAXIMUM_TEXTURE2D_HEIGHT"
        | "MAXIMUM_TEXTURE2D_LINEAR_WIDTH"
        | "MAXIMUM_TEXTURE2D_LINEAR_HEIGHT" => 1 << 16,
        "MAXIMUM_TEXTURE2D_LINEAR_PITCH" => (1 << 21) - 32,
        "GPU_OVERLAP"
        | "CONCURRENT_KERNELS"
        | "ASYNC_ENGINE_COUNT"
        | "UNIFIED_ADDRESSING"
        | "STREAM_PRIORITIES_SUPPORTED"
        | "MEMORY_POOLS_SUPPORTED"
        | "COOPERATIVE_LAUNCH" => i32::from(name != "COOPERATIVE_LAUNCH"),
        // Zero-copy and managed memory, peers, interchange with other APIs, compute modes: there is none of it.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: programs find what they divide by. Method: the attributes that real ones were seen to need.
    #[test]
    fn attributes_that_programs_compute_with_are_not_zero() {
        let info = info(&Options::default(), (0, 0));
        let value = |id| {
            info.attributes
                .iter()
                .find(|attribute| attribute.id == id)
                .unwrap()
                .value
        };
        for id in [1, 2, 5, 8, 10, 14, 16, 39, 51, 75, 81, 82, 97] {
            assert!(value(id) > 0, "attribute {id}");
        }
        // Mapping host memory and managed memory are refused, so they are not offered.
        assert_eq!((value(19), value(83)), (0, 0));
    }
}
