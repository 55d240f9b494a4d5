#!/bin/sh
# Registers, spills and static shared memory of every CUDA kernel, as ptxas reports them; exit 1
# when one spills.
#   bench/device/registers.sh [FILE.cu...]
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- runtime/kernels/cuda/*.cu
log=$(mktemp)
for file; do
    nvcc -std=c++17 -O3 -I. -cubin -gencode arch=compute_90a,code=sm_90a -Xptxas -v -o /dev/null \
        "$file" 2>&1
done >"$log"
awk '/Compiling entry function/ { name = $7; gsub(/\x27/, "", name) }
     /spill stores/ { spills = $5 + $9 }
     /Used [0-9]+ registers/ {
         registers = $0; sub(/.*Used /, "", registers); sub(/ registers.*/, "", registers)
         shared = 0
         if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH) + 0
         printf "%-40s %4d registers %6d bytes shared %6d bytes spilled\n",
             name, registers, shared, spills
         bad += spills > 0
     }
     /error/ { print; bad++ }
     END { exit bad > 0 }' "$log"
