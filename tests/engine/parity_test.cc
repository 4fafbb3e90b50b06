// SPDX-License-Identifier: MIT
// Moestro and libllama on the same file in the same process: same greedy tokens, logits within a
// tolerance, for every architecture and several quantisations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <numbers>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "model/families/families.h"
#include "tests/support/llama_reference_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr size_t kPrompt = 40;
constexpr size_t kGenerated = 64;
constexpr uint32_t kContext = 256;

// Tolerances, as shares of the standard deviation of a token's logits. Differences are close to
// normally distributed, and the largest of 104 tokens' 512 logits is below five typical ones.
//
// Keys and values are F32 on both sides. With dense weights in GGUF layout and without ggml's tiled
// product (which keeps activations in F32 for large batches of K-quants) both sides round
// activations alike and add in the same order within a row. What differs is the order of sums in
// attention and norms, in F32.
//   F32   nothing is rounded: a sum of 256 terms is off by sqrt(256) 2^-24 of its size, up to 28
//         products in a row by sqrt(28) times that, 5e-6; five times that.
//   F16   products round their input with s = 2^-10. A value that the difference carries over a
//         rounding border moves by one step: 5e-6 over a spacing of 7e-4, 0.7 % of the 28 * 256
//         values on a logit's way, 50 of them. Each moves a product, a sum over 256 values, by
//         about s / sqrt(256); together that is sqrt(50 / 256) s, and the largest of 512 logits
//         moves 4.5 times as far: 2 s.
//   BF16  s = 2^-7: 6 values cross; 0.7 s likewise. Twice that: a crossing moves a product so far
//         that others may follow.
//   8-bit activations (all quantised types): s = 1/127 of a block's largest value; a crossing moves
//         a product so far that others follow. Bounded by what differs when *all* values are
//         rounded otherwise, as in repacked layouts: every product is off by about 0.3/127 = 0.25
//         %, up to 28 of these in a row by sqrt(28) * 0.25 % = 1.3 %; five times that.
constexpr double kF32 = 5 * 5e-6;
constexpr double kF16 = kF32 + 2.0 / (1 << 10);
constexpr double kBf16 = kF32 + 2 * 0.7 / (1 << 7);
constexpr double kEightBits = 5 * 1.3e-2;

// What experts with a gate join is off by what two products are off by, independently, relatively:
// sqrt(2) of one. A squared ReLU is off by twice what its one product is.
// libllama takes GELU from a table of F16 values: its input and result are rounded to 11
// bits, 2.1e-4 of a value each on average. Through the blocks of up to four layers that is off as
// F16 products are (above), but in F32 models, too.
constexpr double kGeluTable = 2.0 / (1 << 10);

// Both read keys and values in F16, but libllama rounds queries and weights of the softmax to F16
// as well, 2.1e-4 of a value on average each, 3e-4 together; ours rounds nothing. Weights of cells
// are off independently, so what a head finds is off by as much, and so is the residual that is
// mostly made of it: five times 3e-4. Largest seen with AVX-512: 6.2e-4.
constexpr double kHalfCells = 5 * 3e-4;

// Where heads choose blocks, libllama rounds keys and values of other layers to F16.
bool RoundsDenseLayers(const TinySpec& spec) {
  return spec.arch == "minimax-m3" && spec.dense_layers > 0 && spec.top_k < kContext;
}

double ToleranceOf(const TinySpec& spec) {
  const Activation activation = FindFamily(Families(), spec.arch)->experts.activation;
  const double table = activation == Activation::kGeglu ? kGeluTable : 0.0;
  if (spec.type == "F32" && RoundsDenseLayers(spec)) return kHalfCells;
  if (spec.type == "F32") return kF32 + table;
  // Of joined matrices libllama multiplies keys and values by latents, and we queries by keys: all
  // values are rounded otherwise, as in another layout.
  if (spec.is_joined) return kEightBits;
  const double factor = HasGate(activation) ? 1.0 : std::numbers::sqrt2;
  if (spec.type == "F16") return factor * kF16 + table;
  return factor * (spec.type == "BF16" ? kBf16 : kEightBits);
}

// A token whose last chosen expert and first rejected one are closer than the tolerance may choose
// another expert; its logits are then others, and keys and values of it move all later tokens. From
// there on, only a share of tokens has to be within kEightBits. With the same layout of weights
// such ties are rarer.
constexpr double kShareOfTokens = 0.9;
constexpr double kShareOfTokensSameRounding = 0.98;

// The largest of 512 logits is 0.28 standard deviations ahead of the next on average, so a typical
// difference d (a fifth of the tolerance, or less) makes another one the largest for about d / 0.28
// of the tokens: up to 5 % with 8-bit activations, five tokens of 104; twice as many are rare. That
// such a choice is a tie is checked for each.
constexpr size_t kOtherChoices = 10;

double Deviation(std::span<const float> values) {
  double mean = 0.0;
  for (const float v : values) mean += v;
  mean /= static_cast<double>(values.size());
  double sum = 0.0;
  for (const float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// In standard deviations of b.
double LargestDifference(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return difference / Deviation(b);
}

std::unique_ptr<OneSequence> OpenEngine(const std::string& path, EngineOptions options = {}) {
  options.ctx = kContext;
  options.threads = 2;
  auto engine = OneSequence::Open(path, options);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return *std::move(engine);
}

// A group of experts is judged by its two best.
float GroupScore(std::span<const float> members) {
  std::vector<float> sorted(members.begin(), members.end());
  std::ranges::sort(sorted, std::greater());
  return sorted[0] + sorted[1];
}

// The groups by these scores, the best first, with their scores.
std::vector<std::pair<float, size_t>> GroupsByScore(std::span<const float> scores,
                                                    const RouterSpec& router) {
  const size_t size = scores.size() / router.n_group;
  std::vector<std::pair<float, size_t>> order;
  for (size_t g = 0; g < router.n_group; ++g) {
    order.emplace_back(GroupScore(scores.subspan(g * size, size)), g);
  }
  std::ranges::sort(order, std::greater());
  return order;
}

// The largest score of an expert that a choice among these groups rejects, less the smallest
// chosen one; 0: the choice is theirs; infinity: it has an expert of another group.
float GapWithin(std::span<const float> scores, std::span<const ExpertId> chosen,
                const std::vector<bool>& has_group) {
  const size_t size = scores.size() / has_group.size();
  float least = std::numeric_limits<float>::infinity();
  for (const ExpertId e : chosen) {
    if (!has_group[e.value / size]) return std::numeric_limits<float>::infinity();
    least = std::min(least, scores[e.value]);
  }
  float most = -std::numeric_limits<float>::infinity();
  for (size_t e = 0; e < scores.size(); ++e) {
    const ExpertId id{static_cast<uint16_t>(e)};
    if (has_group[e / size] && !std::ranges::contains(chosen, id)) most = std::max(most, scores[e]);
  }
  return std::max(most - least, 0.0F);
}

// How far a choice of experts is from what these router scores choose, in standard deviations; 0
// for the same choice. The best groups are taken, or all but one of them and another group, which
// is then as far as their scores differ.
double RouterGap(std::span<const float> scores, std::span<const ExpertId> chosen,
                 const RouterSpec& router) {
  const std::vector<std::pair<float, size_t>> order = GroupsByScore(scores, router);
  std::vector<bool> has_group(router.n_group);
  for (size_t i = 0; i < router.n_group_used; ++i) has_group[order[i].second] = true;
  float gap = GapWithin(scores, chosen, has_group);
  for (size_t out = 0; out < router.n_group_used; ++out) {
    for (size_t in = router.n_group_used; in < order.size(); ++in) {
      std::vector<bool> other = has_group;
      other[order[out].second] = false;
      other[order[in].second] = true;
      gap = std::min(
          gap, std::max(order[out].first - order[in].first, GapWithin(scores, chosen, other)));
    }
  }
  return gap / Deviation(scores);
}

// What the two engines say about one token.
struct Row {
  double difference = 0.0;  // of the logits, in standard deviations
  double router_gap = 0.0;  // in the first layer where the experts differ; 0: they never do
  double greedy_gap = 0.0;  // the reference's largest logit less that of our choice; 0: the same
};

// The prompt's logits of both engines, then those of greedy steps, the reference choosing.
class Race {
 public:
  Race(const TinySpec& spec, bool repack, KvType kv_type = KvType::kF32) {
    const std::string path = WriteTinyModel(folder_.path(), spec);
    EngineOptions options;
    options.repack = repack;
    options.kv_type = kv_type;
    engine_ = OpenEngine(path, options);
    reference_ = std::make_unique<LlamaReference>(path, kContext, kContext, kv_type);
  }

  void Run(size_t n_prompt = kPrompt) {
    ASSERT_NE(engine_, nullptr);
    const uint32_t n_vocab = reference_->n_vocab();
    ASSERT_EQ(engine_->spec().n_vocab, n_vocab);
    engine_->SetRouteObserver([this](const SeenRouting& s) { routings_.push_back(s.routing); }, 0);
    const std::vector<Token> prompt = SeededTokens(n_prompt, n_vocab, 7);
    const auto ours = engine_->AppendAll(prompt);
    ASSERT_TRUE(ours.has_value()) << ours.error().message;
    Compare(*ours, reference_->Append(prompt));
    for (size_t i = 0; i < kGenerated; ++i) {
      routings_.clear();
      const auto mine = engine_->Append({&next_, 1});
      ASSERT_TRUE(mine.has_value()) << mine.error().message;
      Compare(*mine, reference_->Append({&next_, 1}));
    }
  }

  const std::vector<Row>& rows() const { return rows_; }
  // The first token of which the two choose other experts; all of them if there is none.
  std::span<const Row> before_first_tie() const {
    const auto tie = std::ranges::find_if(rows_, [](const Row& r) { return r.router_gap > 0.0; });
    return {rows_.begin(), tie};
  }
  double share_within(double tolerance) const {
    return static_cast<double>(Count([&](const Row& r) { return r.difference < tolerance; })) /
           static_cast<double>(rows_.size());
  }
  size_t other_choices() const {
    return Count([](const Row& r) { return r.greedy_gap > 0.0; });
  }

 private:
  size_t Count(const std::function<bool(const Row&)>& is_meant) const {
    return static_cast<size_t>(std::ranges::count_if(rows_, is_meant));
  }

  void Compare(std::span<const float> ours, std::span<const float> theirs) {
    const std::vector<std::vector<float>>& routers = reference_->router_scores();
    ASSERT_EQ(routers.size(), routings_.size());  // a layer each
    const uint32_t n_vocab = reference_->n_vocab();
    const size_t n_expert = engine_->spec().router.n_expert;
    for (size_t t = 0; t < theirs.size() / n_vocab; ++t) {
      const auto a = ours.subspan(t * n_vocab, n_vocab);
      const auto b = theirs.subspan(t * n_vocab, n_vocab);
      const auto mine = static_cast<size_t>(Greedy(a));
      next_ = Greedy(b);
      Row row{.difference = LargestDifference(a, b),
              .greedy_gap = (b[static_cast<size_t>(next_)] - b[mine]) / Deviation(b)};
      // Where tokens name the experts, scores do not choose.
      for (size_t l = engine_->spec().n_token_layers(); l < routers.size() && row.router_gap == 0.0;
           ++l) {
        row.router_gap = RouterGap(std::span(routers[l]).subspan(t * n_expert, n_expert),
                                   routings_[l].experts_of(t), engine_->spec().router);
      }
      rows_.push_back(row);
    }
  }

  TempFolder folder_;
  std::unique_ptr<OneSequence> engine_;
  std::unique_ptr<LlamaReference> reference_;
  std::vector<Routing> routings_;  // of our last call, by layer
  Token next_ = 0;
  std::vector<Row> rows_;
};

struct Case {
  const char* name;
  TinySpec spec;
};

// Logits, experts and greedy tokens up to the first tie between experts.
void ExpectTheSameUpToTies(const Race& race, double tolerance) {
  size_t token = 0;
  for (const Row& row : race.before_first_tie()) {
    EXPECT_LT(row.difference, tolerance) << "token " << token;
    // Two logits may each be off by the tolerance, towards each other.
    EXPECT_LT(row.greedy_gap, 2 * tolerance) << "token " << token;
    ++token;
  }
  if (token < race.rows().size()) {
    EXPECT_LT(race.rows()[token].router_gap, 2 * tolerance) << "token " << token;
  }
}

std::string CaseNameOf(const Case& c) {
  const TinySpec& spec = c.spec;
  return Format("{}_{}_{}_{}_{}", c.name, CaseName(spec.arch), spec.type, spec.layers, spec.ff);
}
void PrintTo(const Case& c, std::ostream* out) { *out << CaseNameOf(c); }

class Parity : public ::testing::TestWithParam<Case> {};

TEST_P(Parity, SameTokensAndLogits) {
  Race race(GetParam().spec, false);
  race.Run();
  if (HasFatalFailure()) return;
  ExpectTheSameUpToTies(race, ToleranceOf(GetParam().spec));
  EXPECT_GE(race.share_within(kEightBits), kShareOfTokensSameRounding);
  EXPECT_LE(race.other_choices(), kOtherChoices);
}

// As a user runs it.
TEST_P(Parity, RepackedWeightsStayClose) {
  Race race(GetParam().spec, true);
  race.Run();
  if (HasFatalFailure()) return;
  ExpectTheSameUpToTies(race, ToleranceOf(GetParam().spec));
  EXPECT_GE(race.share_within(kEightBits), kShareOfTokens);
  EXPECT_LE(race.other_choices(), kOtherChoices);
}

// Longer than two of the chunks of 64 in which libllama takes a prompt through states.
// A model of which libllama rounds nothing.
TinySpec Exact(const std::string& arch) {
  TinySpec spec{.arch = arch, .type = "F32"};
  if (RoundsDenseLayers(spec)) spec.dense_layers = 0;
  return spec;
}

class LongStates : public ::testing::TestWithParam<std::string> {};

TEST_P(LongStates, SameTokensAndLogits) {
  const TinySpec spec = Exact(GetParam());
  Race race(spec, false);
  race.Run(150);
  if (HasFatalFailure()) return;
  ExpectTheSameUpToTies(race, ToleranceOf(spec));
  EXPECT_GE(race.share_within(kEightBits), kShareOfTokensSameRounding);
}

std::vector<std::string> ArchsWithStates() {
  std::vector<std::string> archs = TinyArchs();
  std::erase_if(archs, [](const std::string& arch) { return !HasStates(arch); });
  return archs;
}

INSTANTIATE_TEST_SUITE_P(All, LongStates, ::testing::ValuesIn(ArchsWithStates()),
                         [](const auto& arch) { return CaseName(arch.param); });

// Rows of 19 to 27 blocks, of which they choose three.
INSTANTIATE_TEST_SUITE_P(Blocks, LongStates, ::testing::Values("minimax-m3"),
                         [](const auto& arch) { return CaseName(arch.param); });

// More positions than a text here has are chosen. Where anything is rounded, the last chosen and
// the first rejected position of an indexer may be as close as its scores are off, which Row does
// not tell; F32 shows what is chosen.
TinySpec ChoosingAll(TinySpec spec) {
  spec.top_k = kContext;
  return spec;
}

class HalfCells : public ::testing::TestWithParam<std::string> {};

TEST_P(HalfCells, SameTokensAndLogits) {
  Race race(ChoosingAll({.arch = GetParam(), .type = "F32"}), false, KvType::kF16);
  race.Run();
  if (HasFatalFailure()) return;
  ExpectTheSameUpToTies(race, kHalfCells);
  EXPECT_GE(race.share_within(kHalfCells), kShareOfTokensSameRounding);
}

INSTANTIATE_TEST_SUITE_P(All, HalfCells, ::testing::ValuesIn(TinyArchs()),
                         [](const auto& arch) { return CaseName(arch.param); });

// Both store keys and values in 8 bits, and libllama rounds queries to 8 bits as well. A cell's
// value that crosses a rounding border is off like a query's, so there are two more inexact
// products in each of two layers than the 28 above, even if weights are F32: sqrt(32) * 0.25 %
// = 1.42 %. Largest seen with AVX-512: 2.3e-2 in F32, 5.6e-2 in Q8_0.
constexpr double kQuantisedCells = 5 * 1.42e-2;

// A product of architectures and two types. The cover has each architecture, and each kind of
// mixers with both types.
class QuantisedCells : public ::testing::TestWithParam<Case> {};

TEST_P(QuantisedCells, SameTokensAndLogits) {
  Race race(GetParam().spec, false, KvType::kQ8);
  race.Run();
  if (HasFatalFailure()) return;
  ExpectTheSameUpToTies(race, kQuantisedCells);
  // The two round otherwise, so ties are as frequent as with other layouts.
  EXPECT_GE(race.share_within(kQuantisedCells), kShareOfTokens);
  for (const Row& row : race.rows()) {
    if (row.difference < kQuantisedCells) continue;
    EXPECT_GT(row.router_gap, 0.0);
    EXPECT_LT(row.router_gap, 2 * kQuantisedCells);
  }
  EXPECT_LE(race.other_choices(), kOtherChoices);
}

std::vector<Case> QuantisedCellsOfPart(uint32_t part) {
  std::vector<Case> cells;
  for (const std::string& arch : TinyArchs()) {
    for (const char* type : {"F32", "Q8_0"}) {
      cells.push_back({"cells", ChoosingAll({.arch = arch, .type = type})});
    }
  }
  return CellsOfPart(part, cells, [](const Case& c) {
    return Keys{c.spec.arch, MixersOf(c.spec.arch) + " " + c.spec.type};
  });
}

MOESTRO_INSTANTIATE_PARTS(QuantisedCells, QuantisedCellsOfPart,
                          [](const auto& one) { return CaseNameOf(one.param); });

// Blocks that each group of heads chooses.
std::vector<Case> CasesOfBlocks() {
  const auto of = [](TinySpec spec) {
    spec.arch = "minimax-m3";
    spec.type = "F32";
    return spec;
  };
  const auto exact = [&](TinySpec spec) {
    spec.dense_layers = 0;
    return of(spec);
  };
  return {{"dense_layers", of({.layers = 5, .dense_layers = 2})},
          {"dense_layers_alone", ChoosingAll(of({.layers = 4, .dense_layers = 3}))},
          {"layers", exact({.layers = 4})},
          {"two_last_blocks", exact({.top_k = 32, .last_blocks = 2})},
          {"last_blocks_alone", exact({.top_k = 16, .last_blocks = 2})},
          {"own_block_alone", exact({.top_k = 8})},
          {"positions", exact({.block = 1})},
          {"odd_blocks", exact({.top_k = 21, .block = 7})},
          {"large_blocks", exact({.top_k = 64, .block = 32})},
          {"groups_of_heads", exact({.heads = 8, .kv_heads = 4, .head_dim = 32})},
          {"one_group", exact({.kv_heads = 1})},
          {"groups_of_one", exact({.kv_heads = 4})},
          {"epsilon", exact({.rms_eps = 0.05F})}};
}

std::vector<Case> Cases() {
  std::vector<Case> cases = CasesOfBlocks();
  for (const std::string& arch : TinyArchs()) {
    for (const std::string type : {"F32", "F16", "Q8_0", "Q4_0", "Q4_K_M"}) {
      const TinySpec spec{.arch = arch, .type = type};
      cases.push_back({"families", type == "F32" ? Exact(arch) : ChoosingAll(spec)});
    }
  }
  for (const char* type :
       {"BF16", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"}) {
    cases.push_back({"types", {.arch = "qwen3moe", .type = type, .ff = 256}});
  }
  for (const char* type : {"F32", "Q4_0"}) {  // experts in the space of the hidden state
    cases.push_back({"wide", {.arch = "nemotron_h_moe", .type = type, .latent = 0}});
  }
  cases.push_back({"split", {.arch = "qwen3moe", .type = "Q4_0", .shards = 3}});
  cases.push_back({"tied", {.arch = "llama", .type = "Q8_0", .is_tied = true}});
  cases.push_back({"tied", {.arch = "qwen3moe", .type = "Q4_K_M", .is_tied = true}});
  cases.push_back(
      {"odd",
       {.arch = "qwen2moe", .type = "Q4_0", .layers = 4, .experts = 6, .used = 4, .ff = 352}});
  cases.push_back({"windows", {.arch = "exaone-moe", .type = "F32", .layers = 5}});
  // Keys and queries of a delta net are normed by the root of their squares' sum and this.
  cases.push_back({"epsilon", {.arch = "qwen35moe", .type = "F32", .rms_eps = 0.05F}});
  cases.push_back({"epsilon", {.arch = "qwen4exp", .type = "F32", .rms_eps = 0.05F}});
  cases.push_back({"layers", {.arch = "qwen4exp", .type = "F32", .layers = 5}});
  cases.push_back({"tied", {.arch = "qwen4exp", .type = "F32", .is_tied = true}});
  cases.push_back({"no_table", {.arch = "qwen4exp", .type = "F32", .has_ngrams = false}});
  cases.push_back({"epsilon", {.arch = "bailingmoe3", .type = "F32", .rms_eps = 0.05F}});
  for (const char* type : {"F32", "Q4_0"}) {
    cases.push_back({"limits", {.arch = "bailingmoe3", .type = type, .layers = 3, .limit = 0.3F}});
  }
  cases.push_back({"layers", {.arch = "bailingmoe3", .type = "F32", .layers = 5}});
  cases.push_back({"no_yarn", {.arch = "bailingmoe3", .type = "F32", .orig_context = 0}});
  cases.push_back({"tied", {.arch = "bailingmoe3", .type = "F32", .is_tied = true}});
  cases.push_back({"whole_queries", {.arch = "bailingmoe3", .type = "F32", .query_latent = 0}});
  cases.push_back({"epsilon", {.arch = "glm5-next", .type = "F32", .rms_eps = 0.05F}});
  for (const char* type : {"F32", "Q4_0"}) {
    cases.push_back({"limits", {.arch = "glm5-next", .type = type, .layers = 3, .limit = 0.3F}});
  }
  // Two layers with an indexer and one that uses the choice of the layer before it.
  cases.push_back({"layers", {.arch = "glm5-next", .type = "F32", .layers = 6}});
  // Layers without pools, with pools of four positions and of 128.
  cases.push_back({"layers", {.arch = "deepseek4", .type = "F32", .layers = 5}});
  cases.push_back({"epsilon", {.arch = "deepseek4", .type = "F32", .rms_eps = 0.05F}});
  cases.push_back({"no_yarn", {.arch = "deepseek4", .type = "F32", .orig_context = 0}});
  for (const char* type : {"F32", "Q4_0"}) {
    cases.push_back({"limits", {.arch = "deepseek4", .type = type, .layers = 3, .limit = 0.3F}});
  }
  cases.push_back({"windows", {.arch = "laguna", .type = "F32", .layers = 5}});
  cases.push_back({"windows", {.arch = "afmoe", .type = "F32", .layers = 5}});
  cases.push_back({"norms", {.arch = "glm4moe", .type = "F32", .has_qk_norm = true}});
  cases.push_back({"no_shared", {.arch = "ernie4_5-moe", .type = "F32", .shared_ff = 0}});
  // libllama knows DeepSeek-V2-Lite by its layers, which are more than the tolerances of 8 bits are
  // for.
  cases.push_back({"lite", {.arch = "deepseek2", .type = "F32", .layers = 27, .query_latent = 0}});
  // DeepSeek-V3, without YaRN's multiplier, and files from before latents were attended to.
  for (const char* type : {"F32", "Q4_0"}) {
    const TinySpec latent{.arch = "deepseek2", .type = type};
    TinySpec sigmoid = latent;
    sigmoid.has_sigmoid = true;
    cases.push_back({"sigmoid", sigmoid});
    TinySpec plain = latent;
    plain.yarn_log = 0.0F;
    cases.push_back({"no_log", plain});
    TinySpec joined = latent;
    joined.is_joined = true;
    cases.push_back({"joined", joined});
  }
  cases.push_back({"joined", {.arch = "deepseek2", .type = "BF16", .is_joined = true}});
  cases.push_back({"longrope", {.arch = "phimoe", .type = "Q8_0", .orig_context = 300}});
  return cases;
}

// Architectures in the five types are a product. The cover has each architecture in F32 and in one
// of the others, each type with each kind of mixers, and all that is no part of the product.
std::vector<Case> CasesOfPart(uint32_t part) {
  return CellsOfPart(part, Cases(), [](const Case& c) {
    const TinySpec& spec = c.spec;
    if (std::string_view(c.name) != "families") return Keys{CaseNameOf(c)};
    return Keys{spec.arch + (spec.type == "F32" ? "" : " rounded"),
                MixersOf(spec.arch) + " " + spec.type};
  });
}

MOESTRO_INSTANTIATE_PARTS(Parity, CasesOfPart,
                          [](const auto& one) { return CaseNameOf(one.param); });

// Neither attention nor experts depend on how a prompt is cut into chunks, nor do products of dense
// matrices, ggml's plain ones or our own.
TEST(Prefill, ChunksGiveTheSameLogitsAsTheWhole) {
  const TempFolder folder;
  for (const char* arch : {"llama", "qwen2moe", "qwen3moe", "deepseek2"}) {
    const std::string path = WriteTinyModel(folder.path(), {.arch = arch, .type = "Q8_0"});
    for (const bool repack : {false, true}) {
      std::vector<std::vector<float>> logits;
      for (const uint32_t chunk : {256U, 16U, 7U}) {
        EngineOptions options;
        options.chunk = chunk;
        options.repack = repack;
        const auto engine = OpenEngine(path, options);
        ASSERT_NE(engine, nullptr);
        const auto all = engine->AppendAll(SeededTokens(kPrompt, 512, 7));
        ASSERT_TRUE(all.has_value()) << all.error().message;
        logits.push_back(*all);
      }
      EXPECT_EQ(logits[1], logits[0]) << arch << " repack " << repack;
      EXPECT_EQ(logits[2], logits[0]) << arch << " repack " << repack;
    }
  }
}

TEST(Prefill, TokenByTokenGivesTheSameLogitsAsTheWhole) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {.arch = "olmoe", .type = "Q4_0"});
  const std::vector<Token> prompt = SeededTokens(20, 512, 9);
  for (const KvTypeInfo& type : kKvTypes) {
    EngineOptions options;
    options.repack = false;
    options.kv_type = type.type;
    const auto whole = OpenEngine(path, options);
    const auto steps = OpenEngine(path, options);
    const auto expected = whole->AppendAll(prompt);
    ASSERT_TRUE(expected.has_value());
    for (size_t i = 0; i < prompt.size(); ++i) {
      const auto logits = steps->Append(std::span(prompt).subspan(i, 1));
      ASSERT_TRUE(logits.has_value());
      EXPECT_TRUE(std::ranges::equal(*logits, std::span(*expected).subspan(i * 512, 512)))
          << type.name << ", token " << i;
    }
  }
}

// Read by ggml's CPU backend when main() loads it: see the tolerances.
[[maybe_unused]] const bool kIsUntiled = setenv("GGML_CPU_TILED_MM", "0", 1) == 0;

}  // namespace
}  // namespace moestro
