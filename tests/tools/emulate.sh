#!/bin/sh
# emulate.sh BUILD WORK FIXTURE:SEQ...: step executables for cuda, as they are, on a driver whose
# device is an emulator: parity in f32, and the same bits in a second run, without the graph, with
# --check, under recompute policies and with pointwise recompute. Passes where there is no CUDA
# toolkit.
set -eu
build=$1 work=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
driver=$build/tests/emulated_cuda
[ -e "$driver/libcuda.so.1" ] || {
    echo "ok: left out, target cuda is not built"
    exit 0
}

step() { # NAME MODEL SEQ RECOMPUTE: the executable, and its fused kernels for the emulator
    set -- "$1" "$root/tests/parity/Inputs/fixture.yaml" --target cuda \
        --set "model.pretrained_model_name_or_path=$root/tests/fixtures/$2" \
        --set "dataset.seq_length=$3" --set "stepc.recompute.$4"
    name=$work/$1
    shift
    "$build/stepc" build "$@" -o "$name.step"
    "$build/stepc" plan "$@" --emit ir >"$name.sir"
    "$build/tests/emit_cuda_test" "$name.sir" "$name.so" >/dev/null 2>&1
}

train() { # NAME STEP MODEL ARGUMENTS...
    name=$work/$1 step=$work/$2 weights=$root/tests/fixtures/$3
    shift 3
    rm -f "$name.jsonl"
    EMULATED_STEP=$step.so LD_LIBRARY_PATH=$driver:$build/tests/fake_cuda "$step.step" \
        --weights "$weights" --batch "$weights/batch.safetensors" --log "$name.jsonl" \
        --dump-grads "$name.grads" "$@" >"$name.log" 2>&1 || {
        tail -n 3 "$name.log"
        exit 1
    }
}

same() { # NAME
    python3 "$root/tests/tools/check.py" same "$work/none.jsonl" "$work/$1.jsonl" -- \
        "$work/none.grads" "$work/$1.grads"
}

mkdir -p "$work"
for pair; do
    model=${pair%:*} seq=${pair#*:}
    for policy in none block submodule; do
        step $policy "$model" "$seq" policy=$policy
    done
    step pointwise "$model" "$seq" pointwise=true
    rm -rf "$work/save"
    train none none "$model" --save "$work/save"
    python3 "$root/tests/tools/check.py" parity "$root/tests/fixtures/$model" "$work/none.jsonl" \
        "$work/none.grads" "$work/save"
    train again none "$model" && same again
    train plain none "$model" --no-graph && same plain
    train check none "$model" --check && same check
    train block block "$model" && same block
    train submodule submodule "$model" && same submodule
    train pointwise pointwise "$model" && same pointwise
done
