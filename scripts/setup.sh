#!/bin/sh
# Installs what is missing (Debian 12) and builds into build/.
#   scripts/setup.sh [tests]     tests: what the tests need, too
set -eu
cd "$(dirname "$0")/.."

packages="gcc cmake ninja-build pkg-config flex bison llvm-19-dev libzstd-dev zlib1g-dev
libopenblas-pthread-dev libyaml-dev libcjson-dev"
target=stepc
if [ "${1:-}" = tests ]; then
    packages="$packages clang lld libclang-rt-14-dev g++ git llvm-19-tools libcmocka-dev
libopenmpi-dev openmpi-bin python3"
    target=all
fi

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing packages; as root: apt-get install$missing" >&2
        exit 3
    fi
    echo "installing$missing"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

mkdir -p build
if [ -n "$missing" ] || [ ! -f build/build.ninja ]; then
    cmake -S . -B build -G Ninja >build/configure.log 2>&1 || {
        cat build/configure.log
        exit 3
    }
    sed -n 's/^-- \(.*left out.*\)/\1/p' build/configure.log
fi
quiet=
[ -t 1 ] || quiet=--quiet
echo "building into build/"
ninja -C build $quiet $target
