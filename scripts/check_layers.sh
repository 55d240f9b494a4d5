#!/bin/sh
# The layering of the tree: who may include whom; whose headers stay where; no writable globals.
set -eu
cd "$(dirname "$0")/.."
bad=0

fail()
{
    echo "layering: $1"
    bad=1
}

# allow FOLDER PATTERN: includes from the project's root in FOLDER's files must match PATTERN
allow()
{
    found=$(grep -rnE '^#include "' "$1" --include='*.[chyl]' --include='*.cu' --include='*.cuh' |
        grep -vE "#include \"($2)" || true)
    [ -z "$found" ] || fail "$1 may include only $2:
$found"
}
allow base 'base/'
allow ir 'ir/|base/'
allow frontend 'frontend/|ir/|base/'
allow passes 'passes/|ir/|base/|runtime/abi/'
allow backend 'backend/|ir/|base/|runtime/abi/'
allow runtime 'runtime/|base/'

# only_in FOLDER HEADER: a system header that one folder alone may see
only_in()
{
    found=$(grep -rlE "#include <($2)" --include='*.[chyl]' \
        base ir frontend passes backend runtime driver |
        grep -vE "^($1)/" || true)
    [ -z "$found" ] || fail "<$2> belongs to $1 alone: $found"
}
only_in backend 'llvm-c/'
only_in runtime 'cuda|nccl|mpi|cblas'
only_in frontend 'yaml'

# no switch over all ops outside the table's expansions: a file that names many ops is one
for file in $(find ir passes backend -name '*.c'); do
    n=$(grep -cE '^ *case IR_OP_' "$file" || true)
    [ "$n" -le 12 ] || fail "$file: $n cases of IR_OP_: put a column into ir/ops.def"
done

# writable globals: bison's own aside
for lib in build/lib/*.a; do
    [ -f "$lib" ] || continue
    found=$(objdump -t "$lib" | awk '
        NF > 3 && $(NF - 3) == "O" && $(NF - 2) ~ /^(\.data|\.bss|\.tdata|\.tbss|\*COM\*)/ &&
            $(NF - 2) !~ /^\.data\.rel\.ro/ && $NF !~ /^yy/ { print $(NF - 2), $NF }')
    [ -z "$found" ] || fail "writable globals in $lib: $found"
done
exit $bad
