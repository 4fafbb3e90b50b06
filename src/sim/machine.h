// SPDX-License-Identifier: MIT
// A pretend disk and processor with a virtual clock. The disk has several reads at a time and
// serves one after the other. Demand reads go before speculative reads. Waiting reads are handed
// out between pieces of the experts' computation, but not during the dense part of a layer, as in
// the engine (store/read_queue.h); before that PumpAhead() does it. Disk and processor are slower
// while the other works. Devices are not part of the machine: their work is time that passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "core/machine.h"

namespace moestro {

class Machine {
 public:
  using Ticket = uint64_t;                      // of a read
  enum class Reads : uint8_t { kStay, kMove };  // whether waiting reads are handed out meanwhile

  explicit Machine(const MachineCosts& costs);

  double now() const { return now_; }
  double waited() const { return waited_; }          // of now(): seconds of waiting for the disk
  double bytes_read() const { return bytes_read_; }  // handed to the disk

  // Seconds of computation on an idle machine.
  void Compute(double seconds, Reads reads);
  // Lets this many seconds pass without computation. Reads go on.
  void Idle(double seconds);
  // Adds a read. Reads are in the order of the calls, urgent reads first. Pump() hands them out.
  // `setup`: seconds that the disk takes for the read beside its bytes.
  Ticket Read(double bytes, bool is_urgent, double setup = 0.0);
  void Promote(Ticket ticket);  // the read becomes urgent, behind other urgent reads
  // False: some or all of the read has been handed out.
  bool Cancel(Ticket ticket);
  void Pump();
  // Call before a dense part: hands out more than io_depth, until so many bytes are at the disk.
  void PumpAhead(double bytes);
  bool is_done(Ticket ticket) const { return !reads_.contains(ticket); }
  // The time at which the read was done; 0: before the last ForgetDone(). REQUIRES: the read is
  // done.
  double DoneAt(Ticket ticket) const;
  void ForgetDone() { done_at_.clear(); }
  // Waits until a read is done. REQUIRES: a read is not done.
  void Wait();
  double SecondsToRead(double bytes) const { return bytes * seconds_per_byte_; }

 private:
  struct Unfinished {
    double left = 0.0;       // bytes not handed out
    double part = 0.0;       // bytes handed out at a time
    double setup = 0.0;      // seconds, for the next part
    uint32_t under_way = 0;  // parts
    bool is_urgent = false;
  };
  struct Part {
    Ticket ticket = 0;
    double bytes = 0.0;
    double seconds = 0.0;  // left to serve the part
  };

  // Factors by which computing and reading are slower meanwhile.
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
  std::deque<Ticket> speculative_;  // not handed out completely, oldest first
  std::deque<Part> at_disk_;
  Ticket next_ = 0;
  double now_ = 0.0;
  double waited_ = 0.0;
  double bytes_read_ = 0.0;
};

}  // namespace moestro
