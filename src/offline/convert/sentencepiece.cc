// SPDX-License-Identifier: MIT
#include "offline/convert/sentencepiece.h"

#include <bit>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/binary_file.h"

namespace moestro {
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

}  // namespace moestro
