// SPDX-License-Identifier: MIT
#include "api/embeddings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "api/body_fields.h"
#include "base/json.h"
#include "base/result.h"

namespace moestro {
namespace {

constexpr std::string_view kInputs =
    "a text, an array of texts, an array of tokens or arrays of tokens";

bool IsOfNumbers(JsonView array) {
  const std::optional<JsonView> first = array.At(0);
  return first && first->kind() == JsonKind::kNumber;
}

ApiResult<EmbedInput> ReadInput(EmbedApi api, JsonView value, const std::string& where,
                                uint32_t n_vocab) {
  if (value.kind() == JsonKind::kText) return EmbedInput(*value.text());
  if (api != EmbedApi::kOpenAi) return WrongValue(where, "a text", value);
  if (value.kind() != JsonKind::kArray) return WrongValue(where, kInputs, value);
  TRY(std::vector<Token> tokens, ReadTokenIds(value, where, n_vocab));
  return EmbedInput(std::move(tokens));
}

ApiResult<std::vector<EmbedInput>> ReadInputs(EmbedApi api, BodyFields& fields,
                                              const EmbedModel& model) {
  std::vector<EmbedInput> inputs;
  const std::optional<JsonView> value = fields.Find("input");
  if (!value || value->kind() == JsonKind::kNull) {
    if (api == EmbedApi::kOllama) return inputs;
    return BadRequest("input", Format("\"input\" is missing: {}", kInputs));
  }
  const bool is_one =
      value->kind() != JsonKind::kArray || (api == EmbedApi::kOpenAi && IsOfNumbers(*value));
  if (is_one) {
    TRY(EmbedInput input, ReadInput(api, *value, "input", model.n_vocab));
    inputs.push_back(std::move(input));
    return inputs;
  }
  if (value->size() > kMostEmbedInputs) {
    return BadRequest("input", Format("\"input\" has {} texts; a request may have {}",
                                      value->size(), kMostEmbedInputs));
  }
  inputs.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) {
    TRY(EmbedInput input, ReadInput(api, *value->At(i), fields.Name("input", i), model.n_vocab));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

bool IsEmpty(const EmbedInput& input) {
  return std::visit([](const auto& content) { return content.empty(); }, input);
}

// OpenAI refuses texts without content; Ollama takes a single one as the wish to load the model.
ApiStatus CheckEmpty(EmbedApi api, const BodyFields& fields, std::vector<EmbedInput>& inputs) {
  if (api != EmbedApi::kOpenAi) {
    if (inputs.size() == 1 && IsEmpty(inputs.front())) inputs.clear();
    return {};
  }
  if (inputs.empty()) return BadRequest("input", "\"input\" has no text; give at least one");
  const auto empty = std::ranges::find_if(inputs, IsEmpty);
  if (empty == inputs.end()) return {};
  const std::string name = fields.Name("input", static_cast<size_t>(empty - inputs.begin()));
  return BadRequest("input", Format("\"{}\" is empty; an embedding needs a text", name));
}

ApiStatus ReadEncoding(BodyFields& fields, EmbedRequest& request) {
  TRY(const auto format, fields.Text("encoding_format"));
  request.is_base64 = format == "base64";
  if (!format || request.is_base64 || *format == "float") return {};
  return WrongValue("encoding_format", "float or base64", *fields.Find("encoding_format"));
}

ApiStatus ReadDimensions(BodyFields& fields, const EmbedModel& model, EmbedRequest& request) {
  TRY(const auto dimensions, fields.Integer("dimensions", {.least = 1, .most = model.n_embd}));
  if (dimensions) request.dimensions = static_cast<uint32_t>(*dimensions);
  return {};
}

void AppendNumber(std::string& text, float value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text.append(digits.data(), end);
}

// The shortest numbers that are read as the same floats.
std::string ArrayOf(std::span<const float> values) {
  std::string text = "[";
  for (const float value : values) {
    if (text.size() > 1) text += ',';
    AppendNumber(text, value);
  }
  return text + "]";
}

// The values as little-endian floats in base64.
std::string Base64Of(std::span<const float> values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  bytes.reserve(values.size() * sizeof(float) + 2);
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (uint32_t shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<uint8_t>(bits >> shift));
    }
  }
  const size_t missing = (3 - bytes.size() % 3) % 3;
  bytes.resize(bytes.size() + missing);
  std::string text;
  text.reserve(bytes.size() / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const uint32_t group =
        (uint32_t{bytes[i]} << 16U) | (uint32_t{bytes[i + 1]} << 8U) | bytes[i + 2];
    for (uint32_t shift = 24; shift > 0; shift -= 6) text += kDigits[(group >> (shift - 6)) & 63U];
  }
  std::fill(text.end() - static_cast<ptrdiff_t>(missing), text.end(), '=');
  return text;
}

std::string OpenAiBody(const EmbedRequest& request, std::string_view model,
                       const Embeddings& embeddings) {
  std::string text = R"({"object":"list","data":[)";
  for (size_t i = 0; i < embeddings.texts(); ++i) {
    const std::span<const float> values = embeddings.of(i);
    if (i > 0) text += ',';
    text += Format(R"({{"object":"embedding","index":{},"embedding":)", i);
    text += request.is_base64 ? "\"" + Base64Of(values) + "\"" : ArrayOf(values);
    text += '}';
  }
  Json usage = Json::Object();
  usage.Set("prompt_tokens", embeddings.prompt_tokens)
      .Set("total_tokens", embeddings.prompt_tokens);
  text += Format(R"(],"model":{},"usage":{}}})", Json(model).view().Dump(), usage.Dump());
  return text;
}

std::string OllamaBody(std::string_view model, const Embeddings& embeddings) {
  constexpr double kNanoseconds = 1e9;
  std::string text = Format(R"({{"model":{},"embeddings":[)", Json(model).view().Dump());
  for (size_t i = 0; i < embeddings.texts(); ++i) {
    if (i > 0) text += ',';
    text += ArrayOf(embeddings.of(i));
  }
  text += Format(R"(],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                 static_cast<int64_t>(embeddings.seconds * kNanoseconds), embeddings.prompt_tokens);
  return text;
}

}  // namespace

ApiResult<EmbedRequest> ParseEmbedRequest(EmbedApi api, std::string_view body,
                                          const EmbedModel& model, const WorkLimit& limit) {
  TRY(const Json json, ParseBody(body, limit));
  TRY(BodyFields fields, BodyFields::Of(json.view(), ""));
  EmbedRequest request{.truncates = api != EmbedApi::kOpenAi};
  if (api == EmbedApi::kOllamaOne) {
    TRY(std::optional<std::string> prompt, fields.Text("prompt"));
    if (prompt && !prompt->empty()) request.inputs.emplace_back(*std::move(prompt));
    return request;
  }
  TRY(request.inputs, ReadInputs(api, fields, model));
  TRY_STATUS(CheckEmpty(api, fields, request.inputs));
  TRY_STATUS(ReadDimensions(fields, model, request));
  if (api == EmbedApi::kOpenAi) {
    TRY_STATUS(ReadEncoding(fields, request));
  } else {
    TRY(const auto truncates, fields.Boolean("truncate"));
    request.truncates = truncates.value_or(true);
  }
  if (request.inputs.size() * model.n_embd <= kMostEmbedValues) return request;
  return BadRequest("input",
                    Format("\"input\" has {} texts, whose vectors of {} values are more than a "
                           "reply may have; send at most {} at a time",
                           request.inputs.size(), model.n_embd, kMostEmbedValues / model.n_embd));
}

Embeddings Finished(EmbedApi api, const EmbedRequest& request, Embeddings embeddings) {
  if (api == EmbedApi::kOllamaOne) return embeddings;
  const uint32_t n = std::min(request.dimensions.value_or(embeddings.n), embeddings.n);
  std::vector<float>& values = embeddings.values;
  const size_t texts = embeddings.texts();
  for (size_t text = 0; text < texts; ++text) {
    const std::span<const float> kept = embeddings.of(text).first(n);
    double sum = 0.0;
    for (const float value : kept) sum += static_cast<double>(value) * value;
    const double length = sum > 0.0 ? std::sqrt(sum) : 1.0;
    // Vectors move to the front, if at all.
    std::ranges::transform(kept, values.begin() + static_cast<ptrdiff_t>(text * n),
                           [&](float value) { return static_cast<float>(value / length); });
  }
  values.resize(texts * n);
  embeddings.n = n;
  return embeddings;
}

std::string EmbeddingsBody(EmbedApi api, const EmbedRequest& request, std::string_view model,
                           const Embeddings& embeddings) {
  switch (api) {
    case EmbedApi::kOpenAi:
      return OpenAiBody(request, model, embeddings);
    case EmbedApi::kOllama:
      return OllamaBody(model, embeddings);
    case EmbedApi::kOllamaOne:
      break;
  }
  return Format(R"({{"embedding":{}}})", ArrayOf(embeddings.values));
}

}  // namespace moestro
