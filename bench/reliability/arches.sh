#!/usr/bin/env bash
# Reads the golden files on other architectures, emulated: bench/reliability/arches.sh
#
# Needs cross compilers, qemu-user and each target's standard library: either rustup's (rustup target add), or Debian's
# compiler and the library's source, from which it is built here (packages rustc-web and rust-web-src, as new as this
# project's compiler at least). Debian's further packages: gcc-i686-linux-gnu gcc-aarch64-linux-gnu gcc-s390x-linux-gnu qemu-user,
# and libc6-dev-ARCH-cross of each. Exit 77 where no architecture can be had.
set -uo pipefail
cd "$(dirname "$0")/../.."
debian=/usr/bin/rustc
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Whether Debian's compiler is as new as is asked, with the standard library's source beside it.
has_source() {
    [ -f /usr/lib/rustlib/src/rust/library/Cargo.lock ] && [ -x "$debian" ] || return 1
    local version
    version=$("$debian" -V | cut -d' ' -f2)
    printf '%s\n' "$wanted" "$version" | sort -CV
}

read=0
while read -r target linker emulator sysroot; do
    library=()
    if rustup target list --installed 2>/dev/null | grep -qx "$target"; then
        compiler=
    elif has_source; then
        # Building the standard library is not stable: RUSTC_BOOTSTRAP lets a stable compiler do it.
        compiler="RUSTC=$debian RUSTC_BOOTSTRAP=1"
        library=(-Zbuild-std=std,panic_abort,test)
    else
        echo "skipped: $target: its standard library is not installed (rustup target add $target)"
        continue
    fi
    if ! command -v "$linker" >/dev/null || ! command -v "$emulator" >/dev/null; then
        echo "skipped: $target: $linker or $emulator is not installed"
        continue
    fi
    name=${target//-/_}
    # shellcheck disable=SC2086 # $compiler holds no, or two, settings.
    env "CARGO_TARGET_${name^^}_LINKER=$linker" "CARGO_TARGET_${name^^}_RUNNER=$emulator -L $sysroot" "CC_$name=$linker" RUSTFLAGS= \
        CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/arches" $compiler \
        cargo test --locked ${library[@]+"${library[@]}"} --target "$target" -p narrows --test golden -p narrows-rest --test golden golden || exit 1
    read=$((read + 1))
done <<'TARGETS'
i686-unknown-linux-gnu i686-linux-gnu-gcc qemu-i386 /usr/i686-linux-gnu
aarch64-unknown-linux-gnu aarch64-linux-gnu-gcc qemu-aarch64 /usr/aarch64-linux-gnu
s390x-unknown-linux-gnu s390x-linux-gnu-gcc qemu-s390x /usr/s390x-linux-gnu
TARGETS
echo "$read architectures read"
[ "$read" -gt 0 ] || exit 77
