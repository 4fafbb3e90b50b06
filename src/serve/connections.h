// SPDX-License-Identifier: MIT
// A server's connections: a thread for each, so that a client that sends or reads slowly holds up
// no other client. Connections carries out the ledger's decisions: it shuts down the socket of a
// connection that has to go, which wakes the thread that waits for the socket.
//
// Thread rule: Connections: any thread, but Begin() and Finish() are one thread's. ClientSocket:
// the connection's thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/input_file.h"
#include "base/work_limit.h"
#include "serve/connection_ledger.h"

namespace moestro {

class ClientSocket;

class Connections {
 public:
  using Id = ConnectionLedger::Id;

  Connections(const ConnectionLimits& limits, Clock clock)
      : most_threads_(limits.most + limits.kept + kLeaving),
        clock_(std::move(clock)),
        ledger_(limits) {}

  // A connection has come: serves it in a new thread, and closes it then. A connection that gets no
  // place or no thread is closed at once.
  void Begin(UniqueFd socket, std::function<void(ClientSocket&)> serve);
  // Ends the server. No connection begins another request. Connections whose clients the server
  // waits for end at once, the others after a second. Waits for the threads.
  void Finish();
  // Ends connections whose time is over. Cheap; call it several times a second.
  void EndLate();

  double now() const { return clock_(); }
  bool is_finishing() const { return is_finishing_; }

 private:
  friend class ClientSocket;
  void BeginThread(UniqueFd socket, std::function<void(ClientSocket&)> serve);
  // Call before the socket is closed: its number may be another connection's at once.
  void Forget(Id id);
  // REQUIRES: mutex_ is held.
  void End(Id id) const;
  void ShutDown(Id id, int how) const;

  static constexpr size_t kLeaving = 64;  // threads that are about to end
  const size_t most_threads_;
  const Clock clock_;
  mutable std::mutex mutex_;
  ConnectionLedger ledger_;
  std::map<Id, int> sockets_;  // until they are closed
  std::atomic<bool> is_finishing_ = false;
  size_t threads_ = 0;
  std::condition_variable ended_;
};

// A client's connection as bytes.
class ClientSocket {
 public:
  // `connections` must outlive this.
  ClientSocket(UniqueFd socket, Connections::Id id, Connections& connections);
  // Takes what a client still sends, for a moment, and closes.
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  // Notes in the ledger what happens to the connection: Tell(&ConnectionLedger::BodyGrew, bytes).
  template <class Event, class... Args>
  void Tell(Event event, Args... args) {
    const std::lock_guard lock(connections_.mutex_);
    (connections_.ledger_.*event)(id_, args..., connections_.clock_());
  }
  // A complete head has come; see ConnectionLedger. False: the request is to be refused.
  bool HeadEnds(bool is_kept);
  // The connection has to go.
  bool is_late() const;

  // The bytes that have come and were not taken; waits for some. Empty: none come any more, or the
  // connection's time is over.
  std::string_view Peek();
  // REQUIRES: n <= Peek().size().
  void Take(size_t n) { begin_ += n; }
  // Waits until the kernel has taken all bytes. False: the client is gone, or reads too slowly.
  bool Write(std::string_view bytes);
  // The same without waiting. False also if the kernel has no room for all bytes; then the
  // connection has ended.
  bool WriteAtOnce(std::string_view bytes);
  // Whether the client has left. A client that has only ended its own side still waits for the
  // reply. The network shows the difference by its answer to `ignored`: bytes that a client skips
  // at this point. `ignored` empty: a client that has ended its side counts as gone.
  bool IsGone();
  void set_ignored(std::string_view ignored) {
    ignored_ = ignored;
    has_asked_ = false;
  }

 private:
  void Discard();

  const UniqueFd socket_;
  const Connections::Id id_;
  Connections& connections_;
  std::string_view ignored_;
  bool has_asked_ = false;  // `ignored_` has been sent
  size_t begin_ = 0;        // of the unread bytes
  size_t end_ = 0;
  std::array<char, size_t{16} << 10> bytes_;
};

}  // namespace moestro
