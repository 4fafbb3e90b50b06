# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# shellcheck disable=SC2034  # kernel and modules are for whoever sources this
# Sourced by scripts that start a virtual machine; they have `say` and `die`.
#
# VM_KERNEL=FILE: a kernel for x86-64 of your own; else the package of Debian's cloud kernel is
# fetched by apt and unpacked, not installed.

# find_kernel FOLDER: sets `kernel`, and `modules` to the folder of its modules, empty if there is
# none. FOLDER keeps what is fetched.
find_kernel() {
  local folder=$1 package
  modules=
  if [ -n "${VM_KERNEL:-}" ]; then
    kernel=$VM_KERNEL
    return
  fi
  if ! compgen -G "$folder/kernel/boot/vmlinuz-*" >/dev/null; then
    package=$(apt-cache depends linux-image-cloud-amd64 |
              awk '$1 == "Depends:" && $2 ~ /^linux-image-/ {print $2; exit}')
    [ -n "$package" ] || die "apt knows no linux-image-cloud-amd64; set VM_KERNEL"
    say "fetching $package"
    mkdir -p "$folder"
    # Beside its place until it is whole.
    if ! (cd "$folder" && rm -rf part linux-image-*.deb &&
          apt-get -q download "$package" >apt.log 2>&1 && dpkg -x linux-image-*.deb part &&
          rm -rf linux-image-*.deb kernel && mv part kernel); then
      die "cannot fetch $package (see $folder/apt.log)"
    fi
  fi
  kernel=$(compgen -G "$folder/kernel/boot/vmlinuz-*" | head -n 1)
  # Whether /lib is a link to /usr/lib or not.
  modules=$(compgen -G "$folder/kernel/lib/modules/*" ||
            compgen -G "$folder/kernel/usr/lib/modules/*" || true)
}
