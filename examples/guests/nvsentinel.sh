#!/usr/bin/env bash
# nvsentinel.sh KMSG STATE KUBECONFIG NVML_CONFIG PORT: run NVSentinel's syslog-health-monitor and platform-connectors.
#
# Run it in a mount namespace of its own (unshare --mount): the monitor reads its journal under a fixed path, and asks
# the machine for its boot id.
set -euo pipefail
PATH=$PATH:/lib/systemd # systemd-journal-remote
trap 'kill $(jobs -p) 2>/dev/null' EXIT # one that ends takes the others with it
kmsg=$1 state=$2 kubeconfig=$3 nvml_config=$4 port=$5
here=$(dirname "$0")
socket=$state/connector.sock

mkdir -p "$state/journal"
rm -f "$state/journal"/*
cp /proc/sys/kernel/random/uuid "$state/boot_id" # each start is a boot of the virtual node
mount --bind "$state/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$state/journal" /nvsentinel/var/log/journal
python3 "$here/nvsentinel_metadata.py" "$NODE_NAME" "$nvml_config" >"$state/gpu_metadata.json"

platform-connectors --socket "$socket" --config "$here/nvsentinel.json" \
  --kubeconfig "$kubeconfig" --metrics-port 0 &
python3 "$here/kmsg_to_journal.py" "$kmsg" |
  systemd-journal-remote --output "$state/journal/kernel.journal" - &
syslog-health-monitor --platform-connector-socket "unix://$socket" --polling-interval 15s \
  --state-file "$state/state.json" --metadata-path "$state/gpu_metadata.json" --metrics-port "$port" &
wait -n
