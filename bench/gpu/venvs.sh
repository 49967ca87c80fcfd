#!/bin/sh
# Makes the virtual environments in which the tests of the GPU path look for other people's programs:
#   bench/gpu/venvs.sh DIR && NARROWS_GPU_VENVS=DIR cargo test -p narrows-cli --test e2e gpu
# About 1.5 GB. Without nvidia-nvjitlink, so that numba links through the driver: what nvjitlink makes is machine code,
# which the host back end cannot run.
set -eu
dir=${1:?usage: bench/gpu/venvs.sh DIR}
make() {
    name=$1
    shift
    [ -x "$dir/$name/bin/python" ] || python3 -m venv "$dir/$name"
    "$dir/$name/bin/pip" install -q "$@"
}
make numba 'numba-cuda[cu13]' numpy
"$dir/numba/bin/pip" uninstall -q -y nvidia-nvjitlink
make core 'cuda-core[cu13]' nvidia-cuda-nvrtc numpy
make tinygrad tinygrad nvidia-cuda-nvrtc numpy
make triton triton numpy
