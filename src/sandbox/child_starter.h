// SPDX-License-Identifier: MIT
// Begins processes for strangers' work while the engine runs. A process of many GB and many threads
// cannot be forked well. So a small one is forked at the start, the spawner. It forks a helper,
// which does nothing but fork a child for each request. A helper that has died is replaced, and
// that is logged; children that run go on.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sandbox/message_socket.h"

namespace moestro {

class ChildStarter {
 public:
  struct Work {
    // Once in each helper, before it serves. Its process may die of it.
    std::function<void()> prepare = {};
    // In a child: answers the request. The process ends when this returns or throws.
    std::function<void(std::string_view request, MessageSocket answers)> serve;
    uint32_t most_children = 1;  // at a time, of one helper
    // For messages: what the children are of ("grammars"), what they are for ("try out grammars"),
    // what fails without them ("requests with a grammar").
    std::string what;
    std::string purpose;
    std::string what_fails;
  };

  // Forks: call it before the process has a second thread, and from a thread that lives as long as
  // the process does, since the spawner ends with that thread. What `work` refers to must outlive
  // this. kIo if there can be no child.
  static Result<std::unique_ptr<ChildStarter>> Start(Work work);
  ChildStarter(const ChildStarter&) = delete;
  ChildStarter& operator=(const ChildStarter&) = delete;
  ~ChildStarter();

  // A child for the request: what it answers comes through the socket, after an empty message that
  // says that it begins. While there are most_children it does not begin until one of them has
  // ended. If the socket closes before that message, the helper has died, and Begin() may be tried
  // again. kIo: helper and spawner are gone.
  Result<MessageSocket> Begin(std::string_view request);
  int spawner_id() const { return spawner_; }  // process numbers, for reports and tests
  int helper_id() const;

 private:
  ChildStarter(Work work, int spawner, MessageSocket socket);
  bool StartHelper();

  const Work work_;
  const int spawner_;
  mutable std::mutex mutex_;  // held while a child is told what to begin
  MessageSocket to_spawner_;  // under mutex_, and what follows
  MessageSocket to_helper_;   // closed: there is none
  int helper_ = -1;
  bool has_said_lost_ = false;
};

}  // namespace moestro
