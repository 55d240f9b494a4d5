#!/bin/sh
# The layering of the tree: who may include whom; whose headers stay where; no writable globals; file and line budgets.
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
    found=$(grep -rnE '^#include "' "$1" --include='*.c' --include='*.h' --include='*.y' --include='*.l' --include='*.inc' |
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
    found=$(grep -rlE "#include <($2)" base ir frontend passes backend runtime driver --include='*.[chyl]' |
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

for file in $(git ls-files '*.c' '*.h' '*.y' '*.l'); do
    [ -f "$file" ] || continue
    lines=$(wc -l < "$file")
    [ "$lines" -le 800 ] || fail "$file has $lines lines (budget 800)"
    long=$(awk 'length > 120' "$file" | wc -l)
    [ "$long" -eq 0 ] || fail "$file has $long lines over 120 columns"
done

# writable globals: bison's own aside
if [ -d build/lib ]; then
    for lib in build/lib/*.a; do
        found=$(nm "$lib" 2>/dev/null | grep -E ' [BDbdC] ' | grep -vE 'yyloc_default|yy_|\.data\.rel\.ro' || true)
        [ -z "$found" ] || fail "writable globals in $lib: $found"
    done
fi
exit $bad
