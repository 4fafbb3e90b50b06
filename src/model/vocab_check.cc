// SPDX-License-Identifier: MIT
#include "model/vocab_check.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/format.h"
#include "base/printable.h"
#include "model/file_cursor.h"

namespace moestro {
namespace {

constexpr uint64_t kMaxTokens = uint64_t{1} << 20;
constexpr uint64_t kMaxTokenBytes = 64 * kKiB;
// libllama spells out bytes that it cannot decode and repeats the whole token each time, so memory
// grows with the square of a token's length. The largest published vocabularies stay below 100 MiB.
constexpr uint64_t kMaxSquaredBytes = 512 * kMiB;

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kCharacters = "tokenizer.ggml.precompiled_charsmap";
constexpr const char* kMerges = "tokenizer.ggml.merges";

Status CheckArray(const GgufFile& file, const std::string& key, gguf_type type,
                  uint64_t min_count) {
  const MetaValue* value = file.FindValue(key);
  if (value == nullptr) return {};
  if (!value->is_array || value->type != type || value->count < min_count) {
    return Fail(Errc::kInvalidFile, "{}: '{}' has {} values of type {}, expected an array of {} {}",
                file.paths().front(), key, value->count, gguf_type_name(value->type), min_count,
                gguf_type_name(type));
  }
  return {};
}

Status CheckTokenTexts(const GgufFile& file, const MetaValue& tokens) {
  TRY(FileCursor in, FileCursor::Open(file.paths().front()));
  TRY_STATUS(in.Skip(tokens.offset, "the vocabulary"));
  std::vector<std::pair<size_t, uint64_t>> hashes;  // hash of a token's text, with the token's id
  hashes.reserve(tokens.count);
  uint64_t squared_bytes = 0;
  for (uint64_t id = 0; id < tokens.count; ++id) {
    TRY(std::string text, in.ReadString(kMaxTokenBytes, "a token"));
    text.resize(std::min(text.find('\0'), text.size()));  // libllama reads C strings
    squared_bytes += text.size() * text.size();
    // libllama gives empty tokens a name with their id.
    const bool empty = text.empty();
    hashes.emplace_back(std::hash<std::string>{}(empty ? Format("[EMPTY_{}]", id) : text), id);
  }
  if (squared_bytes > kMaxSquaredBytes) {
    return Fail(Errc::kInvalidFile,
                "{}: the tokens of '{}' are far longer than in any real vocabulary",
                file.paths().front(), kTokens);
  }
  std::ranges::sort(hashes);
  const auto twin = std::ranges::adjacent_find(hashes, {}, &std::pair<size_t, uint64_t>::first);
  if (twin == hashes.end()) return {};
  return Fail(Errc::kInvalidFile, "{}: tokens {} and {} of '{}' are the same text",
              file.paths().front(), twin->second, std::next(twin)->second, kTokens);
}

// Checks T5's character map: bytes, of which the first four are the size of the rest.
Status CheckCharacterMap(const GgufFile& file) {
  const MetaValue* value = file.FindValue(kCharacters);
  if (value == nullptr) return {};
  const bool is_bytes = value->is_array && value->type == GGUF_TYPE_UINT8;
  if (is_bytes && value->count > sizeof(uint32_t)) return {};
  return Fail(Errc::kInvalidFile, "{}: '{}' has {} values of type {}, expected an array of bytes",
              file.paths().front(), kCharacters, value->count, gguf_type_name(value->type));
}

// A model without text may still name the number of its ids.
Status CheckNoText(const GgufFile& file) {
  TRY(const auto arch, file.FindString("general.architecture"));
  const std::string key = arch.value_or("") + ".vocab_size";
  TRY(const auto size, file.FindUint(key));
  if (size.value_or(0) <= kMaxTokens) return {};
  return Fail(Errc::kInvalidFile, "{}: {} is {}, at most {} make sense", file.paths().front(),
              Printable(key), *size, kMaxTokens);
}

}  // namespace

Status CheckTokenizer(const GgufFile& file) {
  const std::string& path = file.paths().front();
  TRY(const auto model, file.FindString("tokenizer.ggml.model"));
  if (!model) {
    return Fail(Errc::kInvalidFile,
                "{}: metadata 'tokenizer.ggml.model' is missing; convert the model again", path);
  }
  if (*model == "none" || *model == "no_vocab") return CheckNoText(file);
  // libllama reads rwkv's texts for ever where no token fits, and ends the process on bert's bytes.
  if (*model == "rwkv" || *model == "bert") {
    return Fail(Errc::kUnsupported, "{}: tokenizer '{}' is not supported", path, *model);
  }
  TRY(const auto pre, file.FindString("tokenizer.ggml.pre"));
  if (pre == "whitespace") {  // spaces stay in its pieces, and libllama's merging asserts on them
    return Fail(Errc::kUnsupported, "{}: pre-tokenizer 'whitespace' is not supported", path);
  }
  const MetaValue* tokens = file.FindValue(kTokens);
  if (tokens == nullptr || tokens->count == 0 || tokens->count > kMaxTokens) {
    return Fail(Errc::kInvalidFile, "{}: '{}' has {} tokens, expected 1 to {}", path, kTokens,
                tokens == nullptr ? 0 : tokens->count, kMaxTokens);
  }
  TRY_STATUS(CheckArray(file, kTokens, GGUF_TYPE_STRING, 1));
  TRY_STATUS(CheckArray(file, kScores, GGUF_TYPE_FLOAT32, tokens->count));
  TRY_STATUS(CheckArray(file, kTypes, GGUF_TYPE_INT32, tokens->count));
  TRY_STATUS(CheckArray(file, kMerges, GGUF_TYPE_STRING, 0));
  TRY_STATUS(CheckCharacterMap(file));
  return CheckTokenTexts(file, *tokens);
}

}  // namespace moestro
