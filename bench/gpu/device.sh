#!/bin/bash
# What a GPU is wanted for, in at most ten minutes: builds, runs the tests with the back end `cuda`, measures, runs the
# programs of docs/gpu.md, and writes rows with the card's name to OUT.
#   bench/gpu/device.sh OUT [VENVS]
set -uo pipefail
out=${1:?usage: bench/gpu/device.sh OUT [VENVS]}
venvs=${2:-}
cd "$(dirname "$0")/../.."
mkdir -p "$out"
began=$SECONDS
step() { echo "== $1 ($((SECONDS - began)) s)"; }

card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)
[ -n "$card" ] || { echo "no GPU here: nvidia-smi says nothing"; exit 1; }
echo "$card" | tee "$out/card"

step build
cargo build --release -q -p narrows-cli -p narrows-gpu-client || exit 1
target=${CARGO_TARGET_DIR:-target}/release
narrows=$target/narrows
export NARROWS_GPU_LIBRARY
NARROWS_GPU_LIBRARY=$(realpath "$target"/libnarrows_cuda.so "$target"/deps/libnarrows_cuda.so 2>/dev/null | head -1)

work=$(mktemp -d)
"$narrows" -v gpu serve --backend cuda --listen "unix:$work/sock" 2> "$out/serve.log" &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do grep -q "listening on" "$out/serve.log" && break; sleep 0.1; done
"$narrows" gpu info --to "unix:$work/sock" --json | tee "$out/info.json"

step programs
sources=crates/cli/tests/e2e/gpu
ln -s "$NARROWS_GPU_LIBRARY" "$work/libcuda.so"
ok() {
    local name=$1 began=$SECONDS
    shift
    if timeout 120 "$narrows" gpu run --to "unix:$work/sock" --json -- "$@" > "$work/out" 2> "$work/err"; then
        result=works
    else
        result=fails
    fi
    tail -3 "$work/out"
    python3 - "$name" "$result" "$card" "$work/err" >> "$out/programs.jsonl" <<'PY'
import json, sys
name, result, card, path = sys.argv[1:]
lines = open(path, errors="replace").read().splitlines()
summary = next((json.loads(line) for line in lines if line.startswith('{"schema":"narrows.gpu-run')), None)
said = [line for line in lines if line.startswith("narrows gpu:")][:5]
print(json.dumps({"schema": "narrows.gpu-program/1", "program": name, "result": result, "card": card, "summary": summary, "said": said}))
PY
    echo "$name: $result"
}
for name in vadd features fresh; do
    cc -O1 -o "$work/$name" "$sources/$name.c" -L"$work" -lcuda -lpthread -ldl && ok "$name.c" "$work/$name"
done
cc -O1 -o "$work/wrong" "$sources/wrong.c" -L"$work" -lcuda && for what in address image trap table; do ok "wrong.c $what" "$work/wrong" $what; done
if [ -n "$venvs" ]; then
    ok numba "$venvs/numba/bin/python" $sources/numba_kernels.py
    ok cuda-core "$venvs/core/bin/python" $sources/cuda_core.py
    DEV=CUDA:PTX ok "tinygrad PTX" "$venvs/tinygrad/bin/python" $sources/tinygrad_training.py
    DEV=CUDA ok "tinygrad NVRTC" "$venvs/tinygrad/bin/python" $sources/tinygrad_training.py
    ok triton "$venvs/triton/bin/python" $sources/triton_kernels.py
fi
if ffmpeg -hide_banner -filters 2>/dev/null | grep -q yadif_cuda; then
    ok "ffmpeg yadif_cuda" ffmpeg -hide_banner -loglevel error -init_hw_device cuda=c -filter_hw_device c \
        -f lavfi -i testsrc2=s=320x240:d=0.2 -vf format=yuv420p,setfield=tff,hwupload_cuda,yadif_cuda,hwdownload,format=yuv420p -f framemd5 -
fi

step nvCOMP
# PyPI's nvidia-libnvcomp-cu12, where it is installed; NARROWS_NVCOMP_LIB names another.
: "${NARROWS_NVCOMP_LIB:=$(python3 -c 'import nvidia.libnvcomp as n; print(list(n.__path__)[0])' 2>/dev/null)/lib64/libnvcomp.so.6}"
if [ -e "$NARROWS_NVCOMP_LIB" ]; then
    cargo build --release -q -p narrows-gpu-server --example nvcomp &&
        timeout 120 "$target/examples/nvcomp" --nvcomp "$NARROWS_NVCOMP_LIB" "$narrows" |
        python3 -c "import json,sys
for line in sys.stdin: print(json.dumps({**json.loads(line), 'card': '''$card'''}))" | tee "$out/nvcomp.jsonl"
else
    echo "nvCOMP is not there (pip install nvidia-libnvcomp-cu12)"
fi

step bandwidth
for policy in none adaptive; do
    timeout 150 "$narrows" gpu bandwidth --to "unix:$work/sock" --policy $policy --sizes 4,64K,1M,16M,64M --json |
        python3 -c "import json,sys
for line in sys.stdin: print(json.dumps({**json.loads(line), 'policy': '$policy', 'card': '''$card'''}))" >> "$out/bandwidth.jsonl"
done
[ "$(id -u)" = 0 ] && [ $((SECONDS - began)) -lt 400 ] && timeout 150 python3 bench/gpu/run.py --links 1000 --sizes 1M,16M --rounds 1 \
    --backend cuda --out "$out/links.jsonl"
step done
