// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <utility>

#include "api/parse_parts.h"
#include "base/text.h"

namespace moestro {
namespace {

struct NumberField {
  std::string_view key;
  float SamplingOptions::* field;
  FieldRange range;
};

struct IntegerField {
  std::string_view key;
  int32_t SamplingOptions::* field;
  IntegerRange range;
};

constexpr FieldRange kShare{.least = 0.0, .most = 1.0};
constexpr FieldRange kPenalty{.least = -2.0, .most = 2.0};
constexpr FieldRange kHundred{.least = 0.0, .most = 100.0};
// A sampler keeps as many tokens as its penalties reach back.
constexpr IntegerRange kLookBack{.least = -1, .most = 1 << 20};

constexpr NumberField kNumbers[] = {
    {"temperature", &SamplingOptions::temp, {.least = 0.0, .most = 2.0}},
    {"top_p", &SamplingOptions::top_p, kShare},
    {"min_p", &SamplingOptions::min_p, kShare},
    {"typical_p", &SamplingOptions::typical, kShare},
    {"top_n_sigma", &SamplingOptions::top_n_sigma, {.least = -100.0, .most = 100.0}},
    {"xtc_probability", &SamplingOptions::xtc_probability, kShare},
    {"xtc_threshold", &SamplingOptions::xtc_threshold, kShare},
    {"dynatemp_range", &SamplingOptions::dynatemp_range, kHundred},
    {"dynatemp_exponent", &SamplingOptions::dynatemp_exp, kHundred},
    {"repeat_penalty", &SamplingOptions::repeat_penalty, {.least = 0.01, .most = 100.0}},
    {"presence_penalty", &SamplingOptions::presence_penalty, kPenalty},
    {"frequency_penalty", &SamplingOptions::frequency_penalty, kPenalty},
    {"dry_multiplier", &SamplingOptions::dry_multiplier, kHundred},
    {"dry_base", &SamplingOptions::dry_base, kHundred},
    {"mirostat_tau", &SamplingOptions::mirostat_ent, kHundred},
    {"mirostat_eta", &SamplingOptions::mirostat_lr, kHundred},
};

constexpr IntegerField kIntegers[] = {
    {"top_k",
     &SamplingOptions::top_k,
     {.least = std::numeric_limits<int32_t>::min(), .most = std::numeric_limits<int32_t>::max()}},
    {"repeat_last_n", &SamplingOptions::repeat_last_n, kLookBack},
    {"dry_allowed_length", &SamplingOptions::dry_allowed_length, {.least = 0, .most = 1 << 20}},
    {"dry_penalty_last_n", &SamplingOptions::dry_penalty_last_n, kLookBack},
    {"mirostat", &SamplingOptions::mirostat, {.least = 0, .most = 2}},
};

// Each breaker is looked for in the whole vocabulary, each stop in all text.
constexpr size_t kMostBreakers = 16;
constexpr size_t kMostStops = 256;
constexpr size_t kLongestStop = 4096;
constexpr size_t kMostStopBytes = size_t{1} << 16;  // all together: a text keeps nine times as much
constexpr size_t kMostStopTokens = 64;
constexpr int64_t kMostAnswers = 128;  // OpenAI's limit
constexpr size_t kMostTexts = 256;     // answers to all prompts

// "15043": -100.
ApiStatus AddBias(std::string_view key, JsonView value, uint32_t n_vocab, ApiRequest& request) {
  uint32_t token = 0;
  const char* const begin = key.data();
  const char* const end = begin + key.size();
  const auto [rest, error] = std::from_chars(begin, end, token);
  if (error != std::errc() || rest != end || token >= n_vocab) {
    return BadRequest("logit_bias", Format("\"logit_bias\" has the key {}; keys must be ids of "
                                           "tokens, \"0\" to \"{}\"",
                                           ShownValue(Json(key).view()), n_vocab - 1));
  }
  const auto bias = value.number();
  if (!bias || *bias < -100.0 || *bias > 100.0)
    return WrongValue(Format("logit_bias.{}", token), "a number from -100 to 100", value);
  request.sampling.logit_bias.emplace_back(static_cast<Token>(token), static_cast<float>(*bias));
  return {};
}

ApiStatus ReadBiases(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  TRY(const auto biases, body.Object("logit_bias"));
  if (!biases) return {};
  for (const auto& [key, value] : biases->members())
    TRY_STATUS(AddBias(key, value, n_vocab, request));
  return {};
}

// Maps each of OpenAI's seeds of 64 bits to a seed of ours, always the same one.
ApiStatus ReadSeed(BodyFields& body, ApiRequest& request) {
  TRY(const auto seed, body.Integer("seed", {.least = std::numeric_limits<int64_t>::min()}));
  if (!seed || *seed == -1) return {};
  const auto bits = static_cast<uint64_t>(*seed);
  request.seed = static_cast<uint32_t>(bits ^ (bits >> 32));
  return {};
}

ApiResult<std::string> ReadMark(JsonView value, std::string where) {
  auto text = value.text();
  if (!text || text->size() > kLongestStop) {
    return WrongValue(std::move(where), Format("a string of at most {} bytes", kLongestStop),
                      value);
  }
  return *std::move(text);
}

ApiStatus ReadBreakers(BodyFields& body, ApiRequest& request) {
  TRY(const auto array, body.Array("dry_sequence_breakers"));
  if (!array) return {};
  if (array->size() > kMostBreakers) {
    return WrongValue("dry_sequence_breakers",
                      Format("an array of at most {} strings", kMostBreakers), *array);
  }
  request.sampling.dry_sequence_breakers.clear();
  for (size_t i = 0; i < array->size(); ++i) {
    TRY(std::string breaker, ReadMark(*array->At(i), body.Name("dry_sequence_breakers", i)));
    request.sampling.dry_sequence_breakers.push_back(std::move(breaker));
  }
  return {};
}

// Reads the fields that end a text, beside stop strings and max_tokens.
ApiStatus ReadEnds(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  constexpr IntegerRange kMilliseconds{.least = -1, .most = int64_t{1} << 40};
  TRY(const auto least, body.Integer("min_tokens", {.least = 0, .most = 1 << 30}));
  request.min_tokens = static_cast<uint32_t>(least.value_or(0));
  TRY(const auto tokens, body.Array("stop_token_ids"));
  if (tokens) {
    if (tokens->size() > kMostStopTokens) {
      return WrongValue("stop_token_ids", Format("an array of at most {} ids", kMostStopTokens),
                        *tokens);
    }
    TRY(request.stop_tokens, ReadTokenIds(*tokens, "stop_token_ids", n_vocab));
  }
  TRY(const auto all, body.Integer("timeout_ms", kMilliseconds));
  request.seconds = static_cast<double>(std::max<int64_t>(all.value_or(0), 0)) / 1e3;
  TRY(const auto writing, body.Integer("t_max_predict_ms", kMilliseconds));
  request.writing_seconds = static_cast<double>(std::max<int64_t>(writing.value_or(0), 0)) / 1e3;
  return {};
}

ApiStatus ReadServerFields(BodyFields& body, ApiRequest& request) {
  TRY(const auto ignore_eos, body.Boolean("ignore_eos"));
  request.sampling.ignore_eos = ignore_eos.value_or(false);
  TRY(const auto cache_prompt, body.Boolean("cache_prompt"));
  request.cache_prompt = cache_prompt.value_or(true);
  TRY(const auto progress, body.Boolean("return_progress"));
  request.return_progress = progress.value_or(false);
  TRY(const auto stream, body.Boolean("stream"));
  request.stream = stream.value_or(false);
  TRY(std::optional<std::string> model, body.Text("model"));
  request.model = std::move(model).value_or("");
  return {};
}

}  // namespace

ApiStatus ReadSampling(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  for (const NumberField& number : kNumbers) {
    TRY(const auto value, body.Number(number.key, number.range));
    if (value) request.sampling.*number.field = static_cast<float>(*value);
  }
  for (const IntegerField& integer : kIntegers) {
    TRY(const auto value, body.Integer(integer.key, integer.range));
    if (value) request.sampling.*integer.field = static_cast<int32_t>(*value);
  }
  TRY_STATUS(ReadSeed(body, request));
  TRY_STATUS(ReadBreakers(body, request));
  TRY_STATUS(ReadBiases(body, n_vocab, request));
  TRY_STATUS(ReadEnds(body, n_vocab, request));
  return ReadServerFields(body, request);
}

ApiStatus ReadMaxTokens(BodyFields& body, std::initializer_list<std::string_view> keys,
                        ApiRequest& request) {
  bool is_found = false;
  for (const std::string_view key : keys) {
    TRY(const auto value, body.Integer(key, {.least = -1}));
    if (!value || is_found) continue;
    request.max_tokens = *value;
    is_found = true;
  }
  return {};
}

ApiStatus ReadStops(BodyFields& body, std::string_view key, ApiRequest& request) {
  const auto value = body.Find(key);
  if (!value) return {};
  if (value->kind() == JsonKind::kText) {
    TRY(std::string stop, ReadMark(*value, body.Name(key)));
    if (!stop.empty()) request.stops.push_back(std::move(stop));
    return {};
  }
  if (value->kind() != JsonKind::kArray || value->size() > kMostStops) {
    return WrongValue(body.Name(key), Format("a string or an array of at most {}", kMostStops),
                      *value);
  }
  size_t bytes = 0;
  for (size_t i = 0; i < value->size(); ++i) {
    TRY(std::string stop, ReadMark(*value->At(i), body.Name(key, i)));
    bytes += stop.size();
    if (!stop.empty()) request.stops.push_back(std::move(stop));
  }
  if (bytes <= kMostStopBytes) return {};
  return BadRequest(body.Name(key), Format("\"{}\" has {} bytes; all its strings together may have "
                                           "{}",
                                           body.Name(key), bytes, kMostStopBytes));
}

ApiStatus ReadAnswers(BodyFields& body, size_t prompts, ApiRequest& request) {
  TRY(const auto n, body.Integer("n", {.least = 1, .most = kMostAnswers}));
  request.n = static_cast<uint32_t>(n.value_or(1));
  if (request.n > 1 && request.n * prompts > kMostTexts) {
    return WrongValue("n",
                      Format("at most {} for {} prompts: a request gets {} answers at most",
                             kMostTexts / prompts, prompts, kMostTexts),
                      *body.Find("n"));
  }
  return {};
}

}  // namespace moestro
