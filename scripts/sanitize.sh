#!/bin/sh
# Builds everything with AddressSanitizer and UndefinedBehaviorSanitizer into build-asan/, and runs
# the unit tests and the golden tests of bad input, passes and commands there; under
# `test.sh --full` all golden tests.
set -eu
cd "$(dirname "$0")/.."

[ -f build-asan/build.ninja ] ||
    cmake -S . -B build-asan -G Ninja -DSTEPC_SANITIZE=ON -DSTEPC_CUDA=OFF >/dev/null
ninja -C build-asan --quiet
ctest --test-dir build-asan --output-on-failure -L unit -j "$(nproc)"
suites="tests/golden/diagnostics tests/golden/passes tests/golden/driver"
[ "${STEPC_TEST_FULL:-0}" = 0 ] || suites=tests/golden
# shellcheck disable=SC2086
python3 /usr/lib/llvm-19/build/utils/lit/lit.py -v -j "$(nproc)" --param build=build-asan $suites
