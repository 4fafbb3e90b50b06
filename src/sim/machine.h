// SPDX-License-Identifier: MIT
// The pretend machine of a replay: disk and processor under a virtual clock, and the lanes of
// devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/machine.h"
#include "core/run_identity.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "trace/trace.h"

namespace moestro {

// A pretend disk and processor with a virtual clock. The disk has several reads at a time and
// serves one after the other. Demand reads go before speculative reads. Waiting reads are handed
// out between pieces of the experts' computation, but not during the dense part of a layer, as in
// the engine (store/read_queue.h); before that PumpAhead() does it. Disk and processor are slower
// while the other works. Devices are not part of the machine: their work is time that passes.

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

// A machine with lanes for a replay (replay.h): the costs of the CPU, the devices and their links,
// the experts on the devices at the start, and the result for a trace's experts. The disk is part
// of the replay.
//
// Pure. Thread rule: none.

struct LaneMachine {
  LatencyModel model = {};   // without devices everything runs on the CPU
  Cost dense = {};           // the dense part of a layer
  uint64_t dense_bytes = 0;  // of one layer
  PlaceMode mode = PlaceMode::kAuto;
  std::optional<Tiers> tiers = {};  // empty: TiersFor() the slots of memory
  // [device] The number of experts of each copy that the device holds; devices that are not listed
  // hold none.
  std::vector<uint64_t> device_slots = {};
  // [device] True: a device whose experts stay the same (a remote host): they are the device's
  // share by SharesOf(), from the start, and nothing is copied. Empty: of no device.
  std::vector<bool> is_settled = {};
  // Experts that get device slots at the start, in this order while slots are free. They leave in
  // the reverse order, and before any expert that decode has used on the device.
  std::vector<ExpertKey> first = {};
  // [layer][expert] Popularity of these experts, in any measure; empty: not known.
  std::vector<double> popularity = {};
  // Memory is also full at the start: with the next experts of `first`, then the others by layer,
  // then, in inclusive tiers, the experts on a device. With a settled device with the first of
  // `first` that no device has.
  bool fills_memory = false;
};

// Steps of one kind. Experts count once in each layer of a pass, however many rows they have.
struct LanePhase {
  uint64_t tokens = 0;
  uint64_t steps = 0;
  uint64_t experts = 0;
  // The places where experts were, the nearest first. An expert on its way to memory counts as in
  // memory.
  uint64_t in_device = 0;
  uint64_t in_memory = 0;
  uint64_t on_disk = 0;
  // The places where experts ran: on a device from a slot, on a device after a copy, on the CPU.
  uint64_t ran_there = 0;
  uint64_t copied = 0;
  uint64_t staged = 0;  // of the copied: experts read past memory's slots
  uint64_t on_host = 0;
  uint64_t promoted = 0;    // experts copied to a device for later
  uint64_t moved_back = 0;  // experts moved back to memory when others took their slots
  // Bytes of weights that went through each lane; for the disk also bytes read ahead.
  uint64_t device_bytes = 0;
  uint64_t copy_bytes = 0;
  uint64_t host_bytes = 0;
  uint64_t disk_bytes = 0;
  double seconds = 0.0;        // virtual seconds of all tokens
  double dense_seconds = 0.0;  // of `seconds`: the dense part
  LaneTimes lanes = {};        // when each lane had done its part, summed over layers
  // Each device's part of the numbers above.
  struct Device {
    uint64_t ran_there = 0;
    uint64_t copied = 0;
    uint64_t staged = 0;
    uint64_t promoted = 0;
    uint64_t moved_back = 0;
    uint64_t bytes = 0;
    uint64_t copy_bytes = 0;
  };
  std::vector<Device> devices = {};

  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
  }
};

struct LanesResult {
  LanePhase decode;   // steps with a decode row
  LanePhase prefill;  // steps of prompts alone
};

// Requests for experts, [layer][expert], in the first `tokens` tokens. For the popularity that is
// learned see decide/slots/first_experts.h.
std::vector<uint64_t> RequestsIn(const Trace& trace, size_t tokens);
// All experts, sorted by these requests, the most requested first; of equals the earlier layer is
// first.
std::vector<ExpertKey> ByPopularity(const Trace& trace, size_t tokens);
// All experts by layer, the last layer first: whole layers on the device, as in programs that place
// layers and not experts.
std::vector<ExpertKey> ByLayer(const MoeShape& shape);

}  // namespace moestro
