#!/bin/sh
# Runs on a machine with two GPUs what `prepare.sh BUILD OUT ranks` has built, and prints a table.
# Builds nothing. Ranks are started by variables, and need no MPI.
#   [START=mpirun] tests/device/run_ranks.sh [DIR [NAME...]]
#   NAME: llama3 gemma4_e4b (fixtures, f32), llama e4b (full size, bf16; the default is these),
#         e4b.f32 (full size, f32), or bench:STEP, one of the executables with --bench
#   START=mpirun: Open MPI's mpirun starts them, where there is one
# $OUT, or a folder in /tmp, gets the logs. Exit 0: every row is ok.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-$root/.device}
[ $# -gt 1 ] && shift || set -- llama3 gemma4_e4b llama e4b
out=${OUT:-$(mktemp -d)}
work=$(mktemp -d)
tar -C "$work" -xJf "$dir/pack.tar.xz" 2>/dev/null ||
    python3 -m tarfile -e "$dir/pack.tar.xz" "$work" || exit 1
dir=$work
check="python3 $root/tests/tools/check.py"
failed=0 port=29500 steps=8 start=${START:-variables}
if [ "$start" = mpirun ] && ! command -v mpirun >/dev/null; then
    echo "mpirun is absent: ranks are started by variables"
    start=variables
fi

folder_of() { # LIBRARY: where it is
    at=$(ldconfig -p 2>/dev/null | sed -n "s/.*$1 .*=> //p" | head -1)
    [ -n "$at" ] ||
        at=$(find /usr/local/cuda*/ /opt /usr/lib /usr/local/lib -name "$1" 2>/dev/null | head -1)
    dirname "${at:-/}"
}
LD_LIBRARY_PATH=$dir/lib:$(folder_of libcublasLt.so.13):$(folder_of libnccl.so.2)
export LD_LIBRARY_PATH NCCL_NVLS_ENABLE=0

row() { # NAME STATUS TEXT
    [ "$2" -eq 0 ] && verdict=ok || { verdict=FAIL; failed=1; }
    printf '%-34s %-4s %s\n' "$1" "$verdict" "$3"
}

last_line() {
    grep -h 'error' "$1" | head -n 1 | cut -c 1-200 | grep . || tail -n 1 "$1" | cut -c 1-140
}

# NAME STEP WORLD ARGUMENTS...: rank 0's output as $out/NAME.log, the others' as NAME.rank1.log;
# all of them as NAME.log under mpirun, whose ranks meet by MPI, or at MASTER_* without its library
start() {
    name=$1 step=$2 world=$3
    shift 3
    port=$((port + 1))
    rm -f "$work/$name.jsonl"
    case " $* " in
    *" --bench "*) ;;
    *) set -- --log "$work/$name.jsonl" "$@" ;;
    esac
    rank=$world pids=
    if [ "$start" = mpirun ] && [ "$world" -gt 1 ]; then
        rank=0
        MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 200 mpirun --allow-run-as-root \
            --bind-to none -np "$world" "$dir/steps/$step.step" "$@" >"$out/$name.log" 2>&1 &
        pids=$!
    fi
    while [ "$rank" -gt 0 ]; do
        rank=$((rank - 1))
        log=$out/$name.log
        [ "$rank" -eq 0 ] || log=$out/$name.rank$rank.log
        if [ "$world" -eq 1 ]; then
            timeout 200 "$dir/steps/$step.step" "$@" >"$log" 2>&1 &
        else
            RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$world \
                MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 200 "$dir/steps/$step.step" \
                "$@" >"$log" 2>&1 &
        fi
        pids="$pids $!"
    done
    status=0
    for pid in $pids; do
        wait "$pid" || status=$?
    done
    return $status
}

fixture() { # MODEL: f32, against one GPU: losses, gradients; the bits of a second run
    model=$1 at=$root/tests/fixtures/$1
    batch="--weights $at --batch $at/batch.safetensors"
    # shellcheck disable=SC2086
    start "$model.one" "$model.one" 1 $batch --dump-grads "$work/$model.one.grads"
    for mesh in fsdp2 tp2 tp2sp pp2; do
        # shellcheck disable=SC2086
        start "$model.$mesh" "$model.$mesh" 2 $batch --dump-grads "$work/$model.$mesh.grads" &&
            $check ranks "$work/$model.one.jsonl" "$work/$model.$mesh.jsonl" 1e-5 1e-4 \
                "$work/$model.one.grads" "$work/$model.$mesh.grads" \
                >"$out/$model.$mesh.check" 2>&1
        status=$?
        [ -f "$out/$model.$mesh.check" ] || cp "$out/$model.$mesh.log" "$out/$model.$mesh.check"
        row "$model $mesh" $status "$(last_line "$out/$model.$mesh.check")"
        # shellcheck disable=SC2086
        start again "$model.$mesh" 2 $batch --dump-grads "$work/again.grads" &&
            $check same "$work/$model.$mesh.jsonl" "$work/again.jsonl" -- \
                "$work/$model.$mesh.grads" "$work/again.grads" >"$out/again.check" 2>&1
        row "$model $mesh, again" $? "$(last_line "$out/again.check")"
    done
}

full() { # NAME ONE MESH...: $steps steps against one GPU; the bits of a second run
    model=$1 one=$2
    shift 2
    start "$model.$one" "$model.$one" 1 --steps $steps
    row "$model, one GPU" $? "$(last_line "$out/$model.$one.log")"
    for mesh; do
        begin=$(date +%s)
        start "$model.$mesh" "$model.$mesh" 2 --steps $steps &&
            $check ranks "$work/$model.$one.jsonl" "$work/$model.$mesh.jsonl" 1e-3 1e-2 \
                >"$out/$model.$mesh.check" 2>&1
        status=$?
        [ -f "$out/$model.$mesh.check" ] || cp "$out/$model.$mesh.log" "$out/$model.$mesh.check"
        row "$model $mesh" $status "$(last_line "$out/$model.$mesh.check")"
        start again "$model.$mesh" 2 --steps $steps &&
            $check same "$work/$model.$mesh.jsonl" "$work/again.jsonl" -- >"$out/again.check" 2>&1
        row "$model $mesh, again" $? "$(($(date +%s) - begin)) s, $(last_line "$out/again.check")"
        grep -h '^arena\|^ranks' "$out/$model.$mesh.log"
    done
}

bench() { # STEP
    begin=$(date +%s)
    start "bench.$1" "$1" 2 --bench 10 --tune "$work/tune"
    row "bench $1" $? "$(($(date +%s) - begin)) s, $(last_line "$out/bench.$1.log")"
    sed -n '/^bench/p; /^kernel/,/^device/p; /^launches/p; /^device memory/p' "$out/bench.$1.log"
}

nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader || true
for what; do
    case $what in
    llama3 | gemma4_e4b) fixture "$what" ;;
    llama) full llama one fsdp2 ;;
    e4b)
        full e4b one fsdp2 tp2 tp2sp
        full e4b one8 pp2 ;;
    e4b.f32) # without bf16's rounding, which E4B's random weights amplify
        steps=2
        full e4b f32.one f32.tp2
        steps=8 ;;
    bench:*) bench "${what#bench:}" ;;
    esac
done
rm -rf "$work"
exit $failed
