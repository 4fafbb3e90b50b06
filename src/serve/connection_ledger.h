// SPDX-License-Identifier: MIT
// The server's rules against clients that are slow, on purpose or not: the list of connections,
// each connection's stage and since when, and the choice of connections that have to go. Behind a
// balancer all clients have one address, so the rules use time and bytes alone. Pure: the caller
// passes the time and ends the connections that are named.
//
// A connection goes in a circle: it is idle, sends a head, sends a body, is answered, is idle. Each
// stage in which the server waits for the client has a deadline.
//
// REQUIRES: an id is one of a connection that has come and is not gone. Not shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace moestro {

struct ConnectionLimits {
  size_t most = 256;                // requests at the same time
  size_t kept = 16;                 // more connections, so that requests of kept paths get in
  double head_seconds = 10.0;       // for a head, from its first byte or from the connection on
  double idle_seconds = 65.0;       // from a reply to the next request; clients are promised less
  double start_seconds = 10.0;      // longest standstill at a body's beginning
  double patience = 30.0;           // longest standstill of a body or a reply
  double bytes_per_second = 16384;  // least speed of a body, and of a reply that waits
  double linger_seconds = 1.0;      // for bytes that a client still sends after a refusal
};

// A client's bytes against the clock. A client may stand still for some time. Each byte earns the
// client more time, so that a slow link passes, and a pause of a fast link, too.
class Pace {
 public:
  // The bytes begin at `now`, and may stand still for `start` seconds.
  Pace(const ConnectionLimits& limits, double start, double now);
  void Moved(size_t bytes, double now);
  // The client is not waited for between Pause() and GoOn().
  void Pause(double now) { paused_ = now; }
  void GoOn(double now);

  double deadline() const { return deadline_; }
  double age(double now) const { return now - began_; }
  double bytes_per_second(double now) const;

 private:
  double each_;      // seconds for a byte
  double patience_;  // seconds
  double began_;
  double deadline_;
  double paused_ = 0.0;
  double bytes_ = 0.0;
};

class ConnectionLedger {
 public:
  using Id = uint64_t;

  explicit ConnectionLedger(const ConnectionLimits& limits) : limits_(limits) {}

  // A connection has come. When all places are taken, the oldest connection without a complete head
  // gives way: `leaves`. nullopt: no connection can give way, and the new one is to be closed.
  struct Arrival {
    Id id = 0;
    std::optional<Id> leaves = {};
  };
  std::optional<Arrival> Arrive(double now);
  // The connection is closed.
  void Gone(Id id) { entries_.erase(id); }

  void HeadBegins(Id id, double now);
  // The client has sent a complete head. `is_kept`: the kept places are for this path. When all
  // places for requests are taken, the slowest of the slow clients' requests gives way: `leaves`.
  // `passes` false: no request gives way, and this one is to be refused.
  struct Verdict {
    bool passes = true;
    std::optional<Id> leaves = {};
  };
  Verdict HeadEnds(Id id, bool is_kept, double now);
  void BodyGrew(Id id, size_t bytes, double now);
  void BodyEnds(Id id, double now);
  // The kernel takes no more of the reply until the client reads; `bytes` went before that.
  void ReplyWaits(Id id, double now);
  void ReplyGoesOn(Id id, size_t bytes, double now);
  // The reply has been sent. Rests(): the connection stays for another request. Lingers(): the
  // connection ends, and the client may still send.
  void Rests(Id id, double now);
  void Lingers(Id id, double now);

  // The connections whose time is over; each is in one list only.
  std::vector<Id> TakeLate(double now);
  // The connection was in TakeLate()'s list, or gave way to another.
  bool must_go(Id id) const;
  // The client sends a head or a body.
  bool is_sending(Id id) const;
  // The connections whose clients the server waits for.
  std::vector<Id> waited_for() const;
  size_t size() const { return entries_.size(); }

 private:
  enum class Stage : uint8_t { kIdle, kHead, kBody, kAnswer, kBlockedReply, kLinger };
  struct Entry {
    Stage stage = Stage::kHead;
    double since = 0.0;  // this stage's beginning
    std::optional<Pace> body = {};
    std::optional<Pace> reply = {};
    bool counts = false;  // among `most`
    bool must_go = false;
  };
  void Enter(Id id, Stage stage, double now);
  static bool LacksHead(const Entry& entry);
  double DeadlineOf(const Entry& entry) const;
  std::optional<Id> SlowestRequest(double now) const;

  ConnectionLimits limits_;
  Id next_ = 1;
  std::map<Id, Entry> entries_;
};

}  // namespace moestro
