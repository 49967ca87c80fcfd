#!/usr/bin/env bash
# Reads the golden files on other architectures, emulated: bench/reliability/arches.sh
#
# Needs the targets' standard libraries (rustup target add), cross compilers and qemu-user. Exit 77 where none can be had.
set -uo pipefail
cd "$(dirname "$0")/../.."
read=0
while read -r target linker emulator sysroot; do
    if ! rustup target list --installed 2>/dev/null | grep -qx "$target"; then
        echo "skipped: $target: its standard library is not installed (rustup target add $target)"
    elif ! command -v "$linker" >/dev/null || ! command -v "$emulator" >/dev/null; then
        echo "skipped: $target: $linker or $emulator is not installed"
    else
        name=${target//-/_}
        env "CARGO_TARGET_${name^^}_LINKER=$linker" "CARGO_TARGET_${name^^}_RUNNER=$emulator -L $sysroot" "CC_$name=$linker" RUSTFLAGS= \
            cargo test --locked --target "$target" -p narrows --test golden -p narrows-rest --test golden golden || exit 1
        read=$((read + 1))
    fi
done <<'TARGETS'
i686-unknown-linux-gnu i686-linux-gnu-gcc qemu-i386 /usr/i686-linux-gnu
aarch64-unknown-linux-gnu aarch64-linux-gnu-gcc qemu-aarch64 /usr/aarch64-linux-gnu
s390x-unknown-linux-gnu s390x-linux-gnu-gcc qemu-s390x /usr/s390x-linux-gnu
TARGETS
echo "$read architectures read"
[ "$read" -gt 0 ] || exit 77
