# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by scripts that run programs of another architecture, also those that such programs start.

# run_foreign ARCH: has the kernel give programs of Debian's architecture ARCH to qemu-user until
# leave_foreign, which the script's trap calls. Nothing for this machine's own architecture, or if the
# kernel does so already. Runs as root; all containers of the machine share this table of the kernel.
foreign_entry=  # of the table, that was made here
run_foreign() {
  local table=/proc/sys/fs/binfmt_misc qemu=/usr/bin/qemu-aarch64
  [ "$1" != "$(dpkg --print-architecture)" ] || return 0
  [ "$1" = arm64 ] || { echo "no emulator is known for $1" >&2; return 1; }
  # qemu's processor if none is named has all instructions but those that sign addresses, which the
  # plug-in of ggml that it leads to needs.
  export QEMU_CPU=${QEMU_CPU:-max}
  [ -e $table/register ] || mount -t binfmt_misc none $table
  ! compgen -G "$table/qemu-aarch64*" >/dev/null || return 0
  [ -e $qemu ] || { echo "$qemu is missing; scripts/setup.sh aarch64 installs it" >&2; return 1; }
  # ELF, 64 bits, little-endian, a program or a library, arm64. F: the emulator is opened here, and
  # so is found in any root.
  local head='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  local mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  printf '%s' ":qemu-aarch64:M::$head:$mask:$qemu:F" >$table/register
  foreign_entry=$table/qemu-aarch64
}
leave_foreign() { [ -z "$foreign_entry" ] || echo -1 >"$foreign_entry"; }
