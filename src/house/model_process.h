// SPDX-License-Identifier: MIT
// A process of this program that serves one model: begun, watched and ended by its parent.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "base/input_file.h"
#include "base/result.h"

namespace moestro {

// The program's first argument in such a process: the flags of `moestro serve` follow, and no
// settings are read. Flags are all that counts: variables of the environment are not passed on.
inline constexpr const char* kWorkerFlags = "serve-for-house";

class ModelProcess {
 public:
  // Begins a program, which is this one but in tests, with the arguments in a process group of its
  // own. Lines that the program writes to stderr go to this process's stderr behind `label`, JSON
  // lines (the log of requests) as they are, as far as whoever reads these keeps up. kIo.
  //
  // The process gets SIGTERM when the calling thread ends: call this from a thread that lives as
  // long as the process is to.
  static Result<std::unique_ptr<ModelProcess>> Start(std::span<const std::string> arguments,
                                                     const std::string& label,
                                                     const std::string& program = "/proc/self/exe");
  // Ends the process at once if it still runs.
  ~ModelProcess();
  ModelProcess(const ModelProcess&) = delete;
  ModelProcess& operator=(const ModelProcess&) = delete;

  // The members below are the starting thread's.
  // Whether the process has ended.
  bool HasEnded();
  // "exit code 1", "signal 11 (Segmentation fault)"; of a SIGKILL that Tell() did not send, who may
  // have sent it. REQUIRES: HasEnded().
  std::string EndText() const;
  // A SIGKILL leaves a process no last words. REQUIRES: HasEnded().
  bool was_killed() const { return WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL; }
  // Its last line on stderr, and all that it has written to stdout, at most 1 MiB. After HasEnded()
  // nothing is missing.
  std::string LastLine() const;
  std::string Output() const;
  // SIGHUP, SIGKILL; also wakes a stopped process, so that it can end.
  void Tell(int signal);
  // Somebody has stopped the process (SIGSTOP).
  bool IsStopped() const;

 private:
  ModelProcess(pid_t id, std::string label, UniqueFd out, UniqueFd err);
  Status BeginToRead();
  void ReadAll();
  void TakeLines(std::string& text, bool is_over);

  const pid_t id_;
  const std::string label_;
  const UniqueFd out_;
  const UniqueFd err_;
  bool has_ended_ = false;
  bool was_told_to_end_ = false;  // by a SIGKILL of Tell()
  int status_ = 0;
  std::atomic<bool> is_over_ = false;
  mutable std::mutex mutex_;
  std::string last_line_;
  std::string output_;
  std::thread reader_;  // last member: uses the others
};

}  // namespace moestro
