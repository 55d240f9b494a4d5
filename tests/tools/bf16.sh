#!/bin/sh
# bf16.sh STEPC WORK FIXTURE:SEQ...: fixtures in bf16 on the CPU against f32 from the same rounded
# weights.
set -eu
stepc=$1 work=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
for pair; do
    model=${pair%:*} fixture=$root/tests/fixtures/${pair%:*}
    mkdir -p "$work/$model"
    cp "$fixture/config.json" "$work/$model/"
    python3 "$root/tests/tools/make.py" rounded "$fixture/model.safetensors" \
        "$work/$model/model.safetensors"
    for dtype in float32 bfloat16; do
        out=$work/$model/$dtype
        rm -f "$out.log"
        "$stepc" build "$root/tests/parity/Inputs/fixture.yaml" -o "$out.step" \
            --set model.pretrained_model_name_or_path="$fixture" \
            --set dataset.seq_length="${pair#*:}" --set model.torch_dtype=$dtype
        "$out.step" --weights "$work/$model" --batch "$fixture/batch.safetensors" --steps 1 \
            --log "$out.log" --dump-grads "$out.grads" >/dev/null
        rm "$out.step"
    done
    echo "$model"
    python3 "$root/tests/tools/check.py" bf16 "$fixture" "$work/$model/bfloat16.log" \
        "$work/$model/bfloat16.grads" "$work/$model/float32.log" "$work/$model/float32.grads"
done
