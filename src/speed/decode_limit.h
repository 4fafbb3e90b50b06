// SPDX-License-Identifier: MIT
// Logs a decode's requests for experts, and computes from them the speed with perfect kernels and a
// policy that reads the log ahead (Limit).
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

// The most that will be decoded.
struct DecodeShape {
  uint64_t steps = 0;
  uint64_t passes = 1;  // of a step over the layers
  uint64_t rows = 1;    // of a pass
  uint64_t copies = 1;  // of an expert

  uint64_t Requests(const MoeShape& moe) const;
};

class DecodeLimit {
 public:
  // More requests for experts are not logged, and then Find() fails.
  static constexpr uint64_t kMostRequests = 2U << 20;
  // Bytes of memory beside the engine's; for EngineOptions::caller_bytes.
  static uint64_t BytesFor(const MoeShape& moe, const DecodeShape& shape);

  // Begins with the slots as they are now; takes the engine's plan observer until Stop() or the
  // end. The engine must outlive it.
  DecodeLimit(Engine& engine, const DecodeShape& shape);
  ~DecodeLimit() { Stop(); }
  DecodeLimit(const DecodeLimit&) = delete;
  DecodeLimit& operator=(const DecodeLimit&) = delete;

  // Measures memory: before the decode, between its steps and after it. Errors: those of
  // Engine::ProbeMemoryBandwidth().
  Status Probe();
  void Stop();
  // Limit of the decode that `report` describes. No figure exceeds 100 %, because the bytes that
  // the decode itself read in its time count as a probe. kUnsupported: a device computes, too.
  // kInvalidRequest: too many requests.
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
