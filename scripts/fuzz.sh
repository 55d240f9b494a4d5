#!/bin/sh
# Builds the fuzz targets into build-fuzz/ and runs each for SECONDS (5 unless given; 60 under
# `test.sh --full`), from seeds that the repository's own models, recipes, fixtures and plans give.
# A finding is left in build-fuzz/findings/ and ends the run with exit 1.
#   usage: scripts/fuzz.sh [SECONDS [TARGET ...]]
set -eu
cd "$(dirname "$0")/.."
[ "${STEPC_TEST_FULL:-0}" = 1 ] && seconds=60 || seconds=5
seconds=${1:-$seconds}
[ $# -eq 0 ] || shift
stepc=${STEPC:-build/stepc}

[ -f build-fuzz/build.ninja ] ||
    CC=clang cmake -S . -B build-fuzz -G Ninja -DSTEPC_FUZZ=ON -DSTEPC_CUDA=OFF >/dev/null
ninja -C build-fuzz fuzz >build-fuzz/build.log || { cat build-fuzz/build.log; exit 1; }
rm -rf build-fuzz/seeds
python3 tests/fuzz/make_corpus.py "$stepc" build-fuzz/seeds
mkdir -p build-fuzz/findings

bad=0
for target in ${*:-model ir recipe config tensors plan}; do
    corpus=build-fuzz/corpus/$target seeds=build-fuzz/seeds/$target log=build-fuzz/$target.log
    mkdir -p "$corpus"
    options="-max_total_time=$seconds -timeout=20 -rss_limit_mb=3000 -max_len=200000"
    [ "${STEPC_TEST_FULL:-0}" = 1 ] || options="$options -seed=1"
    [ ! -f "$seeds.dict" ] || options="$options -dict=$seeds.dict"
    if build-fuzz/fuzz_$target $options -artifact_prefix="build-fuzz/findings/$target-" \
        "$corpus" "$seeds" >"$log" 2>&1; then
        echo "fuzz $target: $(grep -o 'Done [0-9]* runs in [0-9]* second(s)' "$log")"
    else
        echo "fuzz $target: a finding"
        tail -n 40 "$log"
        bad=1
    fi
done
exit $bad
