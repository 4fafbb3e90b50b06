#!/bin/bash
# SPDX-License-Identifier: MIT
# image_test.sh PACKAGE.deb TREE.tar: builds packaging/Containerfile on TREE (scripts/debian_tree.sh)
# with podman and serves the demo model from it: read-only root, nobody's rights, io_uring
# forbidden, health asked by the program itself. Needs root, and podman's storage nowhere but in a
# folder of its own. Exit code 77: podman cannot run containers here.
set -euo pipefail
deb=$(realpath "$1")
tree=$(realpath "$2")
recipe=$(realpath "$(dirname "$0")/../packaging/Containerfile")

say() { printf 'image-test: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }
command -v podman >/dev/null || { say "skipped: there is no podman"; exit 77; }

work=$(mktemp -d)
name=moestro-image-test-$$
runtime=()
run_podman() {
  podman --root "$work/root" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs \
    --events-backend file "${runtime[@]}" "$@"
}
# Limits of its own, since a container may not raise those of the one that this runs in.
here=(--network host --ulimit nofile=1024:1024 --ulimit nproc=1024:1024)
cleanup() {
  run_podman rm -f -t 0 $name >/dev/null 2>&1 || true
  run_podman rmi -af >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

say "takes the tree as its base"
run_podman import -q "$tree" moestro-base >"$work/log" 2>&1 || { cat "$work/log"; die "import"; }
# crun wants one hierarchy of control groups, runc takes the older ones, too.
for name_of_runtime in crun runc none; do
  [ $name_of_runtime != none ] ||
    { cat "$work/log"; say "skipped: podman cannot run a container here"; exit 77; }
  runtime=(--runtime $name_of_runtime)
  if run_podman run --rm "${here[@]}" moestro-base true >>"$work/log" 2>&1; then break; fi
done

say "builds the image"
mkdir "$work/context"
cp "$deb" "$work/context/moestro.deb"
run_podman build --network host --isolation chroot --format docker --build-arg BASE=moestro-base \
  -f "$recipe" -t moestro "$work/context" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; die "build"; }

# As Docker refuses io_uring.
printf '%s' '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["io_uring_setup",
  "io_uring_enter","io_uring_register"],"action":"SCMP_ACT_ERRNO","errnoRet":1}]}' \
  >"$work/seccomp.json"
printf 'a key for the test\n' >"$work/keys"
chmod 644 "$work/keys"
port=$((20000 + RANDOM % 20000))

say "serves with a read-only root, without rights, without io_uring"
run_podman run -d --name $name "${here[@]}" --read-only --tmpfs /tmp \
  --cap-drop all --security-opt no-new-privileges --security-opt "seccomp=$work/seccomp.json" \
  -v "$work/keys:/run/secrets/moestro-keys:ro" -e MOESTRO_PORT=$port moestro >"$work/log" 2>&1 ||
  { cat "$work/log"; die "run"; }
for ((i = 0; i < 300; ++i)); do
  if run_podman exec $name moestro health >/dev/null 2>&1; then break; fi
  sleep 0.2
done
run_podman exec $name moestro health >"$work/log" 2>&1 ||
  { cat "$work/log"; run_podman logs $name; die "it did not become ready"; }
run_podman healthcheck run $name || die "its own health check fails"
[ "$(run_podman exec $name id -u)" = 10001 ] || die "it runs as somebody else"
if run_podman exec $name touch /usr/x 2>/dev/null; then die "its root can be written to"; fi

ask() {
  local body='{"prompt":"Once","max_tokens":4,"seed":1}'
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s' "$1" >&3
  printf 'Content-Length: %s\r\n\r\n%s' ${#body} "$body" >&3
  cat <&3
  exec 3>&-
}
reply=$(ask $'Authorization: Bearer a key for the test\r\n')
[[ $reply == *'"completion_tokens":4'* ]] || die "it replied: $reply"
[[ $(ask '') == *' 401 '* ]] || die "it answers without a key"
run_podman stop -t 20 $name >/dev/null
code=$(run_podman inspect -f '{{.State.ExitCode}}' $name)
[ "$code" = 0 ] || die "it ended with $code: $(run_podman logs $name)"

size=$(run_podman image inspect -f '{{.Size}}' moestro)
model=$(stat -c %s "$(dirname "$recipe")/../models/stories-moe-q8_0.gguf")
say "takes $(((size) / 1000000)) MB, $(((size - model) / 1000000)) MB without the demo model"
[ $((size - model)) -lt 200000000 ] || die "that is more than 200 MB"
say "done"
