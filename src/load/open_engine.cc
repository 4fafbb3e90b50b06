// SPDX-License-Identifier: MIT
#include "load/open_engine.h"

#include <string>
#include <utility>

#include "hosted/hosted_engine.h"
#include "native/native_engine.h"

namespace moestro {

Result<std::unique_ptr<Engine>> OpenEngine(const std::string& model_path,
                                           const EngineOptions& options, Progress progress) {
  TRY(ModelToLoad model, ModelToLoad::Open(model_path, options.engine));
  return OpenEngine(std::move(model), options, std::move(progress));
}

Result<std::unique_ptr<Engine>> OpenEngine(ModelToLoad model, const EngineOptions& options,
                                           Progress progress) {
  if (model.is_native()) {
    return NativeEngine::Open(std::move(model).TakeNative(), options, std::move(progress));
  }
  const std::string refusal = model.refusal();
  auto hosted = HostedEngine::Open(std::move(model).TakeHosted(), options, std::move(progress));
  if (!hosted) return ModelToLoad::Neither(hosted.error(), refusal);
  return hosted;
}

Result<MemoryPlan> PlanEngine(const std::string& model_path, const EngineOptions& options) {
  TRY(ModelToLoad model, ModelToLoad::Open(model_path, options.engine));
  if (model.is_native()) return NativeEngine::Plan(model_path, options);
  const std::string refusal = model.refusal();
  auto plan = HostedEngine::Plan(std::move(model).TakeHosted(), options);
  if (!plan) return ModelToLoad::Neither(plan.error(), refusal);
  return plan;
}

Result<FixedMemory> MeasureFixed(const std::string& model_path, const EngineOptions& options) {
  constexpr uint64_t kPlenty = uint64_t{1} << 46;
  EngineOptions asked = options;
  asked.device.remote = {};
  if (asked.device.name == "auto") asked.device = {.name = "cpu"};
  asked.numa = "off";  // threads of a plan stay where they are
  asked.planned = {};
  asked.ram_bytes = kPlenty;
  asked.takes_smallest = true;
  TRY(const MemoryPlan least, PlanEngine(model_path, asked));
  asked.takes_smallest = false;
  const Result<MemoryPlan> whole = PlanEngine(model_path, asked);
  const MemoryPlan& usual = whole ? *whole : least;
  return FixedMemory{.dense = least.dense,
                     .kv = least.kv,
                     .work = usual.work,
                     .process = least.usual_process,
                     .staging = least.staging,
                     .least_work = least.work,
                     .smallest = least.smallest};
}

}  // namespace moestro
