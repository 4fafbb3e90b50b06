// SPDX-License-Identifier: MIT
// What a model's layer for further tokens drafts is what libllama's graph of that layer expects.
#include <gtest/gtest.h>
#include <llama.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/backends.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kParityEmbd = 256;
constexpr uint32_t kParityVocab = 512;
constexpr uint32_t kDrafted = 3;

// One of libllama's two contexts of a file: all layers but the last one, or the last one alone.
class LlamaContext {
 public:
  // `shown`: the tensor of the graph that hidden() returns.
  LlamaContext(llama_model* model, llama_context_type type, std::string shown)
      : shown_(std::move(shown)) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = kParityVocab;
    params.n_batch = params.n_ubatch = 128;
    params.n_threads = params.n_threads_batch = 2;
    params.ctx_type = type;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.op_offload = false;
    params.cb_eval = Look;
    params.cb_eval_user_data = this;
    context_ = llama_init_from_model(model, params);
    CHECK(context_ != nullptr);
  }
  ~LlamaContext() { llama_free(context_); }
  LlamaContext(const LlamaContext&) = delete;
  LlamaContext& operator=(const LlamaContext&) = delete;

  // Appends a token at a position, where `state` [n_embd] is what the row takes in beside it, or
  // null. Returns the likeliest next token.
  Token Append(Token token, int32_t position, const float* state) {
    llama_batch_ext* batch = llama_batch_ext_init(context_);
    const int32_t row = llama_batch_ext_add_token(batch, 0, token);
    CHECK(row == 0);
    CHECK(llama_batch_ext_set_pos(batch, row, &position));
    CHECK(llama_batch_ext_set_output_logits(batch, row, true));
    if (state != nullptr) {
      CHECK(llama_batch_ext_set_embd_state(batch, row,
                                           {.data = state, .n_rows = 1, .n_embd = kParityEmbd}));
    }
    CHECK(llama_process(context_, LLAMA_PROCESS_TYPE_DECODE, batch) == 0);
    llama_batch_ext_free(batch);
    return Greedy({llama_get_logits_ith(context_, -1), kParityVocab});
  }
  const std::vector<float>& hidden() const { return hidden_; }
  void CutBack(int32_t position) {
    CHECK(llama_memory_seq_rm(llama_get_memory(context_), 0, position, -1));
  }

 private:
  static bool Look(ggml_tensor* tensor, bool ask, void* self) {
    auto& its = *static_cast<LlamaContext*>(self);
    const bool is_it = its.shown_ == tensor->name;
    if (ask || !is_it) return is_it;
    its.hidden_.resize(kParityEmbd);
    ggml_backend_tensor_get(tensor, its.hidden_.data(), 0, kParityEmbd * sizeof(float));
    return true;
  }

  std::string shown_;
  llama_context* context_ = nullptr;
  std::vector<float> hidden_;
};

class PredictParityTest : public testing::TestWithParam<const char*> {};

TEST_P(PredictParityTest, DraftsTheTokensThatLibllamaExpects) {
  const std::string arch = GetParam();
  const TempFolder folder;
  const uint32_t layers = 3;
  const std::string path = WriteTinyModel(folder.path(), {.arch = arch,
                                                          .type = "F32",
                                                          .layers = layers,
                                                          .embd = kParityEmbd,
                                                          .attention_every = 3,
                                                          .has_sigmoid = true,
                                                          .yarn_log = 0.0F,
                                                          .predicting = 1});
  EngineOptions options;
  options.ctx = 128;
  options.threads = 2;
  options.kv_type = KvType::kF32;
  options.cache = CacheSize{.percent = 100.0};
  options.predicts = true;
  auto engine = NativeEngine::Open(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  LoadCpuBackend();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  std::array<ggml_backend_dev_t, 1> none = {nullptr};
  llama_model_params params = llama_model_default_params();
  params.devices = none.data();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = false;
  params.load_mtp = true;
  llama_model* const model = llama_model_load_from_file(path.c_str(), params);
  ASSERT_NE(model, nullptr);
  {
    // The rows that libllama's own drafts take from either graph.
    LlamaContext whole(model, LLAMA_CONTEXT_TYPE_DEFAULT, "result_norm");
    LlamaContext ahead(model, LLAMA_CONTEXT_TYPE_MTP, "h_nextn");
    Sequence sequence = (*engine)->NewSequence();
    const std::vector<Token> text = SeededTokens(40, kParityVocab, 3);
    std::vector<float> before(kParityEmbd, 0.0F);
    size_t same = 0;
    size_t all = 0;
    for (int32_t p = 0; p < static_cast<int32_t>(text.size()); ++p) {
      const Token token = text[static_cast<size_t>(p)];
      // A draft of three, each behind the one before.
      std::vector<Token> wanted;
      std::vector<float> state = before;
      for (uint32_t i = 0; i < kDrafted; ++i) {
        wanted.push_back(ahead.Append(wanted.empty() ? token : wanted.back(),
                                      p + static_cast<int32_t>(i), state.data()));
        state = ahead.hidden();
      }
      ahead.CutBack(p + 1);
      const auto drafted = (*engine)->Predict(sequence, token, kDrafted);
      ASSERT_TRUE(drafted) << drafted.error().message;
      ASSERT_EQ(drafted->size(), kDrafted);
      EXPECT_EQ(drafted->front(), wanted.front()) << arch << " at " << p;
      for (uint32_t i = 0; i < kDrafted; ++i) same += (*drafted)[i] == wanted[i] ? 1 : 0;
      all += kDrafted;
      (void)whole.Append(token, p, nullptr);
      before = whole.hidden();
      ASSERT_EQ(before.size(), kParityEmbd);
      ASSERT_TRUE(Append(**engine, sequence, {&token, 1}));
    }
    EXPECT_EQ(same, all);
  }
  llama_model_free(model);
}

INSTANTIATE_TEST_SUITE_P(Families, PredictParityTest,
                         testing::Values("glm4moe", "qwen35moe", "qwen3next", "deepseek2"),
                         [](const auto& made) { return CaseName(made.param); });

}  // namespace
}  // namespace moestro
