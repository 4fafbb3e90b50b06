// SPDX-License-Identifier: MIT
#include "offline/convert/switch_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/printable.h"
#include "offline/convert/folder_weights.h"
#include "offline/convert/sentencepiece.h"
#include "offline/convert/tokenizer_json.h"

namespace moestro {
namespace {

constexpr const char* kSentencePiece = "spiece.model";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr size_t kMostFile = 32 * kMiB;
constexpr size_t kMostValues = size_t{1} << 20U;
constexpr int64_t kUsualSentinels = 100;
constexpr float kUnusedScore = -1000.0F;  // llama.cpp's value

// Number of sentinels behind the pieces of spiece.model, which does not hold them.
Result<int64_t> Sentinels(const std::string& folder) {
  TRY(const auto config, ReadFolderJson(folder, "tokenizer_config.json", kMostFile, kMostValues));
  const auto count = config ? config->Find("extra_ids") : std::nullopt;
  if (!count) return kUsualSentinels;
  const auto number = count->integer();
  if (number && *number >= 0 && *number < static_cast<int64_t>(kMostPieces)) return *number;
  return Fail(Errc::kInvalidFile, "{}/tokenizer_config.json has 'extra_ids': {}, no number of them",
              folder, Printable(count->Dump(), 40));
}

Result<UnigramVocab> WithSentinels(UnigramVocab vocab, const std::string& folder) {
  TRY(const int64_t sentinels, Sentinels(folder));
  for (int64_t i = sentinels; i > 0; --i) {  // their numbers fall
    vocab.pieces.push_back({.text = Format("<extra_id_{}>", i - 1),
                            .score = kUnusedScore,
                            .kind = PieceKind::kUserDefined});
  }
  TRY_STATUS(CheckUnigram(vocab, Format("{}/{}", folder, kSentencePiece)));
  return vocab;
}

}  // namespace

Result<UnigramVocab> ReadSwitchTokenizer(const std::string& folder) {
  TRY(const auto bytes, ReadFolderText(folder, kSentencePiece, kMostFile));
  if (bytes) {
    TRY(UnigramVocab vocab, ParseSentencePiece(*bytes, Format("{}/{}", folder, kSentencePiece)));
    return WithSentinels(std::move(vocab), folder);
  }
  TRY(const auto json, ReadFolderJson(folder, kTokenizer, kMostFile, kMostValues));
  if (json) return ParseTokenizerJson(*json, Format("{}/{}", folder, kTokenizer));
  return Fail(Errc::kIo, "{} has no tokenizer: neither {} nor {}; fetch one of them", folder,
              kSentencePiece, kTokenizer);
}

Status FillRows(UnigramVocab& vocab, const SwitchConfig& config) {
  if (vocab.pieces.size() > config.vocab) {
    return Fail(Errc::kInvalidFile,
                "the tokenizer has {} pieces, the embedding {} rows; they are of two models",
                vocab.pieces.size(), config.vocab);
  }
  while (vocab.pieces.size() < config.vocab) {
    vocab.pieces.push_back({.text = Format("[PAD{}]", vocab.pieces.size()),
                            .score = kUnusedScore,
                            .kind = PieceKind::kUnused});
  }
  const Piece& end = vocab.pieces[config.eos_token];
  if (end.kind != PieceKind::kControl) {
    return Fail(Errc::kInvalidFile,
                "eos_token_id of config.json is {}, which is '{}' and no control token of the "
                "tokenizer",
                config.eos_token, Printable(end.text));
  }
  return CheckUnigram(vocab, "the tokenizer");
}

void SetTokenizerKeys(gguf_context* gguf, const UnigramVocab& vocab, const SwitchConfig& config) {
  std::vector<const char*> texts;
  std::vector<float> scores;
  std::vector<int32_t> kinds;
  for (const Piece& piece : vocab.pieces) {
    texts.push_back(piece.text.c_str());
    scores.push_back(piece.score);
    kinds.push_back(static_cast<int32_t>(piece.kind));
  }
  const auto unknown = std::ranges::find(vocab.pieces, PieceKind::kUnknown, &Piece::kind);
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "t5");
  gguf_set_val_str(gguf, "tokenizer.ggml.pre", "default");
  gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds.data(), kinds.size());
  gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", config.eos_token);
  gguf_set_val_u32(gguf, "tokenizer.ggml.padding_token_id", config.pad_token);
  gguf_set_val_u32(gguf, "tokenizer.ggml.unknown_token_id",
                   static_cast<uint32_t>(unknown - vocab.pieces.begin()));
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_space_prefix", vocab.adds_space_prefix);
  gguf_set_val_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", vocab.removes_extra_spaces);
  if (!vocab.charsmap.empty()) {
    gguf_set_arr_data(gguf, "tokenizer.ggml.precompiled_charsmap", GGUF_TYPE_UINT8,
                      vocab.charsmap.data(), vocab.charsmap.size());
  }
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", false);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_eos_token", true);
}

}  // namespace moestro
