#!/bin/sh
# SPDX-License-Identifier: MIT
# gpu.sh prepare FOLDER [OPTION...]   where Moestro is built: everything that a machine with a GPU needs
# FOLDER/gpu.sh [OPTION...] [PART...]  on that machine, which may lack all packages but the GPU's driver
#
# The front door of bench/gpu.py and bench/gpu_folder.py (bench/README.md, "On a real GPU"). A prepared
# FOLDER has a Python, a C library and a loader of its own; its programs start from inside of it.
set -eu
case $0 in
  */*) here=$(cd "${0%/*}" && pwd) ;;
  *) here=$(pwd) ;;
esac
if [ "${1:-}" = prepare ]; then
  shift
  exec python3 "$here/gpu_folder.py" "$@"
fi
[ -x "$here/bin/python3" ] || exec python3 "$here/gpu.py" "$@"
GPU_STARTED_IN=$(pwd)
GPU_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
export GPU_STARTED_IN GPU_LIBRARY_PATH
cd "$here"
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONHOME=$here/python \
  exec bin/python3 -s -S -B gpu.py "$@"
