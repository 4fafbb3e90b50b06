// SPDX-License-Identifier: MIT
#include "forward/dense/ngrams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "compute/cpu_device.h"
#include "forward/dense/placed_tensors_testing.h"
#include "residency/ngram_rows.h"
#include "tests/support/memory_reader_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kGramStreams = 2;
constexpr uint32_t kGramWidth = 32;
constexpr uint32_t kGramAll = kGramStreams * kGramWidth;
constexpr uint32_t kGramRows = 60;
constexpr float kGramEps = 1e-3F;

ModelSpec GramSpec() {
  ModelSpec spec;
  spec.n_embd = kGramWidth;
  spec.rms_eps = kGramEps;
  spec.streams = StreamsSpec{.mixing = StreamMixing::kLowRank, .n_streams = kGramStreams};
  spec.ngrams = NgramSpec{.n_most = 3,
                          .heads_of_each = 1,
                          .n_values = 16,
                          .n_rows = kGramRows,
                          .n_taps = 4,
                          .end = 3,
                          .factors = {5, 7, 11},
                          .heads = {{.first = 0, .count = 29}, {.first = 29, .count = 31}}};
  spec.layers.push_back({.mixer = StateSpec{.kind = "other", .n_values = 10},
                         .ngram_values = spec.ngrams->n_history() * kGramAll});
  return spec;
}

std::vector<float> Normal(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

// Weights, the table and the streams that come in, of a text of `kText` tokens.
constexpr size_t kText = 40;
struct GramValues {
  std::vector<float> table = Normal(size_t{kGramRows} * 16, 1);
  std::vector<float> key = Normal(size_t{kGramAll} * kGramWidth, 2);
  std::vector<float> value = Normal(size_t{kGramWidth} * kGramWidth, 3);
  std::vector<float> key_norm = Normal(kGramAll, 4);
  std::vector<float> query_norm = Normal(kGramAll, 5);
  std::vector<float> conv_norm = Normal(kGramAll, 6);
  std::vector<float> conv = Normal(size_t{kGramAll} * 4, 7);
  std::vector<float> streams = Normal(kText * kGramAll, 8);
  std::vector<Token> text;
  GramValues() {
    std::mt19937 random(9);
    for (size_t i = 0; i < kText; ++i) text.push_back(static_cast<Token>(random() % 9));
  }
};

// The formulas in plain loops, for all positions of the text.
std::vector<double> GramsPlainly(const GramValues& v, const ModelSpec& spec) {
  const auto inverse = [](const double* x) {
    double squares = 0.0;
    for (uint32_t i = 0; i < kGramWidth; ++i) squares += x[i] * x[i];
    return 1.0 / std::sqrt(squares / kGramWidth + kGramEps);
  };
  std::vector<double> gated(kText * kGramAll);
  std::vector<double> normed(kText * kGramAll);
  std::vector<double> out(kText * kGramAll);
  for (size_t t = 0; t < kText; ++t) {
    std::vector<uint64_t> rows(2);
    NgramRows(*spec.ngrams, std::span(v.text).first(t + 1), rows);
    std::vector<double> x;
    for (const uint64_t row : rows) {
      for (uint32_t i = 0; i < 16; ++i) x.push_back(v.table[row * 16 + i]);
    }
    std::vector<double> value(kGramWidth);
    for (uint32_t o = 0; o < kGramWidth; ++o) {
      for (uint32_t i = 0; i < kGramWidth; ++i) value[o] += v.value[o * kGramWidth + i] * x[i];
    }
    for (uint32_t s = 0; s < kGramStreams; ++s) {
      std::vector<double> key(kGramWidth);
      std::vector<double> query(kGramWidth);
      for (uint32_t o = 0; o < kGramWidth; ++o) {
        const size_t at = s * kGramWidth + o;
        for (uint32_t i = 0; i < kGramWidth; ++i) key[o] += v.key[at * kGramWidth + i] * x[i];
        query[o] = v.streams[t * kGramAll + at];
      }
      const double by_key = inverse(key.data());
      const double by_query = inverse(query.data());
      double product = 0.0;
      for (uint32_t i = 0; i < kGramWidth; ++i) {
        const size_t at = s * kGramWidth + i;
        product += key[i] * by_key * v.key_norm[at] * query[i] * by_query * v.query_norm[at];
      }
      product /= std::sqrt(double{kGramWidth});
      const double root = std::copysign(std::sqrt(std::max(std::abs(product), 1e-6)), product);
      double* to = &gated[t * kGramAll + s * kGramWidth];
      for (uint32_t i = 0; i < kGramWidth; ++i) to[i] = value[i] / (1.0 + std::exp(-root));
      const double factor = inverse(to);
      for (uint32_t i = 0; i < kGramWidth; ++i) {
        const size_t at = s * kGramWidth + i;
        normed[t * kGramAll + at] = to[i] * factor * v.conv_norm[at];
      }
    }
    for (uint32_t c = 0; c < kGramAll; ++c) {
      double sum = 0.0;
      for (size_t tap = 0; tap < 4; ++tap) {
        const size_t back = (3 - tap) * 3;
        if (back <= t) sum += v.conv[c * 4 + tap] * normed[(t - back) * kGramAll + c];
      }
      const size_t at = t * kGramAll + c;
      out[at] = v.streams[at] + gated[at] + sum / (1.0 + std::exp(-sum));
    }
  }
  return out;
}

// Rows [first, first + count) of the text, with the state of the rows before.
class GramRun {
 public:
  GramRun(const GramValues& v, uint32_t threads)
      : v_(v), spec_(GramSpec()), device_(*CpuDevice::Open(threads)) {
    std::vector<std::byte> file(v.table.size() * sizeof(float));
    std::memcpy(file.data(), v.table.data(), file.size());
    reader_ = std::make_unique<MemoryReader>(std::vector<std::vector<std::byte>>{file});
    table_ = *TableRows::Create({.table = {.length = file.size()},
                                 .row_bytes = 16 * sizeof(float),
                                 .rows_at_once = kText * 2},
                                *reader_, {"table"});
    states_ = *StateStore::Allocate(*MemoryShape::Of(spec_, KvType::kF32), 2);
  }
  std::vector<float> Step(size_t first, size_t count, bool is_in_place) {
    Ngrams grams({.spec = spec_, .states = states_, .table = *table_});
    std::vector<StepRow> rows(count);
    const StateSlot to = is_in_place ? place_ : StateSlot{1 - place_.value};
    std::vector<RowState> states(
        count, {.from = first > 0 ? std::optional(place_) : std::nullopt, .to = to});
    for (size_t i = 0; i < count; ++i) rows[i].text = std::span(v_.text).first(first + i + 1);
    for (size_t i = 1; i < count; ++i) states[i].from = to;
    place_ = to;
    grams.Begin(rows);
    EXPECT_TRUE(grams.Finish());
    GraphArena arena(device_.backend(), 64);
    ggml_context* ctx = arena.Begin();
    PlacedTensors placed(ctx, 1 << 20);
    LayerTensors w;
    w.ngram_key = placed.Input(kGramWidth, v_.key);
    w.ngram_value = placed.Input(kGramWidth, v_.value);
    w.ngram_key_norm = placed.Input(kGramAll, v_.key_norm);
    w.ngram_query_norm = placed.Input(kGramAll, v_.query_norm);
    w.ngram_conv_norm = placed.Input(kGramAll, v_.conv_norm);
    w.ngram_conv = placed.Input(4, v_.conv);
    ggml_tensor* streams =
        placed.Input(kGramAll, std::span(v_.streams).subspan(first * kGramAll, count * kGramAll));
    grams.Bind(w, 0, 0, states);
    ggml_tensor* out = placed.Place(grams.Build(ctx, w, streams));
    ggml_build_forward_expand(arena.graph(), out);
    EXPECT_TRUE(arena.Run());
    const auto* values = static_cast<const float*>(out->data);
    return {values, values + ggml_nelements(out)};
  }

 private:
  const GramValues& v_;
  const ModelSpec spec_;
  CpuDevice device_;
  std::unique_ptr<MemoryReader> reader_;
  std::unique_ptr<TableRows> table_;
  StateStore states_;
  StateSlot place_{0};
};

TEST(NgramsTest, AgreeWithPlainLoops) {
  const GramValues v;
  const std::vector<double> expected = GramsPlainly(v, GramSpec());
  const std::vector<float> found = GramRun(v, 2).Step(0, kText, false);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-4) << i;
}

TEST(NgramsTest, StepsOfAnySizeGiveTheSameBits) {
  const GramValues v;
  const std::vector<float> whole = GramRun(v, 1).Step(0, kText, false);
  for (const bool is_in_place : {false, true}) {
    for (const size_t step : {size_t{1}, size_t{4}, size_t{13}}) {
      GramRun run(v, 3);
      std::vector<float> all;
      for (size_t at = 0; at < kText; at += step) {
        all.append_range(run.Step(at, std::min(step, kText - at), is_in_place));
      }
      EXPECT_EQ(all, whole) << step;
    }
  }
}

}  // namespace
}  // namespace moestro
