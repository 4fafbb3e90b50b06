// SPDX-License-Identifier: MIT
#include "sandbox/trial.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/resource.h>  // NOLINT(misc-include-cleaner): rusage, which wait.h only names
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <utility>

namespace moestro {
namespace {

constexpr size_t kOutputKept = 4096;
constexpr rlim_t kStack = rlim_t{4} << 20;

[[noreturn]] void RunChild(const std::function<bool()>& work, uint64_t memory, int output,
                           pid_t parent) {
  // Ends with the parent, since no other process would end this child.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  dup2(output, STDERR_FILENO);
  dup2(output, STDOUT_FILENO);
  LimitChild(memory);
  bool passed = false;
  try {
    passed = work();
  } catch (const std::exception&) {
    passed = false;
  }
  _exit(passed ? EXIT_SUCCESS : EXIT_FAILURE);
}

// Reads until the child closes its end or the time is up; true: the child closed its end.
bool ReadOutput(int fd, std::chrono::milliseconds limit, std::string& output) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::array<char, 1024> buffer{};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waiting = {fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) == 0) return false;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n == 0) return true;
    if (n < 0) continue;  // a signal; the clock still runs
    const size_t room = kOutputKept - output.size();
    output.append(buffer.data(), std::min(room, static_cast<size_t>(n)));
  }
}

void SetTimer(std::chrono::microseconds time, itimerval* before) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const itimerval timer{
      .it_interval = {},
      .it_value = {.tv_sec = seconds.count(), .tv_usec = (time - seconds).count()}};
  setitimer(ITIMER_PROF, &timer, before);
}

}  // namespace

void LimitChild(uint64_t more_bytes) {
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // ggml's abort would start a debugger to print a backtrace.
  setenv("GGML_NO_BACKTRACE", "1", 1);
  const rlimit stack = {kStack, kStack};
  setrlimit(RLIMIT_STACK, &stack);
  // The child can take memory that the parent has freed without a system call, so that counts.
  const rlim_t more = more_bytes - std::min<rlim_t>(more_bytes, mallinfo2().fordblks);
  // Limits writable memory, not addresses: the C library has reserved addresses for the blocks of
  // each of the parent's threads, and the child could use those.
  const rlim_t now = WritableBytes();
  if (now == 0) return;
  const rlim_t most = now + more;
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = limit.rlim_max = std::min(limit.rlim_max, most);
  setrlimit(RLIMIT_DATA, &limit);
}

uint64_t WritableBytes() {
  std::array<uint64_t, 6> pages{};  // the last is the size of data and stack
  std::ifstream statm("/proc/self/statm");
  for (uint64_t& n : pages) statm >> n;
  return statm ? pages.back() * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

void ProcessorLimit::Resume() const {
  signal(SIGPROF, SIG_DFL);
  // No time at all would mean no timer.
  SetTimer(std::max(left_, std::chrono::microseconds(1)), nullptr);
}

void ProcessorLimit::Pause() {
  itimerval before{};
  SetTimer(std::chrono::microseconds(0), &before);
  left_ = std::chrono::seconds(before.it_value.tv_sec) +
          std::chrono::microseconds(before.it_value.tv_usec);
}

Trial TryInChild(const std::function<bool()>& work, TrialLimits limits) {
  Trial trial;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return trial;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) RunChild(work, limits.memory, ends[1], parent);
  close(ends[1]);
  if (child > 0) {
    const bool closed = ReadOutput(ends[0], limits.time, trial.output);
    if (!closed) kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const bool was_ended = !closed || (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF);
    if (was_ended)
      trial.outcome = Trial::Outcome::kTimedOut;
    else if (WIFSIGNALED(status))
      trial.outcome = Trial::Outcome::kCrashed;
    else if (WEXITSTATUS(status) == EXIT_SUCCESS)
      trial.outcome = Trial::Outcome::kPassed;
    else
      trial.outcome = Trial::Outcome::kRefused;
  }
  close(ends[0]);
  return trial;
}

namespace {

constexpr std::chrono::milliseconds kLookEvery{100};  // between two checks that the owner lives

[[noreturn]] void RunWork(const std::function<void(MessageSocket)>& work, MessageSocket socket,
                          pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  try {
    work(std::move(socket));
  } catch (const std::exception&) {
    _exit(EXIT_FAILURE);
  }
  _exit(EXIT_SUCCESS);
}

// Passes messages on until the child closes its end; false: the owner has gone before.
bool PassOn(MessageSocket& child, MessageSocket& owner) {
  while (true) {
    while (!child.Await(kLookEvery)) {
      if (owner.is_abandoned()) return false;
    }
    const auto message = child.Read(std::nullopt);
    if (!message) return true;
    if (!owner.Write(*message, std::nullopt)) return false;
  }
}

Trial::Outcome OutcomeOf(int status) {
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGPROF ? Trial::Outcome::kTimedOut : Trial::Outcome::kCrashed;
  }
  return WEXITSTATUS(status) == EXIT_SUCCESS ? Trial::Outcome::kPassed : Trial::Outcome::kRefused;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

RelayEnd RelayChild(MessageSocket& owner, const std::function<void(MessageSocket)>& work) {
  auto ends = MessageSocket::MakePair();
  if (!ends) return {};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return {};
  if (child == 0) {
    ends->first.Close();
    RunWork(work, std::move(ends->second), parent);
  }
  ends->second.Close();
  if (!PassOn(ends->first, owner)) kill(child, SIGKILL);
  int status = 0;
  rusage used{};
  while (wait4(child, &status, 0, &used) < 0 && errno == EINTR) {
  }
  return {.outcome = OutcomeOf(status),
          .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
          .processor_seconds = Seconds(used.ru_utime) + Seconds(used.ru_stime)};
}

}  // namespace moestro
