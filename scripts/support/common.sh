# What the shell scripts share: where the project is, how to complain, what mpirun needs.
# Sourced, not run; expects `set -euo pipefail`.
pd_root=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
pd_name=$(basename "$0")

say() { printf '%s: %s\n' "$pd_name" "$*" >&2; }
die() { # die STATUS TEXT…
  local status=$1
  shift
  say "$*"
  exit "$status"
}

# Prints the comment that heads the calling script: its usage.
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# ip and tc live here, which an ordinary user's PATH may leave out.
PATH=$PATH:/usr/sbin:/sbin

# Open MPI refuses root unless told twice.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
