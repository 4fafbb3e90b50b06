// SPDX-License-Identifier: MIT
// What an engine opens before it takes memory, and what its parts borrow: the files, what they
// hold, the processor, and the sizes that follow from these. A model that is opened has passed
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

#include "base/file_watch.h"
#include "base/result.h"
#include "core/batch.h"
#include "core/expert_catalog.h"
#include "decide/ahead/predictor.h"
#include "device/cpu_device.h"
#include "engine/engine_options.h"
#include "engine/plan/memory_plan.h"
#include "forward/experts/expert_exec.h"
#include "learned/policy_source.h"
#include "memory/layer_memory.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "native/plan/engine_plan.h"
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

  // Of the model and its low copies, as the catalog numbers them.
  std::vector<std::string> paths() const;
  // The reader's, as slots are planned for it.
  uint64_t planned_block() const { return std::max(reader->block(), kPlannedBlock); }
  // Steps are compared with exact ones now and then.
  bool checks() const { return options.check_every > 0 && !options.has_exact_experts(); }

  const ModelFile& model;
  const EngineOptions options;  // as they were asked for
  PolicySource policies;
  ExpertCatalog catalog;  // with the low copies
  MemoryShape remembers;  // what the layers do
  std::optional<LowCopies> low;
  LittleStep little;  // the first of two passes; off: there is one
  EnginePlan plan;
  PredictorChoice predictor;
  std::unique_ptr<CpuDevice> cpu;
  std::vector<FormKernels> kernels;  // by form
  std::unique_ptr<BlockReader> reader;
  FileWatch watch;  // over what the reader reads

 private:
  Status OpenLow();
  Status ChoosePasses();
  Status ChoosePredictor();
  Status OpenReaders();
};

}  // namespace moestro
