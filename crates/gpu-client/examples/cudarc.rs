//! A program of another library, unmodified: `cudarc` finds the driver by itself, compiles nothing here, and adds vectors.
//!
//! Run it as `narrows gpu run --to HOST -- target/debug/examples/cudarc`.

use cudarc::{
    driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg},
    nvrtc::Ptx,
};

/// `out[i] = a * x[i] + y[i]`, for i below n.
const SAXPY: &str = "
.version 6.4
.target sm_50
.address_size 64
.visible .entry saxpy(.param .u64 out, .param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %d<8>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p, %r4, %r5;
    @%p bra done;
    mul.wide.u32 %d1, %r4, 4;
    ld.param.u64 %d2, [x];
    ld.param.u64 %d3, [y];
    ld.param.u64 %d4, [out];
    ld.param.f32 %f1, [a];
    add.u64 %d2, %d2, %d1;
    add.u64 %d3, %d3, %d1;
    add.u64 %d4, %d4, %d1;
    ld.global.f32 %f2, [%d2];
    ld.global.f32 %f3, [%d3];
    fma.rn.f32 %f3, %f1, %f2, %f3;
    st.global.f32 [%d4], %f3;
done:
    ret;
}
";

const COUNT: u32 = 100_000;

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let module = context.load_module(Ptx::from_src(SAXPY))?;
    let saxpy = module.load_function("saxpy")?;
    let x: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..COUNT).map(|i| (i % 7) as f32).collect();
    let (there_x, there_y) = (stream.clone_htod(&x)?, stream.clone_htod(&y)?);
    let mut out = stream.alloc_zeros::<f32>(COUNT as usize)?;
    let mut launch = stream.launch_builder(&saxpy);
    let a = 0.5_f32;
    launch
        .arg(&mut out)
        .arg(&a)
        .arg(&there_x)
        .arg(&there_y)
        .arg(&COUNT);
    // SAFETY: the arguments are those of the kernel, which stays within COUNT elements of each.
    unsafe { launch.launch(LaunchConfig::for_num_elems(COUNT)) }?;
    let back = stream.clone_dtoh(&out)?;
    let wanted = x.iter().zip(&y).map(|(x, y)| a.mul_add(*x, *y));
    assert!(back.iter().copied().eq(wanted), "other sums");
    println!("cudarc ok: {} on {}", back.len(), context.name()?);
    Ok(())
}
