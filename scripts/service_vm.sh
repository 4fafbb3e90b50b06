#!/bin/bash
# SPDX-License-Identifier: MIT
# service_vm.sh PACKAGE.deb TREE.tar: the package's service under a real systemd. Installs the
# package and systemd in a fresh Debian (scripts/debian_tree.sh), starts that in a virtual machine
# with Debian's kernel, and runs scripts/service_checks.sh there: the service without and with a
# model, its limits, its rights, its end.
#
# The machine is emulated and takes some minutes. Needs root, the machine's apt, and qemu, busybox
# and cpio (scripts/setup.sh numa). VM_KERNEL=FILE: a kernel of your own, with ext4 and disks of
# virtio built in.
set -euo pipefail
deb=$(realpath "$1")
tree=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
work=$(realpath -m "$here/../build/service_vm")

say() { printf 'service_vm: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }
# shellcheck source=scripts/vm_kernel.sh
. "$here/vm_kernel.sh"

for tool in qemu-system-x86_64 busybox cpio mke2fs; do
  command -v $tool >/dev/null || die "$tool is missing; scripts/setup.sh numa installs it"
done

if [ "${SERVICE_VM_NAMESPACE:-}" = "" ]; then
  # Mounts and processes that are left end with this.
  SERVICE_VM_NAMESPACE=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi

# The root file system: TREE with the package, systemd and the checks.
make_disk() {
  local root=$work/root
  mkdir -p "$root"
  mount -t tmpfs -o mode=755 tmpfs "$root"
  tar -C "$root" -xf "$tree" --exclude='./dev/*'
  mount -t proc proc "$root/proc"
  mount --rbind --make-rslave /dev "$root/dev"
  mkdir "$root/run/try"
  cp "$deb" "$root/run/try/moestro.deb"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  cp /etc/hosts "$root/etc/hosts"
  # dbus and libpam-systemd: what starts the manager of a user.
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c '
    apt-get -q update && apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends install \
      systemd systemd-sysv dbus libpam-systemd /run/try/moestro.deb &&
    apt-get clean' >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log" >&2; die "apt-get"; }
  umount -l "$root/dev" "$root/proc"
  rm -r "$root/run/try" "$root"/var/lib/apt/lists/*
  echo machine >"$root/etc/hostname"
  echo 127.0.0.1 localhost machine >"$root/etc/hosts"
  od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$root/etc/machine-id"
  install -D -m 755 "$here/service_checks.sh" "$root/usr/lib/moestro-test/checks"
  install -m 644 "$here/../models/stories-moe-q8_0.gguf" "$root/usr/lib/moestro-test/stories.gguf"
  cat >"$root/etc/systemd/system/checks.service" <<'UNIT'
[Unit]
Description=Checks of the service
After=basic.target
[Service]
Type=oneshot
ExecStart=/usr/lib/moestro-test/checks
ExecStopPost=/usr/bin/systemctl poweroff --force --force
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
UNIT
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -s ../checks.service "$root/etc/systemd/system/multi-user.target.wants/checks.service"
  # The console is the checks' own.
  ln -s /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
  rm -f "$work/disk"
  mke2fs -q -t ext4 -d "$root" "$work/disk" 2G
  umount -l "$root"
}

# What mounts the disk and leaves the rest to the tree's own init.
make_initramfs() {
  local root=$work/initramfs file drivers=$modules/kernel/drivers
  rm -rf "$root"
  mkdir -p "$root"/{bin,dev,proc,run}
  cp "$(command -v busybox)" "$root/bin/"
  if [ -n "$modules" ]; then
    local to=$root/lib/modules/${modules##*/}
    mkdir -p "$to"
    cp "$modules"/modules.{order,builtin} "$to/"
    for file in "$drivers/virtio"/*.ko* "$drivers/block"/virtio_blk.ko*; do
      case $file in
        *.xz) xz -dc "$file" >"$to/$(basename "$file" .xz)" ;;
        *) cp "$file" "$to/" ;;
      esac
    done
    busybox depmod -b "$root" "${modules##*/}"
  fi
  cat >"$root/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox --install -s /bin
mount -t devtmpfs dev /dev
for module in virtio_pci virtio_blk; do modprobe $module 2>/dev/null; done
mount -t ext4 /dev/vda /run || { echo "cannot mount the disk"; poweroff -f; }
umount /proc
mount -o move /dev /run/dev
exec switch_root /run /sbin/init
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz"
}

start_machine() {
  : >"$work/console"
  timeout 1800 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2G \
    -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
    -kernel "$kernel" -initrd "$work/initramfs.gz" \
    -append 'console=ttyS0 quiet panic=-1 systemd.show_status=false systemd.firstboot=off' \
    -nographic -no-reboot -nodefaults -serial "file:$work/console" </dev/null &
  local machine=$! seen=0 lines
  # What it says, while it says it.
  while kill -0 $machine 2>/dev/null; do
    sleep 1
    lines=$(wc -l <"$work/console")
    [ "$lines" -gt $seen ] || continue
    tr -d '\r' <"$work/console" | sed -n "$((seen + 1)),${lines}p" |
      sed -n '/^\(ok\|FAILED\|note\): \|^  /s/^/  /p'
    seen=$lines
  done
  wait $machine || say "qemu ended with $?"
  tr -d '\r' <"$work/console" >"$work/log"
}

mkdir -p "$work"
find_kernel "$work/../vm_kernel"
say "installs the package and systemd"
make_disk
make_initramfs
say "starts $(basename "$kernel") with it"
start_machine
grep -q '^end of the machine$' "$work/log" ||
  { tail -n 30 "$work/log" >&2; die "the machine did not come to its end (see $work/log)"; }
failed=$(grep -c '^FAILED: ' "$work/log" || true)
[ "$failed" = 0 ] || die "$failed of the checks (see $work/log)"
say "$(grep -c '^ok: ' "$work/log") checks passed"
rm -f "$work/disk" "$work/initramfs.gz"
