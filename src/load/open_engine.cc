// SPDX-License-Identifier: MIT
#include "load/open_engine.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "base/terminal.h"
#include "hosted/hosted_engine.h"
#include "memory/layer_memory.h"
#include "model/families/families.h"
#include "model/gguf_file.h"
#include "model/read_layers.h"
#include "native/native_engine.h"

namespace moestro {
namespace {

// Refuses models whose rows attend to later rows: such a row has other logits with those rows in
// the step than alone.
Status CheckCausal(const GgufFile& gguf, const std::string& arch, const EmbeddingForm& form) {
  if (form.is_causal) return {};
  const std::string remedy = form.gives_embeddings() ? "; 'moestro serve' gives its embeddings"
                             : form.pooling == Pooling::kRank
                                 ? "; " + NoEmbeddingsText(form.pooling)
                                 : "";
  return Fail(Errc::kUnsupported,
              "{}: {} is false: tokens see those that come after them, as in diffusion models and "
              "those that give embeddings, so no text can be written token by token{}",
              gguf.paths().front(), Printable(arch + ".attention.causal"), remedy);
}

HostedUse UseOf(const ModelToLoad& model) {
  return model.embeds() ? HostedUse::kEmbeddings : HostedUse::kText;
}

}  // namespace

Result<ModelToLoad> ModelToLoad::Open(const std::string& path, const std::string& engine, Use use,
                                      const OpenBytes& open) {
  if (engine != "auto" && engine != "native" && engine != "hosted") {
    return Fail(Errc::kUsage, "'{}' is no engine; write auto, native or hosted", engine);
  }
  TRY(GgufFile gguf, GgufFile::Open(path, open));
  TRY(const std::optional<std::string> arch, gguf.FindString("general.architecture"));
  ModelToLoad model;
  model.arch_name_ = arch.value_or("");
  TRY(model.embedding_form_, ReadEmbeddingForm(gguf));
  model.embeds_ = use == Use::kAny && model.embedding_form_.gives_embeddings();
  if (!model.embeds_) TRY_STATUS(CheckCausal(gguf, model.arch_name_, model.embedding_form_));
  if (model.embeds_ && engine == "native") {
    return Fail(Errc::kUnsupported,
                "{}: is a model for embeddings, which only the hosted engine computes; leave "
                "--engine out",
                gguf.paths().front());
  }
  const bool is_known = FindFamily(Families(), model.arch_name_) != nullptr;
  if (engine == "hosted" || model.embeds_ || (engine == "auto" && !is_known)) {
    model.hosted_ = std::move(gguf);
    TRY_STATUS(model.ReadHosted());
    return model;
  }
  Result<ModelFile> native = ModelFile::Of(gguf);
  if (!native && native.error().code == Errc::kUnsupported && engine == "auto") {
    // The family is known, but the file has a property that only libllama computes.
    LogInfo("{}: the hosted engine takes it", native.error().message);
    model.refusal_ = native.error().message;
    model.hosted_ = std::move(gguf);
    if (const Status read = model.ReadHosted(); !read) return Neither(read.error(), model.refusal_);
    return model;
  }
  TRY(model.native_, std::move(native));
  model.id_ = model.native_->id;
  model.n_vocab_ = model.native_->spec.n_vocab;
  model.n_ctx_train_ = model.native_->spec.n_ctx_train;
  return model;
}

std::unexpected<Error> ModelToLoad::Neither(const Error& hosted, const std::string& refusal) {
  if (refusal.empty()) return std::unexpected(hosted);
  return Fail(hosted.code, "{}; the native engine does not take it either: {}", hosted.message,
              refusal);
}

// Checks the number of layers that predict further tokens: too large a number would make libllama
// count below zero, or leave a layer out.
Status ModelToLoad::CheckNextTokens() const {
  const std::string key = arch_name_ + ".nextn_predict_layers";
  TRY(const auto next, hosted_->FindUniformUint(key));
  if (next.value_or(0) == 0) return {};
  if (*next < id_.shape.n_layer) {
    return CheckNextTokenLayers(
        *hosted_,
        {.first = id_.shape.n_layer - static_cast<uint32_t>(*next), .end = id_.shape.n_layer}, key);
  }
  return Fail(Errc::kInvalidFile, "{}: {} is {} of {} layers", id_.name, Printable(key), *next,
              id_.shape.n_layer);
}

// Checks the router's gating: one that libllama has no name for would end the process. Files of
// some families have none by habit.
Status ModelToLoad::CheckRouter() const {
  constexpr uint64_t kMostGating = 4;  // of libllama's numbers
  const std::string key = arch_name_ + ".expert_gating_func";
  TRY(const auto gating, hosted_->FindUniformUint(key));
  const Family* const family = FindFamily(Families(), arch_name_);
  const bool is_needed = family != nullptr && family->router.gating_key == Presence::kRequired;
  if (is_needed && gating.value_or(0) == 0) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                id_.name, Printable(key));
  }
  if (gating.value_or(0) <= kMostGating) return {};
  return Fail(Errc::kInvalidFile, "{}: {} is {}, at most {} is known", id_.name, Printable(key),
              *gating, kMostGating);
}

Status ModelToLoad::ReadHosted() {
  const auto find = [this](const char* key, uint64_t usual) -> Result<uint32_t> {
    // Layers may differ: then the usual value stands in.
    const auto found = hosted_->FindUniformUint(arch_name_ + key);
    if (!found && found.error().code != Errc::kUnsupported) return std::unexpected(found.error());
    const uint64_t value = found ? found->value_or(usual) : usual;
    return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
  };
  TRY(n_ctx_train_, find(".context_length", 4096));
  id_ = {.name = std::filesystem::path(hosted_->paths().front()).filename().string(),
         .fingerprint = Fingerprint(*hosted_),
         .shape = {}};
  TRY(id_.shape.n_layer, find(".block_count", 1));
  TRY_STATUS(CheckNextTokens());
  TRY_STATUS(CheckRouter());
  TRY(id_.shape.n_expert, find(".expert_count", 1));
  TRY(id_.shape.n_used, find(".expert_used_count", 1));
  TRY(const uint32_t groups, find(".expert_group_count", 0));
  TRY(const uint32_t groups_used, find(".expert_group_used_count", 0));
  // libllama would end the process.
  if (groups > 1 &&
      (id_.shape.n_expert % groups != 0 || groups_used < 1 || groups_used >= groups)) {
    return Fail(Errc::kInvalidFile, "{}: {} experts in {} groups, {} of them used, do not fit",
                id_.name, id_.shape.n_expert, groups, groups_used);
  }
  TRY(const std::optional<uint64_t> tokens, hosted_->FindArrayLength("tokenizer.ggml.tokens"));
  const TensorInfo* const embedding = hosted_->Find("token_embd.weight");
  const auto rows = embedding != nullptr ? static_cast<uint64_t>(embedding->ne[1]) : 0;
  n_vocab_ =
      static_cast<uint32_t>(std::min<uint64_t>(std::max(tokens.value_or(0), rows), UINT32_MAX));
  if (n_vocab_ > 0) return {};
  return Fail(Errc::kInvalidFile,
              "{}: neither a vocabulary nor an embedding says what its tokens are", id_.name);
}

Result<uint64_t> ModelToLoad::PositionBytes(KvType type) const {
  if (native_) {
    TRY(const MemoryShape remembers, MemoryShape::Of(native_->spec, type));
    return remembers.position_bytes();
  }
  const auto uint = [this](const std::string& key) -> Result<uint64_t> {
    const auto found = hosted_->FindUniformUint(arch_name_ + key);
    if (!found && found.error().code != Errc::kUnsupported) return std::unexpected(found.error());
    return found ? found->value_or(0) : 0;
  };
  TRY(const uint64_t width, uint(".embedding_length"));
  TRY(const uint64_t heads, uint(".attention.head_count"));
  TRY(const uint64_t kv_heads, uint(".attention.head_count_kv"));
  TRY(const uint64_t keys, uint(".attention.key_length"));
  TRY(const uint64_t values, uint(".attention.value_length"));
  const uint64_t head = heads > 0 ? width / heads : width;
  const uint64_t cell = (kv_heads > 0 ? kv_heads : std::max<uint64_t>(heads, 1)) *
                        ((keys > 0 ? keys : head) + (values > 0 ? values : head));
  return id_.shape.n_layer * KvBytes(type, cell / 32 * 32);
}

Status ModelToLoad::CheckDecodesAlone(std::string_view what) const {
  if (!native_ || !native_->spec.encoder) return {};
  return Fail(Errc::kUnsupported, "{}: {} takes no models with an encoder; 'moestro run' does",
              gguf().paths().front(), what);
}

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
  const HostedUse use = UseOf(model);
  auto hosted =
      HostedEngine::Open(std::move(model).TakeHosted(), options, std::move(progress), use);
  if (!hosted) return ModelToLoad::Neither(hosted.error(), refusal);
  return hosted;
}

Embedder* FindEmbedder(Engine& engine) {
  auto* const hosted = dynamic_cast<HostedEngine*>(&engine);
  return hosted != nullptr ? hosted->embedder() : nullptr;
}

Result<MemoryPlan> PlanEngine(const std::string& model_path, const EngineOptions& options,
                              ModelToLoad::Use use) {
  TRY(ModelToLoad model, ModelToLoad::Open(model_path, options.engine, use));
  if (model.is_native()) return NativeEngine::Plan(model_path, options);
  const std::string refusal = model.refusal();
  const HostedUse hosted_use = UseOf(model);
  auto plan = HostedEngine::Plan(std::move(model).TakeHosted(), options, hosted_use);
  if (!plan) return ModelToLoad::Neither(plan.error(), refusal);
  return plan;
}

Result<FixedMemory> MeasureFixed(const std::string& model_path, const EngineOptions& options,
                                 ModelToLoad::Use use) {
  constexpr uint64_t kPlenty = uint64_t{1} << 46;
  EngineOptions asked = options;
  asked.device.remote = {};
  if (asked.device.name == "auto") asked.device = {.name = "cpu"};
  asked.numa = "off";  // threads of a plan stay where they are
  asked.planned = {};
  asked.ram_bytes = kPlenty;
  asked.takes_smallest = true;
  TRY(const MemoryPlan least, PlanEngine(model_path, asked, use));
  asked.takes_smallest = false;
  const Result<MemoryPlan> whole = PlanEngine(model_path, asked, use);
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
