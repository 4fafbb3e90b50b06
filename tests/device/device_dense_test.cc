// SPDX-License-Identifier: MIT
// The dense part on a device, with keys and values: as on the CPU within what rounding may do, with
// all experts there, with some, and with none; sequences move between processors.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/device/device_testing.h"
#include "tests/support/damage_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class DeviceDenseTest : public DeviceTest {
 protected:
  // Room for everything.
  EngineOptions Whole(const TinySpec& spec, PlaceMode place = PlaceMode::kGpuCentric) {
    EngineOptions options = OnDevice(spec, place);
    options.device.dense_on_cpu = false;
    options.device.vram = {256 * kMiB};
    return options;
  }
  // The dense part and `slots` experts.
  EngineOptions Small(const std::string& model, const TinySpec& spec, PlaceMode place,
                      uint64_t slots) {
    EngineOptions options = Whole(spec, place);
    options.device.runs_whole_layers = false;
    const auto plan = NativeEngine::Plan(model, options);
    EXPECT_TRUE(plan) << plan.error().message;
    const uint64_t of_block = spec.type == "Q4_0" ? 18 : 34;  // bytes of 32 weights
    const uint64_t expert = 3 * uint64_t{spec.embd} * spec.ff * of_block / 32;
    options.device.vram = {plan->devices.at(0).bytes - (plan->devices.at(0).slots + 1) * expert +
                           (slots + 1) * expert};
    return options;
  }
};

// The cover has each kind of mixers, router, experts and norms. Layers with states or indexers are
// computed in memory.
std::vector<std::string> DenseFamiliesOfPart(uint32_t part) {
  std::vector<std::string> archs = TinyArchs();
  std::erase_if(archs,
                [](const std::string& arch) { return HasStates(arch) || HasIndexers(arch); });
  return CellsOfPart(part, archs, TraitsOf);
}

class DenseFamilies : public DeviceDenseTest, public ::testing::WithParamInterface<std::string> {};

// In F32, so that few ties between experts fall the other way; beyond the windows of families that
// have such.
TEST_P(DenseFamilies, AreAsOnTheCpu) {
  TinySpec spec = Spec(GetParam(), "F32");
  spec.window = 4;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run device = Decode(model, Whole(spec), 4);
  ExpectNear(device, Decode(model, OnCpu(), 4), kElevenBits, GetParam());
  ASSERT_FALSE(device.memory.devices.empty());
  EXPECT_GT(device.memory.devices.at(0).dense, 0U);
  EXPECT_GT(device.memory.devices.at(0).kv, 0U);
  EXPECT_GT(device.device.layers_there, 0U);
  EXPECT_EQ(device.device.failures, 0U);
}

MOESTRO_INSTANTIATE_PARTS(DenseFamilies, DenseFamiliesOfPart,
                          [](const auto& arch) { return CaseName(arch.param); });

// Traffic of one token behind some others, and the model's layers.
struct TokenTraffic {
  DeviceTraffic token;
  uint64_t layers = 0;
};
TokenTraffic TrafficOfAToken(const std::string& model, const TinySpec& spec,
                             const EngineOptions& options) {
  const auto engine = NativeEngine::Open(model, options);
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return {};
  Sequence sequence = (*engine)->NewSequence();
  const std::vector<Token> tokens = SeededTokens(12, spec.vocab, 3);
  const auto append = [&](size_t first, size_t n) {
    const auto logits = Append(**engine, sequence, std::span(tokens).subspan(first, n));
    EXPECT_TRUE(logits) << logits.error().message;
  };
  append(0, 4);
  for (size_t t = 4; t < 8; ++t) append(t, 1);
  const DeviceStats before = (*engine)->learned().device;
  append(8, 1);
  const DeviceStats after = (*engine)->learned().device;
  const uint64_t layers = (*engine)->facts().n_layer;
  EXPECT_EQ(after.layers_there - before.layers_there, layers);
  return {.token = after.traffic.at(0) - before.traffic.at(0), .layers = layers};
}

// Everything is there, so the device chooses the experts, too. Graphs are those of the tokens
// before, of one layer, two, and then four each. The first seven layers are decided from while the
// device computes the others.
TEST_F(DeviceDenseTest, ATokenWaitsForTwoParts) {
  TinySpec spec = Spec("qwen3moe", "Q8_0");
  spec.layers = 9;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Whole(spec);
  const auto [token, layers] = TrafficOfAToken(model, spec, options);
  EXPECT_EQ(token.graphs_built, 0U);
  EXPECT_EQ(token.launches, 2 + layers / 4 + 1);  // layers, and the head
  EXPECT_EQ(token.reads, 7U);  // logits of routers, slots, weights of both; and the head's logits
  EXPECT_EQ(token.waits, 2U);
}

// Routers of zeros: all scores are equal, and the rule takes the first experts. The device may take
// others first; its layers are then computed again with borders.
TEST_F(DeviceDenseTest, WhereScoresTieTheRuleIsTheHosts) {
  for (const std::string arch : {"qwen3moe", "gpt-oss"}) {  // softmax before and after the choice
    TinySpec spec = Spec(arch, "Q8_0");
    spec.layers = 5;
    const std::string model = WriteTinyModel(folder_.path(), spec);
    for (const uint32_t layer : {1U, 4U}) {
      FillWeights(model, Format("blk.{}.ffn_gate_inp.weight", layer), '\0');
    }
    for (const uint32_t rows : {1U, 4U}) {
      ExpectNear(Decode(model, Whole(spec), rows), Decode(model, OnCpu(), rows), kEightBits, arch);
    }
    // A prompt of more rows than come with their logits.
    const auto last = [&](const EngineOptions& options) {
      Run run;
      const auto engine = NativeEngine::Open(model, options);
      EXPECT_TRUE(engine) << engine.error().message;
      Sequence sequence = (*engine)->NewSequence();
      const std::vector<Token> tokens = SeededTokens(70, spec.vocab, 5);
      const auto logits = Append(**engine, sequence, tokens);
      EXPECT_TRUE(logits) << logits.error().message;
      run.logits.assign(logits->begin(), logits->end());
      run.n_vocab = spec.vocab;
      return run;
    };
    ExpectNear(last(Whole(spec)), last(OnCpu()), kEightBits, arch);
  }
}

// Layers that are computed again, of every part of a run, begin with the rows as they were.
TEST_F(DeviceDenseTest, LayersThatWereChosenOtherwiseAreComputedAgain) {
  for (const std::string arch : {"qwen2moe", "afmoe"}) {  // afmoe: sums end in the next layer
    TinySpec spec = Spec(arch, "Q8_0");
    spec.layers = 9;  // two parts of a token, three of a prompt
    const std::string model = WriteTinyModel(folder_.path(), spec);
    const auto texts = [&](const EngineOptions& options) {
      Run run = Decode(model, options, 2, 6);
      const auto engine = NativeEngine::Open(model, options);
      EXPECT_TRUE(engine) << engine.error().message;
      Sequence sequence = (*engine)->NewSequence();
      const auto logits = Append(**engine, sequence, SeededTokens(60, spec.vocab, 5));
      EXPECT_TRUE(logits) << logits.error().message;
      run.logits.append_range(*logits);
      return run;
    };
    EngineOptions options = Whole(spec);
    const Run at_once = texts(options);
    for (const int every : {2, 3, 5}) {
      const auto parts = std::make_shared<int>(0);
      options.device.faults.mistakes_choice = [=] { return ++*parts % every == 0; };
      ExpectNear(texts(options), at_once, kEightBits, Format("{}, every {}", arch, every));
      EXPECT_GT(*parts, 8) << arch;
    }
  }
}

// Where the host chooses, a layer has one border that waits: for the router's logits.
TEST_F(DeviceDenseTest, ATokenWaitsOnceForEachLayer) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Whole(spec);
  options.prefetch = 0;
  options.device.runs_whole_layers = false;
  const auto [token, layers] = TrafficOfAToken(model, spec, options);
  EXPECT_EQ(token.graphs_built, 0U);
  EXPECT_EQ(token.launches, 2 * layers + 1);  // dense part, experts and sum; and the head
  EXPECT_EQ(token.reads, layers + 1);         // router's logits; and the head's
  // For each read, and for the last layer before its head.
  EXPECT_EQ(token.waits, layers + 2);
}

// More rows than are added up at once.
// Where the CPU computes some experts of a layer, the device keeps the results of its own, and the
// next dense part adds the CPU's sum. The driver's calls of eight tokens.
TEST_F(DeviceDenseTest, ALayerThatIsSharedWaitsOnceAndHasTwoGraphs) {
  TinySpec spec = Spec("qwen2moe", "Q8_0");  // with a shared expert
  spec.layers = 6;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Small(model, spec, PlaceMode::kCooperative, 36);
  options.cache = CacheSize{.percent = 100.0};
  options.prefetch = 0;
  const auto engine = NativeEngine::Open(model, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Sequence sequence = (*engine)->NewSequence();
  const std::vector<Token> tokens = SeededTokens(40, spec.vocab, 3);
  ASSERT_TRUE(Append(**engine, sequence, std::span(tokens).first(16)));
  const auto decode = [&](size_t first, size_t n) {
    for (const Token& token : std::span(tokens).subspan(first, n)) {
      ASSERT_TRUE(Append(**engine, sequence, {&token, 1}));
    }
  };
  decode(16, 16);
  const DeviceStats before = (*engine)->learned().device;
  decode(32, 8);
  const DeviceStats after = (*engine)->learned().device;
  const uint64_t on_device = after.computed() - before.computed();
  EXPECT_GT(on_device, 8U);
  EXPECT_LT(on_device, after.experts - before.experts);
  const DeviceTraffic calls = after.traffic.at(0) - before.traffic.at(0);
  constexpr uint64_t kTokens = 8;
  // Once a layer, for the head, and before it; and for inputs that were not expected to be needed.
  EXPECT_LE(calls.waits, kTokens * (spec.layers + 2) + 4);
  // Dense part and experts of a layer; a sum behind the last layer, and the head.
  EXPECT_LE(calls.launches, kTokens * (2 * spec.layers + 2));
}

// Costs by which borders and waits are dear: layers are whole, and the CPU's experts beside them.
TEST_F(DeviceDenseTest, WholeLayersBesideSharedOnesAreAsOnTheCpu) {
  for (const std::string arch : {"qwen3moe", "qwen2moe", "gpt-oss"}) {
    TinySpec spec = Spec(arch, "Q8_0");
    spec.layers = 6;
    const std::string model = WriteTinyModel(folder_.path(), spec);
    LatencyModel costs = MixedCosts();
    costs.border = 2e-3;
    costs.devices[0].launch = 2e-3;
    EngineOptions options = Small(model, spec, PlaceMode::kAuto, 44);
    options.device.runs_whole_layers = true;
    options.device.latency_model = CostsFile(costs);
    options.cache = CacheSize{.percent = 100.0};
    EngineOptions here = OnCpu();
    here.cache = options.cache;
    for (const uint32_t rows : {1U, 4U}) {
      const Run device = Decode(model, options, rows, 8);
      ExpectNear(device, Decode(model, here, rows, 8), kEightBits, arch);
      EXPECT_GE(device.device.layers_there, 8U) << arch;
      EXPECT_LT(device.device.computed(), device.device.experts) << arch;
      EXPECT_EQ(Decode(model, options, rows, 8).logits, device.logits) << arch;
    }
  }
}

TEST_F(DeviceDenseTest, RowsOfALongPromptAreAddedUpPieceByPiece) {
  constexpr uint32_t kTokens = LocalTransport::kMostSummed + 76;
  TinySpec spec = Spec("qwen2moe", "Q8_0");
  spec.context = 2048;
  spec.layers = 1;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto last = [&](EngineOptions options, uint32_t chunk) {
    options.ctx = 2048;
    options.sequences = 1;
    options.chunk = chunk;
    Run run;
    run.n_vocab = spec.vocab;
    const auto engine = NativeEngine::Open(model, options);
    if (!engine) return run;
    Sequence sequence = (*engine)->NewSequence();
    const auto logits = Append(**engine, sequence, SeededTokens(kTokens, spec.vocab, 5));
    if (logits) run.logits.assign(logits->begin(), logits->end());
    return run;
  };
  EngineOptions there = Whole(spec);
  there.device.runs_whole_layers = false;
  const Run at_once = last(there, 2048);
  ASSERT_EQ(at_once.logits.size(), spec.vocab);
  ExpectNear(at_once, last(there, 512), kEightBits, "chunks");
  ExpectNear(at_once, last(OnCpu(), 512), kEightBits, "cpu");
}

// Kernels of a device may take a score that is no number for one that is masked: this is found when
// the model is opened. What a router or the head multiplies ends the step.
TEST_F(DeviceDenseTest, DamagedWeightsAreFound) {
  struct Damage {
    const char* arch;
    const char* type;
    const char* tensor;
    bool is_found_at_once;
  };
  for (const Damage& damage : {Damage{"llama", "F32", "blk.1.attn_q.weight", true},
                               {"llama", "Q8_0", "blk.1.attn_k.weight", true},
                               {"llama", "F32", "blk.2.attn_v.weight", true},
                               {"llama", "F32", "blk.2.ffn_gate_inp.weight", false},
                               {"llama", "F32", "output.weight", false}}) {
    SCOPED_TRACE(std::string(damage.arch) + ", " + damage.tensor);
    const TinySpec spec = Spec(damage.arch, damage.type);
    const std::string model = WriteTinyModel(folder_.path(), spec);
    FillWithNan(model, damage.tensor);
    const auto engine = NativeEngine::Open(model, Whole(spec));
    ASSERT_EQ(!engine, damage.is_found_at_once);
    if (!engine) {
      EXPECT_TRUE(engine.error().message.contains(damage.tensor)) << engine.error().message;
      continue;
    }
    EXPECT_GT((*engine)->memory().devices.at(0).dense, 0U);
    Sequence sequence = (*engine)->NewSequence();
    const auto logits = Append(**engine, sequence, SeededTokens(40, spec.vocab, 3));
    ASSERT_FALSE(logits);
    EXPECT_EQ(logits.error().code, Errc::kInvalidFile) << logits.error().message;
    EXPECT_TRUE(logits.error().message.contains("NaN or infinity")) << logits.error().message;
  }
}

TEST_F(DeviceDenseTest, LayersWithAStateAreComputedInMemory) {
  const TinySpec spec = Spec("qwen35moe", "F32");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run device = Decode(model, Whole(spec), 4);
  ExpectNear(device, Decode(model, OnCpu(), 4), kElevenBits, spec.arch);
  EXPECT_EQ(device.memory.devices.at(0).dense, 0U);
  EXPECT_GT(device.device.layers_there + device.memory.devices.at(0).slots, 0U);
}

class DenseTypes : public DeviceDenseTest, public ::testing::WithParamInterface<TypeAndRows> {};

TEST_P(DenseTypes, AreAsOnTheCpu) {
  const auto& [type, rows] = GetParam();
  const TinySpec spec = Spec("qwen3moe", type);
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const uint32_t steps = 12 / rows + 1;
  const Run device = Decode(model, Whole(spec), rows, steps);
  ExpectNear(device, Decode(model, OnCpu(), rows, steps), type == "F16" ? kElevenBits : kEightBits,
             type);
  EXPECT_GT(device.memory.devices.at(0).dense, 0U);
}

MOESTRO_INSTANTIATE_PARTS(DenseTypes, TypesAndRowsOfPart, NameOfTypeAndRows);

// The fused product reads blocks; integers that both round may differ by one.
TEST_F(DeviceDenseTest, KeysAndValuesOfEightBitsAreAsOnTheCpu) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions there = Whole(spec);
  EngineOptions here = OnCpu();
  there.kv_type = here.kv_type = KvType::kQ8;
  const Run device = Decode(model, there, 4);
  ExpectNear(device, Decode(model, here, 4), kEightBits, "q8_0");
  EXPECT_GT(device.memory.devices.at(0).dense, 0U);
}

TEST_F(DeviceDenseTest, EveryModeIsAsOnTheCpuWithPoolsTooSmallForTheModel) {
  const TinySpec spec = Spec("qwen2moe", "Q8_0");  // with a shared expert
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Decode(model, OnCpu(), 4);
  for (const PlaceMode mode :
       {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kCpu}) {
    const Run device = Decode(model, Small(model, spec, mode, 5), 4);
    ExpectNear(device, cpu, kEightBits, std::string(NameOf(mode)));
    EXPECT_GT(device.memory.devices.at(0).dense, 0U);
    EXPECT_LT(device.memory.devices.at(0).slots, 12U);
    // Rows cannot stay where no expert is computed.
    const bool is_host = mode == PlaceMode::kCpu || mode == PlaceMode::kCooperative;
    EXPECT_LT(device.device.layers_there, is_host ? 1U : 3U * 10U) << NameOf(mode);
  }
}

TEST_F(DeviceDenseTest, EqualRunsGiveEqualBits) {
  const TinySpec spec = Spec("olmoe", "Q4_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run first = Decode(model, Small(model, spec, PlaceMode::kAuto, 9), 4);
  ASSERT_TRUE(first.status) << first.status.error().message;
  EXPECT_GT(first.memory.devices.at(0).dense, 0U);
  EXPECT_GT(first.device.computed(), 0U);
  EXPECT_LT(first.device.computed(), first.device.experts);
  EXPECT_EQ(Decode(model, Small(model, spec, PlaceMode::kAuto, 9), 4).logits, first.logits);
}

// A row sees its own sequence alone: the same text alone and among others.
TEST_F(DeviceDenseTest, RowsOfOtherSequencesAreNotSeen) {
  const TinySpec spec = Spec("llama", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  auto opened = NativeEngine::Open(model, Whole(spec));
  ASSERT_TRUE(opened) << opened.error().message;
  NativeEngine& engine = **opened;
  const std::vector<Token> text = SeededTokens(40, engine.spec().n_vocab, 3);
  // Logits of the last token of `text`, after `others` sequences have had as many of their own.
  const auto last = [&](uint32_t others) {
    std::vector<Sequence> sequences;
    std::vector<float> logits;
    for (uint32_t s = 0; s <= others; ++s) sequences.push_back(engine.NewSequence());
    for (uint32_t p = 0; p < text.size(); ++p) {
      Batch batch;
      for (uint32_t s = 0; s <= others; ++s) {
        const auto shifted = static_cast<Token>((text[p] + s) % engine.spec().n_vocab);
        batch.rows.push_back({.sequence = sequences[s].id(),
                              .position = p,
                              .token = shifted,
                              .wants_logits = s == 0 && p + 1 == text.size()});
      }
      const Status step = engine.Step(batch, [&](size_t, std::span<const float> row) {
        logits.assign(row.begin(), row.end());
      });
      EXPECT_TRUE(step) << step.error().message;
    }
    Run run;
    run.n_vocab = engine.spec().n_vocab;
    run.logits = logits;
    return run;
  };
  const Run alone = last(0);
  ExpectNear(last(5), alone, kEightBits, "among others");
}

// What a device has computed is rounded otherwise: it goes on there, and nowhere else.
TEST_F(DeviceDenseTest, SequencesGoOnOnTheirOwnProcessorAlone) {
  const TinySpec spec = Spec("qwen3moe", "F16");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::string saved = folder_.path() / "saved";
  // Saves 50 tokens there, goes on here; the logits of the next one.
  const auto move = [&](const EngineOptions& from, const EngineOptions& to) {
    Run run;
    auto first = NativeEngine::Open(model, from);
    EXPECT_TRUE(first) << first.error().message;
    const std::vector<Token> text = SeededTokens(51, (*first)->spec().n_vocab, 5);
    Sequence sequence = (*first)->NewSequence();
    Batch prompt;
    for (uint32_t p = 0; p < 50; ++p) {
      prompt.rows.push_back(
          {.sequence = sequence.id(), .position = p, .token = text[p], .kind = RowKind::kPrompt});
    }
    EXPECT_TRUE((*first)->Step(prompt));
    EXPECT_TRUE((*first)->SaveSequence(sequence, "", saved));
    auto second = NativeEngine::Open(model, to);
    EXPECT_TRUE(second) << second.error().message;
    auto restored = (*second)->RestoreSequence(saved);
    if (!restored) {
      run.status = std::unexpected(restored.error());
      return run;
    }
    run.n_vocab = (*second)->spec().n_vocab;
    const Batch next{.rows = {{.sequence = restored->sequence.id(),
                               .position = 50,
                               .token = text[50],
                               .wants_logits = true}}};
    run.status = (*second)->Step(next, [&](size_t, std::span<const float> row) {
      run.logits.assign(row.begin(), row.end());
    });
    return run;
  };
  for (const KvTypeInfo& type : kKvTypes) {
    EngineOptions here = OnCpu();
    EngineOptions there = Whole(spec);
    here.kv_type = there.kv_type = type.type;
    const double most = type.type == KvType::kF16 ? kElevenBits : kEightBits;
    const Run cpu = move(here, here);
    ExpectNear(move(there, there), cpu, most, "on the device");
    for (const Run& refused : {move(there, here), move(here, there)}) {
      ASSERT_FALSE(refused.status);
      EXPECT_EQ(refused.status.error().code, Errc::kInvalidRequest);
      EXPECT_NE(refused.status.error().message.find("--device"), std::string::npos)
          << refused.status.error().message;
    }
  }
}

TEST_F(DeviceDenseTest, FailedLaunchesOfExpertsAreComputedByTheCpu) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Whole(spec);
  options.device.runs_whole_layers = false;
  options.device.faults.fails_launch = EveryNth(23);
  const Run device = Decode(model, options, 4);
  ExpectNear(device, Decode(model, OnCpu(), 4), kEightBits, "launches");
  EXPECT_GT(device.device.failures, 0U);
  EXPECT_GT(device.device.layers_there, 0U);
}

// Keys and values are lost with the device: sequences are computed again.
TEST_F(DeviceDenseTest, ALostDeviceCostsTimeAndNothingElse) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Whole(spec);
  options.device.name = "auto";
  options.device.auto_takes_software = true;
  const auto launches = std::make_shared<int>(0);
  options.device.faults.fails_launch = [launches] { return ++*launches > 8; };
  const Run device = Decode(model, options, 4, 20);
  EXPECT_GT(*launches, 8);
  EXPECT_TRUE(device.memory.devices.empty());  // it is there no more
  ExpectNear(device, Decode(model, OnCpu(), 4, 20), kEightBits, "lost");
  options.device.name = name_;
  *launches = 0;
  const Run named = Decode(model, options, 4, 20);
  ASSERT_FALSE(named.status);
  EXPECT_EQ(named.status.error().code, Errc::kDevice);
}

TEST_F(DeviceDenseTest, WithoutRoomItStaysOnTheCpu) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 9);
  options.device.dense_on_cpu = false;
  const Run device = Decode(model, options, 4);
  ExpectNear(device, Decode(model, OnCpu(), 4), kEightBits, "no room");
  EXPECT_EQ(device.memory.devices.at(0).dense, 0U);
  EXPECT_EQ(device.device.layers_there, 0U);
}

// What later layers' routers would say is the same, whatever the number of rows.
TEST_F(DeviceDenseTest, RoutersAheadAreAsOnTheCpu) {
  const TinySpec spec = Spec("qwen3moe", "F16");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto predictions = [&](EngineOptions options, uint32_t rows) {
    options.prefetch = 2;
    auto opened = NativeEngine::Open(model, options);
    EXPECT_TRUE(opened) << opened.error().message;
    NativeEngine& engine = **opened;
    std::vector<ExpertId> predicted;
    engine.SetRouteObserver([&](const SeenRouting& seen) { predicted.append_range(seen.ahead); }, 2,
                            false);
    std::vector<Sequence> sequences;
    const std::vector<Token> tokens = SeededTokens(rows, engine.spec().n_vocab, 7);
    Batch batch;
    for (uint32_t s = 0; s < rows; ++s) {
      sequences.push_back(engine.NewSequence());
      batch.rows.push_back({.sequence = sequences[s].id(), .position = 0, .token = tokens[s]});
    }
    EXPECT_TRUE(engine.Step(batch));
    return predicted;
  };
  for (const uint32_t rows : {1U, 4U}) {
    const std::vector<ExpertId> cpu = predictions(OnCpu(), rows);
    const std::vector<ExpertId> device = predictions(Whole(spec), rows);
    ASSERT_EQ(device.size(), cpu.size());
    size_t same = 0;
    for (size_t i = 0; i < cpu.size(); ++i) same += cpu[i] == device[i];
    EXPECT_GE(same * 10, cpu.size() * 9) << rows;
  }
}

}  // namespace
}  // namespace moestro
