//! Programs of others, unmodified.

use super::*;

/// Runs a Python script of this folder with its GPU on the other host.
fn script(name: &str, python: &Path, environment: &[(&str, &str)]) -> Ended {
    let far = Far::new(&[]);
    let mut command = far.command(&["--summary"]);
    command.arg(python).arg(sources().join(name));
    command.envs(environment.iter().copied());
    let ended = Process::start(&mut command).wait().expect(0);
    assert!(!ended.stderr.contains("used no GPU"), "{ended:?}");
    ended
}

#[track_caller]
fn prints(ended: &Ended, words: &str) {
    let out = String::from_utf8_lossy(&ended.stdout);
    assert!(out.contains(words), "{ended:?}");
}

// Goal: kernels that numba compiles give what numpy gives. Method: a sum of vectors, and a reduction with shared
// memory, a barrier and atomics.
#[test]
fn numba_cuda() {
    if let Some(python) = python("numba", "numba.cuda.cudadrv, numba_cuda, numpy") {
        prints(&script("numba_kernels.py", &python, &[]), "numba ok");
    }
}

// Goal: C++ that NVRTC compiles runs. Method: a kernel through cuda.core, compared with numpy.
#[test]
fn cuda_core_with_nvrtc() {
    if let Some(python) = python("core", "cuda.core, cuda.bindings.nvrtc, numpy") {
        prints(&script("cuda_core.py", &python, &[]), "cuda-core ok");
    }
}

// Goal: a program of another language's library finds the device. Method: cudarc adds vectors; it looks for the driver by
// itself, and asks for functions by name.
#[test]
fn cudarc_adds_vectors() {
    let program = Path::new(NARROWS).with_file_name("examples/cudarc");
    if !program.exists() {
        return skip("the program is built by cargo test --workspace");
    }
    let far = Far::new(&[]);
    let mut command = far.command(&["--summary"]);
    let ended = Process::start(command.arg(program)).wait().expect(0);
    prints(&ended, "cudarc ok: 100000");
}

// Goal: deep learning is right. Method: a network is trained on the device and on tinygrad's CPU back end; the losses
// of all steps are compared. Once with the PTX that tinygrad writes, once with what NVRTC makes of its C++.
#[test]
fn tinygrad_trains_to_the_same_losses_as_on_the_cpu() {
    let Some(python) = python("tinygrad", "tinygrad, numpy") else {
        return;
    };
    prints(
        &script("tinygrad_training.py", &python, &[("DEV", "CUDA:PTX")]),
        "tinygrad ok",
    );
    let nvrtc = Command::new(&python)
        .args(["-c", "import nvidia.cu13"])
        .stderr(Stdio::null())
        .status();
    if nvrtc.is_ok_and(|status| status.success()) {
        prints(
            &script("tinygrad_training.py", &python, &[("DEV", "CUDA")]),
            "tinygrad ok",
        );
    } else {
        skip("tinygrad's other way needs nvidia-cuda-nvrtc");
    }
}

// Goal: kernels that Triton compiles run. Method: a sum and a softmax, compared with numpy. Triton calls ptxas to make
// machine code, which only a GPU runs; a script in its place passes the PTX on.
#[test]
fn triton_without_torch() {
    let Some(python) = python("triton", "triton, numpy") else {
        return;
    };
    if !has("cc") {
        return skip("Triton builds its launcher with cc");
    }
    let cache = TempDir::new().unwrap();
    let ptxas = sources().join("ptxas.sh");
    let environment = [
        ("TRITON_CACHE_DIR", cache.path().to_str().unwrap()),
        ("TRITON_PTXAS_PATH", ptxas.to_str().unwrap()),
        ("TRITON_DEFAULT_FP_FUSION", "1"),
    ];
    prints(
        &script("triton_kernels.py", &python, &environment),
        "triton ok",
    );
}

/// Frame hashes of what `ffmpeg` makes with `words`.
fn frames(mut command: Command, words: &str) -> Vec<String> {
    command.args(["-hide_banner", "-loglevel", "error"]);
    command.args(words.split_whitespace());
    command.args(["-f", "framemd5", "-"]).stdin(Stdio::null());
    let ended = Process::start(&mut command).wait().expect(0);
    let out = String::from_utf8_lossy(&ended.stdout).into_owned();
    let frames: Vec<_> = out
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    assert!(!frames.is_empty(), "{ended:?}");
    frames
}

fn has_cuda_filters() -> bool {
    let filters = Command::new("ffmpeg")
        .args(["-hide_banner", "-filters"])
        .output();
    let found = filters.is_ok_and(|out| {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        ["overlay_cuda", "scale_cuda", "yadif_cuda"]
            .iter()
            .all(|name| text.contains(name))
    });
    if !found {
        skip("no ffmpeg with CUDA filters");
    }
    found
}

const SOURCE: &str = "-f lavfi -i testsrc2=s=320x240:d=0.16";
const DEVICE: &str = "-init_hw_device cuda=c -filter_hw_device c";

fn ffmpeg_there(far: &Far, words: &str) -> Vec<String> {
    let mut command = far.command(&[]);
    command.arg("ffmpeg");
    frames(command, &format!("{DEVICE} {words}"))
}

fn ffmpeg_here(words: &str) -> Vec<String> {
    frames(Command::new("ffmpeg"), words)
}

// Goal: real video is right, to the last bit. Method: frame hashes of CUDA filters and of their CPU twins.
#[test]
fn ffmpeg_filters_give_the_frames_of_the_cpu() {
    if !has_cuda_filters() {
        return;
    }
    let far = Far::new(&[]);
    let there = |words: &str| ffmpeg_there(&far, words);
    assert_eq!(
        there(&format!(
            "{SOURCE} -vf format=yuv420p,hwupload_cuda,hwdownload,format=yuv420p"
        )),
        ffmpeg_here(&format!("{SOURCE} -vf format=yuv420p")),
    );
    let inset = "-f lavfi -i testsrc=s=64x48:d=0.16 -filter_complex";
    assert_eq!(
        there(&format!(
            "{SOURCE} {inset} [0]format=yuv420p,hwupload_cuda[a];[1]format=yuv420p,hwupload_cuda[b];\
             [a][b]overlay_cuda=x=16:y=32,hwdownload,format=yuv420p"
        )),
        ffmpeg_here(&format!(
            "{SOURCE} {inset} [0]format=yuv420p[a];[1]format=yuv420p[b];[a][b]overlay=x=16:y=32:format=yuv420"
        )),
    );
    assert_eq!(
        there(&format!(
            "{SOURCE} -vf format=yuv420p,hwupload_cuda,scale_cuda=160:120:interp_algo=nearest,hwdownload,format=yuv420p"
        )),
        ffmpeg_here(&format!(
            "{SOURCE} -vf format=yuv420p,scale=160:120:flags=neighbor"
        )),
    );
}

// Goal: as above, of a filter whose CUDA kernel is not the CPU's formula: its spatial score lacks the CPU's "- 1", so
// ties go the other way. Method: the kernel's own formula in numpy, on frames with and without ties.
#[test]
fn ffmpeg_deinterlaces_as_its_kernel_says() {
    if !has_cuda_filters() {
        return;
    }
    let Some(python) = python("core", "numpy") else {
        return;
    };
    let (far, dir) = (Far::new(&[]), TempDir::new().unwrap());
    let [source, made] = ["source.yuv", "made.yuv"].map(|name| dir.path().join(name));
    let write = |mut command: Command, words: &str, to: &Path| {
        command.args(["-hide_banner", "-loglevel", "error", "-y"]);
        command
            .args(words.split_whitespace())
            .args(["-f", "rawvideo"])
            .arg(to)
            .stdin(Stdio::null());
        Process::start(&mut command).wait().expect(0);
    };
    write(
        Command::new("ffmpeg"),
        &format!("{SOURCE} -vf format=yuv420p"),
        &source,
    );
    let mut there = far.command(&[]);
    there.arg("ffmpeg");
    let filter = "format=yuv420p,setfield=tff,hwupload_cuda,yadif_cuda,hwdownload,format=yuv420p";
    write(there, &format!("{DEVICE} {SOURCE} -vf {filter}"), &made);
    let compared = Command::new(python)
        .arg(sources().join("yadif_reference.py"))
        .args([&source, &made])
        .args(["320", "240"])
        .status()
        .unwrap();
    assert!(
        compared.success(),
        "frames are not what the kernel's formula gives"
    );
}
