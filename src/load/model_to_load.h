// SPDX-License-Identifier: MIT
// A model's file, opened for the engine that will load it. The header has been judged by our own
// reader before libllama sees the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "core/kv_type.h"
#include "core/model_id.h"
#include "model/gguf_file.h"
#include "model/model_file.h"

namespace moestro {

class ModelToLoad {
 public:
  // engine: "auto" (the native one for families that it knows, else the hosted one), "native" or
  // "hosted". kUsage: another word. Errors: what GgufFile::Open() says; for the native engine those
  // of ModelFile::Open().
  static Result<ModelToLoad> Open(const std::string& path, const std::string& engine = "auto");

  const GgufFile& gguf() const { return native_ ? native_->gguf : *hosted_; }
  bool is_native() const { return native_.has_value(); }
  // REQUIRES: it is_native(), or it is not.
  ModelFile TakeNative() && { return *std::move(native_); }
  GgufFile TakeHosted() && { return *std::move(hosted_); }

  // What is known before an engine is there. Of a hosted model the shape is as the metadata says:
  // layers without experts count, too.
  const ModelId& id() const { return id_; }
  const std::string& arch_name() const { return arch_name_; }
  uint32_t n_vocab() const { return n_vocab_; }
  uint32_t n_ctx_train() const { return n_ctx_train_; }
  // Bytes that a position of a sequence takes in all layers; of a hosted model by its metadata, at
  // most. kInvalidRequest: the type does not fit.
  Result<uint64_t> PositionBytes(KvType type) const;

 private:
  ModelToLoad() = default;
  Status ReadHosted();

  std::optional<ModelFile> native_;
  std::optional<GgufFile> hosted_;
  ModelId id_;
  std::string arch_name_;
  uint32_t n_vocab_ = 0;
  uint32_t n_ctx_train_ = 0;
};

}  // namespace moestro
