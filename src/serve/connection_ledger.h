// SPDX-License-Identifier: MIT
// Which connections there are, what each waits for since when, and which one has to go: the
// server's rules against clients that are slow, on purpose or not. Behind a balancer all clients
// have one address, so the rules know time and bytes alone. Pure: the caller says what time it is
// and ends the connections that are named.
//
// A connection is somewhere in a circle: it is idle, sends a head, sends a body, is answered, is
// idle. Each part in which the server waits for the client has a time by which it must be over.
//
// Not shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace moestro {

struct ConnectionLimits {
  size_t most = 256;                // requests at a time
  size_t kept = 16;                 // connections beside these, so that the kept paths get in
  double head_seconds = 10.0;       // from a head's first byte, or the connection, to its end
  double idle_seconds = 65.0;       // from a reply to the next request; clients are told a bit less
  double start_seconds = 10.0;      // that a body may stand still at its beginning
  double patience = 30.0;           // that a body or a reply may ever stand still
  double bytes_per_second = 16384;  // of a body, and of a reply that fills what the kernel holds
  double linger_seconds = 1.0;      // for what a client still sends after a refusal
};

// A client's bytes against the clock. It may stand still for some time; a byte earns the time that
// it may take, so that a slow link passes and a pause of a fast one, too.
class Pace {
 public:
  // `now`: it begins, and may stand still for `start` seconds.
  Pace(const ConnectionLimits& limits, double start, double now);
  void Moved(size_t bytes, double now);
  // The client is not waited for until it goes on.
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

  // A connection has come. When all places are taken the oldest one without a complete head gives
  // way: `leaves`. nullopt: none can, the new one is to be closed.
  struct Arrival {
    Id id = 0;
    std::optional<Id> leaves = {};
  };
  std::optional<Arrival> Arrive(double now);
  // It is closed.
  void Gone(Id id) { entries_.erase(id); }

  void HeadBegins(Id id, double now);
  // It has sent a complete head; `is_kept`: of a path that the kept places are for. When there are
  // as many requests as may be, the slowest of those whose clients have been waited for for some
  // time gives way. `passes` false: none does, the request is to be refused.
  struct Verdict {
    bool passes = true;
    std::optional<Id> leaves = {};
  };
  Verdict HeadEnds(Id id, bool is_kept, double now);
  void BodyGrew(Id id, size_t bytes, double now);
  void BodyEnds(Id id, double now);
  // The kernel takes no more of the reply until the client has read some; it has taken so much.
  void ReplyWaits(Id id, double now);
  void ReplyGoesOn(Id id, size_t bytes, double now);
  // The reply has been sent, and the connection stays for another request, or until the client has
  // heard that it does not.
  void Rests(Id id, double now);
  void Lingers(Id id, double now);

  // Those whose time is over; they are named once.
  std::vector<Id> TakeLate(double now);
  // Named by TakeLate() or as one that leaves.
  bool must_go(Id id) const;
  // It sends a request, head or body.
  bool is_sending(Id id) const;
  // All that the server waits for, rather than they for it.
  std::vector<Id> waited_for() const;
  size_t size() const { return entries_.size(); }

 private:
  enum class Part : uint8_t { kIdle, kHead, kBody, kAnswer, kBlockedReply, kLinger };
  struct Entry {
    Part part = Part::kHead;
    double since = 0.0;  // this part's beginning
    std::optional<Pace> body = {};
    std::optional<Pace> reply = {};
    bool counts = false;  // among `most`
    bool must_go = false;
  };
  Entry* Find(Id id);
  static bool LacksHead(const Entry& entry);
  double DeadlineOf(const Entry& entry) const;
  std::optional<Id> SlowestRequest(double now) const;

  ConnectionLimits limits_;
  Id next_ = 1;
  std::map<Id, Entry> entries_;
};

}  // namespace moestro
