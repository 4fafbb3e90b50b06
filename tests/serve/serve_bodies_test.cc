// SPDX-License-Identifier: MIT
// The server as a program, given bodies that take long, and without the process that it leaves
// grammars to.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/serve/serve_testing.h"
#include "tests/support/chat_model_testing.h"

namespace moestro::testing {
namespace {

// Processes that a process's first thread has forked.
std::vector<pid_t> ChildrenOf(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

std::string WithSchema(const std::string& name) {
  return Post("/v1/completions",
              R"({"prompt":"hi","max_tokens":3,"json_schema":{"const":")" + name + R"("}})");
}

// A lane for itself, and seconds of it: marks are looked for in the whole vocabulary, for each
// prompt.
std::string SlowBody() {
  std::string prompts = R"("hi")";
  for (int i = 1; i < 256; ++i) prompts += R"(,"hi")";
  std::string marks = R"(")" + std::string(4000, 'a') + R"(")";
  for (int i = 1; i < 16; ++i)
    marks += R"(,")" + std::string(4000, static_cast<char>('a' + i)) + R"(")";
  return R"({"prompt":[)" + prompts + R"(],"max_tokens":1,"dry_multiplier":1,)" +
         R"("dry_sequence_breakers":[)" + marks + R"(],"user":")" + std::string(300'000, 'x') +
         R"("})";
}

using ServeBodiesTest = ServeTest;

// It was looked at only when all had been taken apart.
TEST_F(ServeBodiesTest, ASignalEndsWhatIsBeingTakenApart) {
  Serve({"--drain", "0"});
  const SocketClient slow(port_);
  ASSERT_TRUE(slow.Send(Post("/v1/completions", SlowBody())));
  const auto is_at_it = [&] {
    return Ask(port_, Get("/metrics")).contains("\nmoestro_requests_preparing 1\n");
  };
  for (int i = 0; i < 10'000 && !is_at_it(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  const std::string reply = slow.ReceiveAll();
  EXPECT_TRUE(reply.contains("the server is going down")) << reply;
}

// Two bodies of 16 MB, of which one is taken apart and one waits for it.
class LargeBodiesTest : public ServeBodiesTest {
 protected:
  void SendBoth() {
    std::string body = SlowBody();
    body.pop_back();
    body += R"(,"metadata":")" + std::string(15'000'000, 'x') + R"("})";
    for (int i = 0; i < 2; ++i) {
      clients_.push_back(std::make_unique<SocketClient>(port_));
      ASSERT_TRUE(clients_.back()->Send(Post("/v1/completions", body)));
    }
    const auto are_at_it = [&] {
      const std::string metrics = Ask(port_, Get("/metrics"));
      return metrics.contains("\nmoestro_requests_preparing 1\n") &&
             metrics.contains("\nmoestro_requests_deferred 1\n");
    };
    for (int i = 0; i < 10'000 && !are_at_it(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::vector<std::unique_ptr<SocketClient>> clients_;
};

TEST_F(LargeBodiesTest, ASignalEndsItBesideThem) {
  Serve({"--drain", "0"});
  SendBoth();
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  // A busy machine may need longer than an end in order may take; then the process just ends.
  if (finished.err.contains("took too long")) return;
  for (const auto& client : clients_) {
    const std::string reply = client->ReceiveAll();
    EXPECT_TRUE(reply.contains("the server is going down")) << reply << finished.err;
  }
}

// A drain of ten minutes would outlast the test.
TEST_F(LargeBodiesTest, ASecondSignalEndsItBesideThemAtOnce) {
  Serve({"--drain", "600"});
  // Answers that no client waits for would end the drain too soon.
  const SocketClient other(port_);
  ASSERT_TRUE(other.Send(Post("/v1/completions", R"({"prompt":"Once","ignore_eos":true,)"
                                                 R"("logit_bias":{"2":-100}})")));
  SendBoth();
  program_->Interrupt();
  std::string health;
  while (!health.starts_with("HTTP/1.1 503")) health = Ask(port_, Get("/health"));
  program_->Interrupt();
  EXPECT_EQ(program_->Wait().exit_code, 1) << "in order it would be 0";
}

TEST_F(ServeBodiesTest, ASignalEndsItBesideADeadHelperAndItsDeadParent) {
  Serve({"--drain", "0"});
  ASSERT_TRUE(Ask(port_, WithSchema("a")).starts_with("HTTP/1.1 200"));
  const std::vector<pid_t> spawners = ChildrenOf(program_->id());
  ASSERT_EQ(spawners.size(), 1U);
  const std::vector<pid_t> helpers = ChildrenOf(spawners.front());
  ASSERT_EQ(helpers.size(), 1U);
  kill(helpers.front(), SIGKILL);
  kill(spawners.front(), SIGKILL);
  const SocketClient other(port_);
  ASSERT_TRUE(other.Send(Post("/v1/completions", R"({"prompt":"a","ignore_eos":true})")));
  const SocketClient waiting(port_);
  ASSERT_TRUE(waiting.Send(WithSchema("b")));
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_FALSE(finished.err.contains("took too long")) << finished.err;
}

// The same of all threads.
std::vector<pid_t> DescendantsOf(pid_t process) {
  std::vector<pid_t> all;
  std::error_code gone;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (std::filesystem::directory_iterator it(tasks, gone), end; !gone && it != end;
       it.increment(gone)) {
    std::ifstream file(it->path() / "children");
    for (pid_t child = 0; file >> child;) {
      all.push_back(child);
      for (const pid_t below : DescendantsOf(child)) all.push_back(below);
    }
  }
  return all;
}

class HelpersTest : public ServeBodiesTest {
 protected:
  void ServeChat() {
    ASSERT_TRUE(WriteChatModel(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model_,
                               "{% for m in messages %}{{ m.content }}{% endfor %}"));
    Serve({model_});
  }
  std::string Chat(const std::string& fields) const {
    return Ask(port_, Post("/v1/chat/completions",
                           R"({"messages":[{"role":"user","content":"Once"}],"max_tokens":2)" +
                               fields + "}"));
  }
  // Until /health says so: processes that were killed end one after another.
  std::string AwaitHealth(const std::string& status, const std::string& said = "") const {
    std::string health;
    for (int i = 0; i < 10'000; ++i) {
      health = Ask(port_, Get("/health"));
      if (health.starts_with("HTTP/1.1 " + status) && health.contains(said)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return health;
  }
  void KillHelpers() const {
    const std::vector<pid_t> helpers = DescendantsOf(program_->id());
    EXPECT_GE(helpers.size(), 4U) << "spawner and helper of templates and of grammars";
    for (const pid_t helper : helpers) kill(helper, SIGKILL);
  }

  const std::string model_ = folder_.File("chat.gguf");
};

TEST_F(HelpersTest, ThoseThatWereKilledAreStartedAgain) {
  ServeChat();
  ASSERT_TRUE(Chat("").starts_with("HTTP/1.1 200"));
  for (int i = 0; i < 3; ++i) {
    KillHelpers();
    // A request waits for them.
    const std::string plain = Chat("");
    EXPECT_TRUE(plain.starts_with("HTTP/1.1 200")) << plain;
    const std::string held = Chat(R"(,"json_schema":{"const":")" + std::to_string(i) + R"("})");
    EXPECT_TRUE(held.starts_with("HTTP/1.1 200")) << held;
    EXPECT_TRUE(AwaitHealth("200").contains(R"("status":"ok")"));
  }
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_TRUE(finished.err.contains("others have been started")) << finished.err;
}

// Without the model's file none can be started.
TEST_F(HelpersTest, WhatIsMissingIsSaidUntilThen) {
  ServeChat();
  std::filesystem::rename(model_, model_ + ".away");
  KillHelpers();
  for (const char* purpose : {"render the chat template", "try out grammars"}) {
    const std::string health = AwaitHealth("503", purpose);
    EXPECT_TRUE(health.contains(purpose)) << health;
  }
  EXPECT_TRUE(Ask(port_, Post("/v1/completions", R"({"prompt":"a","max_tokens":1})"))
                  .starts_with("HTTP/1.1 200"))
      << "it needs none of them";
  std::filesystem::rename(model_ + ".away", model_);
  EXPECT_TRUE(AwaitHealth("200").contains(R"("status":"ok")"));
  EXPECT_TRUE(Chat("").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HelpersTest, ASignalEndsTheServerWhileTheyAreStarted) {
  ServeChat();
  std::filesystem::remove(model_);
  KillHelpers();
  const SocketClient waiting(port_);
  ASSERT_TRUE(waiting.Send(
      Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}]})")));
  AwaitHealth("503");
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_FALSE(finished.err.contains("took too long")) << finished.err;
}

TEST_F(ServeBodiesTest, ManyToolsOfShortNamesAreAnsweredAtOnce) {
  Serve();
  std::string tools = R"({"type":"function","function":{"name":"f"}})";
  for (int i = 0; i < 20'000; ++i) {
    tools += R"(,{"type":"function","function":{"name":"f)" + std::to_string(i) + R"("}})";
  }
  const std::string reply =
      Ask(port_, Post("/v1/chat/completions",
                      R"({"messages":[{"role":"user","content":"hi"}],"tools":[)" + tools + "]}"));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << reply.substr(0, 300);
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeBodiesTest, AHundredPromptsOfARequestAreAnswered) {
  Serve();
  std::string prompts = R"("hi")";
  for (int i = 1; i < 100; ++i) prompts += R"(,"hi")";
  const std::string reply =
      Ask(port_, Post("/v1/completions", R"({"max_tokens":1,"prompt":[)" + prompts + "]}"));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply.substr(0, 300);
  EXPECT_TRUE(reply.contains(R"("index":99)"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeBodiesTest, AHelperThatDiesIsReplacedAndTheLogSaysSo) {
  Serve();
  ASSERT_TRUE(Ask(port_, WithSchema("a")).starts_with("HTTP/1.1 200"));
  const std::vector<pid_t> spawners = ChildrenOf(program_->id());
  ASSERT_EQ(spawners.size(), 1U);
  const std::vector<pid_t> helpers = ChildrenOf(spawners.front());
  ASSERT_EQ(helpers.size(), 1U);
  kill(helpers.front(), SIGKILL);
  for (const char* name : {"b", "c", "d"}) {
    const std::string reply = Ask(port_, WithSchema(name));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
  }
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_TRUE(finished.err.contains("another one has been started")) << finished.err;
}

}  // namespace
}  // namespace moestro::testing
