#!/usr/bin/env bash
# Everything that docs/results/disk.md has, in about an hour on a quiet machine: bench/disk/all.sh CORPUS
#
# Rows go to docs/results/disk.jsonl, which is begun anew. Needs root, a release build, what run.py and ceph.sh name.
set -euo pipefail
cd "$(dirname "$0")/../.."
corpus=${1:?a directory of NAME.zst files}
out=docs/results/disk.jsonl
run() { bench/disk/run.py --out "$out" "$@"; }

rm -f "$out"
run --on /dev/shm --size 1G
run --on /dev/shm --size 1G --age --tight
for kind in image ext4 postgres numeric; do
  run --on /dev/shm --data "$kind" --corpus "$corpus" --seconds 2
done
run --on /var/tmp --size 2G --durable
run --deck --on /var/tmp --size 1G --seconds 15
bench/disk/table.py >docs/results/disk.md
