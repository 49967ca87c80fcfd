//! Structures that programs hand to the driver, with the names and the layout that `cuda.h` gives them.
#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "names and fields are those of cuda.h"
)]

use std::ffi::c_void;

/// An address in device memory.
pub type CUdeviceptr = u64;

/// `CU_MEMORYTYPE_HOST`.
pub const MEMORYTYPE_HOST: u32 = 1;
/// `CU_MEMORYTYPE_DEVICE`.
pub const MEMORYTYPE_DEVICE: u32 = 2;
/// `CU_MEMORYTYPE_ARRAY`.
pub const MEMORYTYPE_ARRAY: u32 = 3;
/// `CU_MEMORYTYPE_UNIFIED`: the address says where it is.
pub const MEMORYTYPE_UNIFIED: u32 = 4;

/// Identifies a device.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// A rectangle to copy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: u32,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: *mut c_void,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: u32,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: *mut c_void,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

/// A box to copy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY3D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: u32,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: *mut c_void,
    pub reserved0: *mut c_void,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: u32,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: *mut c_void,
    pub reserved1: *mut c_void,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

/// One attribute of a launch: an id, and a union of 64 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUlaunchAttribute {
    pub id: u32,
    pub pad: u32,
    pub value: [u64; 8],
}

/// A launch with attributes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUlaunchConfig {
    pub gridDim: [u32; 3],
    pub blockDim: [u32; 3],
    pub sharedMemBytes: u32,
    pub hStream: *mut c_void,
    pub attrs: *const CUlaunchAttribute,
    pub numAttrs: u32,
}

/// A kernel in a graph; `kern` and `ctx` are of the second version only.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: *mut c_void,
    pub gridDim: [u32; 3],
    pub blockDim: [u32; 3],
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: *mut c_void,
    pub ctx: *mut c_void,
}

/// Setting memory, in a graph.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}

/// Properties of a device, as the first drivers had them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUdevprop {
    pub maxThreadsPerBlock: i32,
    pub maxThreadsDim: [i32; 3],
    pub maxGridSize: [i32; 3],
    pub sharedMemPerBlock: i32,
    pub totalConstantMemory: i32,
    pub SIMDWidth: i32,
    pub memPitch: i32,
    pub regsPerBlock: i32,
    pub clockRate: i32,
    pub textureAlign: i32,
}

/// What a texture reads: `resType` says which member of the union counts.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_RESOURCE_DESC {
    pub resType: u32,
    pub pad: u32,
    pub res: [u64; 16],
    pub flags: u32,
    pub tail: u32,
}

/// How a texture reads.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_TEXTURE_DESC {
    pub addressMode: [u32; 3],
    pub filterMode: u32,
    pub flags: u32,
    pub maxAnisotropy: u32,
    pub mipmapFilterMode: u32,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub borderColor: [f32; 4],
    pub reserved: [i32; 12],
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: programs and this library mean the same bytes. Method: the sizes that a C compiler gives for cuda.h 13.5.
    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(size_of::<CUDA_MEMCPY2D>(), 128);
        assert_eq!(size_of::<CUDA_MEMCPY3D>(), 200);
        assert_eq!(size_of::<CUlaunchAttribute>(), 72);
        assert_eq!(size_of::<CUlaunchConfig>(), 56);
        assert_eq!(size_of::<CUDA_KERNEL_NODE_PARAMS>(), 72);
        assert_eq!(size_of::<CUDA_MEMSET_NODE_PARAMS>(), 40);
        assert_eq!(size_of::<CUdevprop>(), 56);
        assert_eq!(size_of::<CUDA_RESOURCE_DESC>(), 144);
        assert_eq!(size_of::<CUDA_TEXTURE_DESC>(), 104);
    }
}
