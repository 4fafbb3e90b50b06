// SPDX-License-Identifier: MIT
#include "commands/hosted_inspection.h"

#include <string>

#include "base/bytes.h"
#include "base/format.h"
#include "base/json.h"
#include "base/visible.h"
#include "load/open_engine.h"

namespace moestro {

Status InspectHosted(const ModelToLoad& model, const CommonOptions& options, Output& output) {
  EngineOptions engine = options.engine;
  engine.engine = "hosted";
  const std::string& path = model.gguf().paths().front();
  TRY(const FixedMemory fixed, MeasureFixed(path, engine));
  TRY(const MemoryPlan plan, PlanEngine(path, engine));
  const MoeShape& shape = model.id().shape;
  if (options.json) {
    Json object = Json::Object();
    object.Set("architecture", model.arch_name())
        .Set("engine", "hosted")
        .Set("file_bytes", model.gguf().file_bytes())
        .Set("layers", shape.n_layer)
        .Set("experts_per_layer", shape.n_expert)
        .Set("experts_used", shape.n_used)
        .Set("context", model.n_ctx_train())
        .Set("vocabulary", model.n_vocab())
        .Set("experts", plan.n_experts)
        .Set("expert_bytes", plan.all_experts)
        .Set("dense_bytes", plan.dense)
        .Set("kv_bytes", plan.kv)
        .Set("work_bytes", plan.work)
        .Set("budget", plan.budget)
        .Set("slots", plan.n_slots)
        .Set("smallest_budget", fixed.smallest);
    return output.Write(object.Dump() + "\n");
  }
  std::string text =
      Format("model      {} ({}), {} in {} file{}\n", Visible(model.id().name),
             Visible(model.arch_name()), FormatBytes(model.gguf().file_bytes()),
             model.gguf().paths().size(), model.gguf().paths().size() == 1 ? "" : "s");
  text += Format("engine     hosted: libllama's forward pass on experts within the budget\n");
  text += Format("layers     {}; {} experts per layer, {} used\n", shape.n_layer, shape.n_expert,
                 shape.n_used);
  text +=
      Format("context    {} trained, vocabulary {} tokens\n", model.n_ctx_train(), model.n_vocab());
  text += Format("\nalways in memory  {}\nexperts           {} in {}\n", FormatBytes(plan.dense),
                 FormatBytes(plan.all_experts), plan.n_experts);
  text += Format("\nin {}: {} of {} experts have a place, cells and states take {}, work {}\n",
                 FormatBytes(plan.budget), plan.n_slots, plan.n_experts, FormatBytes(plan.kv),
                 FormatBytes(plan.work));
  text += Format("the smallest budget that works is --ram {}M\n", fixed.smallest / kMiB);
  return output.Write(text);
}

}  // namespace moestro
