// SPDX-License-Identifier: MIT
#include "speed/planned_model.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint64_t kBlock = 4096;

// Of an architecture that our own engine does not know.
class PlannedHosted : public testing::Test {
 protected:
  GgufBuilder Model(uint32_t said_experts, uint32_t used) const {
    GgufBuilder model;
    model.Set("general.architecture", "some-moe")
        .Set("some-moe.block_count", 1U)
        .Set("some-moe.context_length", 4096U)
        .Set("some-moe.embedding_length", 64U)
        .Set("some-moe.attention.head_count", 2U)
        .Set("some-moe.expert_count", said_experts)
        .Set("some-moe.expert_used_count", used)
        .Tensor("token_embd.weight", GGML_TYPE_F32, {64, 128})
        .Tensor("blk.0.attn_q.weight", GGML_TYPE_F32, {64, 64})
        .Tensor("blk.0.ffn_up_exps.weight", GGML_TYPE_F32, {64, 32, 8});
    return model;
  }
  Result<PlannedModel> Plan(const GgufBuilder& model) const {
    const std::string path = folder_.path() / "model.gguf";
    model.Write(path);
    TRY(const ModelToLoad loaded, ModelToLoad::Open(path));
    return PlannedModel::Of(loaded, {});
  }

  TempFolder folder_;
};

TEST_F(PlannedHosted, NeedsByTheTensors) {
  const auto planned = Plan(Model(8, 2));
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ(planned->engine, "hosted");
  EXPECT_EQ(planned->needs.shape, (MoeShape{.n_layer = 1, .n_expert = 8, .n_used = 2}));
  EXPECT_EQ(planned->needs.all_experts, 64U * 32 * 8 * 4);
  EXPECT_EQ(planned->needs.expert_bytes, 64U * 32 * 4);
  EXPECT_EQ(planned->needs.experts.at("f32").bytes, 2U * 64 * 32 * 4);
  // The embedding serves as the output's matrix.
  EXPECT_EQ(planned->needs.dense.at("f32").bytes, (64U * 128 + 64 * 64) * 4);
  ASSERT_FALSE(planned->fits(kBlock).empty());
  EXPECT_EQ(planned->fits(kBlock).back().share(), 1.0);
}

// Slots grow with the pages of the machine that a plan is for, and so does the smallest budget.
TEST_F(PlannedHosted, LargerPagesTakeMoreMemory) {
  auto planned = Plan(Model(8, 2));
  ASSERT_TRUE(planned) << planned.error().message;
  // Experts of about a page: a budget holds a fraction of the slots.
  planned->catalog.pools = {{.slice_bytes = {16384, 16384, 16384}, .experts = 20'000}};
  for (const uint64_t smallest : {uint64_t{0}, uint64_t{700} << 20}) {
    planned->fixed.smallest = smallest;
    const std::vector<Fit> usual = planned->fits(kBlock);
    const std::vector<Fit> large = planned->fits(65536);
    EXPECT_LE(usual.front().ram, large.front().ram);
    EXPECT_LT(usual.back().ram, large.back().ram);
    const uint64_t ram = uint64_t{1} << 30;
    const auto fit = planned->fit_in(ram, kBlock);
    const auto less = planned->fit_in(ram, 65536);
    ASSERT_TRUE(fit && less);
    EXPECT_LT(less->slots, fit->slots);
  }
  planned->catalog.pools.front().experts = 200;
  planned->fixed.smallest = uint64_t{700} << 20;
  planned->needs.shape.n_used = 100;
  EXPECT_GT(planned->fits(65536).front().ram, planned->fits(kBlock).front().ram);
  EXPECT_FALSE(planned->fit_in(planned->fits(65536).front().ram - 1, 65536));
}

TEST_F(PlannedHosted, ATableOfChosenExpertsIsLookedUp) {
  GgufBuilder model = Model(8, 2);
  model.Tensor("blk.0.ffn_gate_tid2eid.weight", GGML_TYPE_I32, {2, 128});
  const auto planned = Plan(model);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_FALSE(planned->needs.dense.contains("i32"));
}

// What metadata say of experts is not what divides anything.
TEST_F(PlannedHosted, MetadataThatLieAreNotBelieved) {
  EXPECT_TRUE(Plan(Model(0, 2)));
  const auto many = Plan(Model(8, 9));
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message.find("9 of 8"), std::string::npos) << many.error().message;
  EXPECT_FALSE(Plan(Model(8, 0)));
}

TEST_F(PlannedHosted, KeysOfNoModelAreRefused) {
  GgufBuilder model = Model(8, 2);
  model.Set("some-moe.attention.key_length", 0x7fffffffU)
      .Set("some-moe.attention.value_length", 0x7fffffffU);
  const auto planned = Plan(model);
  ASSERT_FALSE(planned);
  EXPECT_NE(planned.error().message.find("position"), std::string::npos) << planned.error().message;
}

TEST_F(PlannedHosted, WithoutExpertsThereIsNoPlan) {
  GgufBuilder model = Model(8, 2);
  model.RemoveTensor("blk.0.ffn_up_exps.weight");
  const auto planned = Plan(model);
  ASSERT_FALSE(planned);
  EXPECT_NE(planned.error().message.find("no experts"), std::string::npos);
}

TEST_F(PlannedHosted, AFileOfAnotherSizeIsScaled) {
  const auto planned = Plan(Model(8, 2));
  ASSERT_TRUE(planned);
  const PlannedModel half = planned->Scaled(0.5);
  EXPECT_EQ(half.needs.all_experts, planned->needs.all_experts / 2);
  EXPECT_EQ(half.fixed.dense, planned->fixed.dense / 2);
  EXPECT_EQ(planned->Scaled(1e30).file_bytes, uint64_t{1} << 50);
}

}  // namespace
}  // namespace moestro
