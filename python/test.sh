#!/usr/bin/env bash
# Builds the wheel, installs it into a new environment, and runs the tests from there: `python/test.sh [pytest's arguments]`.
# PYTHON names the interpreter (3.11 or later); VENV the directory of the environment, which is kept for the next time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/target}
venv=${VENV:-$target/venv}
# Exit 77, as test programs say that they skip: not to be had here.
have() {
    "$venv/bin/pip" install --quiet --retries 2 "$@" || { echo "skipped: pip cannot install $*" >&2; exit 77; }
}
if ! [ -x "$venv/bin/maturin" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    have 'maturin>=1.16,<2'
fi
rm -rf "$target/wheels"
# Not auditwheel's judgement: this one is for this machine.
(cd "$here" && "$venv/bin/maturin" build --release --quiet --strip \
    --compatibility linux --interpreter "$venv/bin/python" --out "$target/wheels")
ls -l "$target"/wheels/*.whl
"$venv/bin/pip" install --quiet --force-reinstall --no-deps "$target"/wheels/*.whl
wheel=$(echo "$target"/wheels/*.whl)
have "$wheel[test]"
# What runs the program finds the newest build of it, and skips where there is none.
if [ -z "${NARROWS_PROGRAM:-}" ]; then
    NARROWS_PROGRAM=$(ls -t "$target"/{release,debug}/narrows "$here"/../target/{release,debug}/narrows 2>/dev/null | head -n 1 || true)
    [ -z "$NARROWS_PROGRAM" ] || export NARROWS_PROGRAM
fi
# Clusters for two tests, which skip without.
"$venv/bin/pip" install --quiet --retries 2 'dask[distributed]' ray altair || echo "not all of Dask, Ray and altair can be had"
# From elsewhere, so that what is tested is what was installed.
cd "$target"
"$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir "$here" -c "$here/pyproject.toml" "$here/tests" "$@"
"$venv/bin/python" -m mypy --config-file "$here/pyproject.toml" -p narrows
"$venv/bin/python" -m mypy.stubtest narrows \
    --mypy-config-file "$here/pyproject.toml" --allowlist "$here/tests/stubtest.txt"
