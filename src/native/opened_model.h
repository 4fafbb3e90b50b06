// SPDX-License-Identifier: MIT
// Holds what an engine opens before it takes memory: the files, their contents, the processor, and
// the sizes that follow from these. The engine's parts borrow from it. An opened model has passed
// every check that needs no memory.
//
// Thread rule: the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "compute/cpu_device.h"
#include "core/batch.h"
#include "core/expert_catalog.h"
#include "decide/ahead/predictors.h"
#include "engine/engine_options.h"
#include "engine/plan/memory_plan.h"
#include "forward/experts/expert_exec.h"
#include "learned/tunings.h"
#include "memory/layer_memory.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "native/plan/engine_plan.h"
#include "residency/table_rows.h"
#include "store/block_reader.h"

namespace moestro {

struct OpenedModel {
  // `model` must outlive this. kInvalidRequest, kUsage: options that exclude each other or that the
  // model does not allow; kIo; kInvalidFile; kUnsupported: a type without a kernel.
  static Result<std::unique_ptr<OpenedModel>> Open(const ModelFile& model,
                                                   const EngineOptions& options);
  OpenedModel(const ModelFile& file, const EngineOptions& asked) : model(file), options(asked) {}
  OpenedModel(const OpenedModel&) = delete;
  OpenedModel& operator=(const OpenedModel&) = delete;

  // Paths of the files of the model and its low copies, in the catalog's order.
  std::vector<std::string> paths() const;
  // Bytes of a block, for planning slots.
  uint64_t planned_block() const { return std::max(reader->block(), kPlannedBlock); }
  // Bytes of a sequence per position, and bytes beside the positions.
  uint64_t position_bytes() const;
  uint64_t state_bytes() const;
  // Sizes of the rows that the table of n-grams lends to a step; nullopt: the model has none.
  std::optional<TableRows::Sizes> TableSizes() const;
  // The type of the table's values; F32 without a table.
  ggml_type table_type() const;
  // Plans all sizes for another chunk than `options` give.
  Status PlanFor(uint32_t chunk);
  // Whether some steps are compared with exact steps.
  bool checks() const { return options.check_every > 0 && !options.has_exact_experts(); }

  const ModelFile& model;
  const EngineOptions options;  // options as requested
  PolicySource policies;
  ExpertCatalog catalog;  // includes the low copies
  MemoryShape remembers;  // sizes of the memory that layers keep of a sequence
  std::optional<LowCopies> low;
  LittleStep little;  // the first of two passes; off: one pass
  EnginePlan plan;
  PredictorChoice predictor;
  std::unique_ptr<CpuDevice> cpu;
  std::vector<FormKernels> kernels;  // by form
  std::unique_ptr<BlockReader> reader;
  std::unique_ptr<BlockReader> table_reader;  // null: the model has no table of n-grams
  FileWatch watch;                            // watches the files of the reader

 private:
  Status OpenLow();
  Status ChoosePasses();
  Status ChoosePredictor();
  Status OpenReaders();
};

}  // namespace moestro
