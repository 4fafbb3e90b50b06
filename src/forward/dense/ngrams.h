// SPDX-License-Identifier: MIT
// A layer's n-grams (NgramSpec): rows of a table on the disk, which the last tokens name, are taken
// into the residual streams of a row.
//
// Thread rule: functions and graphs on the engine thread; nodes run on all threads of the team.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "core/model_spec.h"
#include "forward/dense/blocks.h"
#include "forward/dense/step_rows.h"
#include "memory/layer_values.h"
#include "residency/table_rows.h"

namespace moestro {

// A row's result depends on its sequence's tokens alone, to the bit.
class Ngrams {
 public:
  // All must outlive the graphs.
  struct Parts {
    const ModelSpec& spec;
    const StateStore& states;
    TableRows& table;  // of values of `type`
    ggml_type type = GGML_TYPE_F32;
    StopSignal* stop = nullptr;  // null: no stop is requested
  };
  explicit Ngrams(const Parts& parts);
  Ngrams(const Ngrams&) = delete;
  Ngrams& operator=(const Ngrams&) = delete;

  // Asks for the rows of a step: their bytes come while other layers run. REQUIRES: StepRow::text
  // is set.
  void Begin(std::span<const StepRow> rows);
  void Pump() { parts_.table.Pump(); }
  // Waits for the rows' bytes, before the layer's graph runs. kIo.
  Status Finish() { return parts_.table.Finish(); }
  // The first rows, kept aside while others take their places.
  Result<std::vector<std::byte>> Take(size_t n_rows);
  void Give(std::span<const std::byte> rows) { parts_.table.Give(rows); }

  // Adds nodes: streams [n_streams * n_embd, rows] -> the same with n-grams taken in.
  ggml_tensor* Build(ggml_context* ctx, const LayerTensors& w, ggml_tensor* streams);
  // Sets the rows of the next run: the first one's number in its step, and their states.
  void Bind(const LayerTensors& w, uint32_t layer, uint32_t first,
            std::span<const RowState> states);
  uint64_t work_bytes() const { return taps_bytes(); }

 private:
  const NgramSpec& spec() const { return *parts_.spec.ngrams; }
  uint32_t n_streams() const { return parts_.spec.streams->n_streams; }
  uint32_t n_all() const { return parts_.spec.n_residual(); }
  uint64_t taps_bytes() const { return uint64_t{spec().n_taps} * n_all() * sizeof(float); }
  void SetTaps(const ggml_tensor* conv);
  ggml_tensor* Values(ggml_context* ctx, ggml_tensor* streams);
  ggml_tensor* Gated(ggml_context* ctx, const LayerTensors& w, std::span<ggml_tensor* const> in);
  ggml_tensor* Convolved(ggml_context* ctx, ggml_tensor* gated, ggml_tensor* streams);
  void GateStream(const ggml_tensor* result, int64_t row, uint32_t stream) const;
  void Work(ggml_tensor* result);
  void Convolve(const StateRun& run, uint32_t channel, uint32_t end, ggml_tensor* result) const;

  const Parts parts_;
  std::vector<uint64_t> asked_;  // scratch
  // Members that Bind() sets.
  std::vector<float> taps_;                   // [tap][n_all]
  const ggml_tensor* taps_are_of_ = nullptr;  // null: taps_ are not set
  uint32_t layer_ = 0;
  uint32_t first_ = 0;
  StateRows rows_;
  std::atomic<uint32_t> next_task_{0};  // (sequence, part of the channels)
};

}  // namespace moestro
