#!/bin/bash
# SPDX-License-Identifier: MIT
# run_as_foreign.sh ARCH COMMAND...: runs COMMAND while the kernel gives programs of Debian's
# architecture ARCH to qemu-user, so that a program under qemu can start others. Without root
# COMMAND runs all the same.
set -euo pipefail
. "$(dirname "$0")/foreign_arch.sh"
trap leave_foreign EXIT
[ "$(id -u)" != 0 ] || run_foreign "$1"
"${@:2}"
