// SPDX-License-Identifier: MIT
#include "load/open_engine.h"

#include <utility>

#include "native/native_engine.h"

namespace moestro {

Result<std::unique_ptr<Engine>> OpenEngine(const std::string& model_path,
                                           const EngineOptions& options, Progress progress) {
  TRY(ModelFile model, ModelFile::Open(model_path));
  return OpenEngine(std::move(model), options, std::move(progress));
}

Result<std::unique_ptr<Engine>> OpenEngine(ModelFile model, const EngineOptions& options,
                                           Progress progress) {
  return NativeEngine::Open(std::move(model), options, std::move(progress));
}

Result<MemoryPlan> PlanEngine(const std::string& model_path, const EngineOptions& options) {
  return NativeEngine::Plan(model_path, options);
}

}  // namespace moestro
