// SPDX-License-Identifier: MIT
#include "model/embedding_form.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/terminal.h"

namespace moestro {

std::string_view ToText(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone:
      return "none";
    case Pooling::kMean:
      return "mean";
    case Pooling::kCls:
      return "cls";
    case Pooling::kLast:
      return "last";
    case Pooling::kRank:
      return "rank";
  }
  return "none";
}

Result<EmbeddingForm> ReadEmbeddingForm(const GgufFile& file) {
  TRY(const std::optional<std::string> arch, file.FindString("general.architecture"));
  const std::string prefix = arch.value_or("") + ".";
  EmbeddingForm form;
  const std::string key = prefix + "pooling_type";
  TRY(std::optional<uint64_t> pooling, file.FindUint(key));
  constexpr uint64_t kUnspecified = UINT32_MAX;  // libllama's -1, which it saves in every file
  constexpr auto kMost = static_cast<uint64_t>(Pooling::kRank);
  if (pooling == kUnspecified) pooling.reset();
  if (pooling.value_or(0) > kMost) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, at most {} is known", file.paths().front(),
                Printable(key), *pooling, kMost);
  }
  form.pooling = static_cast<Pooling>(pooling.value_or(0));
  TRY(const std::optional<bool> is_causal, file.FindBool(prefix + "attention.causal"));
  form.is_causal = is_causal.value_or(true);
  TRY(const std::optional<uint64_t> out, file.FindUint(prefix + "embedding_length_out"));
  TRY(const std::optional<uint64_t> width, file.FindUint(prefix + "embedding_length"));
  form.n_embd =
      static_cast<uint32_t>(std::min<uint64_t>(out.value_or(width.value_or(0)), UINT32_MAX));
  return form;
}

std::string NoEmbeddingsText(Pooling pooling) {
  if (pooling == Pooling::kRank) {
    return "this model ranks pairs of texts (its file's pooling is 'rank') and gives no embeddings";
  }
  return "this model's file names no pooling (mean, cls or last), so it gives no embeddings; load "
         "a "
         "model for embeddings beside it";
}

}  // namespace moestro
