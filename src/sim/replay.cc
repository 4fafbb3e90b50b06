// SPDX-License-Identifier: MIT
#include "sim/replay.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/belady.h"

namespace moestro {
namespace {

// One layer's misses arrive one after the other at the disk's bandwidth, while the processor
// computes what is there, then each late expert as it lands.
class Clock {
 public:
  Clock(const ReplayOptions& options, const TraceInfo& info, uint64_t expert_bytes)
      : dense_(options.compute_seconds * (1.0 - options.expert_share) / info.n_layer),
        expert_(options.compute_seconds * options.expert_share / info.n_layer / info.n_used),
        read_(options.bandwidth > 0.0 ? static_cast<double>(expert_bytes) / options.bandwidth
                                      : 0.0) {}

  void Layer(size_t hits, size_t misses) {
    seconds_ += dense_;
    double landed = seconds_;
    seconds_ += expert_ * static_cast<double>(hits);
    for (size_t i = 0; i < misses; ++i) {
      landed += read_;
      stall_ += std::max(0.0, landed - seconds_);
      seconds_ = std::max(seconds_, landed) + expert_;
    }
  }
  double seconds() const { return seconds_; }
  double stall() const { return stall_; }

 private:
  double dense_;
  double expert_;
  double read_;
  double seconds_ = 0.0;
  double stall_ = 0.0;
};

class Player {
 public:
  Player(const Trace& trace, SlotTable table, const ReplayOptions& options, uint64_t expert_bytes)
      : trace_(trace),
        info_(trace.info()),
        table_(std::move(table)),
        expert_bytes_(expert_bytes),
        clock_(options, trace.info(), expert_bytes),
        chunk_(std::max<size_t>(options.prefill_chunk, 1)),
        count_from_(options.count_from) {
    table_.SetObserver(options.observer);
  }

  ReplayResult Play() {
    for (size_t t = 0; t < trace_.tokens();) {
      if (t == 0 || trace_.starts_sequence(t)) table_.BeginSequence();
      if (trace_.phase(t) == Phase::kPrefill) {
        t += Prefill(t);
      } else {
        Decode(t);
        ++t;
      }
    }
    return result_;
  }

 private:
  // The tokens of one chunk: what is left of this prefill, at most chunk_.
  size_t Prefill(size_t first) {
    size_t n = 1;
    while (n < chunk_ && first + n < trace_.tokens() && !trace_.starts_sequence(first + n) &&
           trace_.phase(first + n) == Phase::kPrefill) {
      ++n;
    }
    for (uint32_t l = 0; l < info_.n_layer; ++l) {
      std::vector<bool> is_read(info_.n_expert);
      for (size_t t = first; t < first + n; ++t) {
        for (const ExpertId expert : trace_.experts(t, l)) {
          if (is_read[expert.value]) continue;
          is_read[expert.value] = true;
          Finish(*table_.Request(Key(l, expert), Use::kPrefill));
        }
      }
    }
    return n;
  }

  void Decode(size_t t) {
    const double before = clock_.seconds();
    const double stalled = clock_.stall();
    const TableStats stats = table_.stats();
    for (uint32_t l = 0; l < info_.n_layer; ++l) DecodeLayer(t, l);
    if (t < count_from_) return;
    const TableStats& now = table_.stats();
    ++result_.tokens;
    result_.requests += now.requests - stats.requests;
    result_.hits += now.hits - stats.hits;
    result_.misses += now.misses - stats.misses;
    result_.evictions += now.evictions - stats.evictions;
    result_.bytes += (now.misses - stats.misses) * expert_bytes_;
    result_.seconds += clock_.seconds() - before;
    result_.stall_seconds += clock_.stall() - stalled;
  }

  void DecodeLayer(size_t t, uint32_t layer) {
    std::vector<ExpertKey> keys;
    for (const ExpertId expert : trace_.experts(t, layer)) keys.push_back(Key(layer, expert));
    const auto absent = std::ranges::stable_partition(
        keys, [this](const ExpertKey& key) { return table_.contains(key); });
    clock_.Layer(keys.size() - absent.size(), absent.size());
    table_.BeginLayer(LayerId{static_cast<uint16_t>(layer)});
    std::vector<Placement> placements;
    for (const ExpertKey& key : keys) {
      const std::optional<Placement> placed = table_.Request(key, Use::kDecode);
      CHECK(placed.has_value());
      placements.push_back(*placed);
    }
    for (const Placement& placed : placements) Finish(placed);
  }

  void Finish(const Placement& placed) {
    if (placed.was == Placement::Was::kAbsent) table_.Landed(placed.slot);
    table_.Unpin(placed.slot);
  }
  static ExpertKey Key(uint32_t layer, ExpertId expert) {
    return {.layer = LayerId{static_cast<uint16_t>(layer)}, .expert = expert};
  }

  const Trace& trace_;
  const TraceInfo& info_;
  SlotTable table_;
  uint64_t expert_bytes_;
  Clock clock_;
  size_t chunk_;
  size_t count_from_;
  ReplayResult result_;
};

}  // namespace

Result<ReplayResult> Replay(const Trace& trace, const ReplayOptions& options) {
  const TraceInfo& info = trace.info();
  if (options.slots < info.n_used) {
    return Fail(Errc::kUsage, "{} slots do not hold the {} experts that a token uses in one layer",
                options.slots, info.n_used);
  }
  std::unique_ptr<Policy> policy;
  if (options.policy.name == "belady") {
    policy = std::make_unique<BeladyPolicy>(trace);
  } else {
    TRY(policy, MakePolicy(options.policy));
  }
  const PolicyShape shape{.slots = options.slots, .layers = info.n_layer, .experts = info.n_expert};
  const uint64_t bytes = options.expert_bytes > 0 ? options.expert_bytes : info.expert_bytes;
  return Player(trace, SlotTable(shape, std::move(policy)), options, bytes).Play();
}

}  // namespace moestro
