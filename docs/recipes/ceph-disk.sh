#!/bin/sh
# A disk on a Ceph image that packs before Ceph replicates: bytes are packed once and not once a replica.
# Needs librbd (Debian: librbd1) and a keyring in /etc/ceph. The pool's own compression should be off for this image.
set -eu
pool=${1:?pool} image=${2:?image} size=${3:?size, as 100G}
rbd pool stats "$pool" >/dev/null
narrows disk create --backing "rbd:$pool/$image" --size "$size" --physical "$size"
rbd config image set "$pool/$image" rbd_compression_hint incompressible
# Long answers want many requests side by side.
exec narrows disk serve --backing "rbd:$pool/$image" --unix "/run/$image.nbd" --control "/run/$image.control" --workers 64 --metrics 127.0.0.1:9400
