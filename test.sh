#!/bin/sh
# Sets up, builds, and runs every test that needs no GPU.
#   ./test.sh [--full]     --full: the long versions (10,000 random models, a minute per fuzzer, all
#                          listed meshes of ranks)
set -eu
cd "$(dirname "$0")"
skip='gpu|long'
if [ "${1:-}" = --full ]; then
    export STEPC_TEST_FULL=1
    skip=gpu
fi
scripts/setup.sh tests
ctest --test-dir build --output-on-failure --label-exclude "$skip" -j "$(nproc)"
