// SPDX-License-Identifier: MIT
// With a device and fixed costs the simulator plans as the engine does: the same experts in the
// same places and slots, in the same order, in every layer of every step.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "core/batch.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "decide/slots/first_experts.h"
#include "engine/append.h"
#include "learned/machine_files.h"
#include "native/native_engine.h"
#include "sim/replay.h"
#include "tests/support/device_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/slow_reader_testing.h"
#include "tests/support/tiny_model_testing.h"
#include "trace/trace.h"

namespace moestro {
namespace {

std::string Line(const LayerPlan& plan) {
  std::string line = Format("layer {}:", plan.layer.value);
  for (const MovedExpert& e : plan.moved_back) {
    line += Format(" {}/{}<{}.{}", e.key.layer.value, e.key.expert.value, e.device, e.slot.value);
  }
  for (const PlannedExpert& e : plan.experts) {
    line += Format(" {}x{}{}", e.key.expert.value, e.n_pairs, e.use == Use::kDecode ? "" : "p");
    if (e.place == Place::kHost) continue;
    line += e.is_staged ? "!" : "";
    line += Format("{}{}.{}", e.place == Place::kCopied ? ">" : "@", e.device, e.slot.value);
  }
  return line;
}

std::string Line(ExpertKey key, Use use, const Placement& placed) {
  std::string line = Format("layer {}: {} use {} was {}", key.layer.value, key.expert.value,
                            static_cast<int>(use), static_cast<int>(placed.was));
  if (placed.evicted) {
    line += Format(" for {}/{}", placed.evicted->layer.value, placed.evicted->expert.value);
  }
  return line;
}

// An engine whose routing becomes a trace and whose plans and requests for memory become lines.
class RecordedPlans {
 public:
  // `depth`: layers whose routers are evaluated ahead.
  RecordedPlans(const std::string& model, const EngineOptions& options, uint32_t depth = 0) {
    auto engine = NativeEngine::Open(model, options);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    auto empty = Trace::Create({.model = engine_->id(), .depth = depth, .has_weights = true});
    EXPECT_TRUE(empty) << empty.error().message;
    trace_.emplace(*std::move(empty));
    engine_->SetRouteObserver([this](const SeenRouting& seen) { See(seen); }, depth);
    engine_->SetPlanObserver([this](const LayerPlan& plan) { plans_.push_back(Line(plan)); });
  }

  // From now on. What is read ahead is there when the next layer's router speaks.
  void RecordRequests() {
    finishes_reads_ = true;
    engine_->SetRequestObserver([this](ExpertKey key, Use use, const Placement& placed) {
      requests_.push_back(Line(key, use, placed));
    });
  }

  // A token without a prompt: no prompt fills devices then, and steps bring there what they use.
  void LeaveDevicesEmpty() {
    before_.emplace(engine_->NewSequence());
    const std::vector<Token> token = SeededTokens(1, engine_->spec().n_vocab, 49);
    const Status done = engine_->Step(RowsOf(*before_, token, RowKind::kDecode));
    ASSERT_TRUE(done) << done.error().message;
  }

  // A prompt for each of `rows` sequences, then `steps` steps of a row of each.
  void Decode(uint32_t rows, uint32_t steps) {
    const uint32_t n_vocab = engine_->spec().n_vocab;
    std::vector<Sequence> sequences;
    for (uint32_t s = 0; s < rows; ++s) {
      sequences.push_back(engine_->NewSequence());
      Step(sequences, s, SeededTokens(2 + s % 3, n_vocab, 50 + s), RowKind::kPrompt);
    }
    for (uint32_t step = 0; step < steps; ++step) {
      Batch batch;
      const std::vector<Token> tokens = SeededTokens(rows, n_vocab, step);
      for (uint32_t s = 0; s < rows; ++s) {
        batch.rows.push_back({.sequence = sequences[s].id(),
                              .position = sequences[s].position(),
                              .token = tokens[s]});
      }
      const Status done = engine_->Step(batch);
      ASSERT_TRUE(done) << done.error().message;
    }
  }

  NativeEngine& engine() const { return *engine_; }
  const Trace& trace() const { return *trace_; }
  const std::vector<std::string>& plans() const { return plans_; }
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  void Step(const std::vector<Sequence>& sequences, uint32_t s, const std::vector<Token>& tokens,
            RowKind kind) {
    Batch batch;
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      batch.rows.push_back(
          {.sequence = sequences[s].id(), .position = i, .token = tokens[i], .kind = kind});
    }
    const Status done = engine_->Step(batch);
    ASSERT_TRUE(done) << done.error().message;
  }

  void See(const SeenRouting& seen) {
    if (finishes_reads_) engine_->FinishReads();
    const size_t n = seen.kinds.size();
    const size_t used = seen.routing.n_used;
    if (seen.layer.value == 0) {
      rows_.assign(n, {});
      weights_.assign(n, {});
      predicted_.assign(n, {});
    }
    for (size_t r = 0; r < n; ++r) {
      rows_[r].append_range(seen.routing.experts_of(r));
      weights_[r].append_range(seen.routing.weights_of(r));
      const bool is_recorded = trace_->info().depth > 0;
      for (size_t at = r; is_recorded && at * used < seen.ahead.size(); at += n) {
        predicted_[r].append_range(seen.ahead.subspan(at * used, used));
      }
    }
    if (seen.layer.value + 1U < trace_->info().shape().n_layer) return;
    for (size_t r = 0; r < n; ++r) {
      const bool is_prompt = seen.kinds[r] == RowKind::kPrompt;
      const Status added = trace_->Add({.phase = is_prompt ? Phase::kPrefill : Phase::kDecode,
                                        .starts_sequence = trace_->tokens() == 0,
                                        .joins_step = r > 0,
                                        .experts = rows_[r],
                                        .weights = weights_[r],
                                        .predicted = predicted_[r]});
      EXPECT_TRUE(added) << added.error().message;
    }
  }

  std::unique_ptr<NativeEngine> engine_;
  std::optional<Sequence> before_;
  std::optional<Trace> trace_;
  std::vector<std::string> plans_;
  std::vector<std::string> requests_;
  bool finishes_reads_ = false;
  std::vector<std::vector<ExpertId>> rows_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<ExpertId>> predicted_;
};

class DeviceAgreement : public DeviceFixture {
 protected:
  static std::vector<uint64_t> SlotsOf(const NativeEngine& engine) {
    std::vector<uint64_t> slots;
    for (const DeviceBudget& device : engine.memory().devices) slots.push_back(device.slots);
    return slots;
  }
  // What the engine ran with, and who was on its devices first.
  static ReplayOptions As(const RecordedPlans& recorded, const EngineOptions& options,
                          std::vector<ExpertKey> first) {
    const NativeEngine& engine = recorded.engine();
    const auto costs = ReadLatency(options.device.latency_model);
    EXPECT_TRUE(costs) << costs.error().message;
    return {.slots = engine.memory().n_slots,
            .policy = engine.facts().policy,
            .expert_bytes = engine.place_of(ExpertKey{}).bytes,
            .lanes = LaneMachine{.model = costs->model,
                                 .mode = options.device.place,
                                 .tiers = options.device.tiers,
                                 .device_slots = SlotsOf(engine),
                                 .first = std::move(first)}};
  }
  static void ExpectSameLines(const std::vector<std::string>& did,
                              const std::vector<std::string>& simulated, const std::string& what) {
    const auto [one, other] = std::ranges::mismatch(did, simulated);
    EXPECT_TRUE(one == did.end() && other == simulated.end())
        << what << " " << one - did.begin() << ":\n"
        << (one == did.end() ? "none" : *one) << ", but in the simulator\n"
        << (other == simulated.end() ? "none" : *other);
  }
  static ReplayResult ExpectSamePlans(const RecordedPlans& recorded, ReplayOptions replay,
                                      const std::string& what) {
    std::vector<std::string> simulated;
    replay.plan_observer = [&](const LayerPlan& plan) { simulated.push_back(Line(plan)); };
    const auto result = Replay(recorded.trace(), replay);
    EXPECT_TRUE(result) << result.error().message;
    ExpectSameLines(recorded.plans(), simulated, what + ", plan");
    return result.value_or(ReplayResult{});
  }
  static LanesResult ExpectSame(const RecordedPlans& recorded, const EngineOptions& options,
                                const std::string& what, std::vector<ExpertKey> first = {}) {
    return ExpectSamePlans(recorded, As(recorded, options, std::move(first)), what).lanes;
  }
  static void ExpectSameCounts(const LanesResult& result, const DeviceStats& did) {
    const LanePhase& d = result.decode;
    const LanePhase& p = result.prefill;
    EXPECT_EQ(d.experts + p.experts, did.experts);
    EXPECT_EQ(d.ran_there + p.ran_there, did.on_device);
    EXPECT_EQ(d.copied + p.copied, did.copied);
    EXPECT_EQ(d.staged + p.staged, did.staged);
    EXPECT_EQ(d.moved_back + p.moved_back, did.moved_back);
    EXPECT_EQ(d.promoted + p.promoted, did.promotions);
  }
};

// Experts are empty at the start, or popular ones are there; each mode with one row and with four.
struct AgreementCase {
  PlaceMode mode = PlaceMode::kAuto;
  uint32_t rows = 1;
  Tiers tiers = Tiers::kInclusive;
};
void PrintTo(const AgreementCase& one, std::ostream* out) {
  *out << NameOf(one.mode) << ", " << one.rows << " rows, " << NameOf(one.tiers);
}
std::string NameOfAgreementCase(const ::testing::TestParamInfo<AgreementCase>& one) {
  std::string name =
      Format("{}_{}_{}", NameOf(one.param.mode), one.param.rows, NameOf(one.param.tiers));
  std::ranges::replace(name, '-', '_');
  return name;
}

// The cover has each mode, each number of rows and each kind of tiers.
std::vector<AgreementCase> DealtCases(uint32_t part, const std::vector<AgreementCase>& cells) {
  return CellsOfPart(part, cells, [](const AgreementCase& one) {
    return Keys{std::string(NameOf(one.mode)), Format("{} rows", one.rows),
                std::string(NameOf(one.tiers))};
  });
}

constexpr PlaceMode kModes[] = {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCooperative,
                                PlaceMode::kCpu};

// A product of modes and rows, whose covers differ by what is first: together they have each mode
// with each number of rows.
std::vector<AgreementCase> CasesFrom(uint32_t part, std::initializer_list<uint32_t> all_rows) {
  std::vector<AgreementCase> cells;
  for (const PlaceMode mode : kModes) {
    for (const uint32_t rows : all_rows) cells.push_back({.mode = mode, .rows = rows});
  }
  return DealtCases(part, cells);
}
std::vector<AgreementCase> CasesFromEmpty(uint32_t part) { return CasesFrom(part, {1U, 4U}); }
std::vector<AgreementCase> CasesFromFilled(uint32_t part) { return CasesFrom(part, {4U, 1U}); }

std::vector<AgreementCase> CasesOfTiers(uint32_t part) {
  std::vector<AgreementCase> cells;
  for (const PlaceMode mode : kModes) {
    for (const Tiers tiers : {Tiers::kInclusive, Tiers::kExclusive}) {
      cells.push_back({.mode = mode, .rows = 2, .tiers = tiers});
    }
  }
  return DealtCases(part, cells);
}

std::vector<AgreementCase> ExclusiveCases(uint32_t part) {
  std::vector<AgreementCase> cells;
  for (const PlaceMode mode : {PlaceMode::kAuto, PlaceMode::kGpuCentric}) {
    for (const uint32_t rows : {1U, 4U}) cells.push_back({mode, rows, Tiers::kExclusive});
  }
  return DealtCases(part, cells);
}

class AgreementFromEmpty : public DeviceAgreement,
                           public testing::WithParamInterface<AgreementCase> {};

TEST_P(AgreementFromEmpty, HasTheSamePlans) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto& [mode, rows, tiers] = GetParam();
  EngineOptions options = OnDevice(spec, mode, 14);
  options.prefetch = 0;
  RecordedPlans recorded(model, options);
  recorded.LeaveDevicesEmpty();
  recorded.Decode(rows, 40);
  if (HasFatalFailure()) return;
  const LanesResult result = ExpectSame(recorded, options, "from empty");
  ExpectSameCounts(result, recorded.engine().learned().device);
  if (mode == PlaceMode::kAuto || mode == PlaceMode::kGpuCentric) {
    EXPECT_GT(result.decode.ran_there, 20U);
    EXPECT_GT(result.decode.copied, 10U);
  }
  EXPECT_GT(result.decode.on_disk, 20U);
}

MOESTRO_INSTANTIATE_PARTS(AgreementFromEmpty, CasesFromEmpty, NameOfAgreementCase);

class AgreementFromFilled : public DeviceAgreement,
                            public testing::WithParamInterface<AgreementCase> {};

TEST_P(AgreementFromFilled, KnowsWhoIsThereFirst) {
  TinySpec spec = Spec("olmoe", "Q8_0");
  spec.skew = 0.6;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::vector<ExpertKey> first = ByPopularity(LearnPaths(model).table);
  const auto& [mode, rows, tiers] = GetParam();
  EngineOptions options = OnDevice(spec, mode, 14);
  options.prefetch = 0;
  RecordedPlans recorded(model, options);
  recorded.Decode(rows, 40);
  if (HasFatalFailure()) return;
  const LanesResult result = ExpectSame(recorded, options, "filled", first);
  const DeviceStats& did = recorded.engine().learned().device;
  ExpectSameCounts(result, did);
  EXPECT_EQ(did.filled,
            mode == PlaceMode::kCpu ? 0 : recorded.engine().memory().devices.at(0).slots);
  if (mode == PlaceMode::kCooperative) {
    EXPECT_GT(result.decode.ran_there, result.decode.experts / 3);
  }
}

MOESTRO_INSTANTIATE_PARTS(AgreementFromFilled, CasesFromFilled, NameOfAgreementCase);

// The dense part and all experts are there: the device chooses, and the simulator has the same
// plans and counts.
TEST_F(DeviceAgreement, LayersWithoutABorder) {
  TinySpec spec = Spec("olmoe", "Q8_0");
  spec.layers = 5;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  for (const PlaceMode mode : {PlaceMode::kAuto, PlaceMode::kGpuCentric}) {
    EngineOptions options = OnDevice(spec, mode);
    LatencyModel costs = MixedCosts();
    costs.border = 1e-3;
    options.device.latency_model = CostsFile(costs);
    options.device.dense_on_cpu = false;
    options.device.vram = {256 * kMiB};
    RecordedPlans recorded(model, options);
    recorded.RecordRequests();
    recorded.Decode(4, 20);
    if (HasFatalFailure()) return;
    const LanesResult result = ExpectSame(recorded, options, std::string(NameOf(mode)));
    const DeviceStats did = recorded.engine().learned().device;
    ExpectSameCounts(result, did);
    EXPECT_EQ(did.on_device, did.experts);
    EXPECT_EQ(did.filled, 60U);
    EXPECT_TRUE(recorded.requests().empty());  // memory has nothing to do
    EXPECT_LT(did.traffic.at(0).waits, 24U * 2U);
  }
}

class AgreementByThePrompt : public DeviceAgreement,
                             public testing::WithParamInterface<AgreementCase> {};

TEST_P(AgreementByThePrompt, KnowsWhoIsThere) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto& [mode, rows, tiers] = GetParam();
  EngineOptions options = OnDevice(spec, mode, 14);
  options.prefetch = 0;
  options.device.tiers = tiers;
  RecordedPlans recorded(model, options);
  recorded.Decode(rows, 20);
  if (HasFatalFailure()) return;
  const LanesResult result = ExpectSame(recorded, options, "by the prompt");
  const DeviceStats did = recorded.engine().learned().device;
  ExpectSameCounts(result, did);
  EXPECT_EQ(did.filled > 0, mode != PlaceMode::kCpu);
}

MOESTRO_INSTANTIATE_PARTS(AgreementByThePrompt, CasesOfTiers, NameOfAgreementCase);

class AgreementOfExclusiveTiers : public DeviceAgreement,
                                  public testing::WithParamInterface<AgreementCase> {};

TEST_P(AgreementOfExclusiveTiers, HasTheSamePlans) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto& [mode, rows, tiers] = GetParam();
  EngineOptions options = OnDevice(spec, mode, 14);
  options.prefetch = 0;
  options.device.tiers = tiers;
  RecordedPlans recorded(model, options);
  uint64_t asked = 0;  // of memory
  recorded.engine().SetRequestObserver(
      [&](ExpertKey, Use use, const Placement&) { asked += use != Use::kPrefetch; });
  recorded.LeaveDevicesEmpty();
  recorded.Decode(rows, 40);
  if (HasFatalFailure()) return;
  const LanesResult result = ExpectSame(recorded, options, "exclusive");
  const DeviceStats& did = recorded.engine().learned().device;
  ExpectSameCounts(result, did);
  EXPECT_GT(did.staged, 10U);
  EXPECT_GT(did.moved_back, 10U);
  EXPECT_EQ(asked, did.experts - did.on_device - did.staged);
}

MOESTRO_INSTANTIATE_PARTS(AgreementOfExclusiveTiers, ExclusiveCases, NameOfAgreementCase);

// Slots of low copies are none of those that tiers follow from.
TEST_F(DeviceAgreement, TiersOfMemoryWithLowCopies) {
  TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  spec.type = "Q2_K";
  const std::string low = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(Spec("olmoe", "Q8_0"), PlaceMode::kGpuCentric, 10);
  options.prefetch = 0;
  options.low = low;
  options.low_share = 0.3;
  options.lossy = {.t1 = 0.4, .t2 = 0.8, .drop_below = 0.05};
  RecordedPlans recorded(model, options);
  recorded.LeaveDevicesEmpty();
  recorded.Decode(1, 40);
  if (HasFatalFailure()) return;
  const MemoryPlan& memory = recorded.engine().memory();
  const uint64_t half = memory.n_experts / 2;
  EXPECT_EQ(memory.tiers, Tiers::kExclusive);
  EXPECT_LE(memory.n_slots, half);
  EXPECT_GT(memory.n_slots + memory.n_low_slots, half);
  ReplayOptions replay = As(recorded, options, {});
  replay.lossy = options.lossy;
  replay.low_slots = memory.n_low_slots;
  replay.low_bytes =
      recorded.engine().place_of({.layer = {}, .expert = {}, .copy = kLowCopy}).bytes;
  replay.router = recorded.engine().spec().router;
  // Slots of a device are for as many experts of either copy.
  ASSERT_EQ(replay.lanes->device_slots.at(0) % 2, 0U);
  replay.lanes->device_slots.at(0) /= 2;
  const ReplayResult result = ExpectSamePlans(recorded, replay, "low copies");
  const DeviceStats& did = recorded.engine().learned().device;
  ExpectSameCounts(result.lanes, did);
  EXPECT_GT(did.moved_back, 0U);
  EXPECT_GT(recorded.engine().stats().decode.losses.low, 20U);
}

// Two devices of unequal speed: popular experts fill the first and then the second, copies go to
// either, what is used again moves, and in exclusive tiers who leaves goes back.
TEST_F(DeviceAgreement, TwoDevices) {
  if (!has_two()) GTEST_SKIP() << "there is one device";
  TinySpec spec = Spec("olmoe", "Q8_0");
  spec.skew = 0.6;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::vector<ExpertKey> first = ByPopularity(LearnPaths(model).table);
  struct Case {
    PlaceMode mode;
    uint32_t rows;
    Tiers tiers = Tiers::kInclusive;
  };
  for (const Case& c : {Case{PlaceMode::kAuto, 1}, Case{PlaceMode::kAuto, 4, Tiers::kExclusive},
                        Case{PlaceMode::kGpuCentric, 1, Tiers::kExclusive},
                        Case{PlaceMode::kGpuCentric, 4}, Case{PlaceMode::kCooperative, 4}}) {
    EngineOptions options = OnTwo(spec, c.mode, 8);
    options.prefetch = 0;
    options.device.tiers = c.tiers;
    RecordedPlans recorded(model, options);
    recorded.Decode(c.rows, 30);
    if (HasFatalFailure()) return;
    const std::string what = Format("{}, {}, {} rows", NameOf(c.tiers), NameOf(c.mode), c.rows);
    const LanesResult result = ExpectSame(recorded, options, what, first);
    const DeviceStats did = recorded.engine().learned().device;
    ExpectSameCounts(result, did);
    for (size_t d = 0; d < 2; ++d) {
      const LanePhase::Device& decode = result.decode.devices.at(d);
      const LanePhase::Device& prefill = result.prefill.devices.at(d);
      EXPECT_EQ(decode.ran_there + prefill.ran_there, did.each.at(d).on_device) << what;
      EXPECT_EQ(decode.copied + prefill.copied, did.each.at(d).copied) << what;
      EXPECT_EQ(decode.staged + prefill.staged, did.each.at(d).staged) << what;
      EXPECT_EQ(decode.moved_back + prefill.moved_back, did.each.at(d).moved_back) << what;
      EXPECT_EQ(decode.promoted + prefill.promoted, did.each.at(d).promotions) << what;
      EXPECT_GT(did.each.at(d).filled, 3U) << what;
      EXPECT_GT(decode.ran_there, 10U) << what;
      EXPECT_GE(decode.copied, c.mode == PlaceMode::kGpuCentric ? 5U : 0U) << what;
      // In this mode all experts are copied.
      const bool moves_back = c.tiers == Tiers::kExclusive && c.mode == PlaceMode::kGpuCentric;
      EXPECT_EQ(decode.moved_back > 0, moves_back)
          << what << ", " << decode.copied << " copied, " << decode.promoted << " promoted";
    }
  }
}

// What moves for later, under prefetches that drive out what memory would still have, and on a slow
// disk.
TEST_F(DeviceAgreement, ExpertsThatMoveForLaterWhateverTheTiming) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  for (const uint32_t prefetch : {0U, 1U}) {
    EngineOptions options = OnDevice(spec, PlaceMode::kAuto, 10);
    LatencyModel costs = MixedCosts();
    costs.devices[0].copy.base = 100e-6;  // never pays within a layer
    options.device.latency_model = CostsFile(costs);
    options.prefetch = prefetch;
    options.policy = {.name = "lru"};  // asks for no predictions
    options.cache = CacheSize{.percent = 40.0};
    options.wrap_reader = [](std::unique_ptr<BlockReader> inner) {
      return std::make_unique<SlowReader>(std::move(inner), 1);
    };
    RecordedPlans recorded(model, options);
    recorded.LeaveDevicesEmpty();
    recorded.Decode(1, 80);
    if (HasFatalFailure()) return;
    const LanesResult result = ExpectSame(recorded, options, Format("prefetch {}", prefetch));
    ExpectSameCounts(result, recorded.engine().learned().device);
    EXPECT_GT(result.decode.promoted, 5U);
  }
}

std::vector<AgreementCase> CasesBehindADevice(uint32_t part) {
  std::vector<AgreementCase> cells;
  for (const PlaceMode mode : {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCpu}) {
    for (const Tiers tiers : {Tiers::kInclusive, Tiers::kExclusive}) {
      cells.push_back({mode, 1, tiers});
    }
  }
  return DealtCases(part, cells);
}

class AgreementBehindADevice : public DeviceAgreement,
                               public testing::WithParamInterface<AgreementCase> {};

// A device, and memory and disk behind it, with what is read ahead: the same plans, and memory is
// asked for the same experts, has them or not, and evicts the same ones for them.
TEST_P(AgreementBehindADevice, OfMemoryAndDisk) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto& [mode, rows, tiers] = GetParam();
  EngineOptions options = OnDevice(spec, mode, 8);
  options.device.tiers = tiers;
  options.cache = CacheSize{.percent = 50.0};
  options.predictor = "next-router";
  options.prefetch = 1;
  options.policy = {.name = "lru"};
  options.clock = [] { return 0.0; };
  RecordedPlans recorded(model, options, 1);
  recorded.RecordRequests();
  recorded.Decode(rows, 60);
  if (HasFatalFailure()) return;
  ReplayOptions replay = As(recorded, options, {});
  // Reads are done when the next layer's router speaks, as in the engine here.
  replay.lanes->dense = {.base = 1.0};
  replay.costs.io_depth = 1000;
  replay.predictor = {.name = "next-router", .paths = {}};
  std::vector<std::string> asked;
  replay.observer = [&](ExpertKey key, Use use, const Placement& placed) {
    asked.push_back(Line(key, use, placed));
  };
  const std::string what = Format("{}, {}", NameOf(mode), NameOf(tiers));
  const ReplayResult result = ExpectSamePlans(recorded, replay, what);
  ExpectSameLines(recorded.requests(), asked, what + ", request");
  const DeviceStats did = recorded.engine().learned().device;
  ExpectSameCounts(result.lanes, did);
  const PhaseStats& decode = recorded.engine().stats().decode;
  EXPECT_EQ(result.prefetches, decode.prefetches) << what;
  EXPECT_EQ(result.used_prefetches, decode.used_prefetches) << what;
  EXPECT_GT(result.prefetches, 10U) << what;
  EXPECT_GT(result.evictions, 20U) << what;
  EXPECT_EQ(did.computed() > 20, mode != PlaceMode::kCpu) << what;
}

MOESTRO_INSTANTIATE_PARTS(AgreementBehindADevice, CasesBehindADevice, NameOfAgreementCase);

}  // namespace
}  // namespace moestro
