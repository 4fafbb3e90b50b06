// SPDX-License-Identifier: MIT
// Any bytes as a trace and as JSON lines of routing: reading, summarising, replaying and learning
// from it must return.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "learned/learned_tables.h"
#include "learned/path_counter.h"
#include "sim/replay.h"
#include "tests/fuzz/memory_file_testing.h"
#include "trace/summary.h"
#include "trace/trace.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

// A refusal is an answer, too, of one line.
void Use(const Trace& trace) {
  const MoeShape& shape = trace.info().shape();
  PathCounter counter(shape);
  CountTrace(trace, trace.tokens(), counter);
  const auto paths = std::make_shared<const PathTable>(counter.Learn());
  for (const char* policy : {"next-use", "edgemoe", "belady"}) {
    for (const char* predictor : {"none", "paths", "next-router", "oracle"}) {
      const auto result = Replay(trace, {.slots = shape.experts() / 2 + 1,
                                         .policy = {.name = policy},
                                         .expert_bytes = 1000,
                                         .predictor = {.name = predictor, .paths = paths}});
      CHECK(result || !result.error().message.contains('\n'));
    }
  }
}

void Examine(const Result<Trace>& trace) {
  if (!trace) {
    CHECK(!trace.error().message.contains('\n'));
    return;
  }
  const TraceInfo& info = trace->info();
  for (size_t t = 0; t < trace->tokens(); ++t) {
    const ExpertLayers layers = trace->layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      for (const ExpertId e : trace->experts(t, l)) CHECK(e.value < info.shape().n_expert);
      for (const float w : trace->predicted_weights(t, l, 1)) CHECK(std::isfinite(w));
      if (info.little == 0) continue;
      for (const ExpertId e : trace->little_experts(t, l)) CHECK(e.value < info.shape().n_expert);
    }
  }
  // Its tables are of [expert][expert]: large ones would only be slow.
  if (info.shape().n_expert > 64 || info.shape().n_layer > 64) return;
  Describe(info, Summarise(*trace));
  Use(*trace);
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  moestro::Examine(moestro::ReadTrace(memory.FillSummed(data, size)));
  const std::string path = memory.Fill(moestro::AsText(data, size));
  moestro::Examine(moestro::ImportJsonl(path, std::nullopt));
  moestro::Examine(moestro::ImportJsonl(path, 16));
  return 0;
}
