#!/bin/sh
# Form that nobody need look for: 100 columns, no tabs, no blanks at the end of a line, 800 lines.
set -eu
cd "$(dirname "$0")/.."

git ls-files '*.[chyl]' '*.def' '*.cu' '*.cuh' '*.cc' '*.model' '*.sh' '*.py' '*CMakeLists.txt' \
    .ci/run | while read -r file; do
    [ ! -f "$file" ] || awk -v file="$file" '
        length > 100 { printf "%s:%d: %d columns\n", file, NR, length }
        /\t/ { printf "%s:%d: a tab\n", file, NR }
        /[ \t]$/ { printf "%s:%d: ends in a blank\n", file, NR }
        END { if (NR > 800) printf "%s: %d lines\n", file, NR }' "$file"
done | {
    status=0
    while read -r line; do
        echo "$line"
        status=1
    done
    exit $status
}
