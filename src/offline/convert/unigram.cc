// SPDX-License-Identifier: MIT
#include "offline/convert/unigram.h"

#include <bit>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/binary_file.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

// Whether `charsmap` is a table: the number of a trie's bytes, the trie, the texts that its leaves
// lead to.
bool IsCharsmap(std::string_view charsmap) {
  if (charsmap.size() < sizeof(uint32_t)) return false;
  const auto trie = Decoder(charsmap).Take<uint32_t>();
  return trie % sizeof(uint32_t) == 0 && trie < charsmap.size() - sizeof(uint32_t) &&
         charsmap.back() == '\0';  // of the last text
}

}  // namespace

bool IsBytePiece(const std::string& text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') &&
         std::isxdigit(static_cast<unsigned char>(text[3])) != 0 &&
         std::isxdigit(static_cast<unsigned char>(text[4])) != 0;
}

Status CheckUnigram(const UnigramVocab& vocab, const std::string& file) {
  std::unordered_set<std::string_view> texts;
  size_t unknown = 0;
  for (const Piece& piece : vocab.pieces) {
    if (piece.text.empty() || FindInvalidUtf8(piece.text) != piece.text.size() ||
        piece.text.contains('\0')) {
      return Fail(Errc::kInvalidFile, "{}: piece {} is empty or no UTF-8", file, texts.size());
    }
    if (!std::isfinite(piece.score)) {
      return Fail(Errc::kInvalidFile, "{}: piece '{}' has a score that is no number", file,
                  Printable(piece.text));
    }
    if (!texts.insert(piece.text).second) {
      return Fail(Errc::kInvalidFile, "{}: piece '{}' is there twice", file, Printable(piece.text));
    }
    if (piece.kind == PieceKind::kUnknown) ++unknown;
  }
  if (unknown != 1) {
    return Fail(Errc::kInvalidFile, "{}: {} pieces stand for unknown text, not one", file, unknown);
  }
  if (vocab.charsmap.empty() || IsCharsmap(vocab.charsmap)) return {};
  return Fail(Errc::kInvalidFile,
              "{}: the table of normalisation (precompiled_charsmap) is damaged", file);
}

namespace {

// Wire types of fields in protobuf's encoding.
enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint64_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      // of kVarint, kFixed32
  std::string_view bytes;  // of kBytes
};

// Reads the fields of a message, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  // The next field; nullopt: at the end, or at a damaged field.
  std::optional<Field> Next() {
    if (rest_.empty() || is_damaged_) return std::nullopt;
    is_damaged_ = true;  // until the field is whole
    const auto tag = Varint();
    if (!tag) return std::nullopt;
    Field field{
        .number = *tag >> 3U, .wire = static_cast<Wire>(*tag & 7U), .value = 0, .bytes = {}};
    if (field.number == 0 || !Take(field)) return std::nullopt;
    is_damaged_ = false;
    return field;
  }
  bool is_damaged() const { return is_damaged_; }

 private:
  bool Take(Field& field) {
    switch (field.wire) {
      case Wire::kVarint: {
        const auto value = Varint();
        field.value = value.value_or(0);
        return value.has_value();
      }
      case Wire::kFixed32: {
        const auto bytes = Bytes(sizeof(uint32_t));
        if (bytes) field.value = Decoder(*bytes).Take<uint32_t>();
        return bytes.has_value();
      }
      case Wire::kFixed64:
        return Bytes(sizeof(uint64_t)).has_value();
      case Wire::kBytes: {
        const auto size = Varint();
        const auto bytes = size ? Bytes(*size) : std::nullopt;
        field.bytes = bytes.value_or("");
        return bytes.has_value();
      }
    }
    return false;  // groups, which nothing writes any more
  }

  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<std::string_view> Bytes(uint64_t n) {
    if (n > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  std::string_view rest_;
  bool is_damaged_ = false;
};

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kModelPiece = 1;
constexpr uint64_t kModelTrainer = 2;
constexpr uint64_t kModelNormalizer = 3;
constexpr uint64_t kPieceText = 1;
constexpr uint64_t kPieceScore = 2;
constexpr uint64_t kPieceKind = 3;
constexpr uint64_t kTrainerModel = 3;
constexpr uint64_t kNormalizerCharsmap = 2;
constexpr uint64_t kNormalizerPrefix = 3;
constexpr uint64_t kNormalizerSpaces = 4;
constexpr uint64_t kUnigramModel = 1;

// nullopt: damaged.
std::optional<Piece> ReadPiece(std::string_view bytes) {
  Piece piece;
  Message message(bytes);
  while (const auto field = message.Next()) {
    if (field->number == kPieceText && field->wire == Wire::kBytes) piece.text = field->bytes;
    if (field->number == kPieceScore && field->wire == Wire::kFixed32) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
    }
    if (field->number == kPieceKind && field->wire == Wire::kVarint) {
      if (field->value < 1 || field->value > 6) return std::nullopt;
      piece.kind = static_cast<PieceKind>(field->value);
    }
  }
  if (message.is_damaged()) return std::nullopt;
  return piece;
}

bool ReadNormalizer(std::string_view bytes, UnigramVocab& vocab) {
  Message message(bytes);
  while (const auto field = message.Next()) {
    if (field->wire == Wire::kBytes && field->number == kNormalizerCharsmap) {
      vocab.charsmap = field->bytes;
    }
    if (field->wire != Wire::kVarint) continue;
    if (field->number == kNormalizerPrefix) vocab.adds_space_prefix = field->value != 0;
    if (field->number == kNormalizerSpaces) vocab.removes_extra_spaces = field->value != 0;
  }
  return !message.is_damaged();
}

// 0: damaged.
uint64_t ModelOf(std::string_view trainer) {
  uint64_t model = kUnigramModel;
  Message message(trainer);
  while (const auto field = message.Next()) {
    if (field->number == kTrainerModel && field->wire == Wire::kVarint) model = field->value;
  }
  return message.is_damaged() ? 0 : model;
}

}  // namespace

Result<UnigramVocab> ParseSentencePiece(std::string_view bytes, const std::string& file) {
  const auto damaged = [&file] {
    return Fail(Errc::kInvalidFile, "{} is no SentencePiece model, or damaged; fetch it again",
                file);
  };
  UnigramVocab vocab;
  uint64_t model = kUnigramModel;
  Message message(bytes);
  while (const auto field = message.Next()) {
    if (field->wire != Wire::kBytes) continue;
    if (field->number == kModelPiece) {
      auto piece = ReadPiece(field->bytes);
      if (!piece || vocab.pieces.size() == kMostPieces) return damaged();
      vocab.pieces.push_back(*std::move(piece));
    }
    if (field->number == kModelTrainer) model = ModelOf(field->bytes);
    if (field->number == kModelNormalizer && !ReadNormalizer(field->bytes, vocab)) return damaged();
  }
  if (message.is_damaged() || model == 0 || vocab.pieces.empty()) return damaged();
  if (model != kUnigramModel) {
    return Fail(Errc::kUnsupported,
                "{} is a SentencePiece model of type {}; Switch models have unigram (1)", file,
                model);
  }
  TRY_STATUS(CheckUnigram(vocab, file));
  return vocab;
}

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
  for (size_t i = 0; inner && inner->At(i); ++i) {
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
    if (added && added->kind() != JsonKind::kArray) return Bad("has added tokens that are no list");
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
