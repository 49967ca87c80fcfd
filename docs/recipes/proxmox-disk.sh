#!/bin/sh
# A packed disk for a Proxmox guest: narrows serves it on a Unix socket, and the guest's QEMU opens that as a drive.
# Proxmox moves, snapshots and backs up only disks of its own storages: this one it does not see. Take it for data that can be made again.
set -eu
guest=${1:?number of the guest} backing=${2:?file, device or rbd:POOL/IMAGE} size=${3:?size, as 100G}
narrows disk create --backing "$backing" --size "$size"
mkdir -p /etc/narrows/disk
printf 'BACKING=%s\nOPTIONS=--profile balanced\n' "$backing" >"/etc/narrows/disk/$guest"
systemctl enable --now "narrows-disk@$guest"
qm set "$guest" --args "-drive if=none,id=narrows,driver=nbd,server.type=unix,server.path=/run/narrows-disk/$guest/nbd,discard=unmap \
-device virtio-blk-pci,drive=narrows"
