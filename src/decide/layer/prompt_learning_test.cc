// SPDX-License-Identifier: MIT
// Which rows of which prompts replacement policies hear of, and which pool's.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "decide/ahead/predictors.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/layer_protocol.h"
#include "decide/slots/policies/policies.h"
#include "decide/slots/resident_model.h"
#include "decide/slots/slot_table.h"

namespace moestro {
namespace {

class Listener final : public ExpertHolder {
 public:
  bool contains(ExpertKey) const override { return false; }
  void BeginLayer(ExpertLayerId layer) override { begun.push_back(layer); }
  void Predict(ExpertLayerId, std::span<const ExpertId>) override {}
  void LearnPrompt(const LayerPlan& plan) override { learned = plan.learned; }
  bool Prefetch(ExpertKey) override { return false; }
  void Withdraw(ExpertKey) override {}
  void Release(ExpertKey) override {}
  bool is_complete(ExpertKey) const override { return true; }

  std::vector<ExpertId> learned;
  std::vector<ExpertLayerId> begun;
};

class PromptLearning : public ::testing::Test {
 protected:
  // What a step of so many rows, each with the next two of 1000 experts, teaches.
  std::vector<ExpertId> Step(RowKind kind, uint16_t rows) {
    Routing routing{.n_tokens = rows, .n_used = 2, .experts = {}, .weights = {}};
    for (uint16_t i = 0; i < 2 * rows; ++i) routing.experts.push_back({i});
    routing.weights.assign(routing.experts.size(), 0.5F);
    const std::vector<RowKind> kinds(rows, kind);
    listener_.learned.clear();
    protocol_.BeginStep({});
    protocol_.AfterRouting({.layer = {}, .routing = routing, .kinds = kinds, .predicted = {}});
    protocol_.Prefetch();
    return listener_.learned;
  }

  Listener listener_;
  PrefetchPlanner planner_{*MakePredictor({"none"}),
                           {.moe = {.n_layer = 1, .n_expert = 1000, .n_used = 2}, .depth = 1},
                           {.slots = {40}},
                           [](ExpertKey) { return false; }};
  LayerProtocol protocol_{planner_, listener_, 1};
};

TEST_F(PromptLearning, EndsWithTheFirstDecodedToken) {
  EXPECT_TRUE(Step(RowKind::kPrompt, 2).empty());  // a sequence beside another one
  protocol_.BeginSequence();
  const std::vector<ExpertId> chosen = {{0}, {1}, {2}, {3}};
  EXPECT_EQ(Step(RowKind::kPrompt, 2), chosen);
  EXPECT_EQ(Step(RowKind::kPrompt, 2), chosen);  // the next chunk
  EXPECT_TRUE(Step(RowKind::kDecode, 1).empty());
  EXPECT_TRUE(Step(RowKind::kPrompt, 2).empty());
}

TEST_F(PromptLearning, IsOfTheLastRows) {
  protocol_.BeginSequence();
  const std::vector<ExpertId> learned = Step(RowKind::kPrompt, 200);
  ASSERT_EQ(learned.size(), 2U * 128U);
  EXPECT_EQ(learned.front(), ExpertId{2 * 72});
  EXPECT_EQ(learned.back(), ExpertId{399});
}

// Plans the layer behind the last one of a step.
TEST_F(PromptLearning, LayersBesideAStepTeachNothing) {
  protocol_.BeginSequence();
  Routing routing{.n_tokens = 1, .n_used = 2, .experts = {{7}, {3}}, .weights = {0.5F, 0.5F}};
  const std::vector<RowKind> kinds = {RowKind::kDecode};
  LayerPlan plan;
  plan.learned = {{1}};
  protocol_.PlanBeside(
      {.layer = ExpertLayerId{1}, .routing = routing, .kinds = kinds, .predicted = {}}, plan);
  EXPECT_EQ(listener_.begun, std::vector<ExpertLayerId>{ExpertLayerId{1}});
  EXPECT_EQ(plan.experts.size(), 2U);
  EXPECT_TRUE(plan.learned.empty());
  EXPECT_TRUE(listener_.learned.empty());
  EXPECT_FALSE(Step(RowKind::kPrompt, 2).empty());  // the sequence has begun
}

using Heard = std::vector<std::vector<ExpertId>>;

class Student final : public Policy {
 public:
  explicit Student(Heard& heard) : heard_(heard) {}
  void Reset(const PolicyShape& shape) override { lru_.Reset(shape); }
  void Prompted(ExpertLayerId, std::span<const ExpertId> experts) override {
    heard_.emplace_back(experts.begin(), experts.end());
  }
  void Inserted(SlotId slot, ExpertKey key, uint32_t rows) override {
    lru_.Inserted(slot, key, rows);
  }
  void Touched(SlotId slot, uint32_t rows) override { lru_.Touched(slot, rows); }
  void Erased(SlotId slot) override { lru_.Erased(slot); }
  SlotId Victim(const PinView& pins) const override { return lru_.Victim(pins); }

 private:
  Heard& heard_;
  LruPolicy lru_;
};

TEST(PromptRows, EachPoolHearsOfItsOwnExperts) {
  std::vector<Heard> heard(2);
  std::vector<SlotTable> tables;
  for (Heard& its : heard) {
    tables.emplace_back(PolicyShape{.slots = 4, .experts = 8}, std::make_unique<Student>(its));
  }
  ResidentModel model(std::move(tables), [](ExpertKey key) { return key.expert.value % 2U; });
  model.Run({.layer = {}, .n_used = 3, .learned = {{1}, {4}, {3}, {0}, {2}, {6}}});
  EXPECT_EQ(heard[0], (Heard{{{4}}, {{0}, {2}, {6}}}));
  EXPECT_EQ(heard[1], (Heard{{{1}, {3}}}));
}

}  // namespace
}  // namespace moestro
