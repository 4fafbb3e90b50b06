// SPDX-License-Identifier: MIT
#include "trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace moestro {
namespace {

constexpr std::string_view kMagic = "MOETRACE";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kFlagWeights = 1;
constexpr uint32_t kFlagExpertsGuessed = 2;
constexpr uint8_t kKindPrefill = 1;
constexpr uint8_t kKindStartsSequence = 2;
constexpr uint8_t kKindJoinsStep = 4;
constexpr size_t kVersionEnd = 12;
constexpr size_t kHeaderBytes = 60;  // up to the model's name
constexpr float kWeightSteps = 65535.0F;

// At most 1 + 2^24 * (2 + 2) + 2^23 * 2^12 * 2: no overflow.
uint64_t TokenBytes(const TraceInfo& info) {
  const uint64_t used = uint64_t{info.n_layer} * info.n_used;
  return 1 + used * (IdBytes(info.n_expert) + (info.has_weights ? 2 : 0)) +
         info.predicted_rows() * info.n_used * IdBytes(info.n_expert);
}

uint16_t FixedPoint(float weight) {
  if (!(weight > 0.0F)) return 0;  // and what is not a number
  return static_cast<uint16_t>(std::lround(std::min(weight, 1.0F) * kWeightSteps));
}

std::string EncodeHeader(const TraceInfo& info, uint64_t tokens) {
  std::string bytes(kMagic);
  Append(bytes, kVersion);
  Append(bytes,
         (info.has_weights ? kFlagWeights : 0) | (info.experts_guessed ? kFlagExpertsGuessed : 0));
  Append(bytes, info.n_layer);
  Append(bytes, info.n_expert);
  Append(bytes, info.n_used);
  Append(bytes, info.depth);
  Append(bytes, info.model_id);
  Append(bytes, info.expert_bytes);
  Append(bytes, tokens);
  Append(bytes, static_cast<uint32_t>(info.model.size()));
  return bytes + info.model;
}

void AppendToken(std::string& bytes, const TraceInfo& info, const TraceToken& token) {
  const size_t id_bytes = IdBytes(info.n_expert);
  const size_t n_used = info.n_used;
  const bool is_prefill = token.phase == Phase::kPrefill;
  Append(bytes, static_cast<uint8_t>((is_prefill ? kKindPrefill : 0) |
                                     (token.starts_sequence ? kKindStartsSequence : 0) |
                                     (token.joins_step ? kKindJoinsStep : 0)));
  for (size_t layer = 0; layer < info.n_layer; ++layer) {
    AppendIds(bytes, token.experts.subspan(layer * n_used, n_used), id_bytes);
    if (info.has_weights) {
      for (const float weight : token.weights.subspan(layer * n_used, n_used)) {
        Append(bytes, FixedPoint(weight));
      }
    }
    const size_t first = info.predicted_rows_before(layer);
    const size_t rows = info.predicted_rows_before(layer + 1) - first;
    AppendIds(bytes, token.predicted.subspan(first * n_used, rows * n_used), id_bytes);
  }
}

struct Header {
  TraceInfo info;
  uint64_t tokens = 0;
  uint64_t tokens_begin = 0;  // byte of the first token
};

Result<Header> ReadHeader(const InputFile& source) {
  TRY(const std::string bytes,
      source.Read(0, static_cast<size_t>(std::min<uint64_t>(source.size(), kHeaderBytes))));
  if (!bytes.starts_with(kMagic)) {
    return Fail(Errc::kInvalidFile,
                "{}: not a trace, it does not begin with {}; record one with 'moestro trace'",
                source.path(), kMagic);
  }
  if (bytes.size() < kVersionEnd) return source.CutShort("a longer header");
  Decoder decoder(std::string_view(bytes).substr(kMagic.size()));
  const auto version = decoder.Take<uint32_t>();
  if (version > kVersion) {
    return Fail(Errc::kUnsupported,
                "{}: trace format {} is newer than the {} that is known here; update Moestro",
                source.path(), version, kVersion);
  }
  if (version == 0) return source.Damaged("trace format 0 does not exist");
  if (bytes.size() < kHeaderBytes) return source.CutShort("a longer header");
  const auto flags = decoder.Take<uint32_t>();
  if ((flags & ~(kFlagWeights | kFlagExpertsGuessed)) != 0) {
    return source.Damaged(Format("flags {:#x} have no meaning", flags));
  }
  Header header;
  header.info.has_weights = (flags & kFlagWeights) != 0;
  header.info.experts_guessed = (flags & kFlagExpertsGuessed) != 0;
  header.info.n_layer = decoder.Take<uint32_t>();
  header.info.n_expert = decoder.Take<uint32_t>();
  header.info.n_used = decoder.Take<uint32_t>();
  header.info.depth = decoder.Take<uint32_t>();
  header.info.model_id = decoder.Take<uint64_t>();
  header.info.expert_bytes = decoder.Take<uint64_t>();
  header.tokens = decoder.Take<uint64_t>();
  header.tokens_begin = kHeaderBytes + decoder.Take<uint32_t>();
  // The counts; before they are multiplied below.
  if (const auto counts = Trace::Create(header.info); !counts) {
    return source.Damaged(counts.error().message);
  }
  const uint64_t token_bytes = TokenBytes(header.info);
  const uint64_t least = header.tokens_begin + kChecksumBytes;
  if (header.tokens > (UINT64_MAX - least) / token_bytes ||
      source.size() != least + header.tokens * token_bytes) {
    return source.CutShort(Format("{} tokens of {} bytes after byte {}, and {} more", header.tokens,
                                  token_bytes, header.tokens_begin, kChecksumBytes));
  }
  return header;
}

// One token's rows, kept from token to token.
struct TokenRows {
  explicit TokenRows(const TraceInfo& info)
      : experts(size_t{info.n_layer} * info.n_used),
        weights(info.has_weights ? experts.size() : 0),
        predicted(info.predicted_rows() * info.n_used) {}
  std::vector<ExpertId> experts;
  std::vector<float> weights;
  std::vector<ExpertId> predicted;
};

Status DecodeToken(Decoder& decoder, TokenRows& rows, Trace& trace) {
  const TraceInfo& info = trace.info();
  const size_t n_used = info.n_used;
  const size_t id_bytes = IdBytes(info.n_expert);
  const auto kind = decoder.Take<uint8_t>();
  if ((kind & ~(kKindPrefill | kKindStartsSequence | kKindJoinsStep)) != 0) {
    return Fail(Errc::kInvalidFile, "a token of kind {} does not exist", kind);
  }
  for (size_t layer = 0; layer < info.n_layer; ++layer) {
    decoder.TakeIds(std::span(rows.experts).subspan(layer * n_used, n_used), id_bytes);
    for (size_t k = 0; info.has_weights && k < n_used; ++k) {
      rows.weights[layer * n_used + k] =
          static_cast<float>(decoder.Take<uint16_t>()) / kWeightSteps;
    }
    const size_t first = info.predicted_rows_before(layer);
    const size_t count = info.predicted_rows_before(layer + 1) - first;
    decoder.TakeIds(std::span(rows.predicted).subspan(first * n_used, count * n_used), id_bytes);
  }
  return trace.Add({.phase = (kind & kKindPrefill) != 0 ? Phase::kPrefill : Phase::kDecode,
                    .starts_sequence = (kind & kKindStartsSequence) != 0,
                    .joins_step = (kind & kKindJoinsStep) != 0,
                    .experts = rows.experts,
                    .weights = rows.weights,
                    .predicted = rows.predicted});
}

}  // namespace

TraceWriter::TraceWriter(Trace shape, OutputFile file, uint64_t tokens)
    : shape_(std::move(shape)),
      file_(std::move(file)),
      bytes_(EncodeHeader(shape_.info(), tokens)),
      left_(tokens) {}

Result<TraceWriter> TraceWriter::Create(const std::string& path, TraceInfo info, uint64_t tokens) {
  TRY_STATUS(CheckReplaceable(path));
  TRY(Trace shape, Trace::Create(std::move(info)));
  TRY(OutputFile file, OutputFile::Create(path));
  return TraceWriter(std::move(shape), std::move(file), tokens);
}

Status TraceWriter::Add(const TraceToken& token) {
  CHECK(left_ > 0);
  TRY_STATUS(shape_.Check(token));
  AppendToken(bytes_, shape_.info(), token);
  --left_;
  return bytes_.size() < kFileWindow ? Status() : Flush();
}

Status TraceWriter::Flush() {
  sum_.Add(bytes_);
  TRY_STATUS(file_.Write(std::as_bytes(std::span(bytes_))));
  bytes_.clear();
  return {};
}

Status TraceWriter::Finish() {
  CHECK(left_ == 0);
  TRY_STATUS(Flush());
  Append(bytes_, sum_.value());
  TRY_STATUS(file_.Write(std::as_bytes(std::span(bytes_))));
  TRY_STATUS(file_.Publish());
  file_.Keep();
  return {};
}

Status WriteTrace(const std::string& path, const Trace& trace) {
  TRY(TraceWriter writer, TraceWriter::Create(path, trace.info(), trace.tokens()));
  for (size_t t = 0; t < trace.tokens(); ++t) TRY_STATUS(writer.Add(trace.token(t)));
  return writer.Finish();
}

Result<Trace> ReadTrace(const std::string& path) {
  TRY(const InputFile source, InputFile::Open(path, "a trace", "copy or record it again"));
  TRY(Header header, ReadHeader(source));
  TRY_STATUS(source.CheckSum());
  TRY(header.info.model,
      source.Read(kHeaderBytes, static_cast<size_t>(header.tokens_begin - kHeaderBytes)));
  Result<Trace> trace = Trace::Create(std::move(header.info));
  if (!trace) return source.Damaged(trace.error().message);
  if (header.tokens == 0) return trace;  // only a token proves that the counts fit the file

  const auto token_bytes = static_cast<size_t>(TokenBytes(trace->info()));
  const uint64_t at_once = std::max<uint64_t>(1, kFileWindow / token_bytes);
  TokenRows rows(trace->info());
  for (uint64_t t = 0; t < header.tokens;) {
    const uint64_t count = std::min(at_once, header.tokens - t);
    TRY(const std::string bytes, source.Read(header.tokens_begin + t * token_bytes,
                                             static_cast<size_t>(count) * token_bytes));
    Decoder decoder(bytes);
    for (const uint64_t end = t + count; t < end; ++t) {
      const Status added = DecodeToken(decoder, rows, *trace);
      if (!added) return source.Damaged(Format("token {}: {}", t, added.error().message));
    }
  }
  return trace;
}

}  // namespace moestro
