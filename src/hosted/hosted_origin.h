// SPDX-License-Identifier: MIT
// The origin of the hosted engine's keys, values and states: the model's weights, libllama, and the
// choices of the run.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "engine/engine.h"
#include "hosted/hosted_file.h"
#include "hosted/hosted_model.h"
#include "model/gguf_file.h"

namespace moestro {

class HostedOrigin {
 public:
  // Both must outlive this.
  HostedOrigin(const GgufFile& file, const HostedModel& model) : file_(file), model_(model) {}

  // Reads a sample of the experts the first time. kIo. REQUIRES: the dense tensors are loaded.
  Result<HostedHome> Home(const EngineFacts& facts, KvType kv_type);

 private:
  Result<uint64_t> Weights(uint64_t fingerprint);

  const GgufFile& file_;
  const HostedModel& model_;
  std::optional<uint64_t> weights_;
};

}  // namespace moestro
