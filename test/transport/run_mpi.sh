#!/bin/sh
# run_mpi.sh MPIRUN RANKS OPTIONS PROGRAM MODE: runs PROGRAM under mpirun and checks the job's exit status.
set -u
mpirun=$1 ranks=$2 options=$3 program=$4 mode=$5
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
case $mode in
  abort) want=7 ;;
  throw) want=1 ;;
  too-long*) want=5 ;;
  *) want=0 ;;
esac
# shellcheck disable=SC2086  # the options are several words
"$mpirun" --oversubscribe $options -np "$ranks" "$program" "$mode"
got=$?
if [ "$got" -ne "$want" ]; then
  echo "mode $mode: expected exit status $want, found $got" >&2
  exit 1
fi
