#!/bin/sh
# Installs what is missing to build and test stepc (Debian 12) and builds it into build/. Sourced by quickstart.sh, test.sh.
set -eu
cd "$(dirname "$0")/.."

packages="gcc clang cmake ninja-build llvm-19-dev llvm-19-tools flex bison libopenblas-pthread-dev libyaml-dev
libcjson-dev libcmocka-dev libopenmpi-dev openmpi-bin libzstd-dev zlib1g-dev pkg-config python3 libclang-rt-14-dev"
missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    echo "installing:$missing"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

[ -f build/build.ninja ] || cmake -S . -B build -G Ninja >/dev/null
ninja -C build ${STEPC_TARGETS:-stepc}
