#!/bin/sh
# Builds the kernels' test under the emulator: build_emulated.sh OUT_DIR; needs the CUDA toolkit's headers, no GPU, no nvcc.
set -eu
out=${1:?where to build}
cd "$(dirname "$0")/../.."
mkdir -p "$out"
cuda=${CUDA_HOME:-/usr/local/cuda}
c="-std=c11 -D_GNU_SOURCE -O2 -g -ffp-contract=off -Wall -Wextra -Werror -I. -isystem $cuda/include"
cxx="-std=c++17 -O2 -g -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function -I. -DSTEPC_EMULATOR=\"tests/device/emulate.h\""
objects=
for source in tests/device/*.c runtime/cuda/launch_*.c base/dtype.c; do
    case $source in
    */backend_cuda.c | */launch_refuse.c | */launch_fused.c | */launch_gemm.c) continue ;;
    esac
    object=$out/$(basename "$source" .c).o
    [ "$object" -nt "$source" ] && [ -z "${CLEAN:-}" ] || gcc $c -c "$source" -o "$object"
    objects="$objects $object"
done
for source in tests/device/emulate.cc runtime/kernels/cuda/*.cu; do
    case $source in
    */control.cu) continue ;;
    esac
    object=$out/$(basename "$source" | tr . _).o
    [ "$object" -nt "$source" ] && [ -z "${CLEAN:-}" ] || g++ $cxx -x c++ -c "$source" -o "$object"
    objects="$objects $object"
done
g++ -o "$out/kernels_test" $objects -lm
