// SPDX-License-Identifier: MIT
// A server's connections, a thread for each. Connections carries out the ledger's decisions: it
// shuts down the socket of a connection that has to go, which wakes the thread that waits for the
// socket.
//
// httplib's own thread pool and time-outs do not do. A pool serves as many connections as it has
// threads, and the first silent clients hold all of them:
// SlowClientsTest.ThreeHundredWithoutACompleteHeadKeepNobodyOut.
//
// Thread rule: any thread; Begin() and Finish() are one thread's.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "serve/connection_ledger.h"

namespace moestro {

class Connections {
 public:
  using Id = ConnectionLedger::Id;

  Connections(const ConnectionLimits& limits, Clock clock)
      : most_threads_(limits.most + limits.kept + kLeaving),
        clock_(std::move(clock)),
        ledger_(limits) {}

  // A connection has come: does `work` in a new thread. False: the connection gets no place or no
  // thread.
  bool Begin(std::function<void()> work);
  // Ends the server. No connection begins another request. Connections whose clients the server
  // waits for end at once, the others after a second. Waits for the threads.
  void Finish();
  // In the connection's thread: names the connection's socket, which is open until Close().
  Id Open(int socket);
  // Shuts down and closes the connection's socket.
  void Close(Id id);

  // Ends connections whose time is over. Cheap; call it several times a second.
  void EndLate();

  double now() const { return clock_(); }

  // See ConnectionLedger.
  void HeadBegins(Id id) {
    With([&](double now) { ledger_.HeadBegins(id, now); });
  }
  bool HeadEnds(Id id, bool is_kept);
  void BodyGrew(Id id, size_t bytes) {
    With([&](double now) { ledger_.BodyGrew(id, bytes, now); });
  }
  void BodyEnds(Id id) {
    With([&](double now) { ledger_.BodyEnds(id, now); });
  }
  void ReplyWaits(Id id) {
    With([&](double now) { ledger_.ReplyWaits(id, now); });
  }
  void ReplyGoesOn(Id id, size_t bytes) {
    With([&](double now) { ledger_.ReplyGoesOn(id, bytes, now); });
  }
  // False: the server ends.
  bool Rests(Id id);
  void Lingers(Id id) {
    With([&](double now) { ledger_.Lingers(id, now); });
  }
  bool must_go(Id id) const {
    const std::lock_guard lock(mutex_);
    return ledger_.must_go(id);
  }
  // The status for a request without a whole head or body: 503 when the server ends, 408 when the
  // client was too slow, else 400.
  int StatusOfCut(Id id) const {
    const std::lock_guard lock(mutex_);
    if (is_finishing_) return 503;
    return ledger_.must_go(id) ? 408 : 400;
  }

 private:
  template <class Note>
  void With(const Note& note) {
    const std::lock_guard lock(mutex_);
    note(clock_());
  }
  bool BeginThread(std::function<void()> work);
  void Started(Id id);
  // REQUIRES: mutex_ is held.
  void End(Id id) const;
  void ShutDown(Id id, int how) const;

  static constexpr size_t kLeaving = 64;  // threads that are about to end
  const size_t most_threads_;
  const Clock clock_;
  mutable std::mutex mutex_;
  ConnectionLedger ledger_;
  std::map<std::thread::id, Id> ids_;  // the connection of a thread
  std::map<Id, int> sockets_;
  bool is_finishing_ = false;
  size_t threads_ = 0;
  std::condition_variable ended_;
};

}  // namespace moestro
