#!/bin/sh
# Builds all that run_all.sh runs on a machine with a GPU, where nothing is built: step executables
# of the fixtures in f32 and bf16 and of the full-size models, and the device test programs. They go
# into OUT/pack.tar.xz, small enough to send.
#   tests/device/prepare.sh [BUILD [OUT [WHAT...]]]
#   WHAT: fixtures bf16 full tests (the default), ranks (for run_ranks.sh, on two GPUs)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}
out=${2:-$root/.device}
[ $# -gt 2 ] && shift 2 || set -- fixtures bf16 full tests
stepc=$build/stepc
fixtures="gpt2 llama3 mistral qwen2 gemma4_e2b gemma4_e4b gemma4_31b"
rm -rf "$out"
mkdir -p "$out/steps" "$out/tests" "$out/lib"

seq_of() { # a fixture's sequence length, from the shape of its batch
    python3 - "$root/tests/fixtures/$1/batch.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
print(json.loads(data[8:8 + n])["input_ids"]["shape"][1])
PY
}

fixture() { # NAME MODEL ARGUMENTS...
    name=$1 model=$2
    shift 2
    "$stepc" build "$root/tests/parity/Inputs/fixture.yaml" --target cuda \
        --set model.pretrained_model_name_or_path="$root/tests/fixtures/$model" \
        --set dataset.seq_length="$(seq_of "$model")" "$@" -o "$out/steps/$name.step"
}

full() { # NAME RECIPE ARGUMENTS...: the recipe beside this script
    name=$1 recipe=$2
    shift 2
    "$stepc" build "$root/tests/device/$recipe.yaml" --target cuda "$@" -o "$out/steps/$name.step"
}

ranks() { # NAME RECIPE WORLD GLOBAL LOCAL SETTINGS...
    name=$1 recipe=$2 world=$3 global=$4 local=$5
    shift 5
    for setting; do
        set -- "$@" --set "$setting"
        shift
    done
    "$stepc" build "$root/tests/device/$recipe.yaml" --target cuda --world "$world" \
        --set "step_scheduler.global_batch_size=$global" \
        --set "step_scheduler.local_batch_size=$local" "$@" -o "$out/steps/$name.step"
}

for what; do
    case $what in
    ranks)
        for model in llama3 gemma4_e4b; do
            fixture "$model.one" "$model"
            fixture "$model.fsdp2" "$model" --set step_scheduler.local_batch_size=2 --world 2 \
                --set distributed.strategy=fsdp2
            fixture "$model.tp2" "$model" --world 2 --set distributed.tp_size=2
            fixture "$model.tp2sp" "$model" --world 2 --set distributed.tp_size=2 \
                --set distributed.sequence_parallel=true
            fixture "$model.pp2" "$model" --world 2 --set distributed.pp_size=2 \
                --set distributed.pipeline.pp_microbatch_size=1
        done
        ranks llama.one full_llama_1b 1 16 8
        ranks llama.fsdp2 full_llama_1b 2 16 8 distributed.strategy=fsdp2
        ranks e4b.one full_gemma4_e4b 1 2 2
        ranks e4b.fsdp2 full_gemma4_e4b 2 2 1 distributed.strategy=fsdp2
        ranks e4b.tp2 full_gemma4_e4b 2 2 2 distributed.tp_size=2
        ranks e4b.tp2sp full_gemma4_e4b 2 2 2 distributed.tp_size=2 \
            distributed.sequence_parallel=true
        ranks e4b.one8 full_gemma4_e4b 1 8 1
        ranks e4b.pp2 full_gemma4_e4b 2 8 8 distributed.pp_size=2 \
            distributed.pipeline.pp_microbatch_size=1
        ranks e4b.f32.one full_gemma4_e4b 1 2 2 model.torch_dtype=float32
        ranks e4b.f32.tp2 full_gemma4_e4b 2 2 2 model.torch_dtype=float32 distributed.tp_size=2
        ranks 31b.fsdp2 ranks_gemma4_31b 2 2 1
        ranks e4b.fsdp2.block full_gemma4_e4b_block 2 2 1 distributed.strategy=fsdp2
        ranks e4b.fsdp2.mb full_gemma4_e4b_block 2 8 1 distributed.strategy=fsdp2 ;;
    fixtures)
        for model in $fixtures; do
            fixture "$model.f32" "$model"
            fixture "$model.f32.block" "$model" --set stepc.recompute.policy=block
            fixture "$model.f32.submodule" "$model" --set stepc.recompute.policy=submodule
        done ;;
    bf16)
        for model in $fixtures; do
            fixture "$model.bf16" "$model" --set model.torch_dtype=bfloat16
            fixture "$model.bf16.block" "$model" --set model.torch_dtype=bfloat16 \
                --set stepc.recompute.policy=block
        done ;;
    full)
        for recipe in "$root"/tests/device/*.yaml; do
            full "$(basename "$recipe" .yaml)" "$(basename "$recipe" .yaml)"
        done
        for recipe in full_gemma4_e4b full_gemma4_e4b_block; do
            full "${recipe}_4rows" $recipe --set step_scheduler.global_batch_size=4 \
                --set step_scheduler.local_batch_size=4
        done
        full full_gemma4_e4b_4rows_pointwise full_gemma4_e4b \
            --set step_scheduler.global_batch_size=4 --set step_scheduler.local_batch_size=4 \
            --set stepc.recompute.pointwise=true ;;
    tests)
        for program in "$build"/tests/device/*; do
            [ -f "$program" ] && [ -x "$program" ] && cp "$program" "$out/tests/"
        done ;;
    *)
        echo "prepare.sh: unknown part $what" >&2
        exit 1 ;;
    esac
done
for library in /usr/lib/x86_64-linux-gnu/libcjson.so.1 /usr/lib/x86_64-linux-gnu/libcmocka.so.0; do
    [ -e "$library" ] && cp -L "$library" "$out/lib/"
done
strip "$out"/steps/*.step 2>/dev/null || true
tar -C "$out" -cf - steps tests lib | xz -6 --lzma2=dict=128MiB -T1 >"$out/pack.tar.xz"
rm -rf "$out/steps" "$out/tests" "$out/lib"
ls -l "$out/pack.tar.xz"
