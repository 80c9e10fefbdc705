#!/usr/bin/env bash
# gpud.sh KMSG STATE ADDRESS: run gpud on one node's kernel log, without its login and its update.
#
# gpud's components for Xids and SXids open the kernel log each for itself, and a pipe has one reader only: so there are
# two processes, each with a copy of the log.
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null' EXIT # one that ends takes the others with it
kmsg=$1 state=$2 address=$3
here=$(dirname "$0")
LD_LIBRARY_PATH=$(dirname "$(readlink -f "$(command -v gpud)")") # the mock of NVML is beside gpud
export LD_LIBRARY_PATH

start() { # COMPONENTS ADDRESS
  KMSG_FILE_PATH="$state/kmsg-$1" exec gpud run --data-dir "$state/$1" --db-in-memory \
    --enable-auto-update=false --auto-update-exit-code=-1 --endpoint= --listen-address "$2" \
    --components "accelerator-nvidia-error-$1"
}

python3 "$here/kmsg_copies.py" "$kmsg" "$state/kmsg-xid" "$state/kmsg-sxid" &
mkdir -p "$state/xid" "$state/sxid"
until [[ -p "$state/kmsg-sxid" ]]; do sleep 0.05; done
start xid "$address" &
start sxid 127.0.0.1:0 &
wait -n
