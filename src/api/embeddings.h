// SPDX-License-Identifier: MIT
// Requests for embeddings and their replies, in the forms of OpenAI (/v1/embeddings) and Ollama
// (/api/embed, and the older /api/embeddings of one text).
//
// OpenAI's and /api/embed's vectors have length 1; the older path gives them as the model does.
// `dimensions` leaves the first so many values, which are scaled to length 1 again: right for
// models that were trained for that (Matryoshka), as OpenAI's and Ollama's servers do. A text that
// is too long is refused, but for Ollama's clients without "truncate": false.
//
// Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "base/work_limit.h"
#include "core/ids.h"

namespace moestro {

enum class EmbedApi : uint8_t { kOpenAi, kOllama, kOllamaOne };

// A client's text, or the tokens that a client made of one.
using EmbedInput = std::variant<std::string, std::vector<Token>>;

struct EmbedRequest {
  std::vector<EmbedInput> inputs = {};  // may be empty for Ollama's clients, which load a model so
  std::optional<uint32_t> dimensions = {};
  bool is_base64 = false;
  bool truncates = false;  // texts that are too long are cut at their end
};

// The model that a request is for.
struct EmbedModel {
  uint32_t n_vocab = 0;
  uint32_t n_embd = 0;
};

// Most texts of a request, and most values of a reply: 8 MiB before they are written as text.
constexpr size_t kMostEmbedInputs = 2048;
constexpr uint64_t kMostEmbedValues = uint64_t{1} << 20U;

// 400: the body is wrong, has too many texts, or wishes more dimensions than the model has.
ApiResult<EmbedRequest> ParseEmbedRequest(EmbedApi api, std::string_view body,
                                          const EmbedModel& model, const WorkLimit& limit = {});

// Embeddings one after another, [texts][n] values each.
struct Embeddings {
  std::vector<float> values = {};
  uint32_t n = 0;              // values of each
  uint64_t prompt_tokens = 0;  // of all texts
  double seconds = 0.0;        // that the request took

  std::span<const float> of(size_t text) const { return std::span(values).subspan(text * n, n); }
  size_t texts() const { return n > 0 ? values.size() / n : 0; }
};

// The embeddings as the reply has them: cut to the request's dimensions, of length 1 where the API
// has that. An embedding of zeros stays as it is.
Embeddings Finished(EmbedApi api, const EmbedRequest& request, Embeddings embeddings);
// The reply's body. `model`: the name that clients see. REQUIRES: for kOllamaOne at most one text.
std::string EmbeddingsBody(EmbedApi api, const EmbedRequest& request, std::string_view model,
                           const Embeddings& embeddings);

}  // namespace moestro
