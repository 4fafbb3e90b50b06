# SPDX-License-Identifier: MIT
# Sourced by scripts that fetch packages from where this machine's apt does.

# Lines for sources.list of the main package indexes that this machine's apt has of Debian. A machine
# of a release with testing beside it builds against libraries of both.
debian_sources() {
  # shellcheck disable=SC2016  # apt-get expands $(...)
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(SIGNED_BY)' 'Created-By: Packages' \
    'Origin: Debian' 'Component: main' |
    while read -r uri suite keyring; do
      case $keyring in /*) signed="[signed-by=$keyring] " ;; *) signed= ;; esac
      echo "deb $signed$uri $suite main"
    done | sort -u
}

# debian_suite LINE...: the newest release among lines of debian_sources.
debian_suite() {
  printf '%s\n' "$@" | awk '{print $(NF - 1)}' | grep -x testing ||
    printf '%s\n' "$1" | awk '{print $(NF - 1)}'
}
