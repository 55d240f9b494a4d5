#!/bin/sh
# The CUDA kernels' own tests and times, on a machine with a GPU, where nothing is built.
#   bench/device/run_kernels.sh DIR [WHAT...]
#   DIR:  has device_kernels and device_kernels_pieces (BUILD/tests/device)
#   WHAT: check (against the formula), pieces (with small workspaces), bench (large shapes, times),
#         memcheck, racecheck (compute-sanitizer on the small cases); if not given: check pieces
#         bench
# $OUT, or a folder in /tmp, gets the logs; the end of each, and what failed, is printed.
# Exit 0: nothing failed.
set -u
dir=${1:?where the programs are}
shift
[ $# -gt 0 ] || set -- check pieces bench
out=${OUT:-$(mktemp -d)}
failed=0

run() { # NAME SECONDS COMMAND...
    name=$1 seconds=$2
    shift 2
    begin=$(date +%s)
    timeout "$seconds" "$@" >"$out/$name.log" 2>&1
    status=$?
    grep -E 'FAIL|Error|error:|hazard' "$out/$name.log" | head -n 40
    [ "$name" != bench ] || grep -v FAIL "$out/$name.log"
    printf '%s: exit %s, %s s, %s\n' "$name" $status "$(($(date +%s) - begin))" \
        "$(tail -n 1 "$out/$name.log")"
    [ $status -eq 0 ] || failed=1
}

for what; do
    case $what in
    check) run check 290 "$dir/device_kernels" ;;
    pieces) run pieces 290 "$dir/device_kernels_pieces" --small ;;
    bench) run bench 290 "$dir/device_kernels" --bench ;;
    memcheck | racecheck)
        run "$what" 590 compute-sanitizer --tool "$what" --error-exitcode 9 \
            "$dir/device_kernels" --small --seconds 580 ;;
    *)
        echo "run_kernels.sh: unknown part $what" >&2
        exit 1 ;;
    esac
done
exit $failed
