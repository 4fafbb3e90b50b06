#!/bin/bash
# SPDX-License-Identifier: MIT
# service_checks.sh: what service_vm.sh runs as root within its virtual machine, under systemd.
# Prints "ok: ..." or "FAILED: ..." for each thing that is looked at, and goes on.
# shellcheck disable=SC2016,SC2034  # conditions are evaluated by expect
set -uo pipefail
export LC_ALL=C SYSTEMD_COLORS=0
settings=/etc/moestro/moestro.conf
drop_ins=/etc/systemd/system/moestro.service.d
installed=/usr/lib/moestro-test/stories.gguf
model=/var/lib/moestro/stories.gguf
port=8080
cat $settings >/run/settings

note() { printf 'note: %s\n' "$*"; }
expect() {
  if eval "$2"; then
    printf 'ok: %s\n' "$1"
  else
    printf 'FAILED: %s\n' "$1"
    systemctl show moestro -p ActiveState,SubState,Result,ExecMainStatus,StatusText | sed 's/^/  /'
    journalctl -q -b --no-pager -n 20 | sed 's/^/  /'
  fi
}
about() { systemctl show -P "$1" moestro; }
# What the journal has since the last mark; said WORDS: whether that has them.
lines() { journalctl -q -b --no-pager -o cat -u moestro --after-cursor="$cursor"; }
said() { lines | grep -F -- "$1" >/dev/null; }
mark() { cursor=$(journalctl -q -b --no-pager -n 0 --show-cursor | sed -n 's/^-- cursor: //p'); }
# begin SETTINGS: a service that never ran, with these lines; what is said from here on counts.
begin() {
  systemctl daemon-reload
  systemctl stop moestro
  systemctl reset-failed moestro 2>/dev/null
  { cat /run/settings; printf '%b' "$1"; } >$settings
  journalctl --sync
  mark
}
# ask METHOD PATH [BODY [HEADER]]: prints the reply; nothing if nobody listens.
ask() {
  local body=${3:-} header=${4:+$4$'\r\n'}
  # In a shell of its own, which a refused connection ends.
  (
    exec 3<>"/dev/tcp/127.0.0.1/$port" || exit
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s' "$1" "$2" "$header" >&3
    printf 'Content-Length: %s\r\n\r\n%s' ${#body} "$body" >&3
    cat <&3
  ) 2>/dev/null
}
# within SECONDS CONDITION: whether it comes to be true.
within() {
  local end=$((SECONDS + $1))
  until eval "$2"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}
is_ready() { moestro health --port $port >/dev/null 2>&1; }
completion='{"prompt":"Once","max_tokens":4,"seed":1}'

without_a_model() {
  expect "the service is not enabled" '[ "$(systemctl is-enabled moestro)" = disabled ]'
  begin ''
  expect "without a model starting it is no failure" 'systemctl start moestro'
  journalctl --sync
  expect "and does nothing" \
    '[ "$(about ActiveState)" = inactive ] && said "Skipped due to" && ! said "moestro serves"'
  chmod 700 /etc/moestro
  begin "model = $model\n"
  expect "settings that its user may not read are a failure" \
    '! systemctl start moestro 2>/dev/null && [ "$(about ActiveState)" != inactive ]'
  chmod 755 /etc/moestro
}

serves() {
  begin "model = $model\n"
  expect "it starts" 'systemctl start moestro'
  local reply text
  reply=$(ask GET /health) text=$(about StatusText)
  note "at once after the start: ${reply%%$'\r'*}; $text"
  expect "and answers at once" '[[ $reply == "HTTP/1.1 200"* || $reply == "HTTP/1.1 503"* ]]'
  expect "it says what it does" \
    '[[ $text == "reads $model; "* || $text == "serves stories "* ]]'
  expect "it becomes ready" 'within 300 is_ready'
  expect "and says so" 'within 30 "[[ \$(about StatusText) == serves* ]]"'
  note "$(about StatusText)"
  expect "it is active" '[ "$(about ActiveState) $(about SubState)" = "active running" ]'
  local pid user
  pid=$(about MainPID)
  user=$(stat -c %u "/proc/$pid")
  note "its user is $user"
  expect "its user is made up" '[ "$user" -ge 61184 ] && [ "$user" -le 65519 ]'
  expect "and not in /etc/passwd" '! grep -q moestro /etc/passwd'
  expect "it has no capabilities" 'grep -q "^CapEff:[[:blank:]]*0*$" "/proc/$pid/status"'
  expect "it computes tokens" \
    '[[ $(ask POST /v1/completions "$completion") == *"\"completion_tokens\":4"* ]]'
  expect "its folders are there" '[ -d /var/lib/moestro/ ] && [ -d /var/cache/moestro/ ]'
}

killed() {
  local pid
  pid=$(about MainPID)
  kill -KILL "$pid"
  expect "killed, it is started again" \
    'within 300 "[ \$(about NRestarts) = 1 ] && [ \$(about ActiveState) = active ]"'
  expect "as another process" '[ "$(about MainPID)" != 0 ] && [ "$(about MainPID)" != "$pid" ]'
  expect "and answers again" 'within 300 is_ready'
}

stopped() {
  local start=$SECONDS
  mark
  systemctl stop moestro
  expect "it stops in seconds" '[ $((SECONDS - start)) -le 30 ]'
  journalctl --sync
  # A unit that nobody needs any more forgets how it ended.
  expect "with a clean exit" 'said "Deactivated successfully" && ! said "Main process exited"'
  expect "nobody listens" '[ -z "$(ask GET /health)" ]'
}

limited() {
  mkdir -p $drop_ins
  printf '[Service]\nMemoryMax=1G\n' >$drop_ins/memory.conf
  begin "model = $model\n"
  systemctl start moestro
  within 300 is_ready
  local budget
  budget=$(ask GET /metrics | sed -n 's/^moestro_memory_budget_bytes \([0-9]*\).*/\1/p')
  note "the budget within MemoryMax=1G is ${budget:-not said}"
  # Bytes may be printed as 9.3e+08.
  expect "the budget stays below MemoryMax" \
    '[ -n "$budget" ] && [ "$budget" -gt 500000000 ] && [ "$budget" -lt $((1 << 30)) ]'
  begin "model = $model\nram = 1200M\n"
  expect "a larger ram is refused" '! systemctl start moestro 2>/dev/null'
  journalctl --sync
  expect "in words" 'said "is more than the 1.0 GiB that this process"'
  sleep 6  # RestartSec, and a little
  expect "and not tried again" '[ "$(about ActiveState) $(about NRestarts)" = "failed 0" ]'
  rm $drop_ins/memory.conf
}

unreadable() {
  install -D -m 644 $installed /var/lib/others/stories.gguf
  chmod 700 /var/lib/others
  begin 'model = /var/lib/others/stories.gguf\n'
  expect "a model in a folder that its user may not enter is a failure" \
    '! systemctl start moestro 2>/dev/null'
  journalctl --sync
  note "$(lines | grep -m 1 others/)"
  expect "which names the file and why" \
    'said "/var/lib/others/stories.gguf" && said "Permission denied"'
  local home=~root
  install -m 644 $installed "$home/stories.gguf"
  begin "model = $home/stories.gguf\n"
  expect "a model in a home folder is a failure" '! systemctl start moestro 2>/dev/null'
  journalctl --sync
  note "$(lines | grep -m 1 "$home/")"
  expect "which names the file" 'said "$home/stories.gguf"'
}

keys() {
  mkdir -p $drop_ins
  (umask 077; echo 'a key for the test' >/etc/moestro/keys)
  printf '[Service]\nLoadCredential=keys:/etc/moestro/keys\n' >$drop_ins/keys.conf
  printf 'Environment=MOESTRO_API_KEY_FILE=%%d/keys\n' >>$drop_ins/keys.conf
  begin "model = $model\n"
  systemctl start moestro
  expect "keys that are root's alone come as a credential" 'within 300 is_ready'
  expect "without a key it refuses" \
    '[[ $(ask POST /v1/completions "$completion") == "HTTP/1.1 401"* ]]'
  local reply
  reply=$(ask POST /v1/completions "$completion" 'Authorization: Bearer a key for the test')
  expect "with one it answers" '[[ $reply == *"\"completion_tokens\":4"* ]]'
  rm $drop_ins/keys.conf /etc/moestro/keys
  begin ''
}

exposure() {
  local line level
  line=$(systemd-analyze security --no-pager moestro.service | tail -n 1)
  level=$(sed -n 's/.*: \([0-9.]*\) .*/\1/p' <<<"$line")
  note "exposure $level"
  expect "systemd-analyze finds little exposed" \
    '[ -n "$level" ] && awk "BEGIN {exit !($level < 2.0)}"'
}

# A user who is not logged in; systemctl talks to his manager by its own socket.
of_user() {
  setpriv --reuid 1234 --regid 1234 --clear-groups env -i PATH="$PATH" HOME=~somebody \
    XDG_RUNTIME_DIR=/run/user/1234 "$@"
}
user_said() {
  journalctl --sync
  journalctl -q -b --no-pager -o cat _UID=1234 | grep -F moestro.service |
    grep -F -- "$1" >/dev/null
}
users_own() {
  useradd -m -u 1234 somebody
  loginctl enable-linger somebody
  expect "a user's manager starts" 'within 300 "systemctl -q is-active user@1234"'
  expect "the user's service does nothing without a model" \
    'of_user systemctl --user start moestro && user_said "Skipped due to"'
  port=8090
  # The file is his alone.
  of_user install -m 600 $installed ~somebody/stories.gguf
  of_user mkdir -p ~somebody/.config/moestro
  printf 'model = ~/stories.gguf\nport = %s\n' $port |
    of_user tee ~somebody/.config/moestro/moestro.conf >/dev/null
  expect "the user's service starts" 'of_user systemctl --user start moestro'
  expect "and becomes ready" 'within 300 is_ready'
  expect "and computes tokens" \
    '[[ $(ask POST /v1/completions "$completion") == *"\"completion_tokens\":4"* ]]'
  local pid
  pid=$(of_user systemctl --user show -P MainPID moestro)
  expect "as that user" '[ "$(stat -c %u "/proc/$pid")" = 1234 ]'
  expect "and stops" \
    'of_user systemctl --user stop moestro && user_said "Stopped moestro" &&
     ! user_said "Failed with result"'
}

note "$(uname -r), $(systemctl --version | head -n 1), pid 1 is $(cat /proc/1/comm)"
install -D -m 644 $installed $model
for part in without_a_model serves killed stopped limited unreadable keys exposure users_own; do
  begun=$SECONDS
  $part
  note "$part took $((SECONDS - begun)) s"
done
echo "end of the machine"
