// SPDX-License-Identifier: MIT
// The server as a program, with a chat template that may hang, and without the processes that
// render it.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/serve/serve_testing.h"

namespace moestro::testing {
namespace {

constexpr const char* kMayHang =
    "{% if messages[-1].content == 'hang' %}{% for a in range(9999) %}{% for b in range(9999) %}"
    "{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}{% endif %}"
    "{% for m in messages %}{{ m.content }}{% endfor %}";

std::string Chat(const std::string& words) {
  return Post("/v1/chat/completions",
              R"({"max_tokens":1,"messages":[{"role":"user","content":")" + words + R"("}]})");
}

class ServeTemplateTest : public ServeTest {
 protected:
  void ServeMayHang(std::vector<std::string> arguments = {}) {
    const std::string path = (folder_.path() / "template.jinja").string();
    std::ofstream(path) << kMayHang;
    arguments.insert(arguments.end(), {"--chat-template", path});
    Serve(std::move(arguments));
  }
  // All processes below this one, the lowest last.
  static std::vector<pid_t> Below(pid_t process) {
    std::vector<pid_t> below = {process};
    for (size_t i = 0; i < below.size(); ++i) {
      const std::string id = std::to_string(below[i]);
      std::ifstream file("/proc/" + id + "/task/" + id + "/children");
      for (pid_t child = 0; file >> child;) below.push_back(child);
    }
    below.erase(below.begin());
    return below;
  }
  void AwaitPreparing() const {
    while (!Ask(port_, Get("/metrics")).contains("\nmoestro_requests_preparing 1\n")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

TEST_F(ServeTemplateTest, ATemplateThatHangsCostsItsRequest) {
  ServeMayHang();
  const std::string reply = Ask(port_, Chat("hang"));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << reply;
  EXPECT_TRUE(reply.contains("processor time")) << reply;
  EXPECT_TRUE(Ask(port_, Chat("hi")).starts_with("HTTP/1.1 200"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTemplateTest, AnEmptyTemplateIsSaid) {
  const std::string path = (folder_.path() / "empty.jinja").string();
  std::ofstream(path) << " \n";
  Serve({"--chat-template", path});
  EXPECT_TRUE(Ask(port_, Chat("hi")).starts_with("HTTP/1.1 200"));
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(finished.err.contains("empty.jinja is empty: conversations are written without"))
      << finished.err;
}

TEST_F(ServeTemplateTest, ASignalEndsTheServerBesideATemplateThatHangs) {
  ServeMayHang({"--drain", "0"});
  const SocketClient client(port_);
  ASSERT_TRUE(client.Send(Chat("hang")));
  AwaitPreparing();
  const std::vector<pid_t> below = Below(program_->id());
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_FALSE(finished.err.contains("took too long")) << finished.err;
  const std::string reply = client.ReceiveAll();
  EXPECT_TRUE(reply.contains("the server is going down")) << reply;
  for (const pid_t process : below) {
    while (kill(process, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(ServeTemplateTest, ProcessesThatAreKilledAreReplaced) {
  ServeMayHang();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Ask(port_, Chat("hi")).starts_with("HTTP/1.1 200"));
    // All but the spawners, of grammars and of the template.
    std::vector<pid_t> below = Below(program_->id());
    ASSERT_GE(below.size(), 4U);
    below.erase(below.begin(), below.begin() + 2);
    for (const pid_t process : below) kill(process, SIGKILL);
  }
  EXPECT_TRUE(Ask(port_, Chat("hi")).starts_with("HTTP/1.1 200"));
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(finished.err.contains("another one has been started")) << finished.err;
}

TEST_F(ServeTemplateTest, ConversationsWaitForProcessesThatWereKilledAndTheRestGoesOn) {
  ServeMayHang();
  ASSERT_TRUE(Ask(port_, Chat("hi")).starts_with("HTTP/1.1 200"));
  std::vector<pid_t> below = Below(program_->id());
  for (const pid_t process : below) kill(process, SIGKILL);
  EXPECT_TRUE(Ask(port_, Post("/v1/completions", R"({"prompt":"hi","max_tokens":1})"))
                  .starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(Ask(port_, Chat("hi")).starts_with("HTTP/1.1 200"));
  EXPECT_EQ(End().exit_code, 0);
}

}  // namespace
}  // namespace moestro::testing
