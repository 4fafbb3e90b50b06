// SPDX-License-Identifier: MIT
// Exact means exact: the same bits whatever the budget, the reader, and what happened to be cached.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/system_limits.h"
#include "base/text.h"
#include "decide/ahead/predictors.h"
#include "decide/slots/policy.h"
#include "engine/recorded_routing.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"
#include "learned/path_counter.h"
#include "native/native_engine.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kContext = 128;
constexpr size_t kPrompt = 24;
constexpr size_t kSteps = 16;

struct Setting {
  std::string reader = "auto";
  std::string policy = "next-use";
  std::string predictor = "none";
  uint32_t prefetch = 0;
  double percent = 100.0;  // of all experts; too little for one token is raised by the caller
  uint32_t chunk = 16;     // part of what is computed, so the same everywhere
  uint32_t threads = 2;
};

// Logits of a prompt and of some decode steps, one after the other.
std::vector<float> Evaluate(OneSequence& engine, uint32_t n_vocab) {
  std::vector<float> all;
  const auto prompt = engine.AppendAll(SeededTokens(kPrompt, n_vocab, 3));
  EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
  all = *prompt;
  for (const Token t : SeededTokens(kSteps, n_vocab, 4)) {
    const auto logits = engine.Append({&t, 1});
    EXPECT_TRUE(logits.has_value()) << logits.error().message;
    all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

// Both readers, or the one that works on a kernel without io_uring (qemu-user has none, and
// containers often forbid the call).
std::vector<const char*> ReadersHere() {
  ::syscall(SYS_io_uring_setup, 0, nullptr);
  if (errno == ENOSYS || errno == EPERM) return {"pread"};
  return {"uring", "pread"};
}

std::unique_ptr<OneSequence> Open(const std::string& path, const Setting& setting) {
  EngineOptions options;
  options.ctx = kContext;
  options.threads = setting.threads;
  options.chunk = setting.chunk;
  options.reader = setting.reader;
  options.policy = {.name = setting.policy};
  options.predictor = setting.predictor;
  options.prefetch = setting.prefetch;
  options.cache = CacheSize{.percent = setting.percent};
  auto engine = OneSequence::Open(path, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b,
                    const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float))) << what;
}

// Learns what follows what from a run of the model and leaves it beside the file.
void LearnPathsOf(OneSequence& engine, const std::string& path) {
  const ModelId& model = engine.engine().id();
  PathCounter counter(model.shape);
  RouteRecorder recorder(engine.engine(), {.model = model}, [&](const TraceToken& token) -> Status {
    counter.Add(token.experts);
    return {};
  });
  ASSERT_TRUE(recorder.Record(SeededTokens(60, engine.spec().n_vocab, 9), 0));
  const auto written =
      WritePaths(PathsBeside(path), {.model = model, .tokens = 60, .table = counter.Learn()});
  ASSERT_TRUE(written) << written.error().message;
}

// Slots, by what they hold.
enum class Room : uint8_t {
  kToken,      // one token's experts, the least that runs
  kHalfLayer,  // half of a layer's
  kLayer,
  kMost,
  kAll,
  kAhead,  // a layer's, and what is read ahead
};

double PercentOf(Room room, const TinySpec& spec, uint32_t layers) {
  // A mix of types has two pools, each with room for a token's experts.
  const double pools = spec.type == "Q4_K_M" ? 2 : 1;
  const double token = 100.0 * pools * (spec.used + 0.5) / (spec.experts * layers);
  const double layer = 100.0 / layers;
  switch (room) {
    case Room::kToken:
      return token;
    case Room::kHalfLayer:
      return layer / 2;
    case Room::kLayer:
      return layer;
    case Room::kMost:
      return 75.0;
    case Room::kAll:
      return 100.0;
    case Room::kAhead:
      return std::max(layer, 3 * token);
  }
  return 0.0;
}

struct Way {
  Setting setting;  // but its percentage
  Room room = Room::kHalfLayer;
  bool is_repeated = true;  // once more with what is in the slots by then
};

std::vector<Way> AllWays() {
  std::vector<Way> ways;
  for (const char* reader : ReadersHere()) {
    for (const Room room :
         {Room::kToken, Room::kHalfLayer, Room::kLayer, Room::kMost, Room::kAll}) {
      ways.push_back({.setting = {.reader = reader}, .room = room});
    }
  }
  for (const PolicyInfo& policy : KnownPolicies()) {
    ways.push_back({.setting = {.policy = std::string(policy.name)}, .is_repeated = false});
  }
  for (const PredictorInfo& predictor : KnownPredictors()) {
    for (const uint32_t ahead : {1U, 8U}) {
      ways.push_back({.setting = {.predictor = std::string(predictor.name), .prefetch = ahead},
                      .room = Room::kAhead});
    }
  }
  return ways;
}

std::string NameOf(const Way& way) {
  const Setting& s = way.setting;
  return Format("{}, {}, {} {}, room {}", s.reader, s.policy, s.predictor, s.prefetch,
                static_cast<int>(way.room));
}

// Every family, with a layer without experts where the family has such, and other types.
std::vector<TinySpec> AllSpecs() {
  std::vector<TinySpec> specs;
  for (const std::string& arch : TinyArchs()) {
    specs.push_back({.arch = arch, .type = "Q8_0", .layers = 4, .used = 3});
  }
  specs.push_back({.arch = "qwen3moe", .type = "Q4_0", .layers = 3});
  specs.push_back({.arch = "olmoe", .type = "Q4_K_M", .layers = 4});
  specs.push_back({.arch = "llama", .type = "F16", .layers = 2, .shards = 2});
  return specs;
}

// Ways of one model.
struct Share {
  TinySpec spec;
  std::vector<Way> ways;
};
void PrintTo(const Share& share, std::ostream* out) { *out << share.ways.size() << " ways"; }

// A product of models and ways. Each model is in the cover, each way, and each reader, room, policy
// and predictor with each kind of mixers.
std::vector<Share> SharesOf(uint32_t part) {
  struct Cell {
    TinySpec spec;
    Way way;
  };
  std::vector<Cell> cells;
  for (const TinySpec& spec : AllSpecs()) {
    for (const Way& way : AllWays()) cells.push_back({spec, way});
  }
  const auto keys_of = [](const Cell& cell) {
    const Setting& s = cell.way.setting;
    return Joined(PairsOf({MixersOf(cell.spec.arch)},
                          {s.reader, s.policy, s.predictor, Format("ahead {}", s.prefetch),
                           Format("room {}", static_cast<int>(cell.way.room))}),
                  {{cell.spec.arch + cell.spec.type, NameOf(cell.way)}});
  };
  std::vector<Share> shares;
  for (Cell& cell : CellsOfPart(part, cells, keys_of)) {
    if (shares.empty() || shares.back().spec.arch != cell.spec.arch ||
        shares.back().spec.type != cell.spec.type) {
      shares.push_back({cell.spec, {}});
    }
    shares.back().ways.push_back(std::move(cell.way));
  }
  return shares;
}

class Exactness : public ::testing::TestWithParam<Share> {};

TEST_P(Exactness, SameBitsForEveryBudgetAndReader) {
  const auto& [spec, ways] = GetParam();
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), spec);
  const auto reference_engine = Open(path, {});
  ASSERT_NE(reference_engine, nullptr);
  const uint32_t n_vocab = reference_engine->spec().n_vocab;
  const std::vector<float> reference = Evaluate(*reference_engine, n_vocab);
  EXPECT_EQ(reference_engine->stats().decode.evictions, 0U);
  LearnPathsOf(*reference_engine, path);
  for (const Way& way : ways) {
    const std::string what = NameOf(way);
    Setting setting = way.setting;
    setting.percent = PercentOf(way.room, spec, reference_engine->spec().n_expert_layers());
    const auto engine = Open(path, setting);
    ASSERT_NE(engine, nullptr) << what;
    ExpectSameBits(Evaluate(*engine, n_vocab), reference, what + " cold");
    if (way.room == Room::kToken) {
      EXPECT_GT(engine->stats().decode.evictions, 0U) << what;
    }
    if (!way.is_repeated) continue;
    engine->Reset();
    ExpectSameBits(Evaluate(*engine, n_vocab), reference, what + " warm");
    if (setting.predictor == "next-router" || setting.predictor == "paths") {
      EXPECT_GT(engine->stats().decode.prefetches, 0U) << what;
    }
  }
}

const auto kShareName = [](const auto& share) {
  return CaseName(share.param.spec.arch) + "_" + share.param.spec.type;
};

MOESTRO_INSTANTIATE_PARTS(Exactness, SharesOf, kShareName);

// Work is cut into blocks of rows and sums into columns; 3 and 5 divide neither. (A context of 512
// tokens or more would be another matter: ggml then splits attention by threads.)
TEST(Threads, SameBitsForEveryNumber) {
  const TempFolder folder;
  for (const TinySpec& spec : {TinySpec{.arch = "qwen2moe", .type = "Q8_0", .layers = 3},
                               TinySpec{.arch = "qwen3moe", .type = "Q4_K_M", .layers = 4}}) {
    const std::string path = WriteTinyModel(folder.path(), spec);
    const auto all = Open(path, {.threads = 1});
    ASSERT_NE(all, nullptr);
    const std::vector<float> reference = Evaluate(*all, spec.vocab);
    for (const uint32_t threads : {2U, 3U, 5U}) {
      const std::string what = spec.arch + ", " + std::to_string(threads) + " threads";
      const auto engine = Open(
          path, {.predictor = "next-router", .prefetch = 1, .percent = 40.0, .threads = threads});
      ASSERT_NE(engine, nullptr) << what;
      ExpectSameBits(Evaluate(*engine, spec.vocab), reference, what + " cold");
      engine->Reset();
      ExpectSameBits(Evaluate(*engine, spec.vocab), reference, what + " warm");
      EXPECT_GT(engine->stats().decode.evictions, 0U) << what;
    }
  }
}

// tmpfs refuses O_DIRECT; the buffered way must give the same.
TEST(Readers, SameBitsFromTmpfs) {
  const std::filesystem::path shm = "/dev/shm";
  if (!std::filesystem::exists(shm)) GTEST_SKIP() << "no /dev/shm on this machine";
  const TempFolder disk;
  const TempFolder memory(shm);
  const TinySpec spec{.arch = "qwen3moe", .type = "Q4_0", .layers = 3};
  const auto on_disk = Open(WriteTinyModel(disk.path(), spec), {.percent = 40.0});
  const auto expected = Evaluate(*on_disk, spec.vocab);
  for (const char* reader : ReadersHere()) {
    const auto engine =
        Open(WriteTinyModel(memory.path(), spec), {.reader = reader, .percent = 40.0});
    ASSERT_NE(engine, nullptr);
    ExpectSameBits(Evaluate(*engine, spec.vocab), expected, reader);
  }
}

TEST(Sequence, RewindingAndRepeatingGivesTheSameBits) {
  const TempFolder folder;
  const auto engine =
      Open(WriteTinyModel(folder.path(), {.arch = "qwen3moe", .type = "Q8_0"}), {.percent = 50.0});
  ASSERT_NE(engine, nullptr);
  const std::vector<Token> prompt = SeededTokens(kPrompt, 512, 3);
  ASSERT_TRUE(engine->Append(prompt).has_value());
  const Token t = 5;
  const auto first = engine->Append({&t, 1});
  ASSERT_TRUE(first.has_value());
  const std::vector<float> kept(first->begin(), first->end());
  const Token other = 77;
  ASSERT_TRUE(engine->Append({&other, 1}).has_value());
  engine->Rewind(kPrompt);
  const auto again = engine->Append({&t, 1});
  ASSERT_TRUE(again.has_value());
  ExpectSameBits({again->begin(), again->end()}, kept, "rewound");
  const RunStats before = engine->stats();
  ASSERT_TRUE(engine->engine().ProbeComputeSeconds({{&engine->sequence()}}).has_value());
  EXPECT_EQ(engine->stats().decode.tokens, before.decode.tokens);
  EXPECT_EQ(engine->position(), kPrompt + 1);
}

TEST(Sequence, RefusesWhatCannotBeEvaluated) {
  const TempFolder folder;
  const auto engine = Open(WriteTinyModel(folder.path(), {}), {});
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->Append({}).has_value());
  for (const Token bad : {-1, 512, 1 << 30}) {
    const auto result = engine->Append({&bad, 1});
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, Errc::kInvalidRequest);
  }
  const auto too_long = engine->Append(SeededTokens(kContext + 1, 512, 1));
  ASSERT_FALSE(too_long.has_value());
  EXPECT_NE(too_long.error().message.find("--ctx"), std::string::npos);
  EXPECT_EQ(engine->position(), 0U);
  EXPECT_TRUE(engine->Append(SeededTokens(kContext, 512, 1)).has_value());
  const Token one = 1;
  EXPECT_FALSE(engine->Append({&one, 1}).has_value());
}

// Reading ahead leaves reads behind that no layer wanted; the probe shares the disk with them.
TEST(Sequence, TheDiskCanBeProbedRightAfterAPrefill) {
  const TempFolder folder;
  const TinySpec spec{.arch = "qwen3moe", .type = "Q8_0", .layers = 6, .ff = 512};
  const auto engine = Open(WriteTinyModel(folder.path(), spec), {.percent = 40.0});
  ASSERT_NE(engine, nullptr);
  for (uint32_t round = 0; round < 10; ++round) {
    engine->Reset();
    ASSERT_TRUE(engine->Append(SeededTokens(8, 512, round)).has_value());
    const auto bandwidth = engine->engine().ProbeDiskBandwidth();
    ASSERT_TRUE(bandwidth.has_value()) << bandwidth.error().message;
    EXPECT_GT(*bandwidth, 0.0);
  }
}

TEST(Sequence, AStopRequestEndsThePrefillAndNothingElse) {
  const TempFolder folder;
  const auto engine = Open(WriteTinyModel(folder.path(), {}), {});
  ASSERT_NE(engine, nullptr);
  engine->RequestStop();
  const auto stopped = engine->Append(SeededTokens(8, 512, 1));
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
  EXPECT_EQ(engine->position(), 0U);
  EXPECT_TRUE(engine->Append(SeededTokens(8, 512, 1)).has_value());
}

// What a budget that is too small is refused with.
uint64_t SmallestBudget(const std::string& path, EngineOptions options) {
  options.ram_bytes = 1 << 20;
  const auto refused = NativeEngine::Open(path, options);
  EXPECT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  const std::string& message = refused.error().message;
  const size_t at = message.find("--ram ");
  EXPECT_NE(at, std::string::npos) << message;
  // The process itself grows a little between two calls, so a little is added.
  return (std::stoull(message.substr(at + 6)) + 8) * kMiB;
}

// The budget is the peak of the process: loading, a long prompt in chunks, decode with prefetch.
TEST(Budget, IsThePeakOfTheProcess) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer's own memory counts";
  const TempFolder folder;
  const std::string path = WriteTinyModel(
      folder.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 6, .experts = 64, .ff = 512});
  for (const uint64_t extra : {0, 8, 40}) {
    // From here on VmHWM counts anew: other tests may have run in this process.
    std::ofstream reset("/proc/self/clear_refs");
    if (!(reset << "5" << std::flush)) GTEST_SKIP() << "the kernel does not let the peak be reset";
    EngineOptions options;
    options.ctx = 512;
    options.chunk = 64;
    options.threads = 2;
    options.ram_bytes = SmallestBudget(path, options) + extra * kMiB;
    const auto engine = OneSequence::Open(path, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    EXPECT_LT((*engine)->memory().n_slots, (*engine)->memory().n_experts) << extra;
    ASSERT_TRUE((*engine)->Append(SeededTokens(300, 512, 1)).has_value());
    for (const Token t : SeededTokens(30, 512, 2)) {
      ASSERT_TRUE((*engine)->Append({&t, 1}).has_value());
    }
    EXPECT_LE(PeakResidentMemory(), options.ram_bytes) << extra;
    const MemoryPlan& plan = (*engine)->memory();
    EXPECT_GT(PeakResidentMemory(), plan.slots + plan.dense + plan.kv) << extra;  // used, too
  }
}

TEST(Budget, TooSmallNamesTheSmallestThatWorksAndThatWorks) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {.layers = 4});
  EngineOptions options;
  options.ctx = kContext;
  options.ram_bytes = SmallestBudget(path, options);
  const auto engine = OneSequence::Open(path, options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  EXPECT_LE((*engine)->memory().smallest, options.ram_bytes);
}

}  // namespace
}  // namespace moestro
