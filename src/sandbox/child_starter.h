// SPDX-License-Identifier: MIT
// Begins processes for strangers' work while the engine runs. A process of many GB and many threads
// cannot be forked well. So a small one is forked at the start, the spawner. It forks a helper,
// which does nothing but fork a child for each request. A helper that has died is replaced, and
// that is logged; children that run go on. A spawner that has died is replaced by that of another
// process, which its owner has to start (Adopt()).
//
// Thread rule: any thread.
#pragma once

#include <chrono>
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
  int spawner_id() const;  // process numbers, for reports and tests
  int helper_id() const;

  // The owner of this sees to it that a lost spawner is replaced: AwaitHelper() waits for that for
  // `patience`, unless `is_over` becomes true.
  void ExpectAdoption(std::chrono::milliseconds patience, std::function<bool()> is_over);
  // Waits until children can begin. Not for a thread that others wait for.
  void AwaitHelper();
  // The same, then Begin().
  Result<MessageSocket> AwaitAndBegin(std::string_view request);
  // What is missing, as a sentence; empty: children can begin. At once.
  std::string Missing() const;
  // Starts another helper where there is none. False: the spawner is gone.
  bool Mend();
  // The spawner of a ChildStarter of the same work in another process, which lives as long as the
  // spawner shall.
  void Adopt(MessageSocket to_spawner, int spawner);
  // For that other process: gives its spawner away. Nothing can begin here any more.
  MessageSocket GiveSpawner();

 private:
  ChildStarter(Work work, int spawner, MessageSocket socket);
  bool StartHelper();
  bool ReplaceHelper();
  bool HasHelper() const { return to_helper_.is_open() && !to_helper_.is_abandoned(); }

  const Work work_;
  mutable std::mutex mutex_;  // held while a child is told what to begin
  int spawner_;               // under mutex_, and what follows
  bool is_own_ = true;        // the spawner is this process's child, and serves this alone
  MessageSocket to_spawner_;
  MessageSocket to_helper_;  // closed: there is none
  int helper_ = -1;
  bool has_said_lost_ = false;
  std::chrono::milliseconds patience_{0};
  std::function<bool()> is_over_;
};

}  // namespace moestro
