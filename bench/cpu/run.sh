#!/bin/sh
# A Llama shape of 52 M parameters, seq 512, 2 threads: this compiler against PyTorch on the same
# cores, one after the other, twice. PYTHON names an interpreter that has torch.
set -eu
cd "$(dirname "$0")/../.."
threads=${THREADS:-2}
build/stepc build bench/cpu/llama50m.yaml -o build/llama50m.step
for turn in 1 2; do
    build/llama50m.step --threads "$threads" --bench 8 | sed "/memory/d"
    "${PYTHON:-python3}" bench/cpu/torch_llama.py bench/cpu/llama50m/config.json 4 512 "$threads" \
        eager compile
done
