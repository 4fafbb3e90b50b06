// SPDX-License-Identifier: MIT

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/mixer_report.h"
#include "commands/named_model.h"
#include "commands/plan_report.h"
#include "core/expert_catalog.h"
#include "engine/plan/memory_plan.h"
#include "load/open_engine.h"
#include "model/model_file.h"
#include "model/tensor_names.h"
#include "model/vocab.h"
#include "native/plan/engine_plan.h"
#include "native/plan/fit.h"

namespace moestro {

// `moestro inspect` of a model that the hosted engine runs: reads libllama's graph and no weight.

// Prints the model and the plan of the budget; as one object with --json. Errors: those of
// MeasureFixed(), and of the output.
Status InspectHosted(const ModelToLoad& model, const CommonOptions& options, Output& output);

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

namespace {

struct InspectOptions {
  CommonOptions common;
  std::string model;
  NamedModelOptions named;
};

struct TypeUse {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

struct Inspection {
  ModelSpec spec;
  std::vector<std::string> files;
  uint64_t file_bytes = 0;
  std::map<std::string, TypeUse> types;
  MemoryNeeds memory;
  uint64_t slices = 0;
  uint64_t aligned_slices = 0;  // start where a direct read may start
  std::string tokenizer;        // empty: none
  bool has_chat_template = false;
  KvType kv_type = KvType::kF16;
  uint64_t kv_bytes = 0;     // for ctx tokens
  uint64_t state_bytes = 0;  // of one sequence
  TypeUse vision;            // tensors of an image encoder, which are passed over
  TypeUse table;             // of n-grams, which stays on the disk
  std::vector<Fit> fits;
  std::vector<DeviceFit> device_fits;
};

// The fixed memory as the engine measures it; the estimate where this machine has no addresses for
// so much.
Result<FixedMemory> FixedOf(const ModelFile& model, const EngineOptions& options,
                            const FixedMemory& estimate) {
  EngineOptions native = options;
  native.engine = "native";
  Result<FixedMemory> measured = MeasureFixed(model.gguf.paths().front(), native);
  if (!measured && measured.error().code == Errc::kNoMemory) return estimate;
  return measured;
}

Result<Inspection> Inspect(const ModelFile& model, const EngineOptions& options) {
  const GgufFile& file = model.gguf;
  Inspection found;
  found.spec = model.spec;
  TRY(found.memory,
      MemoryNeeds::Of(model,
                      {.ctx = options.ctx, .chunk = options.chunk, .kv_type = options.kv_type}));
  found.kv_type = options.kv_type;
  found.files = file.paths();
  if (const TensorInfo* const table = model.weights.ngram_table; table != nullptr) {
    found.table = {.tensors = 1, .bytes = table->extent.length};
  }
  found.file_bytes = file.file_bytes();
  for (const TensorInfo& tensor : file.tensors()) {
    TypeUse& use = found.types[ggml_type_name(tensor.type)];
    use.tensors += 1;
    use.bytes += tensor.extent.length;
    if (!IsOfVision(tensor.name)) continue;
    found.vision.tensors += 1;
    found.vision.bytes += tensor.extent.length;
  }
  for (const ExpertCatalog::Layer& layer : found.memory.catalog.layers) {
    for (const std::vector<ExpertCopy>& copies : layer.experts) {
      for (const Extent& slice : copies.front().slices) {
        if (slice.length == 0) continue;
        ++found.slices;
        if (slice.offset % kPlannedBlock == 0) ++found.aligned_slices;
      }
    }
  }
  TRY(const auto tokenizer, file.FindString("tokenizer.ggml.model"));
  TRY(const auto chat_template, file.FindString("tokenizer.chat_template"));
  if (tokenizer && *tokenizer != "none") found.tokenizer = *tokenizer;
  found.has_chat_template = chat_template.has_value();
  MemoryNeeds& needs = found.memory;
  found.state_bytes = needs.remembers.state_bytes();
  found.kv_bytes = needs.fixed.kv - FewestStates(1) * found.state_bytes;
  TRY(needs.fixed, FixedOf(model, options, needs.fixed));
  found.device_fits = WhatFitsOnDevice(needs.catalog, found.spec, needs.fixed, needs.chunk);
  found.fits = WhatFits(needs.catalog, found.spec.router.n_used, needs.fixed, PlannedBlockHere());
  return found;
}

std::string Title(const Inspection& i) {
  return Visible(i.spec.name.empty() ? i.spec.arch_name
                                     : Format("{} ({})", i.spec.name, i.spec.arch_name));
}

// Layers with a feed-forward block instead of experts.
uint32_t DenseLayers(const ModelSpec& spec) {
  return static_cast<uint32_t>(std::ranges::count_if(spec.layers, [](const LayerSpec& layer) {
    return layer.feed_forward.n_ff_dense > 0 && !layer.feed_forward.has_experts();
  }));
}

std::string ShapeText(const Inspection& i) {
  const ModelSpec& s = i.spec;
  std::string text = Format("model      {}, {} in {} file{}\n", Title(i), FormatBytes(i.file_bytes),
                            i.files.size(), i.files.size() == 1 ? "" : "s");
  text += Format("layers     {}, width {}{}\n", s.n_layer(), s.n_embd, MixersText(s));
  if (s.streams) text += Format("streams    {} residual streams\n", s.streams->n_streams);
  text += Format("experts    {} per layer, {} used, hidden width {}", s.router.n_expert,
                 s.router.n_used, s.MostOf(&FeedForwardSpec::n_ff_expert));
  const uint32_t shared = s.MostOf(&FeedForwardSpec::n_ff_shared);
  const uint32_t dense = s.MostOf(&FeedForwardSpec::n_ff_dense);
  if (s.n_embd_expert() != s.n_embd) text += Format(" between {} values", s.n_embd_expert());
  if (shared > 0) text += Format("; shared expert of {}", shared);
  if (dense > 0 && DenseLayers(s) == 0) {
    text += Format("; a dense block of {} beside them", dense);
  } else if (dense > 0) {
    text += Format("; {} layers without experts, width {}", DenseLayers(s), dense);
  }
  if (const uint32_t n = s.n_token_layers(); n > 0) {
    text += Format("; in the first {}with experts a table names those of a token",
                   n == 1 ? "layer " : Format("{} layers ", n));
  }
  if (s.n_next_token_layers > 0) {
    const bool may_draft = FindFamily(Families(), s.arch_name)->can_predict;
    text += Format("; {} more for the next tokens, passed over{}", s.n_next_token_layers,
                   may_draft ? " but for --draft mtp" : "");
  }
  text += Format("\ncontext    {} trained; keys and values of {} tokens take {} in {}\n",
                 s.n_ctx_train, i.memory.ctx, FormatBytes(i.kv_bytes), NameOf(i.kv_type));
  if (i.state_bytes > 0) {
    text += Format(
        "states     {} for a text's layers with a state; {} of these for each text that runs, and "
        "one for each position that it can go back to\n",
        FormatBytes(i.state_bytes), FewestStates(1) - 1);
  }
  if (i.table.bytes > 0) {
    text +=
        Format("table      {} of n-grams on the disk; a token reads {} rows of {} bytes\n",
               FormatBytes(i.table.bytes), s.ngrams->n_heads(), i.table.bytes / s.ngrams->n_rows);
  }
  if (i.vision.tensors > 0) {
    text += Format("vision     {} tensors of an image encoder, {}, passed over\n", i.vision.tensors,
                   FormatBytes(i.vision.bytes));
  }
  text += Format("vocabulary {} tokens, tokenizer {}, chat template {}{}\n", s.n_vocab,
                 i.tokenizer.empty() ? "none" : Visible(i.tokenizer),
                 i.has_chat_template ? "yes" : "no",
                 s.tied_output ? ", output tied to embeddings" : "");
  return text;
}

// "gate 1 MiB, up 1 MiB, down 2 MiB" of an expert; matrices that are read together are named
// together.
std::string SlicesText(const PoolShape& pool) {
  constexpr std::array<std::string_view, kMatrices> kNames{"gate", "up", "down"};
  const bool is_fused = pool.slice_bytes[0] > 0 && pool.slice_bytes[1] == 0;
  std::string text;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (pool.slice_bytes[m] == 0) continue;
    if (!text.empty()) text += ", ";
    text += Format("{} {}", is_fused && m == 0 ? "gate and up" : kNames[m],
                   FormatBytes(pool.slice_bytes[m]));
  }
  return text;
}

std::string SizesText(const Inspection& i) {
  std::string text =
      Format("\nalways in memory  {}\nexperts           {}\n", FormatBytes(i.memory.dense_bytes),
             FormatBytes(i.memory.catalog.total_bytes()));
  for (const PoolShape& pool : i.memory.catalog.pools) {
    text += Format("  {:6} experts of {} ({})\n", pool.experts, FormatBytes(pool.expert_bytes()),
                   SlicesText(pool));
  }
  text += Format("  {} of {} slices start at a multiple of {} bytes\n", i.aligned_slices, i.slices,
                 kPlannedBlock);
  text += "\ntensor types\n";
  for (const auto& [type, use] : i.types) {
    text += Format("  {:8} {:5} tensors  {}\n", type, use.tensors, FormatBytes(use.bytes));
  }
  return text;
}

std::string FitsText(const Inspection& i) {
  std::string text = "\n--ram (about)   experts in memory\n";
  for (const Fit& fit : i.fits) {
    text += Format("  {:>10}    {:5.1f} %  ({} of {})\n", FormatBytes(fit.ram), 100.0 * fit.share(),
                   fit.slots, fit.experts);
  }
  text += "\n--vram (about)  experts on a device\n";
  for (const DeviceFit& fit : i.device_fits) {
    text += Format("  {:>10}    {:5.1f} %  ({} of {}){}\n", FormatBytes(fit.vram),
                   100.0 * static_cast<double>(fit.slots) / static_cast<double>(fit.experts),
                   fit.slots, fit.experts, fit.has_dense ? ", and the dense part" : "");
  }
  return text;
}

Json DeviceFitsAsJson(const Inspection& i) {
  Json fits = Json::Array();
  for (const DeviceFit& fit : i.device_fits) {
    Json entry = Json::Object();
    entry.Set("vram", fit.vram)
        .Set("slots", fit.slots)
        .Set("experts", fit.experts)
        .Set("dense", fit.has_dense);
    fits.Push(std::move(entry));
  }
  return fits;
}

Json ToJson(const InspectOptions& options, const Inspection& i) {
  const ModelSpec& s = i.spec;
  Json types = Json::Object();
  for (const auto& [type, use] : i.types) {
    Json entry = Json::Object();
    entry.Set("tensors", use.tensors).Set("bytes", use.bytes);
    types.Set(type, std::move(entry));
  }
  Json pools = Json::Array();
  for (const PoolShape& pool : i.memory.catalog.pools) {
    Json entry = Json::Object();
    entry.Set("experts", pool.experts)
        .Set("expert_bytes", pool.expert_bytes())
        .Set("gate_bytes", pool.slice_bytes[0])
        .Set("up_bytes", pool.slice_bytes[1])
        .Set("down_bytes", pool.slice_bytes[2]);
    pools.Push(std::move(entry));
  }
  Json fits = Json::Array();
  for (const Fit& fit : i.fits) fits.Push(FitAsJson(fit));
  Json files = Json::Array();
  for (const std::string& path : i.files) files.Push(path);
  const HeadSizes heads = HeadSizesOf(s);
  Json object = Json::Object();
  object.Set("model", options.model)
      .Set("files", std::move(files))
      .Set("file_bytes", i.file_bytes)
      .Set("architecture", s.arch_name)
      .Set("name", s.name)
      .Set("layers", s.n_layer())
      .Set("width", s.n_embd)
      .Set("mixers", MixersAsJson(s))
      .Set("heads", heads.n_head)
      .Set("heads_kv", heads.n_head_kv)
      .Set("head_dim", heads.head_dim)
      .Set("experts_per_layer", s.router.n_expert)
      .Set("experts_used", s.router.n_used)
      .Set("expert_width", s.MostOf(&FeedForwardSpec::n_ff_expert))
      .Set("expert_input_width", s.n_embd_expert())
      .Set("shared_expert_width", s.MostOf(&FeedForwardSpec::n_ff_shared))
      .Set("token_layers", s.n_token_layers())
      .Set("next_token_layers", s.n_next_token_layers)
      .Set("dense_layers", DenseLayers(s))
      .Set("dense_width", s.MostOf(&FeedForwardSpec::n_ff_dense))
      .Set("vocabulary", s.n_vocab)
      .Set("tied_output", s.tied_output)
      .Set("ctx_trained", s.n_ctx_train)
      .Set("ctx", i.memory.ctx)
      .Set("kv_type", std::string(NameOf(i.kv_type)))
      .Set("kv_bytes", i.kv_bytes)
      .Set("state_bytes", i.state_bytes)
      .Set("vision_bytes", i.vision.bytes)
      .Set("table_bytes", i.table.bytes)
      .Set("table_rows_per_token", s.ngrams ? s.ngrams->n_heads() : 0U)
      .Set("residual_streams", s.streams ? s.streams->n_streams : 1U)
      .Set("dense_bytes", i.memory.dense_bytes)
      .Set("expert_bytes", i.memory.catalog.total_bytes())
      .Set("pools", std::move(pools))
      .Set("slices", i.slices)
      .Set("aligned_slices", i.aligned_slices)
      .Set("tensor_types", std::move(types))
      .Set("tokenizer", i.tokenizer)
      .Set("chat_template", i.has_chat_template)
      .Set("smallest_budget", i.fits.empty() ? Json() : Json(i.fits.front().ram))
      .Set("fits", std::move(fits))
      .Set("device_fits", DeviceFitsAsJson(i));
  return object;
}

Status Run(InspectOptions& options) {
  options.named.is_run = false;
  TRY(options.model, FindNamedModel(options.model, options.named, options.common.engine));
  Output output(STDOUT_FILENO);
  TRY(const ModelToLoad model, ModelToLoad::Open(options.model, options.common.engine.engine));
  // Facts are printed before an error of the vocabulary, which a run would refuse.
  const Result<Vocab> text = Vocab::Load(model.gguf());
  if (!model.is_native()) {
    TRY_STATUS(InspectHosted(model, options.common, output));
  } else {
    TRY(const Inspection found, Inspect(model.native(), options.common.engine));
    const std::string facts = options.common.json
                                  ? ToJson(options, found).Dump() + "\n"
                                  : ShapeText(found) + SizesText(found) + FitsText(found);
    TRY_STATUS(output.Write(facts));
  }
  if (!text) return std::unexpected(text.error());
  return {};
}

}  // namespace

void AddInspect(CommandLine& line) {
  auto options = std::make_shared<InspectOptions>();
  Flags inspect =
      line.AddCommand(CommandNamed("inspect"), [options] { return ExitCode(Run(*options)); });
  inspect.Footer(
      "Reads the file's directory only. --json gives the same facts as one object. Example: "
      "moestro inspect model.gguf --ctx 8192");
  inspect.Add("MODEL", options->model, "GGUF file or owner/repo:QUANT").Required();
  AddNamedModelFlags(inspect, options->named);
  AddCommonFlags(inspect, options->common);
}

}  // namespace moestro
