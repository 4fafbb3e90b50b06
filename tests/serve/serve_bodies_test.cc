// SPDX-License-Identifier: MIT
// The server as a program, given bodies that take long, and without the process that it leaves
// grammars to.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/serve/serve_testing.h"

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
  EXPECT_TRUE(Ask(port_, WithSchema("b")).starts_with("HTTP/1.1 500"));
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
