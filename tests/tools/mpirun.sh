#!/bin/sh
# mpirun with a session folder of its own: of two that share one, the first to end may take it from
# the other, which then does not start.
#   mpirun.sh RANKS COMMAND...
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/mpi.XXXXXX") || exit
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
mpirun --oversubscribe --allow-run-as-root -n "$@"
