// SPDX-License-Identifier: MIT
// Begins processes for work for clients that are not trusted, while the engine runs. A process of
// many GB and many threads cannot be forked well. So a small one is forked at the start, the
// spawner. The spawner forks a helper, which does nothing but fork a child for each request. A
// helper that has died is replaced, and that is logged; children that run go on. A spawner that has
// died is replaced by the spawner of another process, which the owner has to start (Adopt()).
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
    // Called once in each helper, before it serves. May end the helper's process.
    std::function<void()> prepare = {};
    // In a child: answers the request. The process ends when this returns or throws.
    std::function<void(std::string_view request, MessageSocket answers)> serve;
    uint32_t most_children = 1;  // at a time, of one helper
    // Words for messages: what the children serve ("grammars"), their purpose ("try out grammars"),
    // what fails without them ("requests with a grammar").
    std::string what;
    std::string purpose;
    std::string what_fails;
  };

  // Forks: call it before the process has a second thread, and from a thread that lives as long as
  // the process does, since the spawner ends with that thread. References in `work` must outlive
  // this. kIo if no child can be started.
  static Result<std::unique_ptr<ChildStarter>> Start(Work work);
  ChildStarter(const ChildStarter&) = delete;
  ChildStarter& operator=(const ChildStarter&) = delete;
  ~ChildStarter();

  // Begins a child for the request. The socket carries an empty message when the child begins, and
  // then the child's answers. While most_children run, the child does not begin until one of them
  // has ended. If the socket closes before the empty message, the helper has died, and Begin() may
  // be tried again. kIo: helper and spawner are gone.
  Result<MessageSocket> Begin(std::string_view request);
  int spawner_id() const;  // process numbers, for reports and tests
  int helper_id() const;

  // The owner replaces a lost spawner: AwaitHelper() waits for that for `patience`, unless
  // `is_over` becomes true.
  void ExpectAdoption(std::chrono::milliseconds patience, std::function<bool()> is_over);
  // Waits until children can begin. Not for a thread on which others wait.
  void AwaitHelper();
  // AwaitHelper(), then Begin().
  Result<MessageSocket> AwaitAndBegin(std::string_view request);
  // A sentence about the missing processes; empty: children can begin. At once.
  std::string Missing() const;
  // Starts another helper if none runs. False: the spawner is gone.
  bool Mend();
  // Takes the spawner of a ChildStarter of the same work in another process, which must live as
  // long as the spawner is needed.
  void Adopt(MessageSocket to_spawner, int spawner);
  // For the process in Adopt(): gives its spawner away. Nothing can begin here any more.
  MessageSocket GiveSpawner();

 private:
  ChildStarter(Work work, int spawner, MessageSocket socket);
  bool StartHelper();
  bool ReplaceHelper();
  bool HasHelper() const { return to_helper_.is_open() && !to_helper_.is_abandoned(); }

  const Work work_;
  mutable std::mutex mutex_;  // held while a helper or spawner gets a request
  int spawner_;               // guarded by mutex_, as are the members below
  bool is_own_ = true;        // the spawner is this process's child, and serves this alone
  MessageSocket to_spawner_;
  MessageSocket to_helper_;  // not open: no helper
  int helper_ = -1;
  bool has_said_lost_ = false;
  std::chrono::milliseconds patience_{0};
  std::function<bool()> is_over_;
};

}  // namespace moestro
