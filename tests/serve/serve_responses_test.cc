// SPDX-License-Identifier: MIT
// Stored answers of /v1/responses: a server with --response-store as a program.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/serve/serve_testing.h"

namespace moestro::testing {
namespace {

namespace fs = std::filesystem;

std::string BodyOf(const std::string& reply) {
  const size_t end = reply.find("\r\n\r\n");
  return end == std::string::npos ? "" : reply.substr(end + 4);
}

std::string Delete(const std::string& path, const std::string& headers = "") {
  return "DELETE " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + headers +
         "\r\n";
}

class ServeResponsesTest : public ServeTest {
 protected:
  void ServeStored(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(), {"--response-store", Folder()});
    Serve(std::move(arguments));
  }
  std::string Folder() const { return folder_.File("answers"); }
  size_t Files() const {
    size_t files = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(Folder())) ++files;
    return files;
  }
  std::string AskFor(const std::string& fields, const std::string& headers = "") const {
    return Ask(port_, Post("/v1/responses",
                           R"({"max_output_tokens":6,"temperature":0,)" + fields + "}", headers));
  }
  Json Responded(const std::string& fields, const std::string& headers = "") const {
    const std::string reply = AskFor(fields, headers);
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
    auto body = Json::Parse(BodyOf(reply));
    EXPECT_TRUE(body) << reply;
    return body ? *std::move(body) : Json();
  }
  static std::string Field(const Json& body, const char* key) {
    const auto found = body.Find(key);
    return found ? found->text().value_or(found->Dump()) : "";
  }
  static std::string TextOf(const Json& body) {
    const auto output = body.Find("output");
    const auto item = output ? output->At(output->size() - 1) : std::nullopt;
    const auto content = item ? item->Find("content") : std::nullopt;
    const auto part = content ? content->At(0) : std::nullopt;
    return part ? part->Find("text")->text().value_or("") : "";
  }
};

TEST_F(ServeResponsesTest, AnAnswerGoesOnFromStoredOnesAsFromTheWholeConversation) {
  ServeStored();
  const Json first = Responded(R"("input":"Once upon a time","instructions":"Be brief.")");
  EXPECT_EQ(Field(first, "store"), "true");
  const std::string id = Field(first, "id");
  const Json second = Responded(R"("input":[{"role":"user","content":"And then?"}],)"
                                R"("previous_response_id":")" +
                                id + '"');
  EXPECT_EQ(Field(second, "previous_response_id"), id);
  const Json third = Responded(R"("input":"Why?","instructions":"Be kind.",)"
                               R"("previous_response_id":")" +
                               Field(second, "id") + '"');
  // Instructions of earlier requests do not hold.
  const auto say = [](const char* role, const std::string& text) {
    Json turn = Json::Object();
    return std::move(turn.Set("role", role).Set("content", text));
  };
  Json turns = Json::Array();
  turns.Push(say("user", "Once upon a time")).Push(say("assistant", TextOf(first)));
  turns.Push(say("user", "And then?")).Push(say("assistant", TextOf(second)));
  turns.Push(say("user", "Why?"));
  const Json whole =
      Responded(R"("store":false,"instructions":"Be kind.","input":)" + turns.Dump());
  EXPECT_FALSE(TextOf(third).empty());
  EXPECT_EQ(TextOf(third), TextOf(whole));
  EXPECT_EQ(third.Find("usage")->Find("input_tokens")->Dump(),
            whole.Find("usage")->Find("input_tokens")->Dump());
  EXPECT_EQ(Field(whole, "store"), "false");
  EXPECT_EQ(Files(), 3U);
  // The first one is deleted, and the others go on without it.
  const std::string path = "/v1/responses/" + id;
  EXPECT_EQ(BodyOf(Ask(port_, Get(path))), first.Dump());
  EXPECT_EQ(BodyOf(Ask(port_, Delete(path))),
            R"({"id":")" + id + R"(","object":"response","deleted":true})");
  for (const std::string& reply : {Ask(port_, Get(path)), Ask(port_, Delete(path))})
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 404")) << reply;
  const std::string gone = AskFor(R"("input":"x","previous_response_id":")" + id + '"');
  EXPECT_TRUE(gone.starts_with("HTTP/1.1 400")) << gone;
  EXPECT_TRUE(gone.contains("previous_response_not_found")) << gone;
  const std::string onward = R"("input":"x","previous_response_id":")" + Field(second, "id") + '"';
  EXPECT_TRUE(Field(Responded(onward), "id").starts_with("resp_"));
  EXPECT_EQ(Ask(port_, Post(path, "{}")).substr(0, 12), "HTTP/1.1 405");
  EXPECT_EQ(End().exit_code, 0);
  // A server that starts later knows the answers.
  ServeStored();
  EXPECT_EQ(BodyOf(Ask(port_, Get("/responses/" + Field(second, "id")))), second.Dump());
  EXPECT_TRUE(Field(Responded(onward), "id").starts_with("resp_"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeResponsesTest, AStreamsAnswerIsStoredBeforeItsLastEvent) {
  ServeStored();
  const std::string stream = BodyOf(AskFor(R"("input":"Once","stream":true)"));
  const size_t last = stream.rfind("event: response.");
  ASSERT_NE(last, std::string::npos) << stream;
  const size_t data = stream.find("data: ", last) + 6;
  const auto event = Json::Parse(stream.substr(data, stream.find('\n', data) - data));
  ASSERT_TRUE(event);
  const auto response = event->Find("response");
  const std::string id = *response->Find("id")->text();
  EXPECT_EQ(BodyOf(Ask(port_, Get("/v1/responses/" + id))), response->Dump());
  // The count of a prompt's tokens goes on from it, too.
  const auto count = [&](const std::string& fields) {
    return BodyOf(Ask(port_, Post("/v1/responses/input_tokens", R"({"input":"x")" + fields + "}")));
  };
  EXPECT_GT(count(R"(,"previous_response_id":")" + id + '"').size(), 0U);
  EXPECT_NE(count(R"(,"previous_response_id":")" + id + '"'), count(""));
  EXPECT_EQ(Files(), 1U);
  const std::string streamed = Ask(port_, Get("/v1/responses/" + id + "?stream=true"));
  EXPECT_TRUE(streamed.starts_with("HTTP/1.1 400")) << streamed;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeResponsesTest, AKeysAnswersAreUnknownToOtherKeys) {
  const std::string keys = folder_.File("keys");
  std::ofstream(keys) << "mine\ntheirs\n";
  fs::permissions(keys, fs::perms::owner_read);
  ServeStored({"--api-key-file", keys});
  const std::string mine = "Authorization: Bearer mine\r\n";
  const std::string theirs = "x-api-key: theirs\r\n";
  const std::string id = Field(Responded(R"("input":"Once")", mine), "id");
  const std::string path = "/v1/responses/" + id;
  const std::string onward = R"("input":"x","previous_response_id":")" + id + '"';
  // A client with a key does not choose whose answers it gets.
  const std::string owner =
      fs::directory_iterator(Folder())->path().filename().string().substr(0, 16);
  for (const std::string& headers : {theirs, theirs + "X-Moestro-Owner: " + owner + "\r\n"}) {
    EXPECT_TRUE(Ask(port_, Get(path, headers)).starts_with("HTTP/1.1 404"));
    EXPECT_TRUE(Ask(port_, Delete(path, headers)).starts_with("HTTP/1.1 404"));
    EXPECT_TRUE(AskFor(onward, headers).contains("previous_response_not_found"));
  }
  EXPECT_TRUE(Ask(port_, Get(path)).starts_with("HTTP/1.1 401"));
  EXPECT_TRUE(Ask(port_, Get(path, mine)).starts_with("HTTP/1.1 200"));
  EXPECT_FALSE(TextOf(Responded(onward, mine)).empty());
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeResponsesTest, HostileIdsAreRefusedAndReachNoFile) {
  ServeStored();
  std::ofstream(folder_.File("resp_0000000000000001.response")) << "moestro response 1\n{}\n[]\n";
  for (const std::string& id :
       {std::string("../resp_0000000000000001"), std::string("..%2Fresp_0000000000000001"),
        std::string("%2E%2E%2Fkeys"), std::string("resp_%00"), std::string("resp_*"),
        std::string(4000, 'a')}) {
    const std::string reply = Ask(port_, Get("/v1/responses/" + id));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 404") || reply.starts_with("HTTP/1.1 400")) << reply;
    EXPECT_LT(reply.size(), 1000U);
  }
  EXPECT_TRUE(Ask(port_, Get("/v1/responses/" + std::string(9000, 'a'))).contains(" 414 "));
  for (const std::string& id : {std::string("../resp_0000000000000001"), std::string(1 << 20, 'a'),
                                std::string("\\u0000"), std::string()}) {
    const std::string reply = AskFor(R"("input":"x","previous_response_id":")" + id + '"');
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << reply.substr(0, 400);
    EXPECT_TRUE(reply.contains("previous_response_id")) << reply.substr(0, 400);
    EXPECT_LT(reply.size(), 1000U);
  }
  EXPECT_TRUE(AskFor(R"("input":"x","previous_response_id":7)").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(AskFor(R"("input":"x","store":"yes")").starts_with("HTTP/1.1 400"));
  EXPECT_EQ(Files(), 0U);
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeResponsesTest, WithoutAFolderNothingIsStoredAndThatIsSaid) {
  Serve();
  const std::string reply = AskFor(R"("input":"Once","store":true)");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
  EXPECT_TRUE(reply.contains(R"("store":false)")) << reply;
  EXPECT_TRUE(reply.contains("X-Moestro-Warning: store is left out")) << reply;
  EXPECT_FALSE(AskFor(R"("input":"Once")").contains("X-Moestro-Warning"));
  const std::string gone = Ask(port_, Get("/v1/responses/resp_0000000000000001"));
  EXPECT_TRUE(gone.starts_with("HTTP/1.1 404")) << gone;
  EXPECT_TRUE(gone.contains("--response-store")) << gone;
  const std::string onward =
      AskFor(R"("input":"x","previous_response_id":"resp_0000000000000001")");
  EXPECT_TRUE(onward.starts_with("HTTP/1.1 400")) << onward;
  EXPECT_TRUE(AskFor(R"("input":"x","background":true)").contains("background"));
  EXPECT_EQ(End().exit_code, 0);
}

// A disk that is full takes nothing from the answer, which says that it is not stored.
TEST_F(ServeResponsesTest, AnAnswerThatCannotBeStoredIsAnsweredAllTheSame) {
  ServeStored();
  fs::remove_all(Folder());
  const Json answer = Responded(R"("input":"Once")");
  EXPECT_FALSE(TextOf(answer).empty());
  EXPECT_EQ(Field(answer, "store"), "false");
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeResponsesTest, AFolderThatOthersCanEnterIsRefused) {
  fs::create_directory(Folder());
  fs::permissions(Folder(), fs::perms::others_exec, fs::perm_options::add);
  const Finished finished = RunToEnd({"--response-store", Folder()});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_TRUE(finished.err.contains("chmod 700")) << finished.err;
}

}  // namespace
}  // namespace moestro::testing
