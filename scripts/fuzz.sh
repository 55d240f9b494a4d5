#!/bin/sh
# Builds the fuzz targets into build-fuzz/ and runs each for SECONDS (10 unless given), from seeds that the repository's own
# models, recipes, fixtures and plans give. A finding is left in build-fuzz/findings/ and ends the run with exit 1.
#   usage: scripts/fuzz.sh [SECONDS [TARGET ...]]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-10}
[ $# -eq 0 ] || shift
stepc=${STEPC:-build/stepc}

[ -f build-fuzz/build.ninja ] || CC=clang cmake -S . -B build-fuzz -G Ninja -DSTEPC_FUZZ=ON -DSTEPC_CUDA=OFF >/dev/null
ninja -C build-fuzz fuzz >build-fuzz/build.log || { cat build-fuzz/build.log; exit 1; }
rm -rf build-fuzz/seeds
python3 tests/fuzz/make_corpus.py "$stepc" build-fuzz/seeds
mkdir -p build-fuzz/findings

bad=0
for target in ${*:-model ir recipe config tensors plan}; do
    mkdir -p "build-fuzz/corpus/$target"
    log=build-fuzz/$target.log
    dict=build-fuzz/seeds/$target.dict
    [ -f "$dict" ] && dict=-dict=$dict || dict=
    if build-fuzz/fuzz_$target -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=1048576 -verbosity=1 $dict \
        -artifact_prefix="build-fuzz/findings/$target-" "build-fuzz/corpus/$target" "build-fuzz/seeds/$target" >"$log" 2>&1; then
        echo "fuzz $target: $(grep -o 'Done [0-9]* runs in [0-9]* second(s)' "$log")"
    else
        echo "fuzz $target: a finding"
        tail -n 40 "$log"
        bad=1
    fi
done
exit $bad
