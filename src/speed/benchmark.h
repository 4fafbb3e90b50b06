// SPDX-License-Identifier: MIT
// Decodes for `bench`: rows side by side, joined runs, and the limit by a log of requests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "core/layer_plan.h"
#include "core/run_identity.h"
#include "engine/engine.h"
#include "engine/run_report.h"
#include "sim/limits.h"
#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/text_loop.h"
#include "text/text_request.h"

namespace moestro {

// A short name for the bits of logits.

// FNV-1a of the bits, as 16 hex digits: equal hashes mean bit-identical logits.
std::string HashLogits(std::span<const float> logits);

// Joins several runs of a benchmark into one.

// Every number becomes the median of the runs'; other values are those of the first run. A number
// that is the same in all runs keeps its type, so that counts stay integers.
// REQUIRES: runs are not empty and are objects with the same keys.
Json MediansOf(const std::vector<Json>& runs);

// Decodes for `bench`: sequences of random tokens, one row of each in a step; or one sequence with
// drafts.

struct SideBySideOptions {
  uint32_t sequences = 1;
  uint32_t depth = 0;    // positions of each with made-up keys and values, before the others
  uint32_t prefill = 0;  // tokens of each
  uint32_t decode = 0;   // tokens of each
  uint32_t seed = 0;
  DraftOptions draft = {};                // with one sequence only
  std::optional<double> acceptance = {};  // each draft is right with this probability
};

class SideBySide {
 public:
  // The engine must outlive this.
  SideBySide(Engine& engine, const SideBySideOptions& options);

  // Errors of all calls below: those of Engine::Step() and Engine::MakeUp().
  Status MakeUpDepth();  // before anything else
  Status Prefill();
  // Computes a step: the next token of each sequence, or the next of one with its draft. REQUIRES:
  // decoded() < SideBySideOptions::decode.
  Status Decode();
  uint32_t decoded() const;  // tokens of each sequence, by Decode()

  std::span<Sequence* const> sequences() const { return pointers_; }
  const std::string& hash() const { return hash_; }  // of the last row's last logits
  // Times of a token with drafts and without, so far; zeros without drafts.
  DraftControl::Figures draft_figures() const {
    return control_ ? control_->figures() : DraftControl::Figures();
  }

 private:
  Status DecodeDrafted();
  void BeginDrafts();

  SideBySideOptions options_;
  Engine& engine_;
  std::vector<std::vector<Token>> tokens_;
  std::vector<Sequence> sequences_;
  std::vector<Sequence*> pointers_;
  std::string hash_;
  // Members for runs with drafts: the decode but for its last token, as a text of known tokens.
  Clock clock_ = SteadySeconds;
  TextOptions known_;
  std::unique_ptr<TextReader> nobody_;
  std::shared_ptr<DraftControl> control_;  // null: no drafts
  std::optional<LoneText> drafted_;
};

// Logs a decode's requests for experts, and computes from them the speed with perfect kernels and a
// policy that reads the log ahead (Limit).
//
// Thread rule: the engine thread.

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
