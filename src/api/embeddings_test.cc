// SPDX-License-Identifier: MIT
#include "api/embeddings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr EmbedModel kModel{.n_vocab = 100, .n_embd = 8};

ApiResult<EmbedRequest> Parse(EmbedApi api, std::string_view body, EmbedModel model = kModel) {
  return ParseEmbedRequest(api, body, model);
}

std::string Refusal(EmbedApi api, std::string_view body, EmbedModel model = kModel) {
  const auto request = Parse(api, body, model);
  if (request) return "";
  EXPECT_EQ(request.error().status, 400);
  return request.error().message;
}

std::string TextAt(const EmbedRequest& request, size_t i) {
  return std::get<std::string>(request.inputs.at(i));
}
std::vector<Token> TokensAt(const EmbedRequest& request, size_t i) {
  return std::get<std::vector<Token>>(request.inputs.at(i));
}

TEST(EmbedRequests, OpenAisInputHasFourForms) {
  const auto one = Parse(EmbedApi::kOpenAi, R"({"model":"m","input":"a b"})");
  ASSERT_TRUE(one);
  EXPECT_EQ(TextAt(*one, 0), "a b");
  EXPECT_FALSE(one->is_base64 || one->truncates);
  const auto texts = Parse(EmbedApi::kOpenAi, R"({"input":["a","b"],"encoding_format":"base64"})");
  ASSERT_TRUE(texts && texts->inputs.size() == 2);
  EXPECT_EQ(TextAt(*texts, 1), "b");
  EXPECT_TRUE(texts->is_base64);
  const auto tokens = Parse(EmbedApi::kOpenAi, R"({"input":[1,2,3],"dimensions":4})");
  ASSERT_TRUE(tokens && tokens->inputs.size() == 1);
  EXPECT_EQ(TokensAt(*tokens, 0), (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(tokens->dimensions, 4U);
  const auto lists = Parse(EmbedApi::kOpenAi, R"({"input":[[1,2],[3]],"encoding_format":"float"})");
  ASSERT_TRUE(lists && lists->inputs.size() == 2);
  EXPECT_EQ(TokensAt(*lists, 1), (std::vector<Token>{3}));
}

TEST(EmbedRequests, OpenAisMistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "\"input\" is missing"},
      {R"({"input":null})", "\"input\" is missing"},
      {R"({"input":""})", "is empty"},
      {R"({"input":[]})", "has no text"},
      {R"({"input":["a",""]})", "\"input[1]\" is empty"},
      {R"({"input":["a",[]]})", "\"input[1]\" is empty"},
      {R"({"input":7})", "\"input\" must be a text"},
      {R"({"input":["a",true]})", "\"input[1]\" must be"},
      {R"({"input":[1,"a"]})", "input"},
      {R"({"input":[1,100]})", "100"},
      {R"({"input":"a","encoding_format":"hex"})", "must be float or base64"},
      {R"({"input":"a","dimensions":0})", "dimensions"},
      {R"({"input":"a","dimensions":9})", "8"},
  };
  for (const auto& [body, words] : cases) {
    EXPECT_TRUE(Refusal(EmbedApi::kOpenAi, body).contains(words))
        << body << ": " << Refusal(EmbedApi::kOpenAi, body);
  }
}

TEST(EmbedRequests, TextsAndValuesHaveLimits) {
  std::string many = R"({"input":["a")";
  for (size_t i = 0; i < kMostEmbedInputs; ++i) many += R"(,"a")";
  many += "]}";
  EXPECT_TRUE(Refusal(EmbedApi::kOpenAi, many).contains("has 2049 texts; a request may have 2048"));
  EXPECT_TRUE(Refusal(EmbedApi::kOllama, many).contains("2049"));
  const std::string wide =
      Refusal(EmbedApi::kOpenAi, R"({"input":["a","b","c"]})", {.n_vocab = 9, .n_embd = 1U << 19U});
  EXPECT_TRUE(wide.contains("send at most 2 at a time")) << wide;
}

TEST(EmbedRequests, OllamasCutTextsUnlessToldOtherwise) {
  const auto one = Parse(EmbedApi::kOllama, R"({"model":"m","input":"a","keep_alive":"5m"})");
  ASSERT_TRUE(one);
  EXPECT_TRUE(one->truncates);
  const auto several = Parse(EmbedApi::kOllama, R"({"input":["a",""],"truncate":false})");
  ASSERT_TRUE(several && several->inputs.size() == 2);
  EXPECT_FALSE(several->truncates);
  EXPECT_TRUE(Refusal(EmbedApi::kOllama, R"({"input":[1,2]})").contains("must be a text"));
  EXPECT_TRUE(Refusal(EmbedApi::kOllama, R"({"input":"a","dimensions":9})").contains("8"));
}

// A client loads a model by a request without a text.
TEST(EmbedRequests, OllamasMayBeEmpty) {
  for (const char* body : {R"({"model":"m"})", R"({"input":""})", R"({"input":[]})"}) {
    const auto request = Parse(EmbedApi::kOllama, body);
    ASSERT_TRUE(request) << body;
    EXPECT_TRUE(request->inputs.empty()) << body;
  }
  const auto old = Parse(EmbedApi::kOllamaOne, R"({"prompt":""})");
  ASSERT_TRUE(old);
  EXPECT_TRUE(old->inputs.empty());
  const auto prompt = Parse(EmbedApi::kOllamaOne, R"({"prompt":"a"})");
  ASSERT_TRUE(prompt);
  EXPECT_EQ(TextAt(*prompt, 0), "a");
  EXPECT_TRUE(prompt->truncates);
}

const Embeddings kTwo{.values = {3, 4, 0, 12, 0, 0, 0, 0}, .n = 4, .prompt_tokens = 5};

TEST(EmbeddingReplies, VectorsHaveLengthOne) {
  const Embeddings got = Finished(EmbedApi::kOpenAi, {}, kTwo);
  ASSERT_EQ(got.texts(), 2U);
  EXPECT_FLOAT_EQ(got.of(0)[0], 3.0F / 13.0F);
  EXPECT_FLOAT_EQ(got.of(0)[3], 12.0F / 13.0F);
  EXPECT_EQ(got.of(1)[0], 0.0F);  // no number by zero
  EXPECT_EQ(Finished(EmbedApi::kOllamaOne, {}, kTwo).values, kTwo.values);
}

TEST(EmbeddingReplies, FewerDimensionsHaveLengthOneAgain) {
  Embeddings given = kTwo;
  given.values[4] = -2.0F;
  const Embeddings got = Finished(EmbedApi::kOllama, {.dimensions = 2}, std::move(given));
  EXPECT_EQ(got.values, (std::vector<float>{0.6F, 0.8F, -1.0F, 0.0F}));
  EXPECT_EQ(got.texts(), 2U);
}

TEST(EmbeddingReplies, OpenAis) {
  const Embeddings got{.values = {0.5F, -0.25F, 1e-9F, 1}, .n = 2, .prompt_tokens = 7};
  EXPECT_EQ(EmbeddingsBody(EmbedApi::kOpenAi, {}, "m\"", got),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-0.25]},)"
            R"({"object":"embedding","index":1,"embedding":[1e-09,1]}],"model":"m\"",)"
            R"("usage":{"prompt_tokens":7,"total_tokens":7}})");
}

// The digits are those of Python's base64 of struct.pack("<...f").
TEST(EmbeddingReplies, Base64OfLittleEndianFloats) {
  const auto text = [](std::vector<float> values) {
    const auto n = static_cast<uint32_t>(values.size());
    const std::string body = EmbeddingsBody(EmbedApi::kOpenAi, {.is_base64 = true}, "m",
                                            {.values = std::move(values), .n = n});
    return *Json::Parse(body)->Find("data")->At(0)->Find("embedding")->text();
  };
  EXPECT_EQ(text({0.5F}), "AAAAPw==");
  EXPECT_EQ(text({0.5F, -0.25F}), "AAAAPwAAgL4=");
  EXPECT_EQ(text({0.1F, 2.0F, -3.0F}), "zczMPQAAAEAAAEDA");
}

TEST(EmbeddingReplies, Ollamas) {
  const Embeddings got{.values = {0.5F, -0.25F}, .n = 2, .prompt_tokens = 7, .seconds = 0.25};
  EXPECT_EQ(EmbeddingsBody(EmbedApi::kOllama, {}, "m", got),
            R"({"model":"m","embeddings":[[0.5,-0.25]],"total_duration":250000000,)"
            R"("load_duration":0,"prompt_eval_count":7})");
  EXPECT_EQ(EmbeddingsBody(EmbedApi::kOllamaOne, {}, "m", got), R"({"embedding":[0.5,-0.25]})");
  EXPECT_TRUE(EmbeddingsBody(EmbedApi::kOllama, {}, "m", {}).contains(R"("embeddings":[])"));
  EXPECT_EQ(EmbeddingsBody(EmbedApi::kOllamaOne, {}, "m", {}), R"({"embedding":[]})");
}

// Every float is read as the same float.
TEST(EmbeddingReplies, NumbersAreExact) {
  std::vector<float> values;
  for (int i = 1; i < 2000; ++i) values.push_back(std::sin(static_cast<float>(i)) / 7.0F);
  const auto n = static_cast<uint32_t>(values.size());
  const auto json =
      Json::Parse(EmbeddingsBody(EmbedApi::kOllamaOne, {}, "m", {.values = values, .n = n}));
  ASSERT_TRUE(json);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(static_cast<float>(*json->Find("embedding")->At(i)->number()), values[i]);
  }
}

}  // namespace
}  // namespace moestro
