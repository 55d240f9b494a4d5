#!/bin/sh
# Runs on a machine with a GPU what prepare.sh has built, and prints a table. Builds nothing.
#   tests/device/run_all.sh [DIR [WHAT...]]
#   DIR:  prepare.sh's OUT
#   WHAT: tests f32 bf16 same full (the default), memcheck racecheck (compute-sanitizer's tools), or
#         STEP.step ARGUMENTS..., one of the executables by hand
# $OUT, or a folder in /tmp, gets the logs. Exit 0: every row is ok.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-$root/.device}
[ $# -gt 1 ] && shift || set -- tests f32 bf16 same full
out=${OUT:-$(mktemp -d)}
work=$(mktemp -d)
tar -C "$work" -xJf "$dir/pack.tar.xz" 2>/dev/null ||
    python3 -m tarfile -e "$dir/pack.tar.xz" "$work" || exit 1
dir=$work
check="python3 $root/tests/tools/check.py"
fixtures="gpt2 llama3 mistral qwen2 gemma4_e2b gemma4_e4b gemma4_31b"
failed=0

lt=$(ldconfig -p 2>/dev/null | sed -n 's/.*libcublasLt\.so\.13 .*=> //p' | head -1)
[ -n "$lt" ] ||
    lt=$(find /usr/local/cuda*/ /opt /usr/lib -name libcublasLt.so.13 2>/dev/null | head -1)
LD_LIBRARY_PATH=$dir/lib:$(dirname "${lt:-/}")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

row() { # NAME STATUS TEXT
    [ "$2" -eq 0 ] && verdict=ok || { verdict=FAIL; failed=1; }
    printf '%-34s %-4s %s\n' "$1" "$verdict" "$3"
}

last_line() {
    tail -n 1 "$1" | cut -c 1-140
}

train() { # NAME STEP ARGUMENTS...: logs and gradients as $work/NAME.*
    name=$1 step=$2 model=${2%%.*}
    shift 2
    fixture=$root/tests/fixtures/$model
    rm -f "$work/$name.jsonl"
    timeout 120 "$dir/steps/$step.step" --weights "${weights:-$fixture}" \
        --batch "$fixture/batch.safetensors" --log "$work/$name.jsonl" \
        --dump-grads "$work/$name.grads" "$@" >"$out/$name.log" 2>&1
}

tests() {
    for program in "$dir"/tests/*; do
        [ -x "$program" ] || continue
        name=$(basename "$program")
        begin=$(date +%s)
        timeout 300 "$program" >"$out/$name.log" 2>&1
        row "$name" $? "$(($(date +%s) - begin)) s, $(last_line "$out/$name.log")"
    done
}

# The own kernels' tests under one of compute-sanitizer's tools, side by side. A test asks each
# module for a kernel by its name: what is not there is no error.
sanitize() {
    attention="group attention --size"
    for part in "group embed" "group loss" "group optimizer" "group reduce" "group tables" \
        "group ranks" "$attention 40" "$attention 64" "$attention 96" "$attention 128" \
        "$attention 256" "$attention 512"; do
        # shellcheck disable=SC2086
        compute-sanitizer --tool "$1" --report-api-errors no "$dir/tests/device_kernels" \
            --small --$part --seconds "${SANITIZE_SECONDS:-400}" >"$out/$1.${part##* }.log" 2>&1 &
    done
    wait
    for log in "$out/$1".*.log; do
        grep -q ' 0 failed' "$log" && grep -q 'SUMMARY: 0 ' "$log"
        row "$(basename "$log" .log)" $? "$(last_line "$log")"
    done
}

memcheck() {
    sanitize memcheck
}

racecheck() {
    sanitize racecheck
}

f32() {
    for model in $fixtures; do
        [ -f "$dir/steps/$model.f32.step" ] || continue
        train "$model.f32" "$model.f32" --save "$work/$model.save"
        status=$?
        if [ $status -eq 0 ]; then
            $check parity "$root/tests/fixtures/$model" "$work/$model.f32.jsonl" \
                "$work/$model.f32.grads" "$work/$model.save" >"$out/$model.f32.check" 2>&1
            status=$?
            row "$model f32 parity" $status "$(last_line "$out/$model.f32.check")"
        else
            row "$model f32 parity" $status "exit $status: $(last_line "$out/$model.f32.log")"
        fi
    done
}

# bf16 against f32 from the same rounded weights.
bf16() {
    for model in $fixtures; do
        [ -f "$dir/steps/$model.bf16.step" ] && [ -f "$dir/steps/$model.f32.step" ] || continue
        mkdir -p "$work/$model.rounded"
        cp "$root/tests/fixtures/$model/config.json" "$work/$model.rounded/"
        python3 "$root/tests/tools/make.py" rounded \
            "$root/tests/fixtures/$model/model.safetensors" "$work/$model.rounded/model.safetensors"
        train "$model.bf16" "$model.bf16" &&
            weights=$work/$model.rounded train "$model.ref" "$model.f32" &&
            $check bf16 "$root/tests/fixtures/$model" "$work/$model.bf16.jsonl" \
                "$work/$model.bf16.grads" "$work/$model.ref.jsonl" "$work/$model.ref.grads" \
                >"$out/$model.bf16.check" 2>&1
        status=$?
        [ -f "$out/$model.bf16.check" ] || cp "$out/$model.bf16.log" "$out/$model.bf16.check"
        row "$model bf16" $status "$(last_line "$out/$model.bf16.check")"
    done
}

# Bits: a second run, without the graph, with --check, and under each policy.
same() {
    for model in $fixtures; do
        for form in f32 bf16; do
            [ -f "$dir/steps/$model.$form.step" ] || continue
            train base "$model.$form" || {
                row "$model $form bits" 1 "$(last_line "$out/base.log")"
                continue
            }
            bad=
            for other in "again $model.$form" "plain $model.$form --no-graph" \
                "check $model.$form --check" "block $model.$form.block" \
                "submodule $model.$form.submodule"; do
                # shellcheck disable=SC2086
                set -- $other
                [ -f "$dir/steps/$2.step" ] || continue
                train "$@" && $check same "$work/base.jsonl" "$work/$1.jsonl" -- \
                    "$work/base.grads" "$work/$1.grads" >"$out/$model.$form.$1.check" 2>&1 ||
                    bad="$bad $1"
            done
            [ -z "$bad" ]
            row "$model $form bits" $? "${bad:+differ:$bad}"
        done
    done
}

full() {
    for step in "$dir"/steps/full_*.step; do
        [ -f "$step" ] || continue
        name=$(basename "$step" .step)
        begin=$(date +%s)
        timeout 280 "$step" --bench 10 --tune "$work/tune" --profile "$out/$name.trace.json" \
            >"$out/$name.log" 2>&1
        status=$?
        row "$name" $status "$(($(date +%s) - begin)) s, exit $status"
        sed -n '/^bench/p; /^kernel/,/^device/p; /^device memory/p' "$out/$name.log"
        [ $status -eq 0 ] || tail -n 3 "$out/$name.log"
    done
}

case ${1:-} in
*.step)
    step=$1
    shift
    exec "$dir/steps/$step" "$@" ;;
esac
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader || true
for what; do
    $what
done
rm -rf "$work"
exit $failed
