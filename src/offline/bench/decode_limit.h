// SPDX-License-Identifier: MIT
// Notes what a decode asks of its experts, to say in the end how fast it could have been with
// perfect kernels and a policy that knows the future (Limit).
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/layer_plan.h"
#include "core/model_id.h"
#include "engine/engine.h"
#include "engine/run_report.h"
#include "sim/request_log.h"

namespace moestro {

// What will be decoded, at most.
struct DecodeShape {
  uint64_t steps = 0;
  uint64_t passes = 1;  // of a step over the layers
  uint64_t rows = 1;    // of a pass
  uint64_t copies = 1;  // of an expert

  uint64_t Requests(const MoeShape& moe) const;
};

class DecodeLimit {
 public:
  // More requests for experts are not noted, and there is no limit then.
  static constexpr uint64_t kMostRequests = 2U << 20;
  // Of memory beside the engine's; for EngineOptions::caller_bytes.
  static uint64_t BytesFor(const MoeShape& moe, const DecodeShape& shape);

  // Begins with the slots as they are now; takes the engine's plan observer until Stop() or the
  // end. The engine must outlive it.
  DecodeLimit(Engine& engine, const DecodeShape& shape);
  ~DecodeLimit() { Stop(); }
  DecodeLimit(const DecodeLimit&) = delete;
  DecodeLimit& operator=(const DecodeLimit&) = delete;

  // Measures memory: before the decode, between its steps and after it. What
  // Engine::ProbeMemoryBandwidth() says.
  Status Probe();
  void Stop();
  // Of the decode that `report` tells of. No figure exceeds 100 %: what the decode itself read in
  // its time counts as a probe. kUnsupported: a device computes, too. kInvalidRequest: too many
  // requests.
  Result<Limit> Find(const RunReport& report) const;

 private:
  struct Pool {
    RequestLog log;
    SlotContents start;
    std::vector<uint32_t> asked;  // scratch of See()
  };
  void See(const LayerPlan& plan);
  uint32_t NumberOf(ExpertKey key) const;

  Engine& engine_;
  uint64_t requests_;  // at most
  bool is_watching_ = false;
  ProbedRate memory_;
  std::vector<Pool> pools_;
};

}  // namespace moestro
