// SPDX-License-Identifier: MIT
#include "sandbox/relay.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>  // NOLINT(misc-include-cleaner): rusage, which wait.h only names
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

namespace moestro {
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
