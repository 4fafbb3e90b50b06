#!/bin/bash
# SPDX-License-Identifier: MIT
# remote.sh MODEL RAM SIZE [PAIRS [OPTION...]]: decode with a remote host of SIZE against none, both
# in RAM, over networks of 1 and 10 Gbit/s and disks of 300 MB/s and 1 GB/s. OPTIONs are of the runs
# with a host. Needs root, tc, two network namespaces, ggml-rpc-server, and a build with tests.
#
# The server runs in a namespace of its own behind `tc tbf`; a relay of the tests delays what passes
# (0.1 and 0.05 ms each way). Reads of the disk are throttled by a blkio cgroup. All of it shares
# this machine's processors, which favours runs without a host.
set -euo pipefail
model=$1 ram=$2 size=$3 pairs=${4:-3}
options=("${@:5}")
build=${BUILD:-build/ci}
server=$(echo /usr/libexec/*/llama/bin/ggml-rpc-server)
ns=moestro_remote link=mrem
throttle=/sys/fs/cgroup/blkio/moestro_remote
said=$(mktemp)
device=$(findmnt -no MAJ:MIN -T "$model")

clean_up() {
  kill $(jobs -p) 2>/dev/null || true
  ip netns pids $ns 2>/dev/null | xargs -r kill -9 || true
  ip link del ${link}0 2>/dev/null || true
  ip netns del $ns 2>/dev/null || true
  rmdir $throttle 2>/dev/null || true
  rm -f "$said"
}
trap clean_up EXIT
clean_up
mkdir $throttle
ip netns add $ns
ip link add ${link}0 type veth peer name ${link}1
ip link set ${link}1 netns $ns
ip addr add 10.77.1.1/24 dev ${link}0
ip link set ${link}0 up
ip netns exec $ns ip addr add 10.77.1.2/24 dev ${link}1
ip netns exec $ns ip link set ${link}1 up
ip netns exec $ns ip link set lo up

# In the throttled group, with the page cache dropped.
run() {
  sync
  echo 3 > /proc/sys/vm/drop_caches
  (echo $BASHPID > $throttle/cgroup.procs
   exec "$build/moestro" bench "$model" --ram "$ram" -p 16 --warmup 32 -n 24 --cold --json "$@")
}
number() { python3 -c 'import json,sys; print(json.load(sys.stdin)["decode_tps"])'; }
median() { sort -g | awk '{a[NR]=$1} END {print a[int((NR+1)/2)]}'; }

printf '%-8s %-8s %10s %10s %8s   %s\n' disk network without with times 'expected of the experts of a layer'
for disk in 300000000 1000000000; do
  echo "$device $disk" > $throttle/blkio.throttle.read_bps_device
  without=() with1gbit=() with10gbit=()
  declare -A expected
  for ((pair = 0; pair < pairs; ++pair)); do
    without+=("$(run 2>/dev/null | number)")
    for net in "1gbit 100" "10gbit 50"; do
      read -r rate delay <<< "$net"
      tc qdisc replace dev ${link}0 root tbf rate $rate burst 256kb latency 50ms
      ip netns exec $ns tc qdisc replace dev ${link}1 root tbf rate $rate burst 256kb latency 50ms
      ip netns exec $ns "$server" -H 10.77.1.2 -p 50052 -t 1 -d CPU >/dev/null 2>&1 &
      "$build/tests/support/moestro_delay_relay" 50053 10.77.1.2:50052 "$delay" &
      sleep 1
      declare -n its=with$rate
      its+=("$(run --remote 127.0.0.1:50053="$size" -v "${options[@]}" 2>"$said" | number)")
      expected[$rate]=$(grep -o 'expected to take.*without' "$said" || tail -1 "$said")
      kill %% 2>/dev/null || true
      ip netns pids $ns | xargs -r kill -9 || true
      wait 2>/dev/null || true
    done
  done
  a=$(printf '%s\n' "${without[@]}" | median)
  for rate in 1gbit 10gbit; do
    declare -n its=with$rate
    b=$(printf '%s\n' "${its[@]}" | median)
    printf '%-8s %-8s %10.2f %10.2f %8.2f   %s\n' $((disk / 1000000))MB/s $rate "$a" "$b" \
      "$(echo "$b / $a" | bc -l)" "${expected[$rate]}"
  done
done
