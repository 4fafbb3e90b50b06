// SPDX-License-Identifier: MIT
#include "chat/template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moestro {
namespace {

ChatTurn Turn(std::string role, std::string content) {
  ChatTurn turn;
  turn.role = std::move(role);
  turn.content = std::move(content);
  return turn;
}

Result<std::string> Render(std::string_view text, const std::vector<ChatTurn>& turns = {},
                           const std::vector<Tool>& tools = {}, std::string_view arguments = {}) {
  TRY(const ChatTemplate parsed, ChatTemplate::Parse(text, "<s>", "</s>"));
  return parsed.Render({.turns = turns, .tools = tools, .arguments = arguments});
}

TEST(ChatTemplate, SaysTurnsAndMarks) {
  EXPECT_EQ(
      Render("{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token "
             "}}{% endfor %}{% if add_generation_prompt %}>{% endif %}",
             {Turn("user", "Hi"), Turn("assistant", "")}),
      "<s>user: Hi</s>assistant: </s>>");
}

TEST(ChatTemplate, KeepsToolsAsTheyWereSent) {
  const std::vector<Tool> tools{
      {.name = "f",
       .description = "é \"x\"",
       .parameters =
           R"({"z":1.0,"type":"object","properties":{"b":{"enum":[null,true]},"a":{}}})"}};
  EXPECT_EQ(
      Render("{{ tools | tojson }}", {}, tools),
      R"([{"type": "function", "function": {"name": "f", "description": "é \"x\"", )"
      R"("parameters": {"z": 1.0, "type": "object", "properties": {"b": {"enum": [null, true]}, )"
      R"("a": {}}}}}])");
  EXPECT_EQ(Render("{{ tools[0].function.parameters.properties | tojson(indent=2) }}", {}, tools),
            "{\n  \"b\": {\n    \"enum\": [\n      null,\n      true\n    ]\n  },\n  \"a\": {}\n}");
}

TEST(ChatTemplate, ArgumentsAreVariablesButNotTheConversation) {
  EXPECT_EQ(
      Render("{{ enable_thinking }} {{ effort }} {{ messages | length }} {{ tools is none }}", {},
             {}, R"({"enable_thinking": false, "effort": "low", "messages": [1, 2], "tools": 3})"),
      "False low 0 True");
  EXPECT_FALSE(Render("x", {}, {}, "[1]"));
  EXPECT_FALSE(Render("x", {}, {}, "{"));
}

TEST(ChatTemplate, RefusesInItsOwnWords) {
  const auto refused =
      Render("{% if messages | length == 0 %}{{ raise_exception('Say more!') }}{% endif %}");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(refused.error().message.ends_with("Say more!")) << refused.error().message;
}

TEST(ChatTemplate, OtherMistakesAreOneLine) {
  const auto failed = Render("a\n{{ messages[7].role }}\nb");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kUnsupported);
  EXPECT_FALSE(failed.error().message.contains('\n')) << failed.error().message;
}

TEST(ChatTemplate, KnowsWhatModelsUse) {
  EXPECT_EQ(
      Render(
          "{% macro f(x) %} {{ x }} {% endmacro %}{{ f('a').strip() + f('b').strip().upper() }}"),
      "aB");
  EXPECT_EQ(Render("a\n  {{ 'b' }}\n  {%- if true %}\n    {{ 'c' }}\n  {% endif %}\nd"),
            "a\n  b    c\nd");
  EXPECT_EQ(Render("{{ [3, 4] | first }}{{ 'ab cd' | title }}{{ 'AB' | capitalize }}"), "3Ab CdAb");
  EXPECT_EQ(Render("{{ [3, 4] | reverse | join(',') }}{{ 'aba' | replace('a', 'aa') }}"),
            "4,3aabaa");
  EXPECT_EQ(Render("{{ tools | tojson(ensure_ascii=False) }}"), "null");
  EXPECT_EQ(Render("{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}{{ range(2) | length }}"),
            "1352");
  EXPECT_EQ(Render("{{ strftime_now('%Y') }}")->size(), 4U);
  EXPECT_EQ(Render("a\r\nb{# c #}\r\n"), "a\nb");
}

TEST(ChatTemplate, WhatIsNoTemplateIsRefused) {
  for (const std::string_view text : {"{{ 'a", "{% if", "{{ }}", "{# x", "{{ f( }}", "{% endif %}",
                                      "{% if true %}", "{{ 1 +", "{% unheard %}"}) {
    const auto rendered = Render(text);
    ASSERT_FALSE(rendered) << text;
    EXPECT_EQ(rendered.error().code, Errc::kUnsupported);
  }
}

TEST(ChatTemplate, ListsAndNamespacesWorkAsInJinja) {
  EXPECT_EQ(Render("{{ ['a', 'b'][1] }}{{ ['a'] + ['b'] }}{{ {'k': [1]}['k'][0] }}"),
            "b['a', 'b']1");
  EXPECT_EQ(Render("{% if 'a' in ['a', 'b'] and 'c' not in ['a'] %}1{% endif %}"), "1");
  EXPECT_EQ(Render("{% for x in [1, 2] if x in [2] %}{{ x }}{% endfor %}"), "2");
  EXPECT_EQ(Render("{% set ns = namespace(found=false, items=[]) %}{% for m in messages %}"
                   "{% set x = ns.items.append(m.role) %}{% set ns.found = true %}{% endfor %}"
                   "{{ ns.items | join(',') }} {{ ns.found }}",
                   {Turn("user", ""), Turn("tool", "")}),
            "user,tool True");
  EXPECT_EQ(Render("{% set ns = namespace() %}{% set ns.m = messages[0] %}{{ ns.m.role }}",
                   {Turn("user", "")}),
            "user");
  EXPECT_EQ(Render("{{ ([1, 2] | length) ~ {'a': {}}.a ~ namespace(a=1).a }}"), "2{}1");
}

TEST(ChatTemplate, JsonOfTooManyValuesIsRefused) {
  const auto object = [](int n) {
    std::string text = R"({"k":0)";
    for (int i = 1; i < n; ++i) text += ",\"k" + std::to_string(i) + "\":" + std::to_string(i);
    return text + "}";
  };
  EXPECT_EQ(Render("{{ k7 }}", {}, {}, object(100'000)), "7");
  std::string many = R"({"k":[0)";
  for (int i = 0; i < 270'000; ++i) many += ",0";
  const auto long_list = Render("x", {}, {}, many + "]}");
  ASSERT_FALSE(long_list);
  EXPECT_TRUE(long_list.error().message.contains("262144 values")) << long_list.error().message;
  EXPECT_FALSE(Render("x", {}, {}, R"({"k":)" + std::string(70, '[') + std::string(70, ']') + "}"));
  EXPECT_FALSE(Render("x", {}, {}, std::string("{\"k\":0}\0", 8)));
}

TEST(ChatTemplate, OfEqualKeysTheLastCountsInTheFirstsPlace) {
  EXPECT_EQ(Render("{{ o | tojson }}", {}, {}, R"({"o":{"a":1,"b":2.5,"a":[true,null,"x"]}})"),
            R"({"a": [true, null, "x"], "b": 2.5})");
}

}  // namespace
}  // namespace moestro
