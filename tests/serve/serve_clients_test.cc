// SPDX-License-Identifier: MIT
// The requests by which clients find, list and choose models of a server of several, as these
// clients send them, and the parts of the replies that they read: Open WebUI with a connection of
// either kind, Continue, Zed, Codex, and a page in a browser.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "tests/serve/serve_house_testing.h"

namespace moestro::testing {
namespace {

class ClientsTest : public HouseTest {
 protected:
  void SetUp() override {
    HouseTest::SetUp();
    Serve({"--models", Models(), "--ctx", "256", "--cors", "http://page.test"});
    AwaitList(kNames.size());
  }
  void TearDown() override { EXPECT_EQ(End().exit_code, 0); }

  static Json BodyOf(const std::string& reply) {
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
    const size_t body = reply.find("\r\n\r\n");
    auto json = Json::Parse(body == std::string::npos ? "" : reply.substr(body + 4));
    EXPECT_TRUE(json) << reply;
    return json ? *std::move(json) : Json::Object();
  }
  static std::string TextAt(JsonView json, std::string_view key) {
    const auto value = json.Find(key);
    return value ? value->text().value_or("") : "";
  }
  Json AskJson(const std::string& request) const { return BodyOf(Ask(port_, request)); }
  // The names in a list of models.
  static std::vector<std::string> Names(JsonView list, std::string_view key) {
    std::vector<std::string> names;
    for (size_t i = 0; i < list.size(); ++i) names.push_back(TextAt(*list.At(i), key));
    std::ranges::sort(names);
    return names;
  }
};

const std::vector<std::string> kListed = {"demo", "hosted", "hybrid"};

TEST_F(ClientsTest, OpenWebUiWithAConnectionToOllama) {
  EXPECT_FALSE(TextAt(AskJson(Get("/api/version")).view(), "version").empty());
  const Json tags = AskJson(Get("/api/tags", "Accept: application/json\r\n"));
  const JsonView models = *tags.Find("models");
  EXPECT_EQ(Names(models, "model"), kListed);
  EXPECT_EQ(Names(models, "name"), kListed);
  for (size_t i = 0; i < models.size(); ++i) {
    const JsonView model = *models.At(i);
    for (const char* key : {"modified_at", "digest"}) EXPECT_NE(TextAt(model, key), "") << key;
    EXPECT_GT(model.Find("size")->integer().value_or(0), 0);
    for (const char* key : {"format", "family", "parameter_size", "quantization_level"}) {
      EXPECT_NE(TextAt(*model.Find("details"), key), "") << key;
    }
  }
  EXPECT_EQ(AskJson(Get("/api/ps")).Find("models")->size(), 0U);
  const std::string chat =
      R"({"model":"hybrid","messages":[{"role":"user","content":"Hi"}],"stream":true,)"
      R"("options":{"num_predict":4},"keep_alive":"5m"})";
  const std::string lines =
      Ask(port_, Post("/api/chat", chat, "Content-Type: application/json\r\n"));
  EXPECT_TRUE(lines.contains("application/x-ndjson")) << lines;
  EXPECT_TRUE(lines.contains(R"("model":"hybrid")") && lines.contains(R"("done":true)")) << lines;
  const Json running = AskJson(Get("/api/ps"));
  ASSERT_EQ(Names(*running.Find("models"), "model"), std::vector<std::string>{"hybrid"});
  EXPECT_NE(TextAt(*running.Find("models")->At(0), "expires_at"), "");
}

TEST_F(ClientsTest, OpenWebUiWithAConnectionToOpenAi) {
  // Without a key in its settings it sends an empty one.
  const std::string key = "Authorization: Bearer \r\nContent-Type: application/json\r\n";
  const Json list = AskJson(Get("/v1/models", key));
  EXPECT_EQ(TextAt(list.view(), "object"), "list");
  EXPECT_EQ(Names(*list.Find("data"), "id"), kListed);
  EXPECT_EQ(TextAt(*list.Find("data")->At(0), "object"), "model");
  const std::string user = "X-OpenWebUI-User-Name: a\r\nX-OpenWebUI-Chat-Id: b\r\n";
  const std::string chat =
      R"({"stream":true,"model":"hosted","messages":[{"role":"user","content":"Hi"}],)"
      R"("max_tokens":4,"stream_options":{"include_usage":true}})";
  const std::string events = Ask(port_, Post("/v1/chat/completions", chat, key + user));
  EXPECT_TRUE(events.contains("text/event-stream")) << events;
  EXPECT_TRUE(events.contains(R"("model":"hosted")") && events.contains("data: [DONE]")) << events;
  // Retrieval with a model of text shows the reason.
  const std::string none =
      Ask(port_, Post("/v1/embeddings", R"({"input":["a"],"model":"demo"})", key));
  EXPECT_TRUE(none.starts_with("HTTP/1.1 501") && none.contains("names no pooling")) << none;
}

TEST_F(ClientsTest, ContinueFindsModelsAndTheirContext) {
  // Its provider for Ollama names the model by the older field.
  const Json shown = AskJson(Post("/api/show", R"({"name":"demo"})"));
  EXPECT_NE(TextAt(shown.view(), "parameters").find("num_ctx"), std::string::npos);
  EXPECT_TRUE(shown.Find("template") && shown.Find("model_info"));
  EXPECT_TRUE(Ask(port_, Post("/api/show", R"({"name":"absent"})")).starts_with("HTTP/1.1 404"));
  // Its provider for OpenAI takes all that are listed.
  EXPECT_EQ(Names(*AskJson(Get("/v1/models")).Find("data"), "id"), kListed);
  const std::string chat = R"({"messages":[{"role":"user","content":"Hi"}],"model":"demo",)"
                           R"("max_tokens":4,"stream":false})";
  const Json said = AskJson(Post("/v1/chat/completions", chat));
  EXPECT_EQ(TextAt(said.view(), "model"), "demo");
  EXPECT_EQ(said.Find("choices")->size(), 1U);
}

TEST_F(ClientsTest, ZedReadsCapabilitiesAndTheContextOfEachModel) {
  for (const std::string& name : Names(*AskJson(Get("/api/tags")).Find("models"), "name")) {
    const Json shown = AskJson(Post("/api/show", R"({"model":")" + name + "\"}"));
    EXPECT_GT(shown.Find("capabilities")->size(), 0U) << name;
    const JsonView info = *shown.Find("model_info");
    const std::string arch = TextAt(info, "general.architecture");
    const auto context = info.Find(arch + ".context_length");
    ASSERT_TRUE(context) << shown.Dump();
    // Every request of its has this context.
    const std::string chat =
        R"({"model":")" + name +
        R"(","messages":[{"role":"user","content":"Hi"}],"stream":true,)"
        R"("keep_alive":-1,"options":{"num_ctx":)" +
        std::to_string(context->integer().value_or(0)) +
        R"(,"num_predict":4,"stop":[],"temperature":1.0},"tools":[],"think":null})";
    const std::string lines = Ask(port_, Post("/api/chat", chat));
    EXPECT_TRUE(lines.starts_with("HTTP/1.1 200") && lines.contains(R"("done":true)")) << lines;
  }
}

// Codex needs a version of Ollama that has the Responses API, 0.13.4; others the one that has
// Anthropic's, 0.14.0.
TEST_F(ClientsTest, CodexSpeaksResponsesToWhatCallsItselfOllama) {
  const std::string version = TextAt(AskJson(Get("/api/version")).view(), "version");
  ASSERT_TRUE(version.starts_with("0.")) << version;
  EXPECT_GE(ParseNumber<int>(version.substr(2, version.find('.', 2) - 2)).value_or(0), 14);
  EXPECT_EQ(Names(*AskJson(Get("/api/tags")).Find("models"), "name"), kListed);
  EXPECT_EQ(AskJson(Get("/v1/models?client_version=0.60.0")).Find("data")->size(), 3U);
  const std::string turn =
      R"({"model":"demo","instructions":"Be brief.","input":[)"
      R"({"type":"message","role":"developer","content":[{"type":"input_text","text":"x"}]},)"
      R"({"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}],)"
      R"("tools":[{"type":"function","name":"shell","description":"Runs a command.","strict":false,)"
      R"("parameters":{"type":"object","properties":{"command":{"type":"array","items":)"
      R"({"type":"string"}}},"required":["command"],"additionalProperties":false}}],)"
      R"("tool_choice":"auto","parallel_tool_calls":false,"reasoning":null,"store":false,)"
      R"("stream":true,"include":[],"prompt_cache_key":"0199","max_output_tokens":16})";
  const std::string events =
      Ask(port_, Post("/v1/responses", turn, "Accept: text/event-stream\r\nsession_id: 0199\r\n"));
  EXPECT_TRUE(events.starts_with("HTTP/1.1 200")) << events;
  EXPECT_TRUE(events.contains("event: response.created")) << events;
  EXPECT_TRUE(events.contains("response.completed") || events.contains("response.incomplete"))
      << events;
  // A model that is not there would be pulled, and the refusal has its reason.
  const std::string pull = Ask(port_, Post("/api/pull", R"({"model":"absent","stream":true})"));
  EXPECT_TRUE(pull.starts_with("HTTP/1.1 501") && pull.contains(R"({"error":)")) << pull;
}

TEST_F(ClientsTest, ProgramsLookWhetherAServerIsThere) {
  const std::string head = "HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  const std::string reply = Ask(port_, head);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
  EXPECT_TRUE(reply.ends_with("\r\n\r\n")) << reply;  // no body
}

TEST_F(ClientsTest, APageOfAnotherOriginAsksFirst) {
  const std::string before =
      "OPTIONS /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
      "Access-Control-Request-Method: GET\r\n"
      "Access-Control-Request-Headers: authorization,content-type\r\nOrigin: ";
  const std::string allowed = Ask(port_, before + "http://page.test\r\n\r\n");
  EXPECT_TRUE(allowed.starts_with("HTTP/1.1 204")) << allowed;
  EXPECT_TRUE(allowed.contains("Access-Control-Allow-Origin: http://page.test")) << allowed;
  const std::string refused = Ask(port_, before + "http://other.test\r\n\r\n");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 403")) << refused;
  const std::string list = Ask(port_, Get("/v1/models", "Origin: http://page.test\r\n"));
  EXPECT_TRUE(list.contains("Access-Control-Allow-Origin: http://page.test")) << list;
}

}  // namespace
}  // namespace moestro::testing
