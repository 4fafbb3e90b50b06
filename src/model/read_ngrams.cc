// SPDX-License-Identifier: MIT
#include "model/read_ngrams.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/read_layers.h"

namespace moestro {
namespace {

// Upper bounds that no real model comes near.
constexpr uint64_t kMostNgram = 8;
constexpr uint64_t kMostNgramHeads = 64;
constexpr uint64_t kMostRowValues = 65536;
constexpr uint64_t kMostNgramTaps = 64;
constexpr uint64_t kMostHistory = uint64_t{1} << 30;  // values
constexpr uint64_t kMostRows = uint64_t{1} << 40;

// The first `n` numbers of an array.
Result<std::vector<uint64_t>> FirstUints(const MetaKeys& keys, std::string_view key, uint64_t n) {
  const MetaValue* const array = keys.file().FindValue(keys.Full(key));
  if (array == nullptr || !array->is_array || array->count < n) {
    return Fail(Errc::kInvalidFile, "{}: '{}' is no array of at least {} numbers", keys.path(),
                keys.Full(key), n);
  }
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < n; ++i) {
    const std::optional<uint64_t> number = array->UintAt(i);
    if (!number) {
      return Fail(Errc::kInvalidFile, "{}: '{}' has an entry that is no whole number", keys.path(),
                  keys.Full(key));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

// The layer that takes in n-grams; nullopt: none does.
Result<std::optional<uint32_t>> FindNgramLayer(const MetaKeys& keys, const ModelSpec& spec) {
  constexpr std::string_view kKey = "ple.layers";
  TRY(const auto count, keys.file().FindArrayLength(keys.Full(kKey)));
  if (count.value_or(0) == 0) return std::nullopt;
  if (*count > 1) return RefuseKey(keys, kKey, *count, "several layers with n-grams");
  TRY(const auto layers, FirstUints(keys, kKey, 1));
  const uint64_t layer = layers.front();
  if (layer >= spec.n_layer() || spec.layers[layer].delta_net() == nullptr) {
    return Fail(Errc::kInvalidFile, "{}: {} names layer {}, which is no delta net", keys.path(),
                keys.Full(kKey), layer);
  }
  return static_cast<uint32_t>(layer);
}

Status ReadHash(const MetaKeys& keys, NgramSpec& ngrams) {
  TRY(ngrams.factors, FirstUints(keys, "ple.layer_multipliers", ngrams.n_most));
  const uint64_t n = uint64_t{ngrams.n_most - 1} * ngrams.heads_of_each;
  if (n > kMostNgramHeads) return RefuseKey(keys, "ple.heads_per_ngram", n, "so many n-grams");
  TRY(const auto firsts, FirstUints(keys, "ple.head_offsets", n));
  TRY(const auto counts, FirstUints(keys, "ple.head_vocab_sizes", n));
  for (uint64_t h = 0; h < n; ++h) {
    if (counts[h] == 0 || counts[h] > kMostRows || firsts[h] > kMostRows ||
        firsts[h] + counts[h] > ngrams.n_rows) {
      return Fail(Errc::kInvalidFile, "{}: {} gives head {} rows {} to {}, and the table has {}",
                  keys.path(), keys.Full("ple.head_offsets"), h, firsts[h], firsts[h] + counts[h],
                  ngrams.n_rows);
    }
    ngrams.heads.push_back({.first = firsts[h], .count = counts[h]});
  }
  return {};
}

}  // namespace

Status ReadNgrams(const MetaKeys& keys, ModelSpec& spec) {
  TRY(const auto layer, FindNgramLayer(keys, spec));
  if (!layer) return {};
  NgramSpec ngrams;
  TRY(ngrams.n_most, keys.Count("ple.ngram_size", {2, kMostNgram}));
  TRY(ngrams.heads_of_each, keys.Count("ple.heads_per_ngram", {1, kMostNgramHeads}));
  TRY(ngrams.n_taps, keys.Count("ple.conv_kernel", {2, kMostNgramTaps}));
  TRY(ngrams.n_values, keys.Count("embedding_length_per_layer_input", {1, kMostRowValues}));
  TRY(const uint32_t end, keys.Count("ple.eos_token_id", {0, spec.n_vocab - 1}));
  ngrams.end = static_cast<Token>(end);
  const TensorInfo* const table = keys.file().Find("per_layer_token_embd.weight");
  if (table == nullptr) {
    return Fail(Errc::kInvalidFile,
                "{}: tensor 'per_layer_token_embd.weight' is missing; convert the model again",
                keys.path());
  }
  ngrams.n_rows = static_cast<uint64_t>(table->ne[1]);
  TRY_STATUS(ReadHash(keys, ngrams));
  const uint64_t history = uint64_t{ngrams.n_history()} * spec.n_residual();
  if (history > kMostHistory) {
    return RefuseKey(keys, "ple.conv_kernel", ngrams.n_taps, "convolutions of such a length");
  }
  spec.layers[*layer].ngram_values = static_cast<uint32_t>(history);
  spec.ngrams = std::move(ngrams);
  return {};
}

}  // namespace moestro
