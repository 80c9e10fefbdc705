#!/bin/sh
# Play a game-day and the GPU's tests on this machine, without internet, and write one folder of what came of it:
#   bash metal.sh [PLAN] [OPTION OF gameday rehearse]...
#   bash metal.sh setup      set up env/ alone; then env/bin/gameday works
here=$(cd "$(dirname "$0")" && pwd)
for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
  if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
    exec "$python" "$here/metal.py" "$@"
  fi
done
echo "metal: no Python 3.11, 3.12 or 3.13 is on PATH; name one: PYTHON=/PATH/TO/python3 bash $0" >&2
exit 69 # sysexits.h, EX_UNAVAILABLE
