// SPDX-License-Identifier: MIT
#include "model/model_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/gguf_testing.h"
#include "model/read_spec.h"
#include "model/tensor_names.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

struct Opened {
  GgufFile file;
  ModelSpec spec;
  ModelWeights weights;  // points into file, which keeps its tensors when moved
};

class WeightsTest : public testing::Test {
 protected:
  Result<Opened> Open(const GgufBuilder& builder) const {
    const std::string path = (folder_.path() / "model.gguf").string();
    builder.Write(path);
    TRY(GgufFile file, GgufFile::Open(path));
    TRY(const ModelSpec spec, ReadSpec(file));
    TRY(ModelWeights weights, ReadWeights(file, spec));
    return Opened{std::move(file), spec, std::move(weights)};
  }
  void ExpectError(const GgufBuilder& builder, Errc code, const std::string& words) const {
    const auto opened = Open(builder);
    ASSERT_FALSE(opened) << words;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    EXPECT_NE(opened.error().message.find(words), std::string::npos) << opened.error().message;
  }

  TempFolder folder_;
};

class EveryArchTest : public WeightsTest, public testing::WithParamInterface<std::string_view> {};
// Layers have a mixer and experts.
class WholeLayersTest : public EveryArchTest {};

std::vector<std::string_view> Names(bool with_lone_parts) {
  std::vector<std::string_view> names;
  for (const Family& family : Families()) {
    if (family.has_encoder) continue;  // read_encoder_test.cc
    if (with_lone_parts || !family.has_lone_parts) names.push_back(family.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Archs, EveryArchTest, testing::ValuesIn(Names(true)));
INSTANTIATE_TEST_SUITE_P(Archs, WholeLayersTest, testing::ValuesIn(Names(false)));

TEST_P(WholeLayersTest, FindsEveryTensorOnce) {
  const auto opened = Open(SmallMoe(GetParam()));
  ASSERT_TRUE(opened) << opened.error().message;
  const auto& [file, spec, weights] = *opened;
  ASSERT_EQ(weights.layers.size(), 2U);
  uint64_t expert_bytes = 0;
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
      const ExpertMatrix& matrix = weights.layers[l].experts[m];
      EXPECT_EQ(matrix.n_in, m == Matrix::kDown ? 64U : 32U);
      EXPECT_EQ(matrix.n_out, m == Matrix::kDown ? 32U : 64U);
      ASSERT_EQ(matrix.slices.size(), 4U);
      for (const Extent& slice : matrix.slices) expert_bytes += slice.length;
    }
    EXPECT_EQ(weights.layers[l].attn_norm,
              file.Find("blk." + std::to_string(l) + ".attn_norm.weight"));
  }
  uint64_t all = 0;
  for (const TensorInfo& tensor : file.tensors()) all += tensor.extent.length;
  const TensorInfo* table = weights.ngram_table;  // on the disk
  EXPECT_EQ(weights.dense_bytes() + expert_bytes + (table != nullptr ? table->extent.length : 0),
            all);
  EXPECT_EQ(weights.dense_tensors().size() + 6 + (table != nullptr ? 1 : 0), file.tensors().size());
}

TEST_P(WholeLayersTest, NamesAMissingTensor) {
  const Family* family = FindFamily(Families(), GetParam());
  const bool is_fused = family->layer_tensors.attn_qkv == Presence::kRequired;
  // Streams of a low rank have norms of their own.
  const bool has_norms = family->layer_tensors.attn_norm == Presence::kRequired;
  for (const char* name :
       {has_norms ? "output_norm.weight" : "token_embd.weight",
        has_norms ? "blk.1.attn_norm.weight" : "blk.1.attn_output.weight",
        is_fused                       ? "blk.1.attn_qkv.weight"
        : family->latent.is_used       ? "blk.1.attn_v_b.weight"
        : family->has_pooled_attention ? "blk.1.attn_kv.weight"
        : family->may_share_values     ? "blk.1.attn_k.weight"
                                       : "blk.1.attn_v.weight",
        family->has_pooled_attention ? "blk.1.attn_output_b.weight" : "blk.1.attn_output.weight",
        has_norms ? "blk.0.ffn_norm.weight" : "blk.0.ffn_gate_inp.weight",
        "blk.1.ffn_gate_inp.weight", "blk.0.ffn_up_exps.weight"}) {
    ExpectError(SmallMoe(GetParam()).RemoveTensor(name), Errc::kInvalidFile, name);
  }
}

// Every tensor that a family demands, taken out alone.
TEST_P(EveryArchTest, NamesEachRequiredTensor) {
  const Family* family = FindFamily(Families(), GetParam());
  size_t required = 0;
  const auto whole = Open(SmallMoe(GetParam()));
  ASSERT_TRUE(whole) << whole.error().message;
  const auto take_out = [&](const TensorRole& role, Presence presence) {
    if (presence != Presence::kRequired || role.part == LayerModule::kDense) return;
    if (role.name == "ffn_gate_inp.weight" && family->has_dense_layers) return;  // a dense layer
    // Queries may be projected at once.
    const bool may_lack = family->layer_tensors.attn_q == Presence::kRequired;
    if (role.name == "attn_q_a.weight" && may_lack) return;
    for (uint32_t l = 0; l < whole->spec.n_layer(); ++l) {
      const std::string name = LayerTensorName(l, role.name);
      if (!HasPart(whole->spec.layers[l], role.part) || whole->file.Find(name) == nullptr) continue;
      ExpectError(SmallMoe(GetParam()).RemoveTensor(name), Errc::kInvalidFile, name);
      ++required;
      break;
    }
  };
  ForEachLayerRole(take_out, family->layer_tensors);
  EXPECT_GE(required, 3U);
}

TEST_P(EveryArchTest, RefusesOneTensorTooMany) {
  ExpectError(SmallMoe(GetParam()).Tensor("blk.1.attn_other.weight", GGML_TYPE_F16, {32, 32}),
              Errc::kUnsupported, "blk.1.attn_other.weight");
}

TEST_F(WeightsTest, PassesOverLayersThatPredictFurtherTokens) {
  GgufBuilder file = SmallMoe("glm4moe");
  file.Set("glm4moe.block_count", 3U).Set("glm4moe.nextn_predict_layers", 1U);
  file.Tensor("blk.2.attn_norm.weight", GGML_TYPE_F32, {32})
      .Tensor("blk.2.ffn_gate_exps.weight", GGML_TYPE_Q8_0, {32, 64, 4})
      .Tensor("blk.2.nextn.eh_proj.weight", GGML_TYPE_F16, {64, 32});
  const auto opened = Open(file);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->spec.n_layer(), 2U);
  EXPECT_EQ(opened->spec.n_next_token_layers, 1U);
  const std::vector<const TensorInfo*> dense = opened->weights.dense_tensors();
  EXPECT_TRUE(std::ranges::none_of(
      dense, [](const TensorInfo* t) { return t->name.starts_with("blk.2."); }));
  // A layer behind the predicting layers, or a name that only resembles a name of theirs, is one
  // too many.
  for (const char* name :
       {"blk.3.attn_norm.weight", "blk.02.attn_norm.weight", "blk.2", "blk.x."}) {
    GgufBuilder more = SmallMoe("glm4moe");
    more.Set("glm4moe.block_count", 3U).Set("glm4moe.nextn_predict_layers", 1U);
    ExpectError(more.Tensor(name, GGML_TYPE_F32, {32}), Errc::kUnsupported, name);
  }
  // Without nextn_predict_layers the predicting layer itself is one too many.
  file.Set("glm4moe.block_count", 2U).Set("glm4moe.nextn_predict_layers", 0U);
  ExpectError(file, Errc::kUnsupported, "blk.2.attn_norm.weight");
}

TEST_F(WeightsTest, PassesOverAnImageEncoder) {
  const auto with = [](const char* arch) {
    GgufBuilder file = SmallMoe(arch);
    file.Tensor("v.patch_embd.weight", GGML_TYPE_F32, {16, 16})
        .Tensor("mm.0.weight", GGML_TYPE_F16, {32, 32});
    return file;
  };
  EXPECT_TRUE(Open(with("qwen35moe")));
  ExpectError(with("qwen3moe"), Errc::kUnsupported, "v.patch_embd.weight");
}

TEST_F(WeightsTest, ADeltaNetProjectsByOneMatrixOrByTwo) {
  GgufBuilder one = SmallMoe("qwen3next");
  one.RemoveTensor("blk.0.attn_qkv.weight").RemoveTensor("blk.0.attn_gate.weight");
  ExpectError(one, Errc::kInvalidFile, "blk.0.attn_qkv.weight");
  one.Tensor("blk.0.ssm_in.weight", GGML_TYPE_F16, {32, 2 * 32 + 2 * 64});
  EXPECT_TRUE(Open(one));
  ExpectError(SmallMoe("qwen3next").Tensor("blk.0.ssm_in.weight", GGML_TYPE_F16, {32, 192}),
              Errc::kInvalidFile, "layer 0 has both blk.0.ssm_in.weight");
}

TEST_F(WeightsTest, CutsExpertsOutOfTheMergedTensor) {
  const auto opened = Open(SmallMoe("llama"));
  ASSERT_TRUE(opened) << opened.error().message;
  const LayerExperts& experts = opened->weights.layers[1].experts;
  const TensorInfo* up = opened->file.Find("blk.1.ffn_up_exps.weight");
  EXPECT_EQ(experts[Matrix::kUp].types[0], GGML_TYPE_Q4_0);
  EXPECT_EQ(experts[Matrix::kUp].slices[0].length, up->extent.length / 4);
  EXPECT_EQ(experts[Matrix::kUp].slices[3].offset, up->extent.offset + 3 * up->extent.length / 4);
  EXPECT_EQ(experts[Matrix::kGate].types[0], GGML_TYPE_Q8_0);
  EXPECT_EQ(experts[Matrix::kDown].types[0], GGML_TYPE_F16);
  EXPECT_EQ(experts.bytes(), 4 * (64U * 34 + 64U * 18 + 32U * 64 * 2));
}

TEST_F(WeightsTest, AcceptsOneTensorPerExpert) {
  GgufBuilder builder = SmallMoe("llama");
  builder.RemoveTensor("blk.0.ffn_gate_exps.weight");
  for (const char* e : {"2", "0", "1", "3"}) {
    builder.Tensor("blk.0.ffn_gate." + std::string(e) + ".weight", GGML_TYPE_Q5_0, {32, 64});
  }
  const auto opened = Open(builder);
  ASSERT_TRUE(opened) << opened.error().message;
  const ExpertMatrix& gate = opened->weights.layers[0].experts[Matrix::kGate];
  EXPECT_EQ(gate.types[0], GGML_TYPE_Q5_0);
  EXPECT_EQ(gate.slices[0].length, 64U * 22);
  ASSERT_EQ(gate.slices.size(), 4U);
  for (size_t e = 0; e < 4; ++e) {
    EXPECT_EQ(gate.slices[e],
              opened->file.Find("blk.0.ffn_gate." + std::to_string(e) + ".weight")->extent);
  }
  builder.Tensor("blk.0.ffn_gate.3.weight", GGML_TYPE_F16, {32, 64});
  ExpectError(builder, Errc::kUnsupported, "other experts of the layer have q5_0");
  builder.RemoveTensor("blk.0.ffn_gate.3.weight");
  ExpectError(builder, Errc::kInvalidFile, "blk.0.ffn_gate.3.weight");
}

TEST_F(WeightsTest, AcceptsFusedGateAndUp) {
  GgufBuilder builder = SmallMoe("qwen3moe");
  builder.RemoveTensor("blk.1.ffn_gate_exps.weight").RemoveTensor("blk.1.ffn_up_exps.weight");
  builder.Tensor("blk.1.ffn_gate_up_exps.weight", GGML_TYPE_Q8_0, {32, 128, 4});
  const auto opened = Open(builder);
  ASSERT_TRUE(opened) << opened.error().message;
  const Extent both = opened->file.Find("blk.1.ffn_gate_up_exps.weight")->extent;
  const ExpertMatrix& gate = opened->weights.layers[1].experts[Matrix::kGate];
  const ExpertMatrix& up = opened->weights.layers[1].experts[Matrix::kUp];
  const uint64_t half = 64U * 34;
  EXPECT_EQ(gate.slices[0].length, half);
  EXPECT_EQ(gate.n_out, 64U);
  EXPECT_EQ(gate.slices[0].offset, both.offset);
  EXPECT_EQ(up.slices[0].offset, both.offset + half);
  EXPECT_EQ(gate.slices[3].offset, both.offset + 6 * half);
  EXPECT_EQ(up.slices[3].offset + up.slices[3].length, both.offset + both.length);
}

TEST_F(WeightsTest, ALayerIsAMixerOrExpertsAlone) {
  const auto opened = Open(SmallMoe("nemotron_h_moe"));
  ASSERT_TRUE(opened) << opened.error().message;
  const std::vector<LayerWeights>& layers = opened->weights.layers;
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_NE(layers[0].state_in, nullptr);
  EXPECT_NE(layers[1].attn_q, nullptr);
  EXPECT_EQ(layers[1].router, nullptr);
  EXPECT_EQ(layers[1].ffn_norm, nullptr);
  EXPECT_TRUE(layers[0].experts.is_empty() && layers[1].experts.is_empty());
  EXPECT_EQ(layers[2].attn_q, nullptr);
  EXPECT_NE(layers[2].latent_up, nullptr);
  EXPECT_TRUE(layers[2].experts[Matrix::kGate].slices.empty());
  EXPECT_EQ(layers[2].experts[Matrix::kUp].slices.size(), 4U);
  uint64_t all = 0;
  for (const TensorInfo& tensor : opened->file.tensors()) all += tensor.extent.length;
  EXPECT_EQ(opened->weights.dense_bytes() + layers[2].experts.bytes(), all);

  ExpectError(
      SmallMoe("nemotron_h_moe").Tensor("blk.2.ffn_gate_exps.weight", GGML_TYPE_F16, {32, 64, 4}),
      Errc::kUnsupported, "blk.2.ffn_gate_exps.weight");
  ExpectError(SmallMoe("nemotron_h_moe").Tensor("blk.1.ffn_norm.weight", GGML_TYPE_F32, {32}),
              Errc::kUnsupported, "blk.1.ffn_norm.weight");
  ExpectError(SmallMoe("nemotron_h_moe").Remove("nemotron_h_moe.moe_latent_size"),
              Errc::kUnsupported, "blk.2.ffn_latent");
  ExpectError(SmallMoe("nemotron_h_moe").RemoveTensor("blk.2.ffn_up_exps.weight"),
              Errc::kInvalidFile, "blk.2.ffn_up_exps.weight");
}

TEST_F(WeightsTest, AcceptsFusedAttention) {
  GgufBuilder builder = SmallMoe("qwen2moe");
  for (const char* name : {"q", "k", "v"}) {
    builder.RemoveTensor("blk.0.attn_" + std::string(name) + ".weight");
    builder.RemoveTensor("blk.0.attn_" + std::string(name) + ".bias");
  }
  builder.Tensor("blk.0.attn_qkv.weight", GGML_TYPE_F16, {32, 64});
  builder.Tensor("blk.0.attn_qkv.bias", GGML_TYPE_F32, {64});
  const auto opened = Open(builder);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->weights.layers[0].attn_qkv, opened->file.Find("blk.0.attn_qkv.weight"));
  EXPECT_EQ(opened->weights.layers[0].attn_q, nullptr);
  EXPECT_NE(opened->weights.layers[1].attn_q, nullptr);
  builder.Tensor("blk.0.attn_q.weight", GGML_TYPE_F16, {32, 32});
  ExpectError(builder, Errc::kInvalidFile, "has both");
  builder.RemoveTensor("blk.0.attn_q.weight").Tensor("blk.0.attn_q.bias", GGML_TYPE_F32, {32});
  ExpectError(builder, Errc::kInvalidFile, "biases of attention in layer 0");
}

// Layers may have heads of different widths; a rotation's factors fit one width only.
TEST_F(WeightsTest, RefusesFactorsThatFitSomeLayersAlone) {
  GgufBuilder builder = SmallMoe("llama");
  builder.SetInts("llama.attention.head_count", {4, 2})
      .SetInts("llama.attention.head_count_kv", {2, 1})
      .Tensor("rope_freqs.weight", GGML_TYPE_F32, {4});
  ExpectError(builder, Errc::kInvalidFile, "rope_freqs.weight");
  builder.RemoveTensor("rope_freqs.weight");
  EXPECT_TRUE(Open(builder));
}

TEST_F(WeightsTest, TiesTheOutputToTheEmbedding) {
  const auto opened = Open(SmallMoe("olmoe").RemoveTensor("output.weight"));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->weights.output, opened->weights.token_embd);
  const auto dense = opened->weights.dense_tensors();
  EXPECT_EQ(std::ranges::count(dense, opened->weights.token_embd), 1);
}

TEST_F(WeightsTest, PrintsBothShapes) {
  ExpectError(SmallMoe("llama").Tensor("blk.1.ffn_down_exps.weight", GGML_TYPE_F16, {64, 32, 3}),
              Errc::kInvalidFile,
              "has shape [64, 32, 3], the metadata of this llama demands [64, 32, 4]");
  ExpectError(SmallMoe("llama").Tensor("blk.0.attn_norm.weight", GGML_TYPE_F32, {31}),
              Errc::kInvalidFile, "has shape [31], the metadata of this llama demands [32]");
  ExpectError(SmallMoe("llama").Tensor("token_embd.weight", GGML_TYPE_F16, {64, 300}),
              Errc::kInvalidFile, "token_embd.weight");
}

TEST_F(WeightsTest, RefusesTypesThatCannotBeMultiplied) {
  ExpectError(SmallMoe("llama").Tensor("blk.0.attn_k.weight", GGML_TYPE_F64, {32, 16}),
              Errc::kUnsupported, "type f64, which cannot be multiplied; supported are f32, f16");
  ExpectError(SmallMoe("llama").Tensor("blk.0.ffn_up_exps.weight", GGML_TYPE_I8, {32, 64, 4}),
              Errc::kUnsupported, "blk.0.ffn_up_exps.weight");
  ExpectError(SmallMoe("llama").Tensor("blk.0.ffn_norm.weight", GGML_TYPE_F16, {32}),
              Errc::kUnsupported, "norms and biases must be f32");
}

TEST_F(WeightsTest, RefusesTensorsWithoutARole) {
  ExpectError(SmallMoe("olmoe").Tensor("blk.0.exp_probs_b.bias", GGML_TYPE_F32, {4}),
              Errc::kUnsupported, "blk.0.exp_probs_b.bias");
  ExpectError(SmallMoe("olmoe").Tensor("blk.0.ffn_up_exps.bias", GGML_TYPE_F32, {64, 4}),
              Errc::kUnsupported, "blk.0.ffn_up_exps.bias");
  ExpectError(SmallMoe("qwen3moe").Tensor("blk.0.ffn_gate.weight", GGML_TYPE_F16, {32, 64}),
              Errc::kUnsupported, "blk.0.ffn_gate.weight");
  ExpectError(SmallMoe("llama").Tensor("blk.0.attn_sinks.weight", GGML_TYPE_F32, {4}),
              Errc::kUnsupported, "blk.0.attn_sinks.weight");
  ExpectError(SmallMoe("llama").Tensor("blk.2.attn_norm.weight", GGML_TYPE_F32, {32}),
              Errc::kUnsupported, "2 layers");
  ExpectError(SmallMoe("phimoe").RemoveTensor("rope_factors_long.weight"), Errc::kInvalidFile,
              "rope_factors");
}

}  // namespace
}  // namespace moestro
