// SPDX-License-Identifier: MIT
// The verbs that every engine takes from the kit, over a forward pass that only requests experts.
#include "kit/slot_engine.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute/cpu_device.h"
#include "residency/leases.h"
#include "residency/residency_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kTestVocab = 16;

// Requests expert `token % 4` of both layers. The logits of a row are those of its token: 1 there,
// 0 elsewhere.
class AskingEngine final : public SlotEngine {
 public:
  AskingEngine(ExpertCatalog catalog, BlockReader& reader, uint64_t slots, EngineState& state)
      : SlotEngine(state), catalog_(std::move(catalog)) {
    id_.shape = {.n_layer = 2, .n_expert = 4, .n_used = 1};
    facts_ = {.engine = "asking", .id = id_, .n_vocab = kTestVocab, .n_ctx_train = 8, .n_ctx = 8};
    auto made = ExpertSlots::Create(
        {.id = id_, .catalog = catalog_, .reader = reader, .options = options_, .paths = {"m"}},
        {.plan = {.n_slots = slots, .n_experts = 8}, .slots = {slots}}, PolicySource(), {});
    EXPECT_TRUE(made && (*made)->Allocate());
    slots_ = *std::move(made);
    decisions_ = *LayerDecisions::Create({.name = "none"}, *slots_, {});
    frame_.emplace(
        slots_->residency(), *decisions_, watch_, state,
        StepFrame::Clocks{.waited = [] { return 0.0; }, .now = [this] { return clock(); }});
    cpu_ = *CpuDevice::Open(1);
    team_ = *Team::Create(*cpu_);
    kit_.emplace(*team_, *slots_, *decisions_, *frame_);
  }

  const EngineFacts& facts() const override { return facts_; }
  Result<KvOrigin> kv_origin() override { return KvOrigin{}; }
  Status SaveSequence(const Sequence& /*sequence*/, const std::string& /*notes*/,
                      const OutputPath& /*path*/) override {
    return {};
  }
  Result<SavedSequence> RestoreSequence(const std::string& /*path*/) override {
    return Fail(Errc::kUnsupported, "no files");
  }
  Result<SavedTokens> PeekSequence(const std::string& /*path*/) override {
    return Fail(Errc::kUnsupported, "no files");
  }

  StepFrame& frame() { return *frame_; }
  void LoseParts() { kit_.reset(); }
  Clock clock = SteadySeconds;
  std::optional<Error> fails;  // every row
  int computed = 0;            // rows
  size_t made_way_for = 0;     // rows between pieces

 private:
  EngineKit* kit() const override { return kit_ ? &*kit_ : nullptr; }
  StepSequences& sequences() const override { return sequences_; }
  Status CheckMore(const Batch& batch) const override {
    if (!batch.little.is_on()) return {};
    return Fail(Errc::kInvalidRequest, "no little steps");
  }
  Status Compute(const Batch& batch, const LogitsSink& sink) override {
    for (size_t i = 0; i < batch.size(); ++i) TRY_STATUS(ComputeRow(batch, i, sink));
    return {};
  }
  std::unique_ptr<StepPieces> PiecesOf(const Batch& batch, LogitsSink sink) override {
    if (batch.has_decode_rows()) return nullptr;
    return std::make_unique<Rows>(*this, batch, std::move(sink));
  }
  // A row is a piece.
  class Rows final : public StepPieces {
   public:
    Rows(AskingEngine& engine, const Batch& batch, LogitsSink sink)
        : engine_(engine), batch_(batch), sink_(std::move(sink)) {}
    Result<bool> Advance() override {
      TRY_STATUS(engine_.ComputeRow(batch_, next_++, sink_));
      return next_ == batch_.size();
    }
    Status MakeWay(size_t n_rows) override {
      engine_.made_way_for += n_rows;
      return {};
    }

   private:
    AskingEngine& engine_;
    const Batch& batch_;
    const LogitsSink sink_;
    size_t next_ = 0;
  };
  Status ComputeRow(const Batch& batch, size_t i, const LogitsSink& sink) {
    ++computed;
    const Token token = batch.rows[i].token;
    for (uint16_t layer = 0; layer < 2; ++layer) {
      const ExpertKey key{.layer = {layer}, .expert = {static_cast<uint16_t>(token % 4)}};
      LeaseStream leases(slots_->residency(), {&key, 1}, Urgency::kDemand);
      leases.Advance();
      slots_->residency().Drain();
    }
    if (fails) return std::unexpected(*fails);
    std::vector<float> logits(kTestVocab, 0.0F);
    logits[static_cast<size_t>(token)] = 1.0F;
    if (sink && batch.rows[i].wants_logits) sink(i, logits);
    return {};
  }

  EngineOptions options_;
  ModelId id_;
  EngineFacts facts_;
  ExpertCatalog catalog_;
  FileWatch watch_;
  std::unique_ptr<ExpertSlots> slots_;
  std::unique_ptr<LayerDecisions> decisions_;
  std::optional<StepFrame> frame_;
  std::optional<CpuDevice> cpu_;
  std::optional<Team> team_;
  mutable SequenceTable sequences_{8, 0};
  mutable std::optional<EngineKit> kit_;
};

class SlotEngineTest : public ResidencyTest {
 protected:
  std::unique_ptr<AskingEngine> Make(uint64_t slots = 8) {
    return std::make_unique<AskingEngine>(catalog_, *reader_, slots, state_);
  }
  static Batch Rows(const Sequence& sequence, std::span<const Token> tokens,
                    RowKind kind = RowKind::kDecode) {
    Batch batch;
    for (const Token token : tokens) {
      batch.rows.push_back({.sequence = sequence.id(),
                            .position = sequence.position() + static_cast<uint32_t>(batch.size()),
                            .token = token,
                            .kind = kind,
                            .wants_logits = true});
    }
    return batch;
  }

  EngineState state_{{}, {}};
};

TEST_F(SlotEngineTest, AStepIsCheckedComputedAndCounted) {
  const auto engine = Make();
  Sequence text = engine->NewSequence();
  std::vector<size_t> rows;
  const Engine::LogitsSink sink = [&](size_t row, std::span<const float> logits) {
    EXPECT_EQ(logits[row + 1], 1.0F);
    rows.push_back(row);
  };
  ASSERT_TRUE(engine->Step(Rows(text, std::vector<Token>{1, 2}, RowKind::kPrompt), sink));
  ASSERT_TRUE(engine->Step(Rows(text, std::vector<Token>{1})));
  EXPECT_EQ(rows, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(text.position(), 3U);
  const RunStats& stats = engine->stats();
  EXPECT_EQ(stats.prefill.tokens, 2U);
  EXPECT_EQ(stats.prefill.misses, 4U);
  EXPECT_EQ(stats.decode.tokens, 1U);
  EXPECT_EQ(stats.decode.requests, 2U);
  EXPECT_EQ(stats.decode.misses, 0U);
  EXPECT_EQ(stats.decode_ms.count(), 1U);
}

TEST_F(SlotEngineTest, WrongRowsAreRefused) {
  const auto engine = Make();
  Sequence text = engine->NewSequence();
  const auto refuses = [&](const Batch& batch) {
    const Status status = engine->Step(batch);
    return !status && status.error().code == Errc::kInvalidRequest;
  };
  EXPECT_TRUE(refuses({}));
  EXPECT_TRUE(refuses(Rows(text, std::vector<Token>{kTestVocab})));
  EXPECT_TRUE(refuses(Rows(text, std::vector<Token>{-1})));
  EXPECT_TRUE(refuses(Rows(text, std::vector<Token>(9, 1))));
  Batch gap = Rows(text, std::vector<Token>{1});
  gap.rows.front().position = 1;
  EXPECT_TRUE(refuses(gap));
  Batch stranger = Rows(text, std::vector<Token>{1});
  stranger.rows.front().sequence = SequenceId{77};
  EXPECT_TRUE(refuses(stranger));
  Batch little = Rows(text, std::vector<Token>{1});
  little.little.n_used = 1;
  EXPECT_TRUE(refuses(little));
  EXPECT_EQ(engine->computed, 0);
  EXPECT_EQ(text.position(), 0U);
}

TEST_F(SlotEngineTest, AFailedStepLeavesNothingAndCountsItsTime) {
  const auto engine = Make();
  Sequence text = engine->NewSequence();
  ASSERT_TRUE(engine->Step(Rows(text, std::vector<Token>{1, 2})));
  engine->fails = Error{.code = Errc::kInterrupted, .message = "stopped"};
  engine->RequestStop();
  EXPECT_FALSE(engine->Step(Rows(text, std::vector<Token>{3})));
  EXPECT_EQ(text.position(), 2U);
  EXPECT_FALSE(state_.stop.is_requested()) << "the request has ended one step";
  EXPECT_EQ(engine->stats().decode.tokens, 2U);
  EXPECT_EQ(engine->stats().decode.misses, 6U);
  engine->fails.reset();
  EXPECT_TRUE(engine->Step(Rows(text, std::vector<Token>{3})));
  EXPECT_EQ(text.position(), 3U);
}

// A processor that takes twice as long for the same work, by a clock of the test's own.
TEST_F(SlotEngineTest, AProcessorThatSlowsDownIsNoticed) {
  const auto engine = Make();
  double now = 0.0;
  engine->clock = [&] { return now; };
  std::vector<BatchRow> rows = {{.sequence = {}, .position = 7}};
  const auto decode = [&](int steps, double seconds) {
    for (int i = 0; i < steps; ++i) {
      const StepFrame::StepBegin begin = engine->frame().BeginStep({});
      engine->frame().AddDense(1000);
      now += seconds;
      engine->frame().StepDone(begin, rows, 0.0);
      for (BatchRow& row : rows) ++row.position;
    }
  };
  decode(100, 0.1);
  EXPECT_EQ(state_.stats.slowed.compute, 0U);
  decode(40, 0.2);
  EXPECT_EQ(state_.stats.slowed.compute, 1U);
  EXPECT_EQ(state_.stats.slowed.disk, 0U);
  // Fast again, then another text with a longer history: its tokens take their own time.
  decode(60, 0.1);
  rows.front().position = 5000;
  decode(100, 0.4);
  rows.push_back({.sequence = {}, .position = 3});
  decode(100, 0.8);
  EXPECT_EQ(state_.stats.slowed.compute, 1U);
}

TEST_F(SlotEngineTest, StepsBetweenPiecesCountAsTheirOwn) {
  const auto engine = Make();
  Sequence prompt = engine->NewSequence();
  Sequence text = engine->NewSequence();
  const auto run = engine->Begin(Rows(prompt, std::vector<Token>{1, 1}, RowKind::kPrompt), {});
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_FALSE(engine->Begin(Rows(text, std::vector<Token>{1}, RowKind::kPrompt), {}));
  EXPECT_EQ((*run)->Advance(), false);
  ASSERT_TRUE(engine->Step(Rows(text, std::vector<Token>{3})));
  EXPECT_EQ(engine->made_way_for, 1U);
  EXPECT_EQ((*run)->Advance(), true);
  EXPECT_EQ(text.position(), 1U);
  EXPECT_EQ(prompt.position(), 2U);
  EXPECT_EQ(engine->stats().prefill.misses, 2U);
  EXPECT_EQ(engine->stats().prefill.requests, 4U);
  EXPECT_EQ(engine->stats().prefill.tokens, 2U);
  EXPECT_EQ(engine->stats().decode.misses, 2U);
  EXPECT_EQ(engine->stats().decode.requests, 2U);
  ASSERT_TRUE(engine->Step(Rows(text, std::vector<Token>{3})));
  EXPECT_EQ(engine->made_way_for, 1U) << "the run has ended";
}

TEST_F(SlotEngineTest, APieceThatFailsOrIsDroppedEndsTheRun) {
  const auto engine = Make();
  Sequence prompt = engine->NewSequence();
  const Batch rows = Rows(prompt, std::vector<Token>{1, 2, 3}, RowKind::kPrompt);
  {
    const auto run = engine->Begin(rows, {});
    ASSERT_TRUE(run) << run.error().message;
    ASSERT_EQ((*run)->Advance(), false);
    engine->fails = Error{.code = Errc::kIo, .message = "no disk"};
    EXPECT_EQ((*run)->Advance().error().code, Errc::kIo);
    EXPECT_EQ(prompt.position(), 0U);
    engine->fails.reset();
    const auto second = engine->Begin(rows, {});  // while the first one still lives
    ASSERT_TRUE(second) << second.error().message;
    ASSERT_EQ((*second)->Advance(), false);
  }
  EXPECT_EQ(prompt.position(), 0U);
  EXPECT_EQ(engine->stats().prefill.tokens, 0U);
  ASSERT_TRUE(engine->Step(rows));
  EXPECT_EQ(prompt.position(), 3U);
}

TEST_F(SlotEngineTest, PreloadReadsEveryExpertOrSaysWhatIsMissing) {
  const auto few = Make(4);
  EXPECT_EQ(few->Preload().error().code, Errc::kInvalidRequest);
  std::vector<std::pair<uint64_t, uint64_t>> told;
  state_.progress = [&](const char* /*what*/, uint64_t done, uint64_t total) {
    told.emplace_back(done, total);
  };
  const auto engine = Make();
  ASSERT_TRUE(engine->Preload());
  EXPECT_EQ(told, (std::vector<std::pair<uint64_t, uint64_t>>{{1, 2}, {2, 2}}));
  EXPECT_EQ(engine->slot_contents().front().experts.size(), 8U);
  EXPECT_EQ(engine->slot_contents().front().slots, 8U);
  EXPECT_EQ(engine->place_of(Key(1, 2)).bytes, 17000U);
  EXPECT_FALSE(engine->WorkWhileIdle());
}

// A measurement repeats the last token, counts nowhere, and leaves the text as it was.
TEST_F(SlotEngineTest, ComputingIsMeasuredByTheLastToken) {
  const auto engine = Make();
  Sequence text = engine->NewSequence();
  const std::vector<Sequence*> texts = {&text};
  EXPECT_EQ(*engine->ProbeComputeSeconds(texts), std::nullopt) << "an empty text";
  ASSERT_TRUE(engine->Step(Rows(text, std::vector<Token>{1, 2})));
  const uint64_t requests = engine->stats().decode.requests;
  const auto probed = engine->ProbeComputeSeconds(texts);
  ASSERT_TRUE(probed && *probed);
  EXPECT_GT(**probed, 0.0);
  EXPECT_EQ(engine->computed, 6) << "four times";
  EXPECT_EQ(engine->stats().decode.requests, requests);
  EXPECT_EQ(text.position(), 2U);
  EXPECT_EQ(text.tokens().back(), 2);
  engine->fails = Error{.code = Errc::kIo, .message = "a bad disk"};
  EXPECT_EQ(engine->ProbeComputeSeconds(texts).error().code, Errc::kIo);
  EXPECT_EQ(text.position(), 1U) << "the last token is lost";
}

TEST_F(SlotEngineTest, AfterARestartThatFailedEveryVerbSaysWhy) {
  const auto engine = Make();
  Sequence text = engine->NewSequence();
  const std::vector<Sequence*> texts = {&text};
  state_.closed = Error{.code = Errc::kDevice, .message = "lost"};
  engine->LoseParts();
  EXPECT_EQ(engine->Step(Rows(text, std::vector<Token>{1})).error().message, "lost");
  EXPECT_EQ(engine->Preload().error().message, "lost");
  EXPECT_EQ(engine->ProbeDiskBandwidth().error().message, "lost");
  EXPECT_EQ(engine->ProbeMemoryBandwidth().error().message, "lost");
  EXPECT_EQ(engine->ProbeComputeSeconds(texts).error().message, "lost");
  EXPECT_EQ(engine->ProbeTogether(texts).error().message, "lost");
  EXPECT_FALSE(engine->WorkWhileIdle());
  EXPECT_TRUE(engine->slot_contents().empty());
  EXPECT_TRUE(engine->learned().predictions.empty());
  EXPECT_EQ(engine->place_of(Key(0, 0)).bytes, 0U);
  engine->FinishReads();
  engine->SetRequestObserver({});
}

}  // namespace
}  // namespace moestro
