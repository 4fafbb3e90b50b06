// SPDX-License-Identifier: MIT
#include "forward/dense/graph_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/team.h"
#include "forward/dense/blocks.h"

namespace moestro {
namespace {

constexpr int64_t kGraphWidth = 4096;

// to[i] = from[kGraphWidth - 1 - i] + 1, threads share the values: each reads what others have
// written.
void TurnAround(ggml_tensor* result, int thread, int n_threads, void* /*userdata*/) {
  const auto* from = static_cast<const float*>(result->src[0]->data);
  auto* to = static_cast<float*>(result->data);
  for (int64_t i = thread; i < kGraphWidth; i += n_threads)
    to[i] = from[kGraphWidth - 1 - i] + 1.0F;
}

class KeptGraphsTest : public testing::TestWithParam<uint32_t> {
 protected:
  KeptGraphsTest()
      : device_(*CpuDevice::Open(GetParam())),
        team_(*Team::Create(device_)),
        arena_(device_.backend(), 128),
        buffer_(*BackendBuffer::OnHost(2 * kGraphWidth * sizeof(float))),
        kept_({.team = team_}, 2, 128) {}

  float* in() { return reinterpret_cast<float*>(buffer_.data()); }
  float* out() { return in() + kGraphWidth; }
  ggml_tensor* Input(ggml_context* ctx) {
    ggml_tensor* x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, kGraphWidth);
    buffer_.Place(x, 0);
    return x;
  }
  void Add(size_t place, const GraphCache::Key& key, ggml_tensor* result) {
    buffer_.Place(result, kGraphWidth * sizeof(float));
    ggml_build_forward_expand(arena_.graph(), result);
    ASSERT_TRUE(arena_.Place());
    kept_.Add(place, key);
  }
  // `nodes` of ours, one after the other.
  void BuildTurns(size_t place, const GraphCache::Key& key, int nodes) {
    ggml_context* ctx = arena_.Begin(&kept_.Begin(place));
    ggml_tensor* x = Input(ctx);
    for (int i = 0; i < nodes; ++i) {
      x = ggml_custom_4d(ctx, GGML_TYPE_F32, kGraphWidth, 1, 1, 1, &x, 1, TurnAround,
                         GGML_N_TASKS_MAX, nullptr);
    }
    Add(place, key, x);
  }

  CpuDevice device_;
  Team team_;
  GraphArena arena_;
  BackendBuffer buffer_;
  GraphCache kept_;
};

TEST_P(KeptGraphsTest, NodesSeeWhatAllThreadsLeftInTheNodeBefore) {
  constexpr int kNodes = 20;
  const GraphCache::Key key{.rows = 1};
  BuildTurns(0, key, kNodes);
  BuildTurns(1, key, kNodes);
  EXPECT_TRUE(kept_.AreForTeam(0, 2, key));
  for (int run = 0; run < 50; ++run) {
    for (int64_t i = 0; i < kGraphWidth; ++i) in()[i] = static_cast<float>(run + i);
    std::fill_n(out(), kGraphWidth, -1.0F);
    const bool is_held = run % 2 == 1;
    Status ran;
    if (is_held) {
      ASSERT_TRUE(team_.Hold([&] { ran = kept_.Run(0, key); }));
    } else {
      ran = kept_.Run(0, key);
    }
    ASSERT_TRUE(ran);
    for (int64_t i = 0; i < kGraphWidth; ++i) {
      ASSERT_EQ(out()[i], static_cast<float>(run + i + kNodes)) << run << ", " << i;
    }
  }
}

TEST_P(KeptGraphsTest, AGraphWithANodeOfGgmlIsRunByGgml) {
  const GraphCache::Key key{.rows = 1};
  BuildTurns(0, key, 2);
  ggml_context* ctx = arena_.Begin(&kept_.Begin(1));
  ggml_tensor* x = Input(ctx);
  x = ggml_custom_4d(ctx, GGML_TYPE_F32, kGraphWidth, 1, 1, 1, &x, 1, TurnAround, GGML_N_TASKS_MAX,
                     nullptr);
  Add(1, key, ggml_scale(ctx, x, 2.0F));
  EXPECT_TRUE(kept_.AreForTeam(0, 1, key));
  EXPECT_FALSE(kept_.AreForTeam(0, 2, key));
  for (int64_t i = 0; i < kGraphWidth; ++i) in()[i] = static_cast<float>(i);
  ASSERT_TRUE(kept_.Run(1, key));
  for (int64_t i = 0; i < kGraphWidth; ++i) {
    ASSERT_EQ(out()[i], 2.0F * static_cast<float>(kGraphWidth - i));
  }
}

TEST_P(KeptGraphsTest, AGraphIsThereForItsOwnKeyUntilAllAreDropped) {
  const GraphCache::Key key{.rows = 3, .look_ahead = 1};
  EXPECT_FALSE(kept_.Has(0, key));
  BuildTurns(0, key, 1);
  EXPECT_TRUE(kept_.Has(0, key));
  EXPECT_FALSE(kept_.Has(1, key));
  EXPECT_FALSE(kept_.Has(0, {.rows = 2, .look_ahead = 1}));
  EXPECT_FALSE(kept_.Has(0, {.rows = 3, .look_ahead = 0}));
  EXPECT_FALSE(kept_.Has(0, {.first = 1, .rows = 3, .look_ahead = 1}));
  const GraphCache::Key other{.rows = 1};
  BuildTurns(0, other, 1);
  EXPECT_TRUE(kept_.Has(0, key) && kept_.Has(0, other));
  ASSERT_TRUE(kept_.Run(0, other));
  ASSERT_TRUE(kept_.Run(0, key));
  kept_.Begin(0);  // takes the room of the one that has not run for longest
  EXPECT_TRUE(kept_.Has(0, key));
  EXPECT_FALSE(kept_.Has(0, other));
  BuildTurns(0, other, 1);
  EXPECT_TRUE(kept_.Has(0, key) && kept_.Has(0, other));
  kept_.Drop();
  EXPECT_FALSE(kept_.Has(0, key));
  EXPECT_FALSE(kept_.AreForTeam(0, 1, key));
}

void Throw(ggml_tensor* /*result*/, int thread, int n_threads, void* /*userdata*/) {
  if (thread == n_threads - 1) throw std::runtime_error("no room");
}

TEST_P(KeptGraphsTest, AThreadThatFailsKeepsNoOtherWaiting) {
  const GraphCache::Key key{.rows = 1};
  ggml_context* ctx = arena_.Begin(&kept_.Begin(0));
  ggml_tensor* x = Input(ctx);
  for (const auto work : {TurnAround, Throw, TurnAround, TurnAround}) {
    x = ggml_custom_4d(ctx, GGML_TYPE_F32, kGraphWidth, 1, 1, 1, &x, 1, work, GGML_N_TASKS_MAX,
                       nullptr);
  }
  Add(0, key, x);
  for (int run = 0; run < 3; ++run) {
    const Status ran = kept_.Run(0, key);
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().code, Errc::kNoMemory);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, KeptGraphsTest, testing::Values(1, 2, 3));

TEST(CustomCalls, FindTheFunctionOfACustomNodeAlone) {
  const CustomCalls calls;
  const ggml_context_ptr ctx(
      ggml_init({.mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  ggml_tensor* x = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, 1);
  int userdata = 0;
  const auto node = [&](int n_tasks) {
    return ggml_custom_4d(ctx.get(), GGML_TYPE_F32, 1, 1, 1, 1, &x, 1, TurnAround, n_tasks,
                          &userdata);
  };
  const auto found = calls.Of(node(GGML_N_TASKS_MAX));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->work, TurnAround);
  EXPECT_EQ(found->userdata, &userdata);
  EXPECT_FALSE(found->is_alone);
  EXPECT_TRUE(calls.Of(node(1))->is_alone);
  EXPECT_FALSE(calls.Of(node(2)));  // for two threads of many
  EXPECT_FALSE(calls.Of(ggml_add(ctx.get(), x, x)));
  EXPECT_FALSE(calls.Of(x));
}

// Rows that are shared among threads. F32 sums of 100 terms in another order than ggml's differ by
// 100 * 2^-24 = 6e-6 of themselves at most, and so do normed values, which are up to 2.
TEST(SumAndNorm, IsWhatGgmlsNodesGive) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kValues = 100;
  CpuDevice device = *CpuDevice::Open(3);
  const RowNorm norm{.kernel = RowKernel::ForThisMachine(), .eps = 1e-5F};
  auto buffer = *BackendBuffer::OnHost(1 << 16);
  GraphArena arena(device.backend(), 32);
  ggml_context* ctx = arena.Begin();
  uint64_t at = 0;
  const auto place = [&](ggml_tensor* t) {
    buffer.Place(t, at);
    for (int64_t i = 0; i < ggml_nelements(t); ++i) {
      static_cast<float*>(t->data)[i] = std::sin(static_cast<float>(i + static_cast<int64_t>(at)));
    }
    at += ggml_nbytes(t);
    return t;
  };
  ggml_tensor* a = place(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kValues, kRows));
  ggml_tensor* b = place(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kValues, kRows));
  ggml_tensor* weight = place(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, kValues));
  ggml_tensor* sum = place(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kValues, kRows));
  ggml_tensor* ours = SumAndNorm(ctx, norm, a, b, weight, sum);
  ggml_tensor* theirs_sum = ggml_add(ctx, a, b);
  ggml_tensor* theirs = RmsNorm(ctx, theirs_sum, weight, nullptr, norm.eps);
  for (ggml_tensor* t : {ours, theirs_sum, theirs}) {
    place(t);
    ggml_build_forward_expand(arena.graph(), t);
  }
  ASSERT_TRUE(arena.Run());
  const auto values = [](const ggml_tensor* t) {
    const auto* begin = static_cast<const float*>(t->data);
    return std::vector<float>(begin, begin + ggml_nelements(t));
  };
  EXPECT_EQ(values(sum), values(theirs_sum));
  for (size_t i = 0; i < values(ours).size(); ++i) {
    ASSERT_NEAR(values(ours)[i], values(theirs)[i], 1e-5);
  }
}

}  // namespace
}  // namespace moestro
