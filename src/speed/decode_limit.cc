// SPDX-License-Identifier: MIT
#include "speed/decode_limit.h"

#include <algorithm>
#include <utility>

namespace moestro {

uint64_t DecodeShape::Requests(const MoeShape& moe) const {
  const uint64_t layer = std::min<uint64_t>(copies * moe.n_expert, rows * moe.n_used);
  return steps * passes * moe.decode_layers().size() * layer;
}

uint64_t DecodeLimit::BytesFor(const MoeShape& moe, const DecodeShape& shape) {
  const uint64_t requests = shape.Requests(moe);
  if (requests > kMostRequests) return 0;
  return RequestLog::BytesFor(requests, shape.copies * moe.n_layer * uint64_t{moe.n_expert});
}

DecodeLimit::DecodeLimit(Engine& engine, const DecodeShape& shape)
    : engine_(engine), requests_(shape.Requests(engine.id().shape)) {
  if (requests_ > kMostRequests || !engine.memory().devices.empty()) return;
  for (SlotContents& start : engine.slot_contents()) {
    pools_.push_back({.log = RequestLog(requests_), .start = std::move(start), .asked = {}});
  }
  engine_.SetPlanObserver([this](const LayerPlan& plan) { See(plan); });
  is_watching_ = true;
}

Status DecodeLimit::Probe() {
  if (pools_.empty()) return {};
  TRY(const double rate, engine_.ProbeMemoryBandwidth());
  memory_.Add(rate);
  return {};
}

void DecodeLimit::Stop() {
  if (std::exchange(is_watching_, false)) engine_.SetPlanObserver({});
}

uint32_t DecodeLimit::NumberOf(ExpertKey key) const {
  const MoeShape& moe = engine_.id().shape;
  return (key.copy * moe.n_layer + key.layer.value) * moe.n_expert + key.expert.value;
}

void DecodeLimit::See(const LayerPlan& plan) {
  for (Pool& pool : pools_) pool.asked.clear();
  for (const PlannedExpert& expert : plan.experts) {
    pools_[engine_.place_of(expert.key).pool].asked.push_back(NumberOf(expert.key));
  }
  for (Pool& pool : pools_) pool.log.Add(pool.asked);
}

Result<Limit> DecodeLimit::Find(const RunReport& report) const {
  if (!report.memory.devices.empty()) {
    return Fail(Errc::kUnsupported, "{} computes, too, with memory of its own",
                report.memory.devices.front().info.name);
  }
  const bool is_known = std::ranges::all_of(pools_, &RequestLog::is_complete, &Pool::log);
  if (pools_.empty() || !is_known) {
    return Fail(Errc::kInvalidRequest,
                "its requests for experts are more than the {} that are noted; decode fewer tokens",
                std::min(requests_, kMostRequests));
  }
  const PhaseStats& decode = report.stats.decode;
  Limit limit{.touched_bytes = decode.touched_bytes,
              .memory_bandwidth = memory_,
              .disk_bandwidth = report.probes.disk_bandwidth};
  for (const Pool& pool : pools_) {
    if (pool.start.slots == 0) continue;  // no layer could have asked
    std::vector<uint32_t> present;
    for (const ExpertKey key : pool.start.experts) present.push_back(NumberOf(key));
    limit.fewest_bytes += pool.log.FewestReads(pool.start.slots, present) * pool.start.expert_bytes;
  }
  const auto count_in = [&](ProbedRate& rate, uint64_t bytes) {
    if (decode.seconds <= 0.0) return;
    rate.best = std::max(rate.best, static_cast<double>(bytes) / decode.seconds);
  };
  count_in(limit.memory_bandwidth, decode.touched_bytes);
  // Reads that a probe waited for count in no phase.
  count_in(limit.disk_bandwidth, std::max(decode.bytes_read, limit.fewest_bytes));
  return limit;
}

}  // namespace moestro
