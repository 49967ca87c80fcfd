#!/usr/bin/env bash
# Brings a small Ceph cluster up on loopback, in one directory, and takes it down again.
#
#   bench/disk/ceph.sh up DIR       one monitor, one manager, OSDS object stores; waits until they serve
#   bench/disk/ceph.sh pool DIR POOL [none|zstd64|zstd]
#   bench/disk/ceph.sh image DIR POOL IMAGE SIZE
#   bench/disk/ceph.sh down DIR     ends the daemons it started and removes DIR
#
# Debian's packages do: ceph-mon ceph-mgr ceph-osd ceph-common. Nothing is read from or written to /etc/ceph: clients
# take DIR/ceph.conf through CEPH_CONF. Needs root, since the daemons expect it.
#
# Pools compress as the published comparison had it: `zstd64` forces zstd on blobs of 64 KiB (what Ceph 17 does on
# solid-state disks), `zstd` forces it with this version's own blobs of 8 KiB, `none` stores as is.
#
# Environment: OSDS (2), REPLICAS (2), OSD_SIZE (8G, sparse), OSD_MEMORY in bytes (1 GiB), PORT (33300 and the next).
set -euo pipefail

OSDS=${OSDS:-2} REPLICAS=${REPLICAS:-2} OSD_SIZE=${OSD_SIZE:-8G} PORT=${PORT:-33300}
OSD_MEMORY=${OSD_MEMORY:-1073741824}
PATIENCE_S=180

die() { echo "ceph.sh: $*" >&2; exit 1; }

missing() {
  local program
  for program in ceph ceph-authtool ceph-mon ceph-mgr ceph-osd monmaptool rbd uuidgen; do
    command -v "$program" >/dev/null || die "$program is missing (packages ceph-mon ceph-mgr ceph-osd ceph-common)"
  done
  [ "$(id -u)" = 0 ] || die "the daemons need root"
}

# Waits until a command's output holds a word.
await() {
  local word=$1 until=$((SECONDS + PATIENCE_S))
  shift
  until timeout 20 "$@" 2>/dev/null | grep -q -- "$word"; do
    [ $SECONDS -lt $until ] || die "waited $PATIENCE_S s (logs: DIR/log) for \"$word\" of: $*"
    sleep 0.5
  done
}

configure() {
  local dir=$1
  cat >"$dir/ceph.conf" <<CONF
[global]
fsid = $(uuidgen)
mon host = [v2:127.0.0.1:$PORT,v1:127.0.0.1:$((PORT + 1))]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = $dir/run
admin socket = $dir/run/\$name.asok
pid file = $dir/run/\$name.pid
log file = $dir/log/\$name.log
crash dir = $dir/crash
keyring = $dir/keyring
osd crush chooseleaf type = 0
osd pool default size = $REPLICAS
osd pool default min size = 1
mon allow pool size one = true
mon allow pool delete = true
mon pg warn on pool no redundancy = false
mon data avail crit = 1
mon data = $dir/mon
mgr data = $dir/mgr
osd data = $dir/osd.\$id
osd journal = $dir/osd.\$id/journal
osd memory target = $OSD_MEMORY
bluestore block path = $dir/block.\$id
bluestore block size = $(numfmt --from=iec "$OSD_SIZE")
bluestore block create = true
# A file says of itself that it is a rotating disk, which would choose deferred writes.
bluestore debug enforce settings = ssd
[client]
admin socket = $dir/run/\$name.\$pid.\$cctid.asok
log file = /dev/null
CONF
}

monitor() {
  local dir=$1 fsid
  fsid=$(sed -n 's/^fsid = //p' "$dir/ceph.conf")
  ceph-authtool -C "$dir/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
  ceph-authtool "$dir/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' \
    --cap mds 'allow *' --cap mgr 'allow *' >/dev/null
  monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$PORT,v1:127.0.0.1:$((PORT + 1))]" \
    "$dir/monmap" >/dev/null
  ceph-mon --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring"
  ceph-mon -i a --public-addr 127.0.0.1
}

up() {
  local dir=$1 osd uuid
  missing
  [ ! -e "$dir/ceph.conf" ] || die "$dir has a cluster; take it down first"
  mkdir -p "$dir"/{run,log,crash,mon,mgr}
  dir=$(realpath "$dir")
  configure "$dir"
  export CEPH_CONF=$dir/ceph.conf
  # What came up goes down again if the rest does not.
  trap 'down "$dir"' ERR
  monitor "$dir"
  await "\"fsid\"" ceph -s -f json
  for ((osd = 0; osd < OSDS; osd++)); do
    uuid=$(uuidgen)
    ceph osd new "$uuid" "$osd" >/dev/null
    mkdir -p "$dir/osd.$osd"
    truncate -s "$OSD_SIZE" "$dir/block.$osd"
    ceph-osd -i "$osd" --mkfs --osd-uuid "$uuid" >>"$dir/log/start.log" 2>&1
    ceph-osd -i "$osd" >>"$dir/log/start.log" 2>&1
  done
  ceph-mgr -i x
  await "^ *\"num_up_osds\": $OSDS" ceph osd stat -f json-pretty
  trap - ERR
  echo "CEPH_CONF=$CEPH_CONF"
}

pool() {
  local dir=$1 pool=$2 kind=${3:-none}
  export CEPH_CONF=$dir/ceph.conf
  ceph osd pool create "$pool" 32 32 >/dev/null 2>&1
  ceph osd pool set "$pool" pg_autoscale_mode off >/dev/null 2>&1
  case $kind in
    none) ;;
    zstd | zstd64)
      ceph osd pool set "$pool" compression_algorithm zstd >/dev/null 2>&1
      ceph osd pool set "$pool" compression_mode force >/dev/null 2>&1
      [ "$kind" = zstd ] || ceph osd pool set "$pool" compression_min_blob_size 65536 >/dev/null 2>&1
      ;;
    *) die "a pool is none, zstd or zstd64, not $kind" ;;
  esac
  rbd pool init "$pool"
  await "^32$" bash -c "ceph pg ls-by-pool $pool -f json | grep -o '\"state\":\"active+clean\"' | wc -l"
}

image() {
  local dir=$1 pool=$2 image=$3 size=$4
  export CEPH_CONF=$dir/ceph.conf
  rbd create "$pool/$image" --size "$size"
}

down() {
  local dir=$1 file pid
  trap - ERR
  [ -e "$dir/ceph.conf" ] || die "$dir has no cluster"
  dir=$(realpath "$dir")
  for file in "$dir"/run/{osd.*,mgr.*,mon.*}.pid; do
    [ -e "$file" ] || continue
    pid=$(tr -cd 0-9 <"$file")
    # A number may have gone to another process since: only one with this directory's configuration is ours.
    if [ -n "$pid" ] && [ -e "/proc/$pid/environ" ] &&
      tr '\0' '\n' <"/proc/$pid/environ" | grep -qxF "CEPH_CONF=$dir/ceph.conf"; then
      kill -KILL "$pid" 2>/dev/null || true
      while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    fi
  done
  rm -rf "${dir:?}"
}

case ${1:-} in
  up) [ $# = 2 ] || die "up DIR"; up "$2" ;;
  pool) [ $# -ge 3 ] || die "pool DIR POOL [none|zstd64|zstd]"; pool "${@:2}" ;;
  image) [ $# = 5 ] || die "image DIR POOL IMAGE SIZE"; image "${@:2}" ;;
  down) [ $# = 2 ] || die "down DIR"; down "$2" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
