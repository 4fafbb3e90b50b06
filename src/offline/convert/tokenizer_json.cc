// SPDX-License-Identifier: MIT
#include "offline/convert/tokenizer_json.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/printable.h"

namespace moestro {
namespace {

constexpr std::string_view kSentinel = "<extra_id_";

std::string TextOf(JsonView value, std::string_view key) {
  const auto found = value.Find(key);
  return found ? found->text().value_or("") : "";
}

std::optional<uint32_t> SixBits(char c) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t at = kDigits.find(c);
  if (at == std::string_view::npos) return std::nullopt;
  return static_cast<uint32_t>(at);
}

// Decodes base64; nullopt: malformed.
std::optional<std::string> FromBase64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t held = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const auto digit = SixBits(c);
    if (!digit) return std::nullopt;
    held = (held << 6U | *digit) & 0xFFFFU;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(held >> bits));
  }
  return bytes;
}

// Steps of a kind in a normalizer or pre-tokenizer, which may be a sequence of them.
std::optional<JsonView> FindStep(std::optional<JsonView> steps, std::string_view list,
                                 std::string_view type) {
  if (!steps) return std::nullopt;
  if (TextOf(*steps, "type") == type) return steps;
  const auto inner = steps->Find(list);
  for (size_t i = 0; inner && i < inner->size(); ++i) {
    if (TextOf(*inner->At(i), "type") == type) return inner->At(i);
  }
  return std::nullopt;
}

class TokenizerReader {
 public:
  TokenizerReader(const Json& json, const std::string& file) : json_(json), file_(file) {}

  Result<UnigramVocab> Read() {
    TRY_STATUS(ReadModel());
    TRY_STATUS(ReadAdded());
    TRY_STATUS(ReadNormalizer());
    TRY_STATUS(CheckUnigram(vocab_, file_));
    return std::move(vocab_);
  }

 private:
  std::unexpected<Error> Bad(const std::string& what) const {
    return Fail(Errc::kInvalidFile, "{} {}; fetch it again", file_, what);
  }

  Status ReadModel() {
    const auto model = json_.Find("model");
    if (!model) return Bad("has no 'model'");
    if (const std::string type = TextOf(*model, "type"); type != "Unigram") {
      return Fail(Errc::kUnsupported, "{} has a model of type '{}'; Switch models have 'Unigram'",
                  file_, Printable(type));
    }
    const auto pieces = model->Find("vocab");
    if (!pieces || pieces->kind() != JsonKind::kArray || pieces->size() == 0 ||
        pieces->size() > kMostPieces) {
      return Bad("has no vocabulary");
    }
    for (size_t i = 0; i < pieces->size(); ++i) {
      const JsonView pair = *pieces->At(i);
      const auto text = pair.At(0) ? pair.At(0)->text() : std::nullopt;
      const auto score = pair.At(1) ? pair.At(1)->number() : std::nullopt;
      if (!text || !score) return Bad(Format("has no text and score at piece {}", i));
      const PieceKind kind = IsBytePiece(*text) ? PieceKind::kByte : PieceKind::kNormal;
      vocab_.pieces.push_back({*text, static_cast<float>(*score), kind});
    }
    const auto unknown = model->Find("unk_id");
    const auto id = unknown ? unknown->integer() : std::nullopt;
    if (!id || *id < 0 || static_cast<size_t>(*id) >= vocab_.pieces.size()) {
      return Bad("has no token for unknown text (unk_id)");
    }
    vocab_.pieces[static_cast<size_t>(*id)].kind = PieceKind::kUnknown;
    return {};
  }

  // Tokens beside the model's, most of them in its vocabulary, too.
  Status ReadAdded() {
    const auto added = json_.Find("added_tokens");
    for (size_t i = 0; added && i < added->size(); ++i) {
      const JsonView token = *added->At(i);
      const auto id = token.Find("id") ? token.Find("id")->integer() : std::nullopt;
      const std::string text = TextOf(token, "content");
      if (!id || *id < 0 || static_cast<size_t>(*id) > vocab_.pieces.size() ||
          vocab_.pieces.size() == kMostPieces) {
        return Bad(Format("has an added token '{}' without a fitting id", Printable(text)));
      }
      const auto at = static_cast<size_t>(*id);
      if (at == vocab_.pieces.size()) vocab_.pieces.push_back({.text = text});
      Piece& piece = vocab_.pieces[at];
      if (piece.text != text) {
        return Bad(Format("has the token '{}' in the place of '{}'", Printable(text),
                          Printable(piece.text)));
      }
      if (piece.kind == PieceKind::kUnknown) continue;
      const auto special = token.Find("special");
      const bool is_control =
          special && special->boolean().value_or(false) && !text.starts_with(kSentinel);
      piece.kind = is_control ? PieceKind::kControl : PieceKind::kUserDefined;
    }
    return {};
  }

  Status ReadNormalizer() {
    const auto normalizer = json_.Find("normalizer");
    if (const auto table = FindStep(normalizer, "normalizers", "Precompiled")) {
      auto bytes = FromBase64(TextOf(*table, "precompiled_charsmap"));
      if (!bytes) return Bad("has a precompiled_charsmap that is no base64");
      vocab_.charsmap = *std::move(bytes);
    }
    const auto before = json_.Find("pre_tokenizer");
    vocab_.removes_extra_spaces =
        FindStep(before, "pretokenizers", "WhitespaceSplit").has_value() ||
        FindStep(normalizer, "normalizers", "Replace").has_value();
    const auto spaces = FindStep(before, "pretokenizers", "Metaspace");
    if (!spaces) return Bad("has no pre-tokenizer 'Metaspace'");
    const auto prefix = spaces->Find("add_prefix_space");
    vocab_.adds_space_prefix = TextOf(*spaces, "prepend_scheme") != "never" &&
                               (!prefix || prefix->boolean().value_or(true));
    return {};
  }

  const Json& json_;
  const std::string& file_;
  UnigramVocab vocab_;
};

}  // namespace

Result<UnigramVocab> ParseTokenizerJson(const Json& json, const std::string& file) {
  return TokenizerReader(json, file).Read();
}

}  // namespace moestro
