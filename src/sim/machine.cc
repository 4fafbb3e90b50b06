// SPDX-License-Identifier: MIT
#include "sim/machine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/result.h"
#include "decide/slots/first_experts.h"

namespace moestro {

Machine::Machine(const MachineCosts& costs)
    : costs_(costs), seconds_per_byte_(costs.bandwidth > 0.0 ? 1.0 / costs.bandwidth : 0.0) {}

void Machine::Compute(double seconds, Reads reads) {
  Pass(seconds, {.compute = costs_.compute_beside, .read = costs_.read_beside}, reads);
}

void Machine::Idle(double seconds) { Pass(seconds, {}, Reads::kMove); }

void Machine::Pass(double seconds, Beside beside, Reads reads) {
  if (reads == Reads::kMove) Pump();
  while (seconds > 0.0) {
    if (at_disk_.empty()) {
      now_ += seconds;
      return;
    }
    Part& part = at_disk_.front();
    const double compute_left = seconds * beside.compute;
    const double read_left = part.seconds * beside.read;
    const double passed = std::min(compute_left, read_left);
    now_ += passed;
    seconds = compute_left <= read_left ? 0.0 : seconds - passed / beside.compute;
    if (read_left > compute_left) {
      part.seconds -= passed / beside.read;
      continue;
    }
    FinishFirst();
    if (reads == Reads::kMove) Pump();
  }
}

Machine::Ticket Machine::Read(double bytes, bool is_urgent, double setup) {
  const double parts = std::max(1.0, std::ceil(bytes / costs_.max_read));
  reads_.emplace(
      next_,
      Unfinished{.left = bytes, .part = bytes / parts, .setup = setup, .is_urgent = is_urgent});
  (is_urgent ? urgent_ : speculative_).push_back(next_);
  return next_++;
}

void Machine::Promote(Ticket ticket) {
  const auto found = reads_.find(ticket);
  if (found == reads_.end() || found->second.is_urgent) return;
  found->second.is_urgent = true;
  if (std::erase(speculative_, ticket) > 0) urgent_.push_back(ticket);
}

bool Machine::Cancel(Ticket ticket) {
  const auto found = reads_.find(ticket);
  if (found == reads_.end() || found->second.left < found->second.part ||
      found->second.under_way > 0) {
    return false;
  }
  std::erase(found->second.is_urgent ? urgent_ : speculative_, ticket);
  reads_.erase(found);
  return true;
}

double Machine::DoneAt(Ticket ticket) const {
  const auto found = done_at_.find(ticket);
  return found != done_at_.end() ? found->second : 0.0;
}

void Machine::Pump() {
  while (at_disk_.size() < costs_.io_depth && (HandOutFrom(urgent_) || HandOutFrom(speculative_))) {
    while (!at_disk_.empty() && at_disk_.front().seconds <= 0.0) FinishFirst();
  }
}

void Machine::PumpAhead(double bytes) {
  Pump();
  double at_disk = 0.0;
  for (const Part& part : at_disk_) at_disk += part.bytes;
  while (at_disk < bytes && (HandOutFrom(urgent_) || HandOutFrom(speculative_))) {
    at_disk += at_disk_.back().bytes;
  }
}

void Machine::Wait() {
  CHECK(!reads_.empty());
  const size_t before = reads_.size();
  while (reads_.size() == before) {
    Pump();
    if (reads_.size() < before) return;
    now_ += at_disk_.front().seconds;
    waited_ += at_disk_.front().seconds;
    FinishFirst();
  }
  Pump();
}

// The next part; false if none waits.
bool Machine::HandOutFrom(std::deque<Ticket>& lane) {
  if (lane.empty()) return false;
  const Ticket ticket = lane.front();
  Unfinished& read = reads_.at(ticket);
  // A rest that rounding left over goes with the last part.
  const double bytes = read.left < 1.5 * read.part ? read.left : read.part;
  const double latency = at_disk_.empty() ? costs_.read_latency : 0.0;
  const double setup = std::exchange(read.setup, 0.0);
  at_disk_.push_back(
      {.ticket = ticket, .bytes = bytes, .seconds = latency + setup + bytes * seconds_per_byte_});
  read.left -= bytes;
  ++read.under_way;
  bytes_read_ += bytes;
  if (read.left <= 0.0) lane.pop_front();
  return true;
}

void Machine::FinishFirst() {
  const auto read = reads_.find(at_disk_.front().ticket);
  at_disk_.pop_front();
  if (--read->second.under_way > 0 || read->second.left > 0.0) return;
  done_at_.emplace(read->first, now_);
  reads_.erase(read);
}

std::vector<uint64_t> RequestsIn(const Trace& trace, size_t tokens) {
  const MoeShape& shape = trace.info().shape();
  std::vector<uint64_t> counts(shape.experts());
  for (size_t t = 0; t < std::min(tokens, trace.tokens()); ++t) {
    const ExpertLayers layers = trace.layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      for (const ExpertId e : trace.experts(t, l)) ++counts[l * shape.n_expert + e.value];
    }
  }
  return counts;
}

std::vector<ExpertKey> ByPopularity(const Trace& trace, size_t tokens) {
  return MostFirst(trace.info().shape(), RequestsIn(trace, tokens));
}

std::vector<ExpertKey> ByLayer(const MoeShape& shape) {
  std::vector<ExpertKey> keys = AllExperts(shape);
  std::ranges::stable_sort(keys, std::greater(), [](ExpertKey key) { return key.layer; });
  return keys;
}

}  // namespace moestro
