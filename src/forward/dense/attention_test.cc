// SPDX-License-Identifier: MIT
#include "forward/dense/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "memory/layer_values.h"

namespace moestro {
namespace {

constexpr RelativeBias kTwoSided{.n_buckets = 32, .max_distance = 128, .is_two_sided = true};
constexpr RelativeBias kOneSided{.n_buckets = 32, .max_distance = 128};

// Values of transformers' T5Attention._relative_position_bucket().
TEST(RelativeScores, BucketsAreThoseOfT5) {
  const std::pair<int64_t, uint32_t> two_sided[] = {
      {0, 0},   {-1, 1},   {1, 17},  {-7, 7},   {7, 23},    {-8, 8},     {8, 24},
      {12, 25}, {-16, 10}, {40, 28}, {-64, 14}, {-127, 15}, {-1000, 15}, {500, 31}};
  for (const auto& [distance, bucket] : two_sided) {
    EXPECT_EQ(BucketOf(kTwoSided, distance), bucket) << distance;
  }
  const std::pair<int64_t, uint32_t> one_sided[] = {{5, 0},     {0, 0},     {-1, 1},    {-15, 15},
                                                    {-16, 16},  {-32, 21},  {-64, 26},  {-100, 30},
                                                    {-127, 31}, {-128, 31}, {-9999, 31}};
  for (const auto& [distance, bucket] : one_sided) {
    EXPECT_EQ(BucketOf(kOneSided, distance), bucket) << distance;
  }
}

TEST(RelativeScores, EachHeadHasItsOwn) {
  std::vector<float> weights(size_t{32} * 3);  // [range][head]
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  const RelativeScores scores(kTwoSided, weights.data(), 3, 100);
  for (uint32_t head = 0; head < 3; ++head) {
    for (const int64_t distance : {-164, -100, -1, 0, 1, 37, 100, 164}) {
      const float* at = scores.From(head, distance);
      for (int64_t key : {0, 1, 63}) {
        const float expected = weights[BucketOf(kTwoSided, distance + key) * 3 + head];
        EXPECT_EQ(at[key], expected * std::numbers::log2e_v<float>) << head << ' ' << distance;
      }
    }
  }
}

// Four heads share two key-value heads; or all heads a key that holds the value, too, which threads
// share in parts of ten heads, or of seven and six.
constexpr AttentionShape kShared{.n_head = 4, .n_head_kv = 2, .dim_k = 96, .dim_v = 32};
constexpr AttentionShape kLatent{
    .n_head = 20, .n_head_kv = 1, .dim_k = 96, .dim_v = 64, .values_in_keys = true};
constexpr uint32_t kCells = 2048;
constexpr size_t kQueries = 800;  // rows of a step, at the most
constexpr float kScale = 0.15F;

// The cache's two matrices, by row, as it stores them.
class Stored {
 public:
  Stored(KvType type, size_t width, std::span<const float> numbers)
      : type_(type), row_bytes_(KvBytes(type, width)), width_(width) {
    bytes_.resize(KvBytes(type, numbers.size()));
    ToCells(type, numbers, bytes_);
  }
  const std::byte* data() const { return bytes_.data(); }
  std::span<std::byte> row(size_t cell) {
    return std::span(bytes_).subspan(cell * row_bytes_, row_bytes_);
  }
  // Values after rounding, by cell.
  std::vector<float> Read() const {
    std::vector<float> values(bytes_.size() / row_bytes_ * width_);
    FromCells(type_, bytes_, values);
    return values;
  }

 private:
  KvType type_;
  size_t row_bytes_;
  size_t width_;
  std::vector<std::byte> bytes_;
};

using Param = std::pair<AttentionShape, KvType>;

class AttentionTest : public ::testing::TestWithParam<Param> {
 protected:
  AttentionTest() : shape_(GetParam().first) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0F, 1.0F);
    const auto numbers = [&](size_t n) {
      std::vector<float> values(n);
      for (float& v : values) v = normal(random);
      return values;
    };
    shape_.kv_type = GetParam().second;
    const size_t key = size_t{shape_.n_head_kv} * shape_.dim_k;
    const size_t value = size_t{shape_.n_head_kv} * shape_.dim_v;
    keys_.emplace(shape_.kv_type, key, numbers(kCells * key));
    values_.emplace(shape_.kv_type, value, numbers(kCells * value));
    queries_ = numbers(kQueries * shape_.n_head * shape_.dim_k);
  }

  TiledAttention::Layer layer() const {
    const std::byte* values = shape_.values_in_keys ? nullptr : values_->data();
    return {.k = keys_->data(), .v = values, .scale = kScale, .sinks = {}};
  }

  // Rows whose queries are those of the same number, from `first` on -> [rows][n_head][dim_v].
  std::vector<float> Run(std::span<const RowCells> rows, const TiledAttention::Layer& layer,
                         size_t first = 0, uint32_t threads = 2,
                         const AttentionKernel& kernel = AttentionKernel::ForThisMachine()) {
    CpuDevice device = *CpuDevice::Open(threads);
    auto attention = *TiledAttention::Create(shape_, threads, kernel);
    GraphArena arena(device.backend(), 16);
    ggml_context* ctx = arena.Begin();
    const size_t n_rows = rows.size() / shape_.n_choices;
    ggml_tensor* q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, shape_.dim_k, shape_.n_head,
                                        static_cast<int64_t>(n_rows));
    ggml_tensor* mixed = attention->Node(ctx, q);
    attention->Bind(layer, rows);
    ggml_set_input(q);
    ggml_set_output(mixed);
    ggml_build_forward_expand(arena.graph(), mixed);
    EXPECT_TRUE(arena.Reserve() && arena.Place());
    EXPECT_LE(first + n_rows, kQueries);
    const size_t width = size_t{shape_.n_head} * shape_.dim_k;
    std::memcpy(q->data, queries_.data() + first * width, ggml_nbytes(q));
    EXPECT_TRUE(device.Compute(arena.graph()));
    std::vector<float> out(n_rows * shape_.n_head * shape_.dim_v);
    std::memcpy(out.data(), mixed->data, ggml_nbytes(mixed));
    return out;
  }

  // What cells hold, [kCells][n_head_kv * dim_k] and [kCells][...dim_v or, in keys, dim_k].
  struct Cells {
    std::vector<float> keys;
    std::vector<float> values;
  };
  Cells ReadCells() const {
    return {.keys = keys_->Read(),
            .values = shape_.values_in_keys ? keys_->Read() : values_->Read()};
  }

  // The definition, in doubles, for the row with the queries of `number`.
  std::vector<double> Expected(const RowCells& row, size_t number,
                               const TiledAttention::Layer& layer, const Cells& stored) const {
    std::vector<size_t> cells;
    for (const CellRun& run : row.runs) {
      for (uint32_t i = 0; i < run.count; ++i) cells.push_back(run.first + i);
    }
    cells.resize(row.n_positions);
    if (layer.window > 0 && layer.window < cells.size()) {
      cells.erase(cells.begin(), cells.end() - layer.window);
    }
    const size_t key_width = stored.keys.size() / kCells;
    const size_t value_width = stored.values.size() / kCells;
    const uint32_t dim_k = shape_.dim_k;
    const uint32_t dim_v = shape_.dim_v;
    std::vector<double> out;
    for (size_t h = 0; h < shape_.n_head; ++h) {
      const size_t kv = h / (shape_.n_head / shape_.n_head_kv);
      const float* q = queries_.data() + (number * shape_.n_head + h) * shape_.dim_k;
      double weight = layer.sinks.empty() ? 0.0 : std::exp(double{layer.sinks[h]});
      std::vector<double> sums(dim_v, 0.0);
      double* const sum = sums.data();
      for (const size_t cell : cells) {
        const float* k = stored.keys.data() + cell * key_width + kv * shape_.dim_k;
        const float* v = stored.values.data() + cell * value_width + kv * shape_.dim_v;
        double score = 0.0;
        for (uint32_t d = 0; d < dim_k; ++d) score += double{q[d]} * k[d];
        const double w = std::exp(score * layer.scale);
        weight += w;
        for (uint32_t d = 0; d < dim_v; ++d) sum[d] += w * v[d];
      }
      for (const double value : sums) out.push_back(value / weight);
    }
    return out;
  }

  void ExpectRight(std::span<const RowCells> rows, const TiledAttention::Layer& layer) {
    const std::vector<float> got = Run(rows, layer);
    const Cells stored = ReadCells();
    const size_t width = size_t{shape_.n_head} * shape_.dim_v;
    for (size_t r = 0; r < rows.size(); ++r) {
      const std::vector<double> expected = Expected(rows[r], r, layer, stored);
      for (size_t i = 0; i < width; ++i) {
        // Derived for the kernel in compute/attention_kernel_test.cc; scores here are about 1.
        ASSERT_NEAR(got[r * width + i], expected[i], 1e-5) << "row " << r << " value " << i;
      }
    }
  }

  AttentionShape shape_;
  std::optional<Stored> keys_;
  std::optional<Stored> values_;
  std::vector<float> queries_;
};

std::string NameOfParam(const testing::TestParamInfo<Param>& one) {
  const std::string values = one.param.first.values_in_keys ? "latent_" : "shared_";
  return values + std::string(NameOf(one.param.second));
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionTest,
    ::testing::Values(Param{kShared, KvType::kF16}, Param{kShared, KvType::kQ8},
                      Param{kShared, KvType::kF32}, Param{kLatent, KvType::kF16},
                      Param{kLatent, KvType::kQ8}, Param{kLatent, KvType::kF32}),
    NameOfParam);

// 300 positions in pieces all over the cache, none of which ends where a block does.
const std::vector<CellRun> kScattered = {{.first = 700, .count = 32},
                                         {.first = 96, .count = 100},
                                         {.first = 900, .count = 7},
                                         {.first = 300, .count = 93},
                                         {.first = 10, .count = 68}};

std::vector<RowCells> Prompt(std::span<const CellRun> runs, uint32_t first, uint32_t n) {
  std::vector<RowCells> rows;
  for (uint32_t i = 0; i < n; ++i) rows.push_back({.runs = runs, .n_positions = first + i + 1});
  return rows;
}

TEST_P(AttentionTest, APromptSeesItsCellsWhereverTheyLie) {
  ExpectRight(Prompt(kScattered, 0, 300), layer());
}

TEST_P(AttentionTest, RowsOfSeveralSequencesSeeTheirOwn) {
  const std::vector<CellRun> other = {{.first = 500, .count = 150}};
  std::vector<RowCells> rows = Prompt(kScattered, 200, 3);
  rows.append_range(Prompt(other, 0, 90));
  rows.append_range(Prompt(kScattered, 299, 1));
  rows.push_back({.runs = other, .n_positions = 1});
  ExpectRight(rows, layer());
}

// The same result as with a step of each part's cells alone.
TEST_P(AttentionTest, PartsOfHeadsSeeTheirOwnCells) {
  if (shape_.n_head_kv < 2) return;  // one key for all heads
  const std::vector<CellRun> other = {{.first = 1200, .count = 300}};
  const std::vector<RowCells> some = Prompt(kScattered, 200, 60);
  const std::vector<RowCells> others = Prompt(other, 7, 60);
  const std::vector<float> of_some = Run(some, layer());
  const std::vector<float> of_others = Run(others, layer());
  std::vector<RowCells> rows;
  for (size_t r = 0; r < some.size(); ++r) rows.append_range(std::array{some[r], others[r]});
  shape_.n_choices = 2;
  const std::vector<float> got = Run(rows, layer());
  const size_t half = size_t{shape_.n_head} / 2 * shape_.dim_v;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], (i / half % 2 == 0 ? of_some : of_others)[i]) << "value " << i;
  }
}

TEST_P(AttentionTest, AWindowHidesEarlierPositions) {
  for (const uint32_t window : {1U, 64U, 100U, 1000U}) {
    TiledAttention::Layer windowed = layer();
    windowed.window = window;
    ExpectRight(Prompt(kScattered, 0, 300), windowed);
  }
}

TEST_P(AttentionTest, SinksTakeTheirShare) {
  std::vector<float> sinks;
  for (uint32_t h = 0; h < shape_.n_head; ++h)
    sinks.push_back(-3.0F + 0.4F * static_cast<float>(h));
  TiledAttention::Layer with_sinks = layer();
  with_sinks.sinks = sinks;
  ExpectRight(Prompt(kScattered, 0, 150), with_sinks);
}

// Chunks, threads, neighbours and places of cells.
TEST_P(AttentionTest, ARowsBitsDependOnItsOwnCellsAlone) {
  const std::vector<RowCells> prompt = Prompt(kScattered, 0, 300);
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    const std::vector<float> whole = Run(prompt, layer(), 0, 2, kernel);
    for (const uint32_t threads : {1U, 3U}) {
      EXPECT_EQ(Run(prompt, layer(), 0, threads, kernel), whole) << threads << " threads";
    }
    for (const size_t chunk : {1U, 7U, 64U, 130U}) {
      std::vector<float> pieces;
      for (size_t first = 0; first < prompt.size(); first += chunk) {
        const size_t n = std::min(chunk, prompt.size() - first);
        pieces.append_range(Run(std::span(prompt).subspan(first, n), layer(), first, 2, kernel));
      }
      EXPECT_EQ(pieces, whole) << kernel.name << ", chunks of " << chunk;
    }
  }
  // The same keys and values elsewhere.
  const std::vector<float> before = Run(prompt, layer());
  Stored keys = *keys_;
  Stored values = *values_;
  const std::vector<CellRun> moved = {{.first = 500, .count = 300}};
  uint32_t to = 500;
  for (const CellRun& run : kScattered) {
    for (uint32_t i = 0; i < run.count; ++i, ++to) {
      std::ranges::copy(keys_->row(run.first + i), keys.row(to).begin());
      std::ranges::copy(values_->row(run.first + i), values.row(to).begin());
    }
  }
  keys_ = keys;
  values_ = values;
  EXPECT_EQ(Run(Prompt(moved, 0, 300), layer()), before);
}

// Rows of more than a span: 1,250 positions, two whole spans and a part.
const std::vector<CellRun> kLong = {{.first = 700, .count = 601}, {.first = 0, .count = 649}};

TEST_P(AttentionTest, RowsOfSeveralSpansSeeTheirCells) {
  std::vector<RowCells> rows = Prompt(kLong, 1022, 6);
  rows.append_range(Prompt(kScattered, 299, 1));
  rows.append_range(Prompt(kLong, 1249, 1));
  ExpectRight(rows, layer());
  TiledAttention::Layer windowed = layer();
  windowed.window = 700;
  ExpectRight(rows, windowed);
  const std::vector<float> sinks(shape_.n_head, 0.5F);
  windowed.sinks = sinks;
  ExpectRight(rows, windowed);
}

// A row alone, whose spans are the tasks of all threads; with few neighbours; within a prompt,
// where one task has all spans.
TEST_P(AttentionTest, SplitRowsHaveTheSameBits) {
  const std::vector<RowCells> prompt = Prompt(kLong, 450, 800);
  for (const uint32_t window : {0U, 600U}) {
    TiledAttention::Layer some = layer();
    some.window = window;
    for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
      const std::vector<float> whole = Run(prompt, some, 0, 1, kernel);
      const size_t width = whole.size() / prompt.size();
      for (const uint32_t threads : {2U, 3U, 16U}) {
        for (const size_t n : {1U, 3U}) {
          for (const size_t first : {0U, 61U, 62U, 63U, 573U, 797U}) {
            const auto rows = std::span(prompt).subspan(first, n);
            const auto from = whole.begin() + static_cast<std::ptrdiff_t>(first * width);
            const std::vector<float> expected(from, from + static_cast<std::ptrdiff_t>(n * width));
            EXPECT_EQ(Run(rows, some, first, threads, kernel), expected)
                << kernel.name << ", row " << first << ", window " << window << ", " << threads
                << " threads";
          }
        }
      }
    }
  }
}

// A window that begins with the last position of a span: the damage is all that the span has.
TEST_P(AttentionTest, DamageInAShortFirstSpanIsNotLost) {
  const size_t cell = 700 + 511;
  std::ranges::fill(keys_->row(cell), std::byte{0xff});
  std::ranges::fill(values_->row(cell), std::byte{0xff});
  TiledAttention::Layer windowed = layer();
  windowed.window = 600;
  const std::vector<RowCells> rows = {{.runs = kLong, .n_positions = 1111}};
  for (const uint32_t threads : {1U, 2U}) {
    EXPECT_TRUE(std::isnan(Run(rows, windowed, 0, threads).front())) << threads;
  }
}

TEST_P(AttentionTest, CellsNobodyHasWrittenMayHoldAnything) {
  const std::vector<RowCells> rows = Prompt(kScattered, 230, 5);
  const std::vector<float> before = Run(rows, layer());
  constexpr std::byte kNan{0xff};                           // of halves that consist of it
  for (const uint32_t cell : {13U, 14U, 40U, 77U, 850U}) {  // positions from 235 on, and free cells
    std::ranges::fill(keys_->row(cell), kNan);
    std::ranges::fill(values_->row(cell), kNan);
  }
  EXPECT_EQ(Run(rows, layer()), before);
}

}  // namespace
}  // namespace moestro
