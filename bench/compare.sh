#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Moestro against llama.cpp: one file, one memory limit, one run. Writes a table and a plot to
# bench/results/. See bench/README.md for what is measured and how to get a quiet machine.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")

usage() {
  cat <<'TEXT'
usage: bench/compare.sh [options] MODEL BUDGET...

  BUDGET        4G, 6500M, ... : limit of the memory cgroup and Moestro's --ram; `all`: no limit,
                every expert resident before the clock starts; 25%: Moestro's --cache, no limit and
                no llama.cpp, which has no such setting

  -r N          runs of each measurement; medians are reported (3)
  -n N          tokens of decode, from cold (48)
  -p N          tokens of prefill (128)
  -P LIST       budgets in which prefill is measured ("6G all")
  -t N          compute threads (physical cores)
  -c N          tokens of context, both engines (4096, or what -p, -n and -d need)
  -R TRACE      recorded routing in place of the routers'; without llama.cpp, which cannot follow it
  -d N          positions before the first token with keys and values that nobody computed (0)
  -s SECONDS    time limit of llama.cpp for one phase of one run (60)
  -m NAME       name of the machine in the file names (from the processor's name)
  -o DIR        where results go (bench/results)
  -k            keep the page cache, to try the script out: the figures are then worth nothing

Builds both programs (preset bench) unless MOESTRO and LLAMA_PEER in the environment name them.
Needs root for the cgroup and for dropping the page cache.
TEXT
}

die() {
  echo "compare.sh: $*" >&2
  exit 1
}

say() { echo "compare.sh: $*" >&2; }

physical_cores() { lscpu -p=Core,Socket | grep -v '^#' | sort -u | wc -l; }

cpu_name() { sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1; }

mem_gib() { awk '/^MemTotal:/ {printf "%.0f", $2 / 1048576}' /proc/meminfo; }

# amd-epyc-2c-24g
machine_name() {
  printf '%s-%sc-%sg' "$(cpu_name)" "$(physical_cores)" "$(mem_gib)" |
    tr '[:upper:]' '[:lower:]' | sed 's/([a-z]*)//g; s/[^a-z0-9]\{1,\}/-/g'
}

# 25%: a share of the experts, which is no limit for the process
is_share() { [[ $1 =~ ^[1-9][0-9]*%$ ]]; }

# 6G, 6GiB -> bytes
bytes_of() {
  local text=${1%B}
  numfmt --from=iec "${text%i}" 2>/dev/null || die "'$1' is not a budget; write 6G, 6500M, 25% or all"
}

routing=
rounds=3 n_decode=48 n_prefill=128 depth=0 context= prefill_budgets="6G all" seconds=60 keep_cache=0
threads=$(physical_cores)
machine=$(machine_name)
results=$here/results
while getopts "r:n:p:P:t:c:d:s:m:o:R:kh" option; do
  case $option in
    r) rounds=$OPTARG ;;
    n) n_decode=$OPTARG ;;
    p) n_prefill=$OPTARG ;;
    P) prefill_budgets=$OPTARG ;;
    t) threads=$OPTARG ;;
    c) context=$OPTARG ;;
    d) depth=$OPTARG ;;
    s) seconds=$OPTARG ;;
    m) machine=$OPTARG ;;
    o) results=$OPTARG ;;
    R) routing=$OPTARG ;;
    k) keep_cache=1 ;;
    h) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] || { usage >&2; exit 2; }
[ -z "$routing" ] || [ -r "$routing" ] || die "cannot read $routing"
[[ $depth =~ ^[0-9]+$ ]] || die "'$depth' is not a whole number"
if [ -z "$context" ]; then
  context=$((depth + (n_prefill > n_decode ? n_prefill : n_decode)))
  context=$((context < 4096 ? 4096 : context))
fi
for value in "$rounds" "$n_decode" "$n_prefill" "$threads" "$context" "$seconds"; do
  [[ $value =~ ^[1-9][0-9]*$ ]] || die "'$value' is not a whole number above 0"
done
model=$1
shift
budgets=()
for budget in "$@"; do
  [ "$budget" = all ] || is_share "$budget" || bytes_of "$budget" >/dev/null
  budgets+=("${budget%iB}")
done
[ -r "$model" ] || die "cannot read $model"
[ "$(id -u)" = 0 ] || die "memory cgroups and dropping the page cache need root; run it with sudo"

if [ -z "${MOESTRO:-}" ] || [ -z "${LLAMA_PEER:-}" ]; then
  (cd "$root" && cmake --preset bench && cmake --build --preset bench --target moestro moestro_llama_peer) \
    >&2 || die "cannot build; 'make setup' installs what is needed"
fi
moestro=${MOESTRO:-$root/build/bench/moestro}
peer=${LLAMA_PEER:-$root/build/bench/bench/moestro_llama_peer}
[ -x "$moestro" ] || die "$moestro is not a program"
[ -x "$peer" ] || die "$peer is not a program"

# --- the memory cgroup -----------------------------------------------------------------------------

v1=/sys/fs/cgroup/memory
v2=/sys/fs/cgroup
if [ -f $v1/memory.limit_in_bytes ]; then
  cgroup_version=1 group=$v1/moestro-bench-$$
elif grep -qw memory $v2/cgroup.controllers 2>/dev/null; then
  cgroup_version=2 group=$v2/moestro-bench-$$
  echo +memory >$v2/cgroup.subtree_control 2>/dev/null || true
else
  die "no memory controller under /sys/fs/cgroup (neither v1 nor v2); a container may hide it"
fi

remove_group() {
  [ -d "$group" ] || return 0
  # A killed process leaves the group a moment after it was waited for.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    rmdir "$group" 2>/dev/null && return 0
    sleep 0.2
  done
  say "cannot remove $group"
}
# The group holds what this script started and nothing else.
finish() {
  local pid
  if [ -d "$group" ]; then
    while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$group/cgroup.procs"
  fi
  remove_group
}
trap finish EXIT
trap 'exit 130' INT TERM

# make_group BYTES|all
make_group() {
  mkdir "$group" || die "cannot make the cgroup $group"
  [ "$1" != all ] || return 0
  if [ $cgroup_version = 1 ]; then
    echo "$1" >"$group/memory.limit_in_bytes" || die "cannot limit $group"
    # Counts swap too: nothing may escape there. Missing where the kernel does not count swap.
    echo "$1" 2>/dev/null >"$group/memory.memsw.limit_in_bytes" || true
  else
    [ -f "$group/memory.max" ] || die "cgroup v2 does not hand out its memory controller here"
    echo "$1" >"$group/memory.max" || die "cannot limit $group"
    echo 0 2>/dev/null >"$group/memory.swap.max" || true
  fi
}

group_peak() {
  cat "$group/memory.max_usage_in_bytes" 2>/dev/null || cat "$group/memory.peak" 2>/dev/null || echo 0
}

# How many processes the limit has killed.
group_kills() {
  local file=$group/memory.oom_control
  [ $cgroup_version = 1 ] || file=$group/memory.events
  awk '$1 == "oom_kill" {n = $2} END {print n + 0}' "$file"
}

# --- one run ---------------------------------------------------------------------------------------

stamp=$(date +%Y-%m-%d)
raw=$root/build/compare/$machine-$stamp-$$
mkdir -p "$raw" "$results"

cached_file=  # read into the page cache before the next run
drop_cache() {
  [ $keep_cache = 0 ] || return 0
  sync
  echo 3 >/proc/sys/vm/drop_caches
}

# run_one CASE BUDGET ENGINE ROUND COMMAND...: adds a line to runs.tsv; the program's JSON goes to a
# file next to it. Status: ok, killed (by the limit), timeout, failed.
run_one() {
  local case=$1 budget=$2 engine=$3 round=$4 limit=all name code=0 status
  shift 4
  name=$case-$budget-$engine-$round
  [ "$budget" = all ] || is_share "$budget" || limit=$(bytes_of "$budget")
  drop_cache
  [ -z "$cached_file" ] || cat "$cached_file" >/dev/null
  cached_file=
  make_group "$limit"
  # The braces swallow the shell's own remark about a killed process.
  {
    (
      echo "$BASHPID" >"$group/cgroup.procs" || exit 125
      exec timeout --foreground --signal=KILL "$hard_limit" "$@"
    ) >"$raw/$name.json" 2>"$raw/$name.log" || code=$?
  } 2>/dev/null
  if [ $code = 0 ]; then
    status=ok
  elif [ "$(group_kills)" -gt 0 ]; then
    status=killed
  elif [ $code = 124 ] || [ $code = 137 ]; then
    status=timeout
  else
    status=failed
    say "$name failed with $code: $(tail -n 1 "$raw/$name.log")"
  fi
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$case" "$budget" "$engine" "$round" "$status" "$(group_peak)" \
    >>"$raw/runs.tsv"
  remove_group
  say "$name: $status"
  [ $status != failed ]
}

# Loading and warming up come on top of the two phases.
hard_limit=$((2 * seconds + 900))

# For `all`, Moestro preloads and llama.cpp finds its file in the page cache; then both warm up.
warmup=$((context < 64 ? context : 64))

tokens_of() {
  if [ "$1" = decode ]; then echo "-p 0 -n $n_decode"; else echo "-p $n_prefill -n 0"; fi
}

run_moestro() {
  local case=$1 budget=$2 round=$3 tokens
  local args=(bench --cold "$model" -t "$threads" -c "$context" --depth "$depth" -r 1 --json)
  if [ "$budget" = all ]; then
    args+=(--preload --warmup "$warmup")
  elif is_share "$budget"; then
    args+=(--cache "$budget")
  else
    args+=(--ram "$(bytes_of "$budget")")
  fi
  [ -z "$routing" ] || args+=(--routing "$routing")
  read -ra tokens <<<"$(tokens_of "$case")"
  args+=("${tokens[@]}")
  run_one "$case" "$budget" moestro "$round" "$moestro" "${args[@]}"
}

run_llama() {
  local case=$1 budget=$2 round=$3 variant=$4 tokens
  local args=("$model" -t "$threads" -c "$context" --depth "$depth" --seconds "$seconds")
  [ "$budget" != all ] || args+=(--warmup "$warmup")
  [ "$variant" = plain ] || args+=(--repack)
  read -ra tokens <<<"$(tokens_of "$case")"
  args+=("${tokens[@]}")
  [ "$budget" != all ] || cached_file=$model
  run_one "$case" "$budget" "llama-$variant" "$round" "$peer" "${args[@]}"
}

# Once is enough for what the limit kills or what never ends.
is_hopeless() {
  awk -v wanted="$1 $2 $3" '$1 " " $2 " " $3 == wanted && $5 != "ok" {found = 1}
                            END {exit !found}' "$raw/runs.tsv"
}

# Repacked weights are anonymous memory: a budget that does not hold them all only thrashes.
fits_repacked() { [ "$1" = all ] || [ "$(bytes_of "$1")" -gt "$(stat -c %s "$model")" ]; }

measure() {
  local case=$1 budget=$2 round=$3 variant
  run_moestro "$case" "$budget" "$round" || true
  [ -z "$routing" ] && ! is_share "$budget" || return 0
  for variant in plain repacked; do
    [ "$variant" = plain ] || fits_repacked "$budget" || continue
    is_hopeless "$case" "$budget" "llama-$variant" ||
      run_llama "$case" "$budget" "$round" "$variant" || true
  done
}

# --- the whole -------------------------------------------------------------------------------------

write_meta() {
  local commit file_system
  commit=$(git -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
  file_system=$(findmnt -n -o FSTYPE -T "$model" || echo unknown)
  {
    printf 'machine\t%s\n' "$machine"
    printf 'date\t%s\n' "$stamp"
    printf 'cpu\t%s\n' "$(cpu_name)"
    printf 'cores\t%s\n' "$(physical_cores)"
    printf 'memory_gib\t%s\n' "$(mem_gib)"
    printf 'kernel\t%s\n' "$(uname -r | sed 's/-.*//')"
    printf 'file_system\t%s\n' "$file_system"
    printf 'cgroup\tv%s\n' "$cgroup_version"
    printf 'commit\t%s\n' "$commit"
    printf 'threads\t%s\n' "$threads"
    printf 'model\t%s\n' "$(basename "$model")"
    printf 'model_bytes\t%s\n' "$(stat -c %s "$model")"
    printf 'context\t%s\n' "$context"
    printf 'depth\t%s\n' "$depth"
    printf 'routing\t%s\n' "${routing##*/}"
    printf 'rounds\t%s\n' "$rounds"
    printf 'decode_tokens\t%s\n' "$n_decode"
    printf 'prefill_tokens\t%s\n' "$n_prefill"
    printf 'cache_dropped\t%s\n' "$((1 - keep_cache))"
    printf 'llama_seconds\t%s\n' "$seconds"
  } >"$raw/meta.tsv"
}

is_prefill_budget() {
  local listed
  for listed in $prefill_budgets; do
    [ "$listed" != "$1" ] || return 0
  done
  return 1
}

say "raw results go to $raw"
: >"$raw/runs.tsv"
write_meta
for ((round = 1; round <= rounds; ++round)); do
  for budget in "${budgets[@]}"; do
    measure decode "$budget" "$round"
    ! is_prefill_budget "$budget" || measure prefill "$budget" "$round"
  done
done
name=$results/$machine-$stamp
python3 "$here/summarise.py" "$raw" --targets "$here/targets.csv" --csv "$name.csv" --markdown "$name.md"
python3 "$here/plot.py" "$name.csv" "$name.svg"
say "wrote $name.csv, .md and .svg"
