#!/bin/sh
# Sets up, builds, and runs every test: unit tests, golden IR, parity, cases, sanitizers, fuzzers, layering.
#   --full   the long versions too (10,000 random models, the whole fuzz budget)
set -eu
cd "$(dirname "$0")"
full=0
[ "${1:-}" = --full ] && full=1
STEPC_TARGETS=all
export STEPC_TARGETS
scripts/setup.sh
scripts/check_layers.sh
STEPC_TEST_FULL=$full ctest --test-dir build --output-on-failure -j "$(nproc)"
