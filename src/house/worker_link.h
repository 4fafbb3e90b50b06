// SPDX-License-Identifier: MIT
// A connection from the house to a model's process, for one request. While it waits it checks every
// tenth of a second whether the client has left. A process whose link is closed stops computing.
//
// Thread rule: WorkerLink: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/input_file.h"
#include "base/work_limit.h"
#include "house/passed_reply.h"

namespace moestro {

class WorkerLink {
 public:
  using IsGone = std::function<bool()>;  // the client has left
  enum class Outcome : uint8_t { kDone, kWorkerGone, kClientGone };

  // nullopt: nobody listens at the path.
  static std::optional<WorkerLink> Open(const std::string& path);

  Outcome Send(std::string_view bytes, const IsGone& is_gone);
  // Waits for the reply's next bytes and appends those of the body to `body`.
  Outcome Read(PassedReply& reply, std::string& body, const IsGone& is_gone);
  // The process has neither closed the connection nor sent anything.
  bool is_silent() const;

 private:
  explicit WorkerLink(UniqueFd socket) : socket_(std::move(socket)) {}
  Outcome Await(short events, const IsGone& is_gone) const;

  UniqueFd socket_;
};

// Links that wait for another request: a new one costs a process a thread. Any thread.
class LinkPool {
 public:
  explicit LinkPool(Clock clock = SteadySeconds) : clock_(std::move(clock)) {}

  // A link to the process at the path, a waiting one if there is one. nullopt: nobody listens.
  std::optional<WorkerLink> Take(const std::string& path);
  // REQUIRES: the last reply is over, and stays().
  void Give(const std::string& path, WorkerLink link);

 private:
  // A process promises to keep a silent connection for twice as long.
  static constexpr double kMostSeconds = 25.0;
  static constexpr size_t kMostLinks = 64;
  struct Waiting {
    std::string path;
    WorkerLink link;
    double since = 0.0;
  };

  const Clock clock_;
  std::mutex mutex_;
  std::deque<Waiting> waiting_;  // the oldest first
};

}  // namespace moestro
