// SPDX-License-Identifier: MIT
// The server as a program: what it refuses to start with, how it ends. Who may ask:
// serve_access_test.cc.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/serve_testing.h"
#include "tests/support/chat_model_testing.h"
#include "tests/support/sanitized_testing.h"

namespace moestro::testing {
namespace {

using namespace std::chrono_literals;

TEST_F(ServeTest, ServesTheDemoModelAndEndsInOrder) {
  Serve();
  EXPECT_TRUE(Ask(port_, Get("/v1/models")).contains(R"("id":"demo")"));
  const std::string reply = Ask(
      port_, Post("/v1/completions", R"({"prompt":"Once upon a time","max_tokens":5,"seed":1})"));
  EXPECT_TRUE(reply.contains(R"("completion_tokens":5)")) << reply;
  EXPECT_TRUE(Ask(port_, Get("/")).contains("Content-Security-Policy: default-src 'none'"));
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(finished.out.contains("http://127.0.0.1:" + std::to_string(port_))) << finished.out;
}

TEST_F(ServeTest, AStreamThatIsCutByTheEndSaysSo) {
  Serve({"--drain", "0"});
  const SocketClient client(port_);
  ASSERT_TRUE(
      client.Send(Post("/v1/completions", R"({"prompt":"Once","stream":true,)"
                                          R"("ignore_eos":true,"logit_bias":{"2":-100}})")));
  client.ReceiveUntil("data: ");
  program_->Interrupt();
  const std::string rest = client.ReceiveAll();
  // A context of 256 tokens may be full before the signal arrives.
  EXPECT_TRUE(rest.contains("server_shutdown") || rest.contains("[DONE]")) << rest;
  EXPECT_EQ(program_->Wait().exit_code, 0);
}

// More work than is done before the second signal, and more time for it.
TEST_F(ServeTest, WhileItDrainsHealthSaysSoAndASecondSignalEndsItAtOnce) {
  Serve({"--drain", "600", "--parallel", "1"});
  const std::string work = Post("/v1/completions", R"({"prompt":"Once","max_tokens":230,)"
                                                   R"("ignore_eos":true,"logit_bias":{"2":-100}})");
  std::vector<std::unique_ptr<SocketClient>> clients;
  for (int i = 0; i < 60; ++i) {
    clients.push_back(std::make_unique<SocketClient>(port_));
    ASSERT_TRUE(clients.back()->Send(work));
  }
  while (!Ask(port_, Get("/metrics")).contains("\nmoestro_requests_processing 1")) {
    std::this_thread::sleep_for(1ms);
  }
  program_->Interrupt();
  std::string health;
  while (!health.starts_with("HTTP/1.1 503")) health = Ask(port_, Get("/health"));
  EXPECT_TRUE(health.contains("server_shutdown")) << health;
  program_->Interrupt();
  EXPECT_EQ(program_->Wait().exit_code, 1) << "in order it would be 0";
}

TEST_F(ServeTest, ThreeHundredSlowClientsKeepNobodyOutAndDoNotHoldUpTheEnd) {
  Serve();
  const std::string ask =
      Post("/v1/completions", R"({"prompt":"Once","max_tokens":5,"temperature":0})");
  const auto text = [&] {
    const std::string reply = Ask(port_, ask);
    return reply.substr(std::min(reply.find("\"text\""), reply.size()), 40);
  };
  const std::string alone = text();
  EXPECT_FALSE(alone.empty());
  for (const std::string beginning :
       {"", "GET / HT", "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n\r\n"}) {
    std::vector<std::unique_ptr<SocketClient>> slow;
    for (int i = 0; i < 300; ++i) {
      slow.push_back(std::make_unique<SocketClient>(port_));
      slow.back()->Send(beginning);
    }
    EXPECT_TRUE(Ask(port_, Get("/health")).starts_with("HTTP/1.1 200"));
    EXPECT_TRUE(Ask(port_, Get("/metrics")).starts_with("HTTP/1.1 200"));
    // Slow bodies are known to be slow after two seconds.
    std::string beside;
    for (int i = 0; i < 500 && beside.empty(); ++i) {
      beside = text();
      if (beside.empty()) std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(beside, alone);
    if (beginning.starts_with("POST")) {
      EXPECT_EQ(End().exit_code, 0);
    }
  }
}

TEST_F(ServeTest, RefusesAnOpenAddressWithoutAKey) {
  const Finished finished = RunToEnd({"--host", "0.0.0.0"});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_TRUE(finished.err.contains("--api-key-file")) << finished.err;
}

TEST_F(ServeTest, RefusesAPortThatIsTaken) {
  Serve();
  const Finished finished = RunToEnd({"--port", std::to_string(port_)});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_TRUE(finished.err.contains(std::to_string(port_))) << finished.err;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTest, SaysWhatIsWrongWithTheModelOrTheKeys) {
  EXPECT_EQ(RunToEnd({folder_.File("absent.gguf")}).exit_code, 1);
  EXPECT_EQ(RunToEnd({"--api-key-file", folder_.File("absent")}).exit_code, 1);
  std::ofstream(folder_.File("empty")) << "\n\n";
  EXPECT_EQ(RunToEnd({"--api-key-file", folder_.File("empty")}).exit_code, 2);
  EXPECT_EQ(RunToEnd({"--parallel", "0"}).exit_code, 2);
}

TEST_F(ServeTest, ABadSchemaIsBlamedOnItsField) {
  Serve();
  const std::string schema = R"({"type":"json_schema","json_schema":{"schema":{"type":5}}})";
  const std::string flat = R"({"format":{"type":"json_schema","schema":{"type":5}}})";
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  const auto ask = [&](std::string_view path, const std::string& body) {
    return Ask(port_, Post(path, "{" + body + "}"));
  };
  for (const std::string& reply :
       {ask("/v1/chat/completions", messages + R"(,"response_format":)" + schema),
        ask("/v1/completions", R"("prompt":"hi","response_format":)" + schema)}) {
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << reply;
    EXPECT_TRUE(reply.contains(R"("param":"response_format")")) << reply;
  }
  EXPECT_TRUE(ask("/v1/chat/completions", messages + R"(,"json_schema":{"type":5})")
                  .contains(R"("param":"json_schema")"));
  EXPECT_TRUE(
      ask("/v1/responses", R"("input":"hi","text":)" + flat).contains(R"("param":"text.format")"));
  EXPECT_TRUE(ask("/v1/completions", R"("prompt":"hi","grammar":"root ::= (")")
                  .contains(R"("param":"grammar")"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTest, ATextIsSavedAndRestoredByName) {
  const std::string folder = folder_.File("slots");
  std::filesystem::create_directory(folder);
  const std::string body =
      R"({"prompt":"Once upon a time there were two friends","max_tokens":3,"temperature":0})";
  const auto change = [&](const std::string& path, const std::string& file) {
    return Ask(port_, Post("/slots/" + path, R"({"filename":")" + file + R"("})"));
  };
  Serve({"--slot-save-path", folder, "--cache-disk", "0"});
  Ask(port_, Post("/v1/completions", body));
  const std::string saved = change("0?action=save", "friends");
  EXPECT_TRUE(saved.contains(R"("id_slot":0,"filename":"friends","n_saved":)")) << saved;
  const std::string written =
      R"("n_written":)" + std::to_string(std::filesystem::file_size(folder + "/friends"));
  EXPECT_TRUE(saved.contains(written)) << saved;
  EXPECT_EQ(End().exit_code, 0);

  Serve({"--slot-save-path", folder, "--cache-disk", "0"});
  const std::string restored = change("2?action=restore", "friends");
  EXPECT_TRUE(restored.contains(R"("n_restored":)")) << restored;
  const std::string warm = Ask(port_, Post("/v1/completions", body));
  EXPECT_FALSE(warm.contains(R"("cached_tokens":0)")) << warm;

  EXPECT_TRUE(change("0?action=restore", "absent").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(change("0?action=restore", "../friends").starts_with("HTTP/1.1 400"));
  // What is wrong with a file is said without the folder that it lies in.
  std::filesystem::create_directory(folder + "/a folder");
  std::ofstream(folder + "/damaged") << "no text at all";
  for (const auto& [what, status] :
       {std::pair("save a folder", "400"), std::pair("restore a folder", "404"),
        std::pair("restore damaged", "400")}) {
    const std::string_view all = what;
    const std::string action(all.substr(0, all.find(' ')));
    const std::string reply =
        change("2?action=" + action, std::string(all.substr(all.find(' ') + 1)));
    EXPECT_EQ(reply.substr(9, 3), status) << what << reply;
    EXPECT_FALSE(reply.contains(folder_.path().string())) << what << reply;
  }
  // Both places hold the same text here, so that neither keeps it.
  const std::string erased = Ask(port_, Post("/slots/0?action=erase", ""));
  EXPECT_TRUE(erased.contains(R"("id_slot":0,"n_erased":)")) << erased;
  EXPECT_TRUE(change("2?action=save", "friends").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(change("0?action=load", "a").contains(R"("param":"action")"));
  EXPECT_TRUE(change("0", "a").contains(R"("param":"action")"));
  EXPECT_TRUE(change("99?action=save", "a").contains(R"("param":"id_slot")"));
  EXPECT_TRUE(change("x?action=save", "a").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(Ask(port_, Get("/slots/0")).starts_with("HTTP/1.1 405"));
  EXPECT_EQ(End().exit_code, 0);
}

// The context grows with the budget, so that a budget that is named had to be large enough for a
// context that it would have itself.
TEST_F(ServeTest, TheSmallestBudgetThatIsNamedWorks) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  const std::string model = folder_.File("wide.gguf");
  ASSERT_TRUE(WriteChatModel(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model,
                             "{{ messages[0].content }}"));
  const Finished refused = RunToEnd({model, "--ram", "50M"});
  constexpr std::string_view kNamed = "smallest that works is --ram ";
  const size_t at = refused.err.find(kNamed);
  ASSERT_NE(at, std::string::npos) << refused.err;
  const size_t begin = at + kNamed.size();
  Serve({model, "--ram", refused.err.substr(begin, refused.err.find(':', begin) - begin)});
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTest, WithoutAFolderNothingIsSavedByName) {
  Serve();
  const std::string reply = Ask(port_, Post("/slots/0?action=save", R"({"filename":"a"})"));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 501")) << reply;
  EXPECT_TRUE(reply.contains("--slot-save-path")) << reply;
  EXPECT_EQ(End().exit_code, 0);
  const Finished finished = RunToEnd({"--slot-save-path", folder_.File("absent")});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_TRUE(finished.err.contains("--slot-save-path")) << finished.err;
}

TEST_F(ServeTest, ALimitOnTheSizeOfFilesCostsThePrefixesAlone) {
  Serve();  // unpacks the model
  EXPECT_EQ(End().exit_code, 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Serve();
  setrlimit(RLIMIT_FSIZE, &before);
  const std::string prompt(100, 'x');
  const std::string reply =
      Ask(port_, Post("/v1/completions", R"({"max_tokens":3,"prompt":")" + prompt + R"("})"));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_TRUE(finished.err.contains("not kept on disk")) << finished.err;
}

// Steps of prompts are told by counting: a step either has prompts' rows or a row of each text.
TEST_F(ServeTest, ASmallGapCutsAPromptWhileAnotherTextIsWritten) {
  Serve({"--gap", "0.000000001", "--cache-disk", "0", "--parallel", "2"});
  std::string tokens = "1";
  for (int i = 1; i < 200; ++i) tokens += "," + std::to_string(300 + i);
  const std::string prompt = R"({"cache_prompt":false,"max_tokens":1,"prompt":[)" + tokens + "]}";
  const auto metric = [&](const std::string& name) {
    const std::string all = Ask(port_, Get("/metrics"));
    return std::stol(all.substr(all.find("\nmoestro_" + name + " ") + name.size() + 10));
  };
  // The first text may be over before the prompt arrives: then it is tried again.
  int64_t prompt_steps = 0;
  for (int i = 0; i < 10 && prompt_steps <= 8; ++i) {
    const int64_t steps = metric("steps_total");
    const int64_t generated = metric("tokens_predicted_total");
    const SocketClient text(port_);
    ASSERT_TRUE(text.Send(Post("/v1/completions", R"({"cache_prompt":false,"stream":true,)"
                                                  R"("ignore_eos":true,"max_tokens":200,)"
                                                  R"("prompt":[1]})")));
    text.ReceiveUntil("data: ");
    Ask(port_, Post("/v1/completions", prompt));
    ASSERT_TRUE(text.ReceiveAll().contains("[DONE]"));
    std::this_thread::sleep_for(200ms);  // what is reported may be a tenth of a second old
    // Each text's first token comes with its prompt's last step, the others with steps of their
    // own.
    const int64_t text_steps = metric("tokens_predicted_total") - generated - 2;
    prompt_steps = metric("steps_total") - steps - text_steps - 1;
  }
  EXPECT_GT(prompt_steps, 8);  // at most 16 rows in a step, were it not for the default of a second
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTest, PrefixesAreThereAfterARestart) {
  const std::string body =
      R"({"prompt":"Once upon a time there were two friends. Tom and Lily went )"
      R"(to the park with their mom and saw a big dog who wanted to play with )"
      R"(them all day and all night long but","max_tokens":3,"temperature":0})";
  Serve();
  const std::string first = Ask(port_, Post("/v1/completions", body));
  EXPECT_TRUE(first.contains(R"("cached_tokens":0)")) << first;
  EXPECT_EQ(End().exit_code, 0);
  Serve();
  const std::string second = Ask(port_, Post("/v1/completions", body));
  EXPECT_FALSE(second.contains(R"("cached_tokens":0)")) << second;
  const auto text = [](const std::string& reply) {
    const size_t at = reply.find("\"text\"");
    return reply.substr(at, reply.find("\"index\"") - at);
  };
  EXPECT_EQ(text(second), text(first));
  EXPECT_EQ(End().exit_code, 0);
}

}  // namespace
}  // namespace moestro::testing
