// SPDX-License-Identifier: MIT
#include "trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "core/id_bytes.h"
#include "trace/trace_machine.h"

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
constexpr uint32_t kFlagLittle = 8;
constexpr uint32_t kFlagPredictedWeights = 16;
constexpr uint32_t kFlagPools = 32;
constexpr uint32_t kFlagCosts = 64;
constexpr uint32_t kFlagNotAhead = 128;
constexpr uint32_t kFlagEncoder = 256;
constexpr uint32_t kFlagRepeats = 512;
constexpr uint32_t kFlagPromptSteps = 1024;
constexpr uint32_t kFlagTokenLayers = 2048;
constexpr uint32_t kAllFlags = 4095;
constexpr uint8_t kKindPrefill = 1;
constexpr uint8_t kKindStartsSequence = 2;
constexpr uint8_t kKindJoinsStep = 4;
constexpr uint8_t kKindSource = 8;
constexpr float kWeightSteps = 65535.0F;

// Bytes of one layer's candidates: ids, scores, raw values and the range.
uint64_t CandidateBytes(const TraceInfo& info) {
  if (!info.has_candidates) return 0;
  return info.candidates() * (IdBytes(info.shape().n_expert) + 2 * sizeof(float)) + sizeof(float);
}

// Bytes of the weight of one predicted expert.
uint64_t PredictedWeightBytes(const TraceInfo& info) {
  return info.has_predicted_weights ? sizeof(float) : 0;
}

// Bytes of the little pass of one token.
uint64_t LittleBytes(const TraceInfo& info) {
  if (info.little == 0) return 0;
  const uint64_t layers = info.shape().n_layer;
  const uint64_t ids = layers * info.shape().n_used + info.predicted_rows() * uint64_t{info.little};
  return ids * IdBytes(info.shape().n_expert) + (info.has_weights ? 2 : 0) * layers * info.little +
         info.predicted_rows() * info.little * PredictedWeightBytes(info) + sizeof(float);
}

// Bytes of one token, at most 1 + 2 * (2^24 * (2 + 2) + 2^23 * 2^12 * (2 + 4)) + 2^24 * 10 + 2^15:
// no overflow.
uint64_t TokenBytes(const TraceInfo& info) {
  const uint64_t used = uint64_t{info.shape().n_layer} * info.shape().n_used;
  return 1 + LittleBytes(info) +
         used * (IdBytes(info.shape().n_expert) + (info.has_weights ? 2 : 0)) +
         info.predicted_rows() * info.shape().n_used *
             (IdBytes(info.shape().n_expert) + PredictedWeightBytes(info)) +
         CandidateBytes(info) * info.shape().n_layer;
}

uint16_t FixedPoint(float weight) {
  if (!(weight > 0.0F)) return 0;  // 0 also if the weight is not a number
  return static_cast<uint16_t>(std::lround(std::min(weight, 1.0F) * kWeightSteps));
}

std::string EncodeHeader(const TraceInfo& info, uint64_t tokens) {
  std::string bytes = BeginHeader(kTraceFormat);
  AppendNumber(
      bytes,
      (info.has_weights ? kFlagWeights : 0) | (info.experts_guessed ? kFlagExpertsGuessed : 0) |
          (info.has_candidates ? kFlagCandidates : 0) | (info.little > 0 ? kFlagLittle : 0) |
          (info.has_predicted_weights ? kFlagPredictedWeights : 0) |
          (info.pools.is_known() ? kFlagPools : 0) | (info.costs ? kFlagCosts : 0) |
          (info.reads_prompts_ahead ? 0 : kFlagNotAhead) |
          (info.shape().n_encoder > 0 ? kFlagEncoder : 0) | (info.may_repeat ? kFlagRepeats : 0) |
          (info.has_prompt_steps ? kFlagPromptSteps : 0) |
          (info.token_layers > 0 ? kFlagTokenLayers : 0));
  AppendNumber(bytes, info.shape().n_layer);
  AppendNumber(bytes, info.shape().n_expert);
  AppendNumber(bytes, info.shape().n_used);
  AppendNumber(bytes, info.depth);
  if (info.little > 0) AppendNumber(bytes, info.little);
  if (info.shape().n_encoder > 0) AppendNumber(bytes, info.shape().n_encoder);
  if (info.token_layers > 0) AppendNumber(bytes, info.token_layers);
  AppendNumber(bytes, info.model.fingerprint);
  AppendNumber(bytes, info.expert_bytes);
  AppendNumber(bytes, tokens);
  AppendNumber(bytes, static_cast<uint32_t>(info.model.name.size()));
  bytes += info.model.name;
  if (info.pools.is_known()) bytes += EncodePools(info.pools);
  if (info.costs) bytes += EncodeCosts(*info.costs);
  return bytes;
}

void AppendWeights(std::string& bytes, std::span<const float> weights) {
  for (const float weight : weights) AppendNumber(bytes, FixedPoint(weight));
}

// Appends the predictions of one layer.
void AppendPredicted(std::string& bytes, const TraceInfo& info, std::span<const ExpertId> experts,
                     std::span<const float> weights) {
  AppendIds(bytes, experts, IdBytes(info.shape().n_expert));
  for (const float weight : weights) AppendNumber(bytes, weight);
}

// The part of `all` that belongs to one layer, where `all` holds rows of `used` predicted experts
// of a token, or their weights; empty without weights.
template <class T>
std::span<T> OfLayer(const TraceInfo& info, std::span<T> all, size_t layer, size_t used) {
  if (all.empty()) return all;
  const size_t first = info.predicted_rows_before(layer);
  return all.subspan(first * used, (info.predicted_rows_before(layer + 1) - first) * used);
}

void AppendLittle(std::string& bytes, const TraceInfo& info, const LittlePass& pass, size_t layer) {
  const size_t id_bytes = IdBytes(info.shape().n_expert);
  const size_t n_used = info.shape().n_used;
  AppendIds(bytes, pass.experts.subspan(layer * n_used, n_used), id_bytes);
  if (info.has_weights) {
    AppendWeights(bytes, pass.weights.subspan(layer * info.little, info.little));
  }
  AppendPredicted(bytes, info, OfLayer(info, pass.predicted, layer, info.little),
                  OfLayer(info, pass.predicted_weights, layer, info.little));
}

void AppendCandidates(std::string& bytes, const TraceInfo& info, const CandidateSpans& all,
                      size_t layer) {
  const size_t n = info.candidates();
  AppendIds(bytes, all.experts.subspan(layer * n, n), IdBytes(info.shape().n_expert));
  for (const float score : all.scores.subspan(layer * n, n)) AppendNumber(bytes, score);
  for (const float raw : all.raw.subspan(layer * n, n)) AppendNumber(bytes, raw);
  AppendNumber(bytes, all.ranges[layer]);
}

void AppendToken(std::string& bytes, const TraceInfo& info, const TraceToken& token) {
  const size_t id_bytes = IdBytes(info.shape().n_expert);
  const size_t n_used = info.shape().n_used;
  const bool is_prefill = token.phase == Phase::kPrefill;
  AppendNumber(bytes, static_cast<uint8_t>((is_prefill ? kKindPrefill : 0) |
                                           (token.starts_sequence ? kKindStartsSequence : 0) |
                                           (token.joins_step ? kKindJoinsStep : 0) |
                                           (token.is_source ? kKindSource : 0)));
  for (size_t layer = 0; layer < info.shape().n_layer; ++layer) {
    AppendIds(bytes, token.experts.subspan(layer * n_used, n_used), id_bytes);
    if (info.has_weights) AppendWeights(bytes, token.weights.subspan(layer * n_used, n_used));
    AppendPredicted(bytes, info, OfLayer(info, token.predicted, layer, n_used),
                    OfLayer(info, token.predicted_weights, layer, n_used));
    if (info.has_candidates) AppendCandidates(bytes, info, token.candidates, layer);
    if (info.little > 0) AppendLittle(bytes, info, token.little, layer);
  }
  if (info.little > 0) AppendNumber(bytes, token.little.confidence);
}

struct Header {
  TraceInfo info;
  uint64_t tokens = 0;
  uint64_t name_begin = 0;  // byte of the model's name
  uint64_t name_end = 0;
  uint64_t tokens_begin = 0;  // of the first token
};

// Bytes of the header that only some traces have, before the model's name.
uint64_t MoreHeaderBytes(uint32_t flags) {
  return sizeof(uint32_t) *
         (((flags & kFlagLittle) != 0 ? 1 : 0) + ((flags & kFlagEncoder) != 0 ? 1 : 0) +
          ((flags & kFlagTokenLayers) != 0 ? 1 : 0));
}

// The header up to the model's name, without magic and version. With a little pass or an encoder it
// is longer.
Result<std::string> ReadHeaderBytes(const InputFile& source) {
  TRY(std::string bytes, source.ReadHeader());
  const auto flags = Decoder(bytes).Take<uint32_t>();
  if ((flags & ~kAllFlags) != 0) {
    return source.Damaged(Format("flags {:#x} have no meaning", flags));
  }
  const uint64_t n_more = MoreHeaderBytes(flags);
  if (n_more == 0) return bytes;
  if (source.size() < kTraceFormat.header_bytes + n_more) {
    return source.CutShort("a longer header");
  }
  TRY(const std::string more, source.Read(kTraceFormat.header_bytes, n_more));
  return bytes + more;
}

Result<Header> ReadHeader(const InputFile& source) {
  TRY(const std::string bytes, ReadHeaderBytes(source));
  Decoder decoder(bytes);
  const auto flags = decoder.Take<uint32_t>();
  Header header;
  header.info.has_weights = (flags & kFlagWeights) != 0;
  header.info.experts_guessed = (flags & kFlagExpertsGuessed) != 0;
  header.info.reads_prompts_ahead = (flags & kFlagNotAhead) == 0;
  header.info.may_repeat = (flags & kFlagRepeats) != 0;
  header.info.has_prompt_steps = (flags & kFlagPromptSteps) != 0;
  header.info.has_candidates = (flags & kFlagCandidates) != 0;
  header.info.has_predicted_weights = (flags & kFlagPredictedWeights) != 0;
  header.info.model.shape.n_layer = decoder.Take<uint32_t>();
  header.info.model.shape.n_expert = decoder.Take<uint32_t>();
  header.info.model.shape.n_used = decoder.Take<uint32_t>();
  header.info.depth = decoder.Take<uint32_t>();
  if ((flags & kFlagLittle) != 0) {
    header.info.little = decoder.Take<uint32_t>();
    if (header.info.little == 0) return source.Damaged("a little pass of 0 experts is none");
  }
  if ((flags & kFlagEncoder) != 0) {
    header.info.model.shape.n_encoder = decoder.Take<uint32_t>();
    if (header.info.shape().n_encoder == 0) return source.Damaged("an encoder of 0 layers is none");
  }
  if ((flags & kFlagTokenLayers) != 0) {
    header.info.token_layers = decoder.Take<uint32_t>();
    if (header.info.token_layers == 0) {
      return source.Damaged("tokens that name the experts of 0 layers name none");
    }
  }
  header.info.model.fingerprint = decoder.Take<uint64_t>();
  header.info.expert_bytes = decoder.Take<uint64_t>();
  header.tokens = decoder.Take<uint64_t>();
  header.name_begin = kTraceFormat.header_bytes + MoreHeaderBytes(flags);
  header.name_end = header.name_begin + decoder.Take<uint32_t>();
  // Checks the counts before they are multiplied below.
  if (const auto counts = Trace::Create(header.info); !counts) {
    return source.Damaged(counts.error().message);
  }
  TRY(RecordedMachine machine,
      ReadMachine(source, header.name_end,
                  {.pools = (flags & kFlagPools) != 0, .costs = (flags & kFlagCosts) != 0},
                  header.info.shape()));
  header.info.pools = std::move(machine.pools);
  header.info.costs = machine.costs;
  header.tokens_begin = machine.end;
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
        predicted_weights(info.has_predicted_weights ? predicted.size() : 0),
        candidates(size_t{info.shape().n_layer} * info.candidates()),
        scores(candidates.size()),
        raw(candidates.size()),
        ranges(info.has_candidates ? info.shape().n_layer : 0),
        little_experts(info.little > 0 ? experts.size() : 0),
        little_weights(info.has_weights ? size_t{info.shape().n_layer} * info.little : 0),
        little_predicted(info.predicted_rows() * info.little),
        little_predicted_weights(info.has_predicted_weights ? little_predicted.size() : 0) {}
  std::vector<ExpertId> experts;
  std::vector<float> weights;
  std::vector<ExpertId> predicted;
  std::vector<float> predicted_weights;
  std::vector<ExpertId> candidates;
  std::vector<float> scores;
  std::vector<float> raw;
  std::vector<float> ranges;
  std::vector<ExpertId> little_experts;
  std::vector<float> little_weights;
  std::vector<ExpertId> little_predicted;
  std::vector<float> little_predicted_weights;
};

void TakeWeights(Decoder& decoder, std::span<float> weights) {
  for (float& weight : weights) {
    weight = static_cast<float>(decoder.Take<uint16_t>()) / kWeightSteps;
  }
}

void TakePredicted(Decoder& decoder, const TraceInfo& info, std::span<ExpertId> experts,
                   std::span<float> weights) {
  TakeIds(decoder, experts, IdBytes(info.shape().n_expert));
  for (float& weight : weights) weight = decoder.Take<float>();
}

void DecodeLittle(Decoder& decoder, const TraceInfo& info, size_t layer, TokenRows& rows) {
  const size_t id_bytes = IdBytes(info.shape().n_expert);
  const size_t n_used = info.shape().n_used;
  TakeIds(decoder, std::span(rows.little_experts).subspan(layer * n_used, n_used), id_bytes);
  if (info.has_weights) {
    TakeWeights(decoder, std::span(rows.little_weights).subspan(layer * info.little, info.little));
  }
  TakePredicted(decoder, info, OfLayer(info, std::span(rows.little_predicted), layer, info.little),
                OfLayer(info, std::span(rows.little_predicted_weights), layer, info.little));
}

void DecodeCandidates(Decoder& decoder, const TraceInfo& info, size_t layer, TokenRows& rows) {
  const size_t n = info.candidates();
  TakeIds(decoder, std::span(rows.candidates).subspan(layer * n, n),
          IdBytes(info.shape().n_expert));
  for (size_t i = layer * n; i < (layer + 1) * n; ++i) rows.scores[i] = decoder.Take<float>();
  for (size_t i = layer * n; i < (layer + 1) * n; ++i) rows.raw[i] = decoder.Take<float>();
  rows.ranges[layer] = decoder.Take<float>();
}

Status DecodeToken(Decoder& decoder, const TraceInfo& info, TokenRows& rows,
                   const TraceSink& sink) {
  const size_t n_used = info.shape().n_used;
  const size_t id_bytes = IdBytes(info.shape().n_expert);
  const auto kind = decoder.Take<uint8_t>();
  if ((kind & ~(kKindPrefill | kKindStartsSequence | kKindJoinsStep | kKindSource)) != 0) {
    return Fail(Errc::kInvalidFile, "a token of kind {} does not exist", kind);
  }
  for (size_t layer = 0; layer < info.shape().n_layer; ++layer) {
    TakeIds(decoder, std::span(rows.experts).subspan(layer * n_used, n_used), id_bytes);
    if (info.has_weights) {
      TakeWeights(decoder, std::span(rows.weights).subspan(layer * n_used, n_used));
    }
    TakePredicted(decoder, info, OfLayer(info, std::span(rows.predicted), layer, n_used),
                  OfLayer(info, std::span(rows.predicted_weights), layer, n_used));
    if (info.has_candidates) DecodeCandidates(decoder, info, layer, rows);
    if (info.little > 0) DecodeLittle(decoder, info, layer, rows);
  }
  const float confidence = info.little > 0 ? decoder.Take<float>() : 1.0F;
  return sink({.phase = (kind & kKindPrefill) != 0 ? Phase::kPrefill : Phase::kDecode,
               .starts_sequence = (kind & kKindStartsSequence) != 0,
               .joins_step = (kind & kKindJoinsStep) != 0,
               .is_source = (kind & kKindSource) != 0,
               .experts = rows.experts,
               .weights = rows.weights,
               .predicted = rows.predicted,
               .predicted_weights = rows.predicted_weights,
               .candidates = {.experts = rows.candidates,
                              .scores = rows.scores,
                              .raw = rows.raw,
                              .ranges = rows.ranges},
               .little = {.experts = rows.little_experts,
                          .weights = rows.little_weights,
                          .predicted = rows.little_predicted,
                          .predicted_weights = rows.little_predicted_weights,
                          .confidence = confidence}});
}

}  // namespace

TraceWriter::TraceWriter(Trace shape, BinaryWriter file, uint64_t tokens)
    : shape_(std::move(shape)),
      file_(std::move(file)),
      bytes_(EncodeHeader(shape_.info(), tokens)),
      left_(tokens) {}

Result<TraceWriter> TraceWriter::Create(const OutputPath& path, TraceInfo info, uint64_t tokens) {
  TRY_STATUS(Trace::Create(info));
  TRY(BinaryWriter file, BinaryWriter::Create(path));
  return Create(std::move(file), std::move(info), tokens);
}

Result<TraceWriter> TraceWriter::Create(BinaryWriter file, TraceInfo info, uint64_t tokens) {
  TRY(Trace shape, Trace::Create(std::move(info)));
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

Status WriteTrace(const OutputPath& path, const Trace& trace) {
  TRY(TraceWriter writer, TraceWriter::Create(path, trace.info(), trace.tokens()));
  for (size_t t = 0; t < trace.tokens(); ++t) TRY_STATUS(writer.Add(trace.token(t)));
  return writer.Finish();
}

uint64_t TraceBytes(const TraceInfo& info, uint64_t tokens) {
  return EncodeHeader(info, tokens).size() + tokens * TokenBytes(info);
}

const FileFormat& TraceFormat() { return kTraceFormat; }

Result<TraceReader> TraceReader::Open(InputFile file) {
  TRY(Header header, ReadHeader(file));
  TRY(header.info.model.name,
      file.Read(header.name_begin, static_cast<size_t>(header.name_end - header.name_begin)));
  // Checks the other requirements of a trace; the counts have been checked.
  if (const auto trace = Trace::Create(header.info); !trace) {
    return file.Damaged(trace.error().message);
  }
  return TraceReader(std::move(file), std::move(header.info), header.tokens, header.tokens_begin);
}

Status TraceReader::ForEach(const TraceSink& sink) const {
  if (tokens_ == 0) return {};  // only a token proves that the counts fit the file
  const auto token_bytes = static_cast<size_t>(TokenBytes(info_));
  const uint64_t at_once = std::max<uint64_t>(1, kFileWindow / token_bytes);
  TokenRows rows(info_);
  for (uint64_t t = 0; t < tokens_;) {
    const uint64_t count = std::min(at_once, tokens_ - t);
    TRY(const std::string bytes,
        file_.Read(tokens_begin_ + t * token_bytes, static_cast<size_t>(count) * token_bytes));
    Decoder decoder(bytes);
    for (const uint64_t end = t + count; t < end; ++t) {
      const Status added = DecodeToken(decoder, info_, rows, sink);
      if (!added && added.error().code == Errc::kIo) return added;
      if (!added) return file_.Damaged(Format("token {}: {}", t, added.error().message));
    }
  }
  return {};
}

Result<Trace> ReadTrace(const std::string& path) {
  TRY(InputFile source, InputFile::Open(path, kTraceFormat));
  TRY_STATUS(ReadHeader(source));  // fails unless the file has a checksum
  TRY_STATUS(source.CheckSum());
  TRY(const TraceReader reader, TraceReader::Open(std::move(source)));
  Result<Trace> trace = Trace::Create(reader.info());
  if (!trace) return trace;
  TRY_STATUS(reader.ForEach([&](const TraceToken& token) { return trace->Add(token); }));
  return trace;
}

}  // namespace moestro
