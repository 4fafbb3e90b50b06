// SPDX-License-Identifier: MIT
#include "trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "core/id_bytes.h"

namespace moestro {
namespace {

constexpr FileFormat kTraceFormat{.magic = "MOETRACE",
                                  .version = 1,
                                  .header_bytes = 60,  // up to the model's name
                                  .what = "a trace",
                                  .origin = "record one with 'moestro trace'",
                                  .remedy = "copy or record it again"};
constexpr uint32_t kFlagWeights = 1;
constexpr uint32_t kFlagExpertsGuessed = 2;
constexpr uint32_t kFlagCandidates = 4;
constexpr uint8_t kKindPrefill = 1;
constexpr uint8_t kKindStartsSequence = 2;
constexpr uint8_t kKindJoinsStep = 4;
constexpr float kWeightSteps = 65535.0F;

// Of one layer: ids, scores, raw values and the range.
uint64_t CandidateBytes(const TraceInfo& info) {
  if (!info.has_candidates) return 0;
  return info.candidates() * (IdBytes(info.shape().n_expert) + 2 * sizeof(float)) + sizeof(float);
}

// At most 1 + 2^24 * (2 + 2) + 2^23 * 2^12 * 2 + 2^24 * 10 + 2^14: no overflow.
uint64_t TokenBytes(const TraceInfo& info) {
  const uint64_t used = uint64_t{info.shape().n_layer} * info.shape().n_used;
  return 1 + used * (IdBytes(info.shape().n_expert) + (info.has_weights ? 2 : 0)) +
         info.predicted_rows() * info.shape().n_used * IdBytes(info.shape().n_expert) +
         CandidateBytes(info) * info.shape().n_layer;
}

uint16_t FixedPoint(float weight) {
  if (!(weight > 0.0F)) return 0;  // and what is not a number
  return static_cast<uint16_t>(std::lround(std::min(weight, 1.0F) * kWeightSteps));
}

std::string EncodeHeader(const TraceInfo& info, uint64_t tokens) {
  std::string bytes = BeginHeader(kTraceFormat);
  AppendNumber(bytes, (info.has_weights ? kFlagWeights : 0) |
                          (info.experts_guessed ? kFlagExpertsGuessed : 0) |
                          (info.has_candidates ? kFlagCandidates : 0));
  AppendNumber(bytes, info.shape().n_layer);
  AppendNumber(bytes, info.shape().n_expert);
  AppendNumber(bytes, info.shape().n_used);
  AppendNumber(bytes, info.depth);
  AppendNumber(bytes, info.model.fingerprint);
  AppendNumber(bytes, info.expert_bytes);
  AppendNumber(bytes, tokens);
  AppendNumber(bytes, static_cast<uint32_t>(info.model.name.size()));
  return bytes + info.model.name;
}

void AppendToken(std::string& bytes, const TraceInfo& info, const TraceToken& token) {
  const size_t id_bytes = IdBytes(info.shape().n_expert);
  const size_t n_used = info.shape().n_used;
  const bool is_prefill = token.phase == Phase::kPrefill;
  AppendNumber(bytes, static_cast<uint8_t>((is_prefill ? kKindPrefill : 0) |
                                           (token.starts_sequence ? kKindStartsSequence : 0) |
                                           (token.joins_step ? kKindJoinsStep : 0)));
  for (size_t layer = 0; layer < info.shape().n_layer; ++layer) {
    AppendIds(bytes, token.experts.subspan(layer * n_used, n_used), id_bytes);
    if (info.has_weights) {
      for (const float weight : token.weights.subspan(layer * n_used, n_used)) {
        AppendNumber(bytes, FixedPoint(weight));
      }
    }
    const size_t first = info.predicted_rows_before(layer);
    const size_t rows = info.predicted_rows_before(layer + 1) - first;
    AppendIds(bytes, token.predicted.subspan(first * n_used, rows * n_used), id_bytes);
    if (!info.has_candidates) continue;
    const size_t n = info.candidates();
    AppendIds(bytes, token.candidates.experts.subspan(layer * n, n), id_bytes);
    for (const float score : token.candidates.scores.subspan(layer * n, n)) {
      AppendNumber(bytes, score);
    }
    for (const float raw : token.candidates.raw.subspan(layer * n, n)) AppendNumber(bytes, raw);
    AppendNumber(bytes, token.candidates.ranges[layer]);
  }
}

struct Header {
  TraceInfo info;
  uint64_t tokens = 0;
  uint64_t tokens_begin = 0;  // byte of the first token
};

Result<Header> ReadHeader(const InputFile& source) {
  TRY(const std::string bytes, source.ReadHeader());
  Decoder decoder(bytes);
  const auto flags = decoder.Take<uint32_t>();
  if ((flags & ~(kFlagWeights | kFlagExpertsGuessed | kFlagCandidates)) != 0) {
    return source.Damaged(Format("flags {:#x} have no meaning", flags));
  }
  Header header;
  header.info.has_weights = (flags & kFlagWeights) != 0;
  header.info.experts_guessed = (flags & kFlagExpertsGuessed) != 0;
  header.info.has_candidates = (flags & kFlagCandidates) != 0;
  header.info.model.shape.n_layer = decoder.Take<uint32_t>();
  header.info.model.shape.n_expert = decoder.Take<uint32_t>();
  header.info.model.shape.n_used = decoder.Take<uint32_t>();
  header.info.depth = decoder.Take<uint32_t>();
  header.info.model.fingerprint = decoder.Take<uint64_t>();
  header.info.expert_bytes = decoder.Take<uint64_t>();
  header.tokens = decoder.Take<uint64_t>();
  header.tokens_begin = kTraceFormat.header_bytes + decoder.Take<uint32_t>();
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
      : experts(size_t{info.shape().n_layer} * info.shape().n_used),
        weights(info.has_weights ? experts.size() : 0),
        predicted(info.predicted_rows() * info.shape().n_used),
        candidates(size_t{info.shape().n_layer} * info.candidates()),
        scores(candidates.size()),
        raw(candidates.size()),
        ranges(info.has_candidates ? info.shape().n_layer : 0) {}
  std::vector<ExpertId> experts;
  std::vector<float> weights;
  std::vector<ExpertId> predicted;
  std::vector<ExpertId> candidates;
  std::vector<float> scores;
  std::vector<float> raw;
  std::vector<float> ranges;
};

void DecodeCandidates(Decoder& decoder, const TraceInfo& info, size_t layer, TokenRows& rows) {
  const size_t n = info.candidates();
  TakeIds(decoder, std::span(rows.candidates).subspan(layer * n, n),
          IdBytes(info.shape().n_expert));
  for (size_t i = layer * n; i < (layer + 1) * n; ++i) rows.scores[i] = decoder.Take<float>();
  for (size_t i = layer * n; i < (layer + 1) * n; ++i) rows.raw[i] = decoder.Take<float>();
  rows.ranges[layer] = decoder.Take<float>();
}

Status DecodeToken(Decoder& decoder, TokenRows& rows, Trace& trace) {
  const TraceInfo& info = trace.info();
  const size_t n_used = info.shape().n_used;
  const size_t id_bytes = IdBytes(info.shape().n_expert);
  const auto kind = decoder.Take<uint8_t>();
  if ((kind & ~(kKindPrefill | kKindStartsSequence | kKindJoinsStep)) != 0) {
    return Fail(Errc::kInvalidFile, "a token of kind {} does not exist", kind);
  }
  for (size_t layer = 0; layer < info.shape().n_layer; ++layer) {
    TakeIds(decoder, std::span(rows.experts).subspan(layer * n_used, n_used), id_bytes);
    for (size_t k = 0; info.has_weights && k < n_used; ++k) {
      rows.weights[layer * n_used + k] =
          static_cast<float>(decoder.Take<uint16_t>()) / kWeightSteps;
    }
    const size_t first = info.predicted_rows_before(layer);
    const size_t count = info.predicted_rows_before(layer + 1) - first;
    TakeIds(decoder, std::span(rows.predicted).subspan(first * n_used, count * n_used), id_bytes);
    if (info.has_candidates) DecodeCandidates(decoder, info, layer, rows);
  }
  return trace.Add({.phase = (kind & kKindPrefill) != 0 ? Phase::kPrefill : Phase::kDecode,
                    .starts_sequence = (kind & kKindStartsSequence) != 0,
                    .joins_step = (kind & kKindJoinsStep) != 0,
                    .experts = rows.experts,
                    .weights = rows.weights,
                    .predicted = rows.predicted,
                    .candidates = {.experts = rows.candidates,
                                   .scores = rows.scores,
                                   .raw = rows.raw,
                                   .ranges = rows.ranges}});
}

}  // namespace

TraceWriter::TraceWriter(Trace shape, BinaryWriter file, uint64_t tokens)
    : shape_(std::move(shape)),
      file_(std::move(file)),
      bytes_(EncodeHeader(shape_.info(), tokens)),
      left_(tokens) {}

Result<TraceWriter> TraceWriter::Create(const std::string& path, TraceInfo info, uint64_t tokens) {
  TRY(Trace shape, Trace::Create(std::move(info)));
  TRY(BinaryWriter file, BinaryWriter::Create(path));
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
  TRY_STATUS(file_.Add(bytes_));
  bytes_.clear();
  return {};
}

Status TraceWriter::Finish() {
  CHECK(left_ == 0);
  TRY_STATUS(Flush());
  return file_.Finish();
}

Status WriteTrace(const std::string& path, const Trace& trace) {
  TRY(TraceWriter writer, TraceWriter::Create(path, trace.info(), trace.tokens()));
  for (size_t t = 0; t < trace.tokens(); ++t) TRY_STATUS(writer.Add(trace.token(t)));
  return writer.Finish();
}

Result<Trace> ReadTrace(const std::string& path) {
  TRY(const InputFile source, InputFile::Open(path, kTraceFormat));
  TRY(Header header, ReadHeader(source));
  TRY_STATUS(source.CheckSum());
  TRY(header.info.model.name,
      source.Read(kTraceFormat.header_bytes,
                  static_cast<size_t>(header.tokens_begin - kTraceFormat.header_bytes)));
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
