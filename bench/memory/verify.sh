#!/usr/bin/env bash
# Checks a RAM disk with fio for some minutes: bench/memory/verify.sh SECONDS
#
# 16 connections write, overwrite and verify (crc32c) every other 64 KiB of the device, while 4 more trim the 64 KiB
# between, so that each kind of request lands beside the other in groups, shards and slabs. Rounds of 30 s change places,
# so that what was trimmed is written and what was written is trimmed. (fio cannot verify what it trims itself: its
# trim_percentage asserts with the nbd engine, and randtrimwrite hardly writes.) Needs fio with the nbd engine, and
# a release build. NARROWS, PROFILE, FIO and BACKING=1 say otherwise.
set -euo pipefail
seconds=${1:?usage: bench/memory/verify.sh SECONDS}
root=$(cd "$(dirname "$0")/../.." && pwd)
narrows=${NARROWS:-$root/target/release/narrows}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
backing=()
[ -z "${BACKING:-}" ] || backing=(--backing "$dir/backing" --mem-limit 64M)
"$narrows" memory serve --size 1G --profile "${PROFILE:-fast}" --idle-after 5 --unix "$dir/s" --control "$dir/c" --json \
    "${backing[@]}" >"$dir/ready" 2>"$dir/log" &
server=$!
until [ -s "$dir/ready" ]; do sleep 0.1; done
left=$seconds turn=0
while [ "$left" -gt 0 ]; do
    span=$((left < 30 ? left : 30)) left=$((left - 30)) turn=$((1 - turn))
    ${FIO:-fio} --output="$dir/fio.json" --output-format=json --ioengine=nbd --uri="nbd+unix:///?socket=$dir/s" \
        --time_based --runtime="$span" --zonemode=strided --zonesize=64k --zonerange=64k --zoneskip=64k \
        --name=verify --numjobs=16 --rw=randwrite --bs=4k --size=$((span < 20 ? 8 : 64))m --offset_increment=64m \
        --offset=$((turn * 65536)) --iodepth=8 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --buffer_compress_percentage=60 --group_reporting \
        --name=trim --numjobs=4 --rw=randtrim --bs=16k --size=256m --offset_increment=256m --offset=$(((1 - turn) * 65536)) \
        --iodepth=4 --rate_iops=2000 --group_reporting
    python3 - "$dir/fio.json" <<'REPORT'
import json, sys
text = open(sys.argv[1]).read()
jobs = json.loads(text[text.index("{"):])["jobs"]
counts = {k: sum(job[k]["total_ios"] for job in jobs) for k in ("read", "write", "trim")}
errors = [job["error"] for job in jobs]
print(counts, "errors", errors, flush=True)
sys.exit(any(errors) or not all(counts.values()))
REPORT
done
"$narrows" memory stat --control "$dir/c" --json
kill -INT "$server"
wait "$server"
! grep -E "ERROR|panicked" "$dir/log"
echo "verified for $seconds s"
