// SPDX-License-Identifier: MIT
#include "serve/embed_work.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace moestro {
namespace {

constexpr uint32_t kChunk = 64;

// The embedding of a text is its first token and its length.
class ScriptedEmbedder final : public Embedder {
 public:
  // The n-th call from now on fails, from 1 on.
  void FailAt(int call, Errc code) {
    fails_at_ = calls_ + call;
    code_ = code;
  }
  int calls() const { return calls_; }
  uint32_t n_embd() const override { return 2; }
  Result<size_t> Embed(Texts texts, const Sink& sink) override {
    if (++calls_ == fails_at_) return Fail(code_, "injected");
    size_t n = 0;
    for (size_t rows = 0; n < texts.size(); ++n) {
      rows += texts[n].size();
      if (n > 0 && rows > kChunk) break;
      const std::array values = {static_cast<float>(texts[n].front()),
                                 static_cast<float>(texts[n].size())};
      sink(n, values);
    }
    return n;
  }

 private:
  int calls_ = 0;
  int fails_at_ = -1;
  Errc code_ = Errc::kIo;
};

class EmbedWorkTest : public ::testing::Test {
 protected:
  // A request of `n` texts of so many tokens, which begin with `first`, `first` + 1, ...
  std::shared_ptr<EmbedTask> Add(size_t n, size_t length, Token first) {
    std::vector<std::vector<Token>> texts;
    for (size_t i = 0; i < n; ++i) {
      texts.emplace_back(length, first + static_cast<Token>(i));
    }
    auto task = std::make_shared<EmbedTask>(std::move(texts));
    work_->Add(task);
    return task;
  }
  static std::optional<ApiResult<Embeddings>> ResultOf(EmbedTask& task) {
    return task.Wait(std::chrono::milliseconds(0));
  }
  void ComputeAll() {
    for (int i = 0; i < 100 && !work_->empty(); ++i) work_->ComputeSome();
    EXPECT_TRUE(work_->empty());
  }

  ScriptedEmbedder embedder_;
  std::optional<EmbedWork> work_{std::in_place, embedder_, kChunk};
};

TEST_F(EmbedWorkTest, EachRequestGetsItsTextsInOrder) {
  const auto one = Add(3, 30, 10);
  const auto other = Add(2, 5, 20);
  ComputeAll();
  const auto first = ResultOf(*one);
  ASSERT_TRUE(first && *first);
  EXPECT_EQ((*first)->values, (std::vector<float>{10, 30, 11, 30, 12, 30}));
  EXPECT_EQ((*first)->n, 2U);
  EXPECT_EQ((*first)->prompt_tokens, 90U);
  const auto second = ResultOf(*other);
  ASSERT_TRUE(second && *second);
  EXPECT_EQ((*second)->values, (std::vector<float>{20, 5, 21, 5}));
  EXPECT_EQ(embedder_.calls(), 3);  // 30 + 5, 30 + 5, 30: four of them are more than 64 rows
  EXPECT_EQ(work_->counts().finished, 2U);
}

TEST_F(EmbedWorkTest, SmallRequestsShareAChunk) {
  std::vector<std::shared_ptr<EmbedTask>> tasks;
  for (Token i = 0; i < 8; ++i) tasks.push_back(Add(1, 8, i));
  work_->ComputeSome();
  EXPECT_TRUE(work_->empty());
  EXPECT_EQ(embedder_.calls(), 1);
  for (Token i = 0; i < 8; ++i) {
    const auto done = ResultOf(*tasks[static_cast<size_t>(i)]);
    ASSERT_TRUE(done && *done);
    EXPECT_EQ((*done)->values, (std::vector<float>{static_cast<float>(i), 8}));
  }
}

TEST_F(EmbedWorkTest, ASmallRequestWaitsForNoLargeOne) {
  const auto large = Add(50, 10, 0);
  const auto small = Add(1, 10, 90);
  work_->ComputeSome();
  EXPECT_TRUE(ResultOf(*small).has_value());
  EXPECT_FALSE(ResultOf(*large).has_value());
  ComputeAll();
  EXPECT_TRUE(ResultOf(*large).has_value());
}

TEST_F(EmbedWorkTest, AnErrorEndsOneRequest) {
  const auto bad = Add(1, 4, 1);
  const auto good = Add(1, 4, 2);
  embedder_.FailAt(1, Errc::kIo);
  ComputeAll();
  const auto failed = ResultOf(*bad);
  ASSERT_TRUE(failed && !*failed);
  EXPECT_EQ(failed->error().status, 500);
  const auto done = ResultOf(*good);
  ASSERT_TRUE(done && *done);
  EXPECT_EQ(work_->counts().failed, 1U);
  EXPECT_EQ(work_->counts().finished, 1U);
}

TEST_F(EmbedWorkTest, AStopEndsNone) {
  const auto task = Add(1, 4, 1);
  embedder_.FailAt(1, Errc::kInterrupted);
  work_->ComputeSome();
  EXPECT_FALSE(ResultOf(*task).has_value());
  ComputeAll();
  const auto done = ResultOf(*task);
  EXPECT_TRUE(done && *done);
}

TEST_F(EmbedWorkTest, TheRestOfARequestWhoseClientHasGoneIsNotComputed) {
  const auto gone = Add(50, 10, 0);
  work_->ComputeSome();
  gone->Cancel();
  work_->ComputeSome();
  EXPECT_TRUE(work_->empty());
  EXPECT_EQ(embedder_.calls(), 1);
  EXPECT_EQ(work_->counts().cancelled, 1U);
}

TEST_F(EmbedWorkTest, RequestsThatDoNotEndAreTold) {
  const auto task = Add(1, 4, 1);
  work_.reset();
  const auto told = ResultOf(*task);
  ASSERT_TRUE(told && !*told);
  EXPECT_EQ(told->error().status, 503);
}

TEST_F(EmbedWorkTest, ManyRequestsAreEnough) {
  while (!work_->is_full()) Add(1, 1, 1);
  ComputeAll();
  EXPECT_FALSE(work_->is_full());
  EXPECT_EQ(work_->counts().finished, 64U);
}

}  // namespace
}  // namespace moestro
