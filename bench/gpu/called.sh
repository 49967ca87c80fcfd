#!/bin/sh
# Lists the driver calls that the programs of the tests make: DIR holds the environments of venvs.sh.
#   bench/gpu/called.sh DIR > crates/gpu-client/tests/called.txt
set -eu
dir=${1:?usage: bench/gpu/called.sh DIR}
root=$(cd "$(dirname "$0")/../.." && pwd)
narrows=${NARROWS:-${CARGO_TARGET_DIR:-$root/target}/debug/narrows}
work=$(mktemp -d)
"$narrows" gpu serve --backend host --listen "unix:$work/sock" 2> "$work/serve" &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
until grep -q listening "$work/serve"; do sleep 0.1; done
scripts=$root/crates/cli/tests/e2e/gpu
cuda='-init_hw_device cuda=c -filter_hw_device c -f lavfi -i testsrc2=s=320x240:d=0.1'
small='-f lavfi -i testsrc=s=64x48:d=0.1'
traced() { NARROWS_GPU_TRACE=1 "$narrows" gpu run --to "unix:$work/sock" -- "$@" 2>&1 >/dev/null || true; }
{
    traced "$dir/numba/bin/python" "$scripts/numba_kernels.py"
    traced "$dir/core/bin/python" "$scripts/cuda_core.py"
    DEV=CUDA:PTX traced "$dir/tinygrad/bin/python" "$scripts/tinygrad_training.py"
    DEV=CUDA traced "$dir/tinygrad/bin/python" "$scripts/tinygrad_training.py"
    TRITON_CACHE_DIR=$work/triton TRITON_PTXAS_PATH=$scripts/ptxas.sh traced "$dir/triton/bin/python" "$scripts/triton_kernels.py"
    for filter in hwupload_cuda,yadif_cuda,hwdownload hwupload_cuda,scale_cuda=160:120,hwdownload; do
        traced ffmpeg $cuda -vf "format=yuv420p,$filter,format=yuv420p" -f null -
    done
    traced ffmpeg $cuda $small -filter_complex \
        '[0]format=yuv420p,hwupload_cuda[a];[1]format=yuv420p,hwupload_cuda[b];[a][b]overlay_cuda,hwdownload,format=yuv420p' -f null -
} | sed -n 's/^narrows gpu: \(cu[A-Za-z0-9_]*\) -> CUDA_SUCCESS.*/\1/p' | sort -u
