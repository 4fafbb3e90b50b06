// SPDX-License-Identifier: MIT
#include "speed/benchmark.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "base/distribution.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/batch.h"
#include "core/random_tokens.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "text/drafts.h"

namespace moestro {

std::string HashLogits(std::span<const float> logits) {
  Fnv1a hash;
  for (const float logit : logits) hash.AddNumber(std::bit_cast<uint32_t>(logit));
  return Format("{:016x}", hash.value());
}

Json MediansOf(const std::vector<Json>& runs) {
  Json medians = Json::Object();
  for (const std::string& key : runs.front().keys()) {
    std::vector<double> values;
    for (const Json& run : runs) {
      const auto value = run.Find(key);
      if (const auto number = value ? value->number() : std::nullopt) values.push_back(*number);
    }
    const bool is_number = values.size() == runs.size();
    const auto [low, high] = std::ranges::minmax(values.empty() ? std::vector{0.0} : values);
    medians.Set(key,
                is_number && low != high ? Json(Median(values)) : runs.front().Find(key)->Copy());
  }
  return medians;
}

namespace {

// Drafts of another drafter, at its price, made right with some probability.
class ForcedDrafter final : public Drafter {
 public:
  ForcedDrafter(std::unique_ptr<Drafter> drafter, std::span<const Token> text, double right,
                uint32_t seed)
      : drafter_(std::move(drafter)), text_(text), right_(right), random_(seed) {}

  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override {
    TRY(Draft draft, drafter_->Propose(text, most));
    draft.tokens.clear();
    for (size_t at = text.size(); at < text_.size() && draft.tokens.size() < most; ++at) {
      const bool is_right = std::uniform_real_distribution<double>()(random_) < right_;
      const Token other = text_[at] > 0 ? text_[at] - 1 : 1;
      draft.tokens.push_back(is_right ? text_[at] : other);
    }
    return draft;
  }

 private:
  std::unique_ptr<Drafter> drafter_;
  std::span<const Token> text_;
  double right_;
  std::mt19937 random_;
};

// A text that nobody reads.
class NoReader final : public TextReader {
 public:
  bool Tell(TextEvent /*event*/) override { return true; }
};

}  // namespace

SideBySide::SideBySide(Engine& engine, const SideBySideOptions& options)
    : options_(options), engine_(engine) {
  for (uint32_t i = 0; i < options.sequences; ++i) {
    // The first sequence has the tokens of a run of one sequence; seed + 1 is the warm-up's.
    tokens_.push_back(RandomTokens(size_t{options.depth} + options.prefill + options.decode,
                                   engine.facts().n_vocab,
                                   i == 0 ? options.seed : options.seed + 1 + i));
    if (options.depth == 0) {
      MakePrompt(engine.facts().encoder, options.prefill, tokens_.back());
    }
    sequences_.push_back(engine.NewSequence());
  }
  for (Sequence& sequence : sequences_) pointers_.push_back(&sequence);
}

// The decode's first tokens as a text whose tokens are known: its picker returns them. The last
// token is left out, since a text's last token is picked and not computed.
void SideBySide::BeginDrafts() {
  const std::vector<Token>& tokens = tokens_.front();
  const size_t begin = size_t{options_.depth} + options_.prefill;
  known_.prompt.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(begin) + 1);
  known_.generate.max_tokens = int64_t{options_.decode} - 1;
  nobody_ = std::make_unique<NoReader>();
  auto text = std::make_unique<RunningText>(
      *nobody_, known_, std::move(sequences_.front()),
      [&tokens, next = begin + 1](std::span<const float>, std::span<const Token>) mutable
          -> Result<Token> { return tokens[next++]; },
      nullptr, clock_);
  std::unique_ptr<Drafter> drafter = MakeDrafter(options_.draft.kind, engine_, text->sequence());
  if (options_.acceptance) {
    drafter = std::make_unique<ForcedDrafter>(std::move(drafter), tokens, *options_.acceptance,
                                              options_.seed);
  }
  control_ = MakeDraftControl(options_.draft);
  text->DraftWith(std::move(drafter), control_, engine_);
  drafted_.emplace(engine_, std::move(text));
}

Status SideBySide::MakeUpDepth() {
  if (options_.depth == 0) return {};
  TRY(NativeEngine* const native, AsNative(engine_, "--depth"));
  for (size_t i = 0; i < sequences_.size(); ++i) {
    TRY_STATUS(native->MakeUp(sequences_[i], std::span(tokens_[i]).first(options_.depth),
                              uint64_t{options_.seed} + i));
  }
  return {};
}

Status SideBySide::Prefill() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    TRY(const std::span<const float> logits,
        Append(engine_, sequences_[i],
               std::span(tokens_[i]).subspan(options_.depth, options_.prefill)));
    hash_ = HashLogits(logits);
  }
  return {};
}

Status SideBySide::Decode() {
  if (options_.draft.is_on() && decoded() + 1 < options_.decode) return DecodeDrafted();
  Batch batch;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const uint32_t at = sequences_[i].position();
    batch.rows.push_back({.sequence = sequences_[i].id(),
                          .position = at,
                          .token = tokens_[i][at],
                          .wants_logits = true});
  }
  const bool is_last = batch.rows.front().position + 1 == tokens_.front().size();
  return engine_.Step(batch, [&](size_t, std::span<const float> logits) {
    if (is_last) hash_ = HashLogits(logits);
  });
}

Status SideBySide::DecodeDrafted() {
  if (!drafted_) BeginDrafts();
  TRY_STATUS(drafted_->Step());
  if (!drafted_->has_ended()) return {};
  TRY_STATUS(drafted_->text().ending()->transform([](StopReason) {}));
  sequences_.front() = drafted_->text().TakeSequence();
  return {};
}

uint32_t SideBySide::decoded() const {
  const bool is_text = drafted_ && !drafted_->has_ended();
  const Sequence& first = is_text ? drafted_->text().sequence() : sequences_.front();
  return first.position() - options_.depth - options_.prefill;
}

uint64_t DecodeShape::Requests(const MoeShape& moe) const {
  const uint64_t layer = std::min<uint64_t>(copies * moe.n_expert, rows * moe.n_used);
  return steps * passes * moe.decode_layers().size() * layer;
}

uint64_t DecodeLimit::BytesFor(const MoeShape& moe, const DecodeShape& shape) {
  const uint64_t requests = shape.Requests(moe);
  if (requests > kMostRequests) return 0;
  return RequestLog::BytesFor(requests, shape.copies * moe.n_layer * uint64_t{moe.n_expert});
}

DecodeLimit::DecodeLimit(Engine& engine, const DecodeShape& shape)
    : engine_(engine), requests_(shape.Requests(engine.id().shape)) {
  if (requests_ > kMostRequests || !engine.memory().devices.empty()) return;
  for (SlotContents& start : engine.slot_contents()) {
    pools_.push_back({.log = RequestLog(requests_), .start = std::move(start), .asked = {}});
  }
  engine_.SetPlanObserver([this](const LayerPlan& plan) { See(plan); });
  is_watching_ = true;
}

Status DecodeLimit::Probe() {
  if (pools_.empty()) return {};
  TRY(const double rate, engine_.ProbeMemoryBandwidth());
  memory_.Add(rate);
  return {};
}

void DecodeLimit::Stop() {
  if (std::exchange(is_watching_, false)) engine_.SetPlanObserver({});
}

uint32_t DecodeLimit::NumberOf(ExpertKey key) const {
  const MoeShape& moe = engine_.id().shape;
  return (key.copy * moe.n_layer + key.layer.value) * moe.n_expert + key.expert.value;
}

void DecodeLimit::See(const LayerPlan& plan) {
  for (Pool& pool : pools_) pool.asked.clear();
  for (const PlannedExpert& expert : plan.experts) {
    pools_[engine_.place_of(expert.key).pool].asked.push_back(NumberOf(expert.key));
  }
  for (Pool& pool : pools_) pool.log.Add(pool.asked);
}

Result<Limit> DecodeLimit::Find(const RunReport& report) const {
  if (!report.memory.devices.empty()) {
    return Fail(Errc::kUnsupported, "{} computes, too, with memory of its own",
                report.memory.devices.front().info.name);
  }
  const bool is_known = std::ranges::all_of(pools_, &RequestLog::is_complete, &Pool::log);
  if (pools_.empty() || !is_known) {
    return Fail(Errc::kInvalidRequest,
                "its requests for experts are more than the {} that are noted; decode fewer tokens",
                std::min(requests_, kMostRequests));
  }
  const PhaseStats& decode = report.stats.decode;
  Limit limit{.touched_bytes = decode.touched_bytes,
              .memory_bandwidth = memory_,
              .disk_bandwidth = report.probes.disk_bandwidth};
  for (const Pool& pool : pools_) {
    if (pool.start.slots == 0) continue;  // no layer could have asked
    std::vector<uint32_t> present;
    for (const ExpertKey key : pool.start.experts) {
      // Requests of a layer that predicts further tokens are not noted.
      if (key.layer.value < engine_.id().shape.n_layer) present.push_back(NumberOf(key));
    }
    limit.fewest_bytes += pool.log.FewestReads(pool.start.slots, present) * pool.start.expert_bytes;
  }
  const auto count_in = [&](ProbedRate& rate, uint64_t bytes) {
    if (decode.seconds <= 0.0) return;
    rate.best = std::max(rate.best, static_cast<double>(bytes) / decode.seconds);
  };
  count_in(limit.memory_bandwidth, decode.touched_bytes);
  // Reads that a probe waited for count in no phase.
  count_in(limit.disk_bandwidth, std::max(decode.bytes_read, limit.fewest_bytes));
  return limit;
}

}  // namespace moestro
