// SPDX-License-Identifier: MIT
// A pretend disk and processor with a virtual clock. The disk has some reads at a time and serves
// them one after the other; demand goes before speculation, and reads that wait are handed out
// between pieces of the experts' computation, but not while the dense part of a layer is computed,
// as the engine does (store/read_queue.h). Both are slower while the other works. What devices do
// beside both is not here: to the machine it is time that passes.
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
  // So many seconds in which the processor computes nothing. Reads go on.
  void Idle(double seconds);
  // Reads in the order of the calls, the urgent ones first. Nothing is handed out before Pump().
  // `setup`: seconds that the disk takes for it beside its bytes.
  Ticket Read(double bytes, bool is_urgent, double setup = 0.0);
  void Promote(Ticket ticket);  // becomes urgent, behind those that are
  // False: some of it has been handed out, or all.
  bool Cancel(Ticket ticket);
  void Pump();
  bool is_done(Ticket ticket) const { return !reads_.contains(ticket); }
  // When the read was done; 0: before the last ForgetDone(). REQUIRES: it is done.
  double DoneAt(Ticket ticket) const;
  void ForgetDone() { done_at_.clear(); }
  // Until some read is done. REQUIRES: one is not.
  void Wait();
  double SecondsToRead(double bytes) const { return bytes * seconds_per_byte_; }

 private:
  struct Unfinished {
    double left = 0.0;       // bytes not handed out
    double part = 0.0;       // bytes handed out at a time
    double setup = 0.0;      // seconds, of what is handed out next
    uint32_t under_way = 0;  // parts
    bool is_urgent = false;
  };
  struct Part {
    Ticket ticket = 0;
    double seconds = 0.0;  // left to serve it
  };

  // How many times as long computing and reading take meanwhile.
  struct Beside {
    double compute = 1.0;
    double read = 1.0;
  };
  void Pass(double seconds, Beside beside, Reads reads);
  bool HandOutFrom(std::deque<Ticket>& lane);
  void FinishFirst();

  MachineCosts costs_;
  double seconds_per_byte_;
  std::unordered_map<Ticket, Unfinished> reads_;
  std::unordered_map<Ticket, double> done_at_;
  std::deque<Ticket> urgent_;       // not handed out completely, oldest first
  std::deque<Ticket> speculative_;  // the same
  std::deque<Part> at_disk_;
  Ticket next_ = 0;
  double now_ = 0.0;
  double waited_ = 0.0;
  double bytes_read_ = 0.0;
};

}  // namespace moestro
