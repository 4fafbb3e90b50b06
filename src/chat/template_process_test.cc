// SPDX-License-Identifier: MIT
// A template's effects on the process that renders it, and the consequences for requests.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chat/template.h"
#include "tests/support/sanitized_testing.h"

namespace moestro {
namespace {

using std::chrono_literals::operator""ms;

constexpr std::string_view kEndless =
    "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}"
    "{% endfor %}{% endfor %}";

class TemplateProcessTest : public testing::Test {
 protected:
  void Parse(std::string_view text) {
    auto parsed = ChatTemplate::Parse(text, "", "");
    ASSERT_TRUE(parsed) << parsed.error().message;
    template_ = std::make_unique<ChatTemplate>(*std::move(parsed));
  }
  // Parses a template that is endless for a conversation of `bytes` bytes or more, else "fine".
  void ParseEndlessFor(size_t bytes) {
    Parse("{% if messages[0].content | length >= " + std::to_string(bytes) + " %}" +
          std::string(kEndless) + "{% endif %}fine");
  }
  Result<std::string> Say(std::string words, const WorkLimit& limit = {}) const {
    ChatTurn turn;
    turn.role = "user";
    turn.content = std::move(words);
    return template_->Render({.turns = std::span(&turn, 1), .arguments = {}}, limit);
  }
  void ExpectFails(std::string_view text, std::string_view why) {
    Parse(text);
    const auto said = Say("hi");
    ASSERT_FALSE(said) << text;
    EXPECT_EQ(said.error().code, Errc::kUnsupported);
    EXPECT_TRUE(said.error().message.contains(why)) << text << ": " << said.error().message;
  }
  static std::vector<int> ChildrenOf(int process) {
    const std::string id = std::to_string(process);
    std::ifstream file("/proc/" + id + "/task/" + id + "/children");
    std::vector<int> children;
    for (int child = 0; file >> child;) children.push_back(child);
    return children;
  }
  // Waits for the rendering process, which is a child of the watching process.
  int Renderer() const {
    while (true) {
      for (const int watcher : ChildrenOf(template_->helper_id())) {
        const std::vector<int> renderers = ChildrenOf(watcher);
        if (!renderers.empty()) return renderers.front();
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  std::unique_ptr<ChatTemplate> template_;
};

// Each of these templates ended the process under an earlier template library.
TEST_F(TemplateProcessTest, DivisionRecursionAndCirclesFailInWords) {
  ExpectFails("{{ 1 % 0 }}", "division by zero (line 1)");
  ExpectFails("a\n{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
              "within each other (line 2)");
  ExpectFails("{% set l = [1] %}{{ l.append(l) }}{{ l }}", "nested deeper");
  Parse("{% set d = namespace(a=1) %}{% set d.a = d %}{{ d == d }}");
  EXPECT_EQ(Say("hi"), "True");
}

TEST_F(TemplateProcessTest, WhatTakesAllMemoryFails) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  constexpr std::string_view kWhy = "16 MiB";
  ExpectFails(
      "{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a ~ ns.a %}"
      "{% endfor %}",
      kWhy);
  ExpectFails("{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('0123456789') }}", kWhy);
}

TEST_F(TemplateProcessTest, WhatSaysTooMuchFails) {
  ExpectFails("{% set x = 'x' * 60000 %}{% for i in range(9999) %}{{ x }}{% endfor %}",
              "too long a text");
}

TEST_F(TemplateProcessTest, EndlessOnesTakeTheRequestsTime) {
  ParseEndlessFor(5);
  EXPECT_EQ(Say("hi"), "fine");
  const auto said = Say("hang up", WorkLimit({.processor_seconds = 0.2}));
  ASSERT_FALSE(said);
  EXPECT_EQ(said.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(said.error().message.contains("processor time")) << said.error().message;
  EXPECT_EQ(Say("hi"), "fine");
}

// The processes' time is charged to the request.
TEST_F(TemplateProcessTest, ASecondRenderingHasTheRestOfTheTime) {
  ParseEndlessFor(5);
  const WorkLimit limit({.processor_seconds = 0.2});
  EXPECT_FALSE(Say("hang up", limit));
  const auto again = Say("hi", limit);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::kInvalidRequest);
}

TEST_F(TemplateProcessTest, LargeConversationsAreRendered) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  Parse("{% for m in messages %}{{ m.content }}{% endfor %}");
  const std::string words(size_t{9} << 20U, 'x');
  EXPECT_TRUE(Say(words) == words);
  std::vector<ChatTurn> turns(4000);
  for (ChatTurn& turn : turns) turn.content.assign(8000, 'y');
  const auto said = template_->Render({.turns = turns, .arguments = {}});
  ASSERT_TRUE(said) << said.error().message;
  EXPECT_EQ(said->size(), 32'000'000U);
}

TEST_F(TemplateProcessTest, AConversationThatIsTooLargeIsTheRequestsMistake) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  Parse("{% set all = messages[0].content ~ messages[0].content %}{{ all ~ all }}");
  const auto said = Say(std::string(size_t{12} << 20U, 'x'));
  ASSERT_FALSE(said);
  EXPECT_EQ(said.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(said.error().message.contains("48 MiB")) << said.error().message;
}

// Until all work shall end, a large conversation is being rendered.
TEST_F(TemplateProcessTest, ASmallConversationDoesNotWaitForALargeOne) {
  ParseEndlessFor(500'000);
  std::atomic<bool> is_over = false;
  Result<std::string> large = "";
  std::jthread other([&] {
    large = Say(std::string(500'000, 'x'),
                WorkLimit({.processor_seconds = 1e6, .is_over = [&] { return is_over.load(); }}));
  });
  const int renderer = Renderer();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Say("hi"), "fine");
  EXPECT_EQ(kill(renderer, 0), 0) << "it still runs";
  is_over = true;
  other.join();
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Errc::kInterrupted);
  // No caller waits for the large rendering, so its process ends.
  while (kill(renderer, 0) == 0) std::this_thread::sleep_for(1ms);
}

TEST_F(TemplateProcessTest, AHelperThatDiesIsReplaced) {
  Parse("{{ messages[0].content }}");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Say("hi"), "hi");
    const int renderer = Renderer();
    const int helper = template_->helper_id();
    kill(helper, SIGKILL);
    EXPECT_EQ(Say("hi"), "hi") << "which needs no helper";
    kill(renderer, SIGKILL);
    EXPECT_EQ(Say("hi"), "hi");
    EXPECT_NE(template_->helper_id(), helper);
  }
}

TEST_F(TemplateProcessTest, AProcessThatDiesBetweenRequestsIsReplaced) {
  Parse("{{ messages[0].content }}");
  int last = -1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Say("hi"), "hi");
    const int renderer = Renderer();
    EXPECT_NE(renderer, last);
    EXPECT_EQ(Say("hi again"), "hi again");
    EXPECT_EQ(Renderer(), renderer) << "it stays";
    kill(renderer, SIGKILL);
    last = renderer;
  }
}

// Values that contain themselves must not add up over renderings.
TEST_F(TemplateProcessTest, WhatRenderingsLeaveBehindIsGivenBack) {
  Parse(
      "{% set ns = namespace(a='x') %}{% for i in range(18) %}{% set ns.a = ns.a ~ ns.a %}"
      "{% endfor %}{% set ns.b = ns %}{{ messages[0].content }}");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Say("hi"), "hi") << i;
}

TEST_F(TemplateProcessTest, ARenderingThatIsKilledFailsAlone) {
  ParseEndlessFor(5);
  Result<std::string> hung = "";
  std::atomic<bool> has_ended = false;
  std::jthread other([&] {
    hung = Say("hang up");
    has_ended = true;
  });
  // One that has not begun is replaced, some times.
  while (!has_ended) {
    for (const int watcher : ChildrenOf(template_->helper_id())) {
      for (const int renderer : ChildrenOf(watcher)) kill(renderer, SIGKILL);
    }
    std::this_thread::sleep_for(1ms);
  }
  other.join();
  ASSERT_FALSE(hung);
  EXPECT_EQ(hung.error().code, Errc::kUnsupported);
  EXPECT_TRUE(hung.error().message.contains("does not survive")) << hung.error().message;
  EXPECT_EQ(Say("hi"), "fine");
}

TEST_F(TemplateProcessTest, WithoutAnyProcessItSaysSo) {
  Parse("{{ messages[0].content }}");
  kill(template_->spawner_id(), SIGKILL);
  kill(template_->helper_id(), SIGKILL);
  Result<std::string> said = Say("hi");
  for (int i = 0; i < 100 && !said && said.error().code != Errc::kIo; ++i) said = Say("hi");
  ASSERT_FALSE(said);
  EXPECT_EQ(said.error().code, Errc::kIo);
}

TEST_F(TemplateProcessTest, WhatTheLibraryDoesNotSurviveReadingIsRefused) {
  std::string nots = "{{ ";
  for (int i = 0; i < 100'000; ++i) nots += "not ";
  const auto parsed = ChatTemplate::Parse(nots + "1 }}", "", "");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Errc::kUnsupported);
}

}  // namespace
}  // namespace moestro
