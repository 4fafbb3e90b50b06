// SPDX-License-Identifier: MIT
#include "api/server_bodies.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"

namespace moestro {
namespace {

TEST(ServerBodies, ModelsTellTheirContext) {
  const ServedModel model{.id = "tiny",
                          .created = 1700000000,
                          .n_ctx = 4096,
                          .n_ctx_train = 8192,
                          .n_vocab = 1000,
                          .n_params = 30'000'000'000,
                          .size_bytes = 16'000'000'000,
                          .architecture = "qwen3moe",
                          .quantization = "q4_K"};
  const std::string body =
      R"({"id":"tiny","object":"model","created":1700000000,"owned_by":"moestro",)"
      R"("type":"llm","max_model_len":4096,"meta":)"
      R"({"n_ctx":4096,"n_ctx_train":8192,"n_params":30000000000,"size":16000000000,)"
      R"("n_vocab":1000,"architecture":"qwen3moe","quantization":"q4_K"}})";
  EXPECT_EQ(ModelBody(model), body);
  EXPECT_EQ(ModelListBody({&model, 1}), R"({"object":"list","data":[)" + body + "]}");
  EXPECT_EQ(ModelListBody({}), R"({"object":"list","data":[]})");
}

TEST(ServerBodies, PropertiesAreLlamaServers) {
  ServedModel model{.id = "tiny", .n_ctx = 4096, .chat_template = "{{ x }}"};
  model.warnings = {"beware"};
  const auto json = Json::Parse(PropertiesBody(
      model, {.defaults = {}, .parallel = 4, .bos = "<s>", .eos = "</s>", .build = "b1"}));
  ASSERT_TRUE(json);
  EXPECT_EQ(json->Find("default_generation_settings")->Find("n_ctx")->integer(), 4096);
  EXPECT_EQ(json->Find("default_generation_settings")->Find("params")->Find("temperature")->Dump(),
            "0.8");
  EXPECT_EQ(json->Find("total_slots")->integer(), 4);
  EXPECT_EQ(json->Find("chat_template")->text(), "{{ x }}");
  EXPECT_EQ(json->Find("model_alias")->text(), "tiny");
  EXPECT_EQ(json->Find("build_info")->text(), "b1");
  EXPECT_EQ(json->Find("warnings")->Dump(), R"(["beware"])");
}

TEST(ServerBodies, Health) {
  EXPECT_EQ(HealthBody({}), R"({"status":"ok"})");
  const std::vector<std::string> warnings = {"its template fails"};
  EXPECT_EQ(HealthBody(warnings), R"({"status":"ok","warnings":["its template fails"]})");
  EXPECT_EQ(LoadingBody(),
            R"({"error":{"code":503,"message":"Loading model","type":"unavailable_error"}})");
}

TEST(ServerBodies, TokenizeRequests) {
  const auto plain = ParseTokenizeRequest(R"({"content":"a"})");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->content, "a");
  EXPECT_FALSE(plain->add_special);
  EXPECT_TRUE(plain->parse_special);
  EXPECT_FALSE(plain->with_pieces);
  const auto all = ParseTokenizeRequest(
      R"({"content":"","add_special":true,"parse_special":false,"with_pieces":true})");
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->add_special);
  EXPECT_FALSE(all->parse_special);
  EXPECT_TRUE(all->with_pieces);
  for (const char* wrong :
       {"{}", R"({"content":1})", R"({"content":"a","add_special":"yes"})",
        R"({"content":"a","with_pieces":1})", "[]", "", "{\"content\":\"\xFF\"}"}) {
    const auto request = ParseTokenizeRequest(wrong);
    ASSERT_FALSE(request) << wrong;
    EXPECT_EQ(request.error().status, 400);
  }
  EXPECT_EQ(ParseTokenizeRequest("{}").error().param, "content");
}

TEST(ServerBodies, TokensAreNumbersOrPieces) {
  const std::vector<Token> tokens = {1, 2};
  const std::vector<std::string> pieces = {" \"a", "\xF0\x9F"};
  EXPECT_EQ(TokenizeBody(tokens), R"({"tokens":[1,2]})");
  EXPECT_EQ(TokenizeBody(tokens, pieces),
            R"({"tokens":[{"id":1,"piece":" \"a"},{"id":2,"piece":[240,159]}]})");
  EXPECT_EQ(TokenizeBody(std::vector<Token>()), R"({"tokens":[]})");
}

TEST(ServerBodies, DetokenizeRequests) {
  EXPECT_EQ(*ParseDetokenizeRequest(R"({"tokens":[0,9.0]})", 10), (std::vector<Token>{0, 9}));
  EXPECT_TRUE(ParseDetokenizeRequest(R"({"tokens":[]})", 10)->empty());
  for (const char* wrong : {"{}", R"({"tokens":[10]})", R"({"tokens":[-1]})", R"({"tokens":["a"]})",
                            R"({"tokens":{}})"}) {
    ASSERT_FALSE(ParseDetokenizeRequest(wrong, 10)) << wrong;
  }
  EXPECT_EQ(ParseDetokenizeRequest(R"({"tokens":[1,10]})", 10).error().param, "tokens[1]");
  EXPECT_EQ(DetokenizeBody("a\xFF"), "{\"content\":\"a\xEF\xBF\xBD\"}");
}

TEST(ServerBodies, TemplatesAndCounts) {
  EXPECT_EQ(ApplyTemplateBody("<|im_start|>"), R"({"prompt":"<|im_start|>"})");
  EXPECT_EQ(InputTokensBody(ApiKind::kMessages, 7), R"({"input_tokens":7})");
  EXPECT_EQ(InputTokensBody(ApiKind::kResponses, 7),
            R"({"object":"response.input_tokens","input_tokens":7})");
}

ApiResult<std::string> FileOf(const std::string& name) {
  return ParseTextFile(Json::Object().Set("filename", name).Dump());
}

TEST(PlaceBodies, PlainFileNamesAreTaken) {
  for (const std::string name : {"a", "chat-1.bin", "mit Leerzeichen", "\u00e4\u00f6"}) {
    const auto file = FileOf(name);
    ASSERT_TRUE(file) << name;
    EXPECT_EQ(*file, name);
  }
  EXPECT_TRUE(FileOf(std::string(200, 'x')));
}

TEST(PlaceBodies, NamesThatCouldLeaveTheFolderAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../a"), std::string("/a"),
        std::string("a/b"), std::string("a\\b"), std::string("a..b"), std::string(".hidden"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\x7F"), std::string(201, 'x')}) {
    const auto file = FileOf(name);
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().status, 400);
    EXPECT_EQ(file.error().param, "filename");
    EXPECT_LT(file.error().message.size(), 300U);
  }
  for (const std::string body : {"{}", "", "[]", R"({"filename":5})"}) {
    EXPECT_EQ(ParseTextFile(body).error().status, 400) << body;
  }
}

TEST(PlaceBodies, ActionsHaveThreeNames) {
  EXPECT_EQ(ParsePlaceAction("save"), SaveAction::kSave);
  EXPECT_EQ(ParsePlaceAction("restore"), SaveAction::kRestore);
  EXPECT_EQ(ParsePlaceAction("erase"), SaveAction::kErase);
  for (const std::string action : {"", "Save", "load"}) {
    const auto parsed = ParsePlaceAction(action);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().param, "action");
  }
}

TEST(PlaceBodies, AnswersHaveTheShapesOfLlamaServer) {
  const SaveFigures figures{.tokens = 84, .bytes = 14309796, .seconds = 0.0625};
  EXPECT_EQ(PlaceBody(SaveAction::kSave, 1, "f", figures),
            R"({"id_slot":1,"filename":"f","n_saved":84,"n_written":14309796,)"
            R"("timings":{"save_ms":62.5}})");
  EXPECT_EQ(PlaceBody(SaveAction::kRestore, 0, "f", figures),
            R"({"id_slot":0,"filename":"f","n_restored":84,"n_read":14309796,)"
            R"("timings":{"restore_ms":62.5}})");
  EXPECT_EQ(PlaceBody(SaveAction::kErase, 2, "", figures), R"({"id_slot":2,"n_erased":84})");
}

}  // namespace
}  // namespace moestro
