#!/bin/sh
# Builds everything with AddressSanitizer and UndefinedBehaviorSanitizer into build-asan/, and runs
# the unit tests and the golden tests there.
set -eu
cd "$(dirname "$0")/.."

[ -f build-asan/build.ninja ] ||
    cmake -S . -B build-asan -G Ninja -DSTEPC_SANITIZE=ON -DSTEPC_CUDA=OFF >/dev/null
ninja -C build-asan --quiet
ctest --test-dir build-asan --output-on-failure -L unit -j "$(nproc)"
ctest --test-dir build-asan --output-on-failure -R lit_golden
