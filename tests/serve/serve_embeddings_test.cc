// SPDX-License-Identifier: MIT
// Embeddings through HTTP: a model for embeddings alone, and beside a model of text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "model/gguf_testing.h"
#include "tests/serve/serve_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/sanitized_testing.h"

namespace moestro::testing {
namespace {

constexpr size_t kWidth = 128;
constexpr size_t kEmbedContext = 512;

// A request's body with a text of so many words.
std::string Words(size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += i == 0 ? "a" : " a";
  return text;
}

class EmbeddingsServeTest : public ServeTest {
 protected:
  void SetUp() override {
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
    const std::string vocabulary = folder_.File("vocabulary");
    GgufBuilder file = SmallMoe("llama");
    AddBertVocabulary(file);
    file.Write(vocabulary);
    const std::string written = WriteZooModel(
        folder_.path(), "bert",
        {.context = kEmbedContext, .is_causal = false, .pooling = 1, .vocab_path = vocabulary});
    std::filesystem::rename(written, Bert());
  }
  std::string Bert() const { return folder_.File("bert.gguf"); }
  std::string Embed(const std::string& fields, const std::string& path = "/v1/embeddings") const {
    return Ask(port_, Post(path, R"({"model":"bert",)" + fields + "}"));
  }
  static std::optional<Json> BodyOf(const std::string& reply) {
    const size_t body = reply.find("\r\n\r\n");
    if (!reply.starts_with("HTTP/1.1 200") || body == std::string::npos) return std::nullopt;
    auto json = Json::Parse(reply.substr(body + 4));
    if (!json) return std::nullopt;
    return *std::move(json);
  }
  static std::vector<double> Numbers(std::optional<JsonView> array) {
    std::vector<double> numbers;
    for (size_t i = 0; array && i < array->size(); ++i) {
      numbers.push_back(array->At(i)->number().value_or(NAN));
    }
    return numbers;
  }
  // The vectors of a reply in OpenAI's form or Ollama's; none: the reply is an error.
  static std::vector<std::vector<double>> VectorsOf(const std::string& reply) {
    const std::optional<Json> body = BodyOf(reply);
    std::vector<std::vector<double>> vectors;
    if (!body) return vectors;
    const auto data = body->Find("data");
    const auto list = data ? data : body->Find("embeddings");
    for (size_t i = 0; list && i < list->size(); ++i) {
      vectors.push_back(Numbers(data ? list->At(i)->Find("embedding") : list->At(i)));
    }
    return vectors;
  }
  static double Length(const std::vector<double>& vector) {
    double sum = 0.0;
    for (const double value : vector) sum += value * value;
    return std::sqrt(sum);
  }
  // The largest difference of two values at one place.
  static double Difference(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size() || a.empty()) return INFINITY;
    double most = 0.0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  }
};

TEST_F(EmbeddingsServeTest, OpenAisFormsOfInputAndEncoding) {
  Serve({Bert()});
  const std::string reply = Embed(R"("input":["hello","ab c"])");
  const auto vectors = VectorsOf(reply);
  ASSERT_EQ(vectors.size(), 2U) << reply;
  for (const auto& vector : vectors) {
    EXPECT_EQ(vector.size(), kWidth);
    EXPECT_NEAR(Length(vector), 1.0, 1e-6);
  }
  EXPECT_GT(Difference(vectors[0], vectors[1]), 1e-3);
  EXPECT_TRUE(reply.contains(R"("usage":{"prompt_tokens":8,"total_tokens":8})")) << reply;
  // [CLS], "hello", [SEP]: a client's tokens are taken as they are.
  const auto tokens = VectorsOf(Embed(R"("input":[[2,56,3]])"));
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_LT(Difference(tokens[0], vectors[0]), 1e-6);
  const std::string base64 = Embed(R"("input":"hello","encoding_format":"base64")");
  const auto body = BodyOf(base64);
  ASSERT_TRUE(body) << base64;
  EXPECT_EQ(body->Find("data")->At(0)->Find("embedding")->text()->size(), (kWidth * 4 + 2) / 3 * 4);
  const auto fewer = VectorsOf(Embed(R"("input":"hello","dimensions":16)"));
  ASSERT_EQ(fewer.size(), 1U);
  EXPECT_EQ(fewer[0].size(), 16U);
  EXPECT_NEAR(Length(fewer[0]), 1.0, 1e-6);
  EXPECT_TRUE(Embed(R"("input":"hello","dimensions":129)").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(Embed(R"("input":[[2,59]])").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(Ask(port_, Post("/v1/embeddings", "no JSON")).starts_with("HTTP/1.1 400"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(EmbeddingsServeTest, OllamasForms) {
  Serve({Bert()});
  const auto openai = VectorsOf(Embed(R"("input":"hello")"));
  const auto one = VectorsOf(Embed(R"("input":"hello")", "/api/embed"));
  ASSERT_TRUE(openai.size() == 1 && one.size() == 1);
  EXPECT_LT(Difference(one[0], openai[0]), 1e-6);
  EXPECT_EQ(VectorsOf(Embed(R"("input":["hello","b"])", "/api/embed")).size(), 2U);
  const auto old = BodyOf(Embed(R"("prompt":"hello")", "/api/embeddings"));
  ASSERT_TRUE(old);
  std::vector<double> raw = Numbers(old->Find("embedding"));
  const double length = Length(raw);
  EXPECT_GT(std::abs(length - 1.0), 1e-3);  // as the model gives it
  for (double& value : raw) value /= length;
  EXPECT_LT(Difference(raw, openai[0]), 1e-6);
  const std::string loads = Embed(R"("input":"")", "/api/embed");
  EXPECT_TRUE(loads.contains(R"("embeddings":[])")) << loads;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(EmbeddingsServeTest, TextsBeyondTheContextAreCutOrRefused) {
  Serve({Bert()});
  const std::string text = R"("input":")" + Words(kEmbedContext + 90) + '"';
  const std::string refused = Embed(text);
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 400")) << refused;
  EXPECT_TRUE(refused.contains("context_length_exceeded")) << refused;
  EXPECT_TRUE(Embed(text + R"(,"truncate":false)", "/api/embed").starts_with("HTTP/1.1 400"));
  const auto cut = VectorsOf(Embed(text, "/api/embed"));
  ASSERT_EQ(cut.size(), 1U);
  // A text that is just as long as it may be, with [CLS] and [SEP].
  const auto whole = VectorsOf(Embed(R"("input":")" + Words(kEmbedContext - 2) + '"'));
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_LT(Difference(cut[0], whole[0]), 1e-6);
  EXPECT_TRUE(Embed(R"("input":")" + Words(kEmbedContext - 1) + '"').starts_with("HTTP/1.1 400"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(EmbeddingsServeTest, AModelForEmbeddingsSaysSoAndWritesNoText) {
  Serve({Bert()});
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                           "/v1/messages", "/api/chat", "/api/generate", "/apply-template"}) {
    const std::string reply =
        Ask(port_, Post(path, R"({"model":"bert","messages":[],"prompt":"a","input":"a"})"));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 501") && reply.contains("writes no text")) << reply;
  }
  const std::string list = Ask(port_, Get("/v1/models"));
  EXPECT_TRUE(list.contains(R"("type":"embeddings")")) << list;
  EXPECT_TRUE(list.contains(R"("n_embd":128,"pooling":"mean")")) << list;
  const std::string shown = Ask(port_, Post("/api/show", R"({"model":"bert"})"));
  EXPECT_TRUE(shown.contains(R"("capabilities":["embedding"])")) << shown;
  EXPECT_TRUE(shown.contains(R"("bert.embedding_length":128)")) << shown;
  EXPECT_TRUE(Ask(port_, Post("/tokenize", R"({"content":"hello"})")).contains("[56]"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(EmbeddingsServeTest, ClientsAtOnceGetWhatEachGetsAlone) {
  Serve({Bert()});
  std::vector<std::vector<double>> alone;
  for (size_t i = 0; i < 6; ++i) {
    const auto got = VectorsOf(Embed(R"("input":")" + Words(5 + 60 * i) + '"'));
    ASSERT_EQ(got.size(), 1U);
    alone.push_back(got[0]);
  }
  std::vector<std::thread> clients;
  for (size_t client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      for (int round = 0; round < 3; ++round) {
        const auto got = VectorsOf(Embed(R"("input":")" + Words(5 + 60 * client) + '"'));
        ASSERT_EQ(got.size(), 1U);
        EXPECT_LT(Difference(got[0], alone[client]), 1e-5);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const std::string metrics = Ask(port_, Get("/metrics"));
  EXPECT_TRUE(metrics.contains("prompt_tokens_total")) << metrics;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(EmbeddingsServeTest, AModelOfTextSaysWhyItHasNone) {
  Serve();
  for (const char* path : {"/v1/embeddings", "/api/embed", "/api/embeddings"}) {
    const std::string reply = Ask(port_, Post(path, R"({"model":"demo","input":"a"})"));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 501")) << reply;
    EXPECT_TRUE(reply.contains("names no pooling")) << reply;
  }
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(EmbeddingsServeTest, TheSmallestBudgetThatIsNamedWorksAndHolds) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  const Finished said = RunToEnd({Bert(), "--threads", "1", "--show-needs"});
  const auto needs = Json::Parse(said.out);
  ASSERT_TRUE(needs) << said.out << said.err;
  const auto smallest = static_cast<uint64_t>(NumberAt(*needs, "smallest"));
  EXPECT_GE(NumberAt(*needs, "best"), NumberAt(*needs, "smallest"));
  Serve({Bert(), "--ram", std::to_string(smallest)});
  std::string many = R"("input":[)";
  for (int i = 0; i < 300; ++i) many += (i > 0 ? ",\"" : "\"") + Words(40) + '"';
  EXPECT_EQ(VectorsOf(Embed(many + "]")).size(), 300U);
  EXPECT_EQ(VectorsOf(Embed(R"("input":")" + Words(kEmbedContext - 2) + '"')).size(), 1U);
  std::ifstream status("/proc/" + std::to_string(program_->id()) + "/status");
  uint64_t peak = 0;
  for (std::string key; status >> key;) {
    if (key == "VmHWM:") status >> peak;
  }
  EXPECT_GT(peak, 0U);
  EXPECT_LE(peak * kKiB, smallest);
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(EmbeddingsServeTest, AHouseHasModelsOfBothKinds) {
  const std::string models = folder_.File("models");
  std::filesystem::create_directory(models);
  std::filesystem::rename(Bert(), models + "/bert.gguf");
  std::filesystem::copy_file(kDemo, models + "/demo.gguf");
  Serve({"--models", models, "--ctx", "256"});
  const auto vectors = VectorsOf(Embed(R"("input":["hello","a"])"));
  ASSERT_EQ(vectors.size(), 2U);
  EXPECT_EQ(VectorsOf(Embed(R"("input":"hello","keep_alive":"5m")", "/api/embed")).size(), 1U);
  const std::string text =
      Ask(port_, Post("/v1/completions", R"({"model":"demo","prompt":"Once","max_tokens":2})"));
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200")) << text;
  const std::string wrong =
      Ask(port_, Post("/v1/embeddings", R"({"model":"demo","input":"hello"})"));
  EXPECT_TRUE(wrong.starts_with("HTTP/1.1 501")) << wrong;
  const std::string list = Ask(port_, Get("/v1/models"));
  EXPECT_TRUE(list.contains(R"("type":"embeddings")") && list.contains(R"("type":"llm")")) << list;
  EXPECT_TRUE(Ask(port_, Post("/api/show", R"({"model":"bert"})")).contains(R"(["embedding"])"));
  EXPECT_TRUE(Ask(port_, Get("/api/tags")).contains("bert"));
  EXPECT_EQ(End().exit_code, 0);
}

}  // namespace
}  // namespace moestro::testing
