// SPDX-License-Identifier: MIT
// A pretend disk and processor with a virtual clock. The disk has some reads at a time and serves
// them one after the other; demand goes before speculation, and reads that wait are handed out
// between pieces of the experts' computation, but not while the dense part of a layer is computed,
// as the engine does (store/read_queue.h). Both are slower while the other works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "core/machine_costs.h"

namespace moestro {

class Machine {
 public:
  using Ticket = uint64_t;                      // of a read
  enum class Reads : uint8_t { kStay, kMove };  // meanwhile: what waits is handed out or is not

  explicit Machine(const MachineCosts& costs);

  double now() const { return now_; }
  double waited() const { return waited_; }          // of this, for the disk
  double bytes_read() const { return bytes_read_; }  // handed to the disk

  // Seconds of computation on an idle machine.
  void Compute(double seconds, Reads reads);
  // Reads in the order of the calls, the urgent ones first. Nothing is handed out before Pump().
  Ticket Read(double bytes, bool is_urgent);
  void Promote(Ticket ticket);  // becomes urgent, behind those that are
  // False: some of it has been handed out, or all.
  bool Cancel(Ticket ticket);
  void Pump();
  bool is_done(Ticket ticket) const { return !reads_.contains(ticket); }
  // Until some read is done. REQUIRES: one is not.
  void Wait();
  double SecondsToRead(double bytes) const { return bytes * seconds_per_byte_; }

 private:
  struct Unfinished {
    double left = 0.0;       // bytes not handed out
    double part = 0.0;       // bytes handed out at a time
    uint32_t under_way = 0;  // parts
    bool is_urgent = false;
  };
  struct Part {
    Ticket ticket = 0;
    double seconds = 0.0;  // left to serve it
  };

  bool HandOutFrom(std::deque<Ticket>& lane);
  void FinishFirst();

  MachineCosts costs_;
  double seconds_per_byte_;
  std::unordered_map<Ticket, Unfinished> reads_;
  std::deque<Ticket> urgent_;       // not handed out completely, oldest first
  std::deque<Ticket> speculative_;  // the same
  std::deque<Part> at_disk_;
  Ticket next_ = 0;
  double now_ = 0.0;
  double waited_ = 0.0;
  double bytes_read_ = 0.0;
};

}  // namespace moestro
