#!/usr/bin/env bash
# The paper's tables again, on the corpus: bench/memory/paper.sh DIR [FLAG…]
#
# What is not made by `narrows bench pages --paper` itself is taken from DIR: the paper's own kind of data where there is some, of
# which the tables say the file. For two of hurricane Isabel's fields there is nothing like them.
set -euo pipefail
dir=${1:?usage: bench/memory/paper.sh DIR [FLAG…]}
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
exec "${NARROWS:-$root/target/release/narrows}" bench pages --paper "linux=$dir/src.linux_kernel" \
    "isabel-p=$dir/isabel.velmag_t02_f32" "ecoham=$dir/ocean.nemo" "image=$dir/med.rg1_radiograph" "fmri=$dir/med.fmri_ffd_a" \
    "sao=$dir/standin.sao.hipparcos" "memory=$dir/swap.python_pandas" "$@"
