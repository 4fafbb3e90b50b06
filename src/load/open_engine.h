// SPDX-License-Identifier: MIT
// A model's file, opened for the engine that suits it, and that engine: the only code that depends
// on all engines.
//
// Thread rule: that of Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "core/run_identity.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "model/embedding_form.h"
#include "model/gguf_file.h"
#include "model/model_file.h"
#include "native/plan/fit.h"

namespace moestro {

// Opens a model with the engine that suits it: the only code that depends on all engines.

// A model's file, opened for the engine that will load it. Our own reader has checked the header
// before libllama reads the file.

class ModelToLoad {
 public:
  // The caller's use of the model. kAny: also a model for embeddings, which only the hosted engine
  // computes; embeds() is true then.
  enum class Use : uint8_t { kText, kAny };
  // engine: "auto" (the native one for families that it supports, unless the file has something
  // that only libllama computes; else the hosted one), "native" or "hosted". kUsage: another word.
  // `open`: see GgufFile::Open(). Errors: those of GgufFile::Open(), and for the native engine
  // those of ModelFile::Of(); where neither engine takes the file, Neither(). kUnsupported: tokens
  // attend to later ones, and the model does not embed.
  static Result<ModelToLoad> Open(const std::string& path, const std::string& engine = "auto",
                                  Use use = Use::kText, const OpenBytes& open = OpenFileBytes);

  const GgufFile& gguf() const { return native_ ? native_->gguf : *hosted_; }
  bool is_native() const { return native_.has_value(); }
  // Why the native engine does not take a file of a known family; empty: it was not tried.
  const std::string& refusal() const { return refusal_; }
  // Why the hosted engine does not take a file and, if it was tried first, the native one.
  static std::unexpected<Error> Neither(const Error& hosted, const std::string& refusal);
  // REQUIRES: is_native().
  const ModelFile& native() const { return *native_; }
  // REQUIRES: is_native() for TakeNative(), !is_native() for TakeHosted().
  ModelFile TakeNative() && { return *std::move(native_); }
  GgufFile TakeHosted() && { return *std::move(hosted_); }

  // kUnsupported: the model has an encoder, and `what` (named in the message) does not handle
  // sources.
  Status CheckDecodesAlone(std::string_view what) const;
  // nullopt: the model has no encoder, or is a hosted one.
  std::optional<EncoderSpec> encoder() const {
    return native_ ? native_->spec.encoder : std::nullopt;
  }
  // Facts that are known before an engine is open. The shape of a hosted model is that of the
  // metadata, which also counts layers without experts.
  const ModelId& id() const { return id_; }
  const std::string& arch_name() const { return arch_name_; }
  uint32_t n_vocab() const { return n_vocab_; }
  uint32_t n_ctx_train() const { return n_ctx_train_; }
  // The model was opened for any use, and is one for embeddings: its engine has an embedder.
  bool embeds() const { return embeds_; }
  const EmbeddingForm& embedding_form() const { return embedding_form_; }
  // Bytes that a position of a sequence takes in all layers; for a hosted model the most by its
  // metadata. kInvalidRequest: the type does not fit the model.
  Result<uint64_t> PositionBytes(KvType type) const;

 private:
  ModelToLoad() = default;
  Status ReadHosted();
  Status CheckNextTokens() const;
  Status CheckRouter() const;

  std::optional<ModelFile> native_;
  std::optional<GgufFile> hosted_;
  std::string refusal_;
  ModelId id_;
  std::string arch_name_;
  uint32_t n_vocab_ = 0;
  uint32_t n_ctx_train_ = 0;
  EmbeddingForm embedding_form_;
  bool embeds_ = false;
};

// Errors: those of ModelToLoad::Open(); kInvalidRequest when the budget is too small (names the
// smallest that works, broken down).
Result<std::unique_ptr<Engine>> OpenEngine(const std::string& model_path,
                                           const EngineOptions& options, Progress progress = {});
// Opens an engine on a file that is open already.
Result<std::unique_ptr<Engine>> OpenEngine(ModelToLoad model, const EngineOptions& options,
                                           Progress progress = {});
// The plan of the budget, without reading a weight. Errors: those of OpenEngine(), except kIo while
// reading.
Result<MemoryPlan> PlanEngine(const std::string& model_path, const EngineOptions& options,
                              ModelToLoad::Use use = ModelToLoad::Use::kText);
// nullptr: the engine writes texts.
Embedder* FindEmbedder(Engine& engine);

// The bytes that do not depend on the number of slots, as PlanEngine() finds them, with the
// smallest budget that works: for every command that evaluates and takes no more beside the engine
// than `run` does. Devices stay alone: where one is to be chosen, the CPU computes. kNoMemory: this
// machine has no addresses for so much. Other errors: those of PlanEngine().
Result<FixedMemory> MeasureFixed(const std::string& model_path, const EngineOptions& options,
                                 ModelToLoad::Use use = ModelToLoad::Use::kText);

}  // namespace moestro
