// SPDX-License-Identifier: MIT
#include "chat/template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chat/template_guard.h"
#include "tests/support/sanitized_testing.h"

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

// What Jinja does and the library does not by itself.
TEST(ChatTemplate, KnowsWhatModelsUse) {
  EXPECT_EQ(
      Render(
          "{% macro f(x) %} {{ x }} {% endmacro %}{{ f('a').strip() + f('b').strip().upper() }}"),
      "aB");
  EXPECT_EQ(Render("a\n  {{ 'b' }}\n  {%- if true %}\n    {{ 'c' }}\n  {% endif %}\nd"),
            "a\n  b    c\nd");
  EXPECT_EQ(Render("{{ [3, 4] | first }}{{ 'ab cd' | title }}{{ 'AB' | capitalize }}"), "3Ab CdAb");
  EXPECT_EQ(Render("{{ tools | tojson(ensure_ascii=False) }}"), "null");
  EXPECT_EQ(Render("{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}{{ range(2) | length }}"),
            "1352");
  EXPECT_EQ(Render("{{ strftime_now('%Y') }}")->size(), 4U);
  EXPECT_EQ(Render("a\r\nb{# c #}\r\n"), "a\nb");
}

TEST(ChatTemplate, WhatTheLibraryCannotTakeIsRefused) {
  for (const std::string_view text :
       {"{{ 1 % 0 }}", "{{ 1 // messages | length }}", "{{ 7 / 0.0 }}", "{{ 'abc'[5::2] }}",
        "{{ 'abc'[:5:2] }}", "{{ 'a'.split('') }}", "{{ 'a'.replace(x, 'b') }}",
        "{{ 'ab' * 1000 }}", "{{ _moestro_keep(1) }}", "{{ 'a", "{% if", "{{ }}", "{# x",
        "{{ f( }}", "{% endif %}"}) {
    const auto parsed = ChatTemplate::Parse(text, "", "");
    EXPECT_FALSE(parsed) << text;
  }
  for (const std::string& text :
       {std::string(5000, ' ') + "{{ 1 }}", std::string(5000, 'x'), std::string(100000, '#'),
        "{{ " + std::string(100, '(') + "1" + std::string(100, ')') + " }}"}) {
    EXPECT_FALSE(ChatTemplate::Parse(text, "", "")) << text.substr(0, 20);
  }
  std::string nots = "{{ ";
  std::string blocks;
  for (int i = 0; i < 600; ++i) nots += "not ";
  for (int i = 0; i < 60; ++i) blocks += "{% if true %}";
  EXPECT_FALSE(ChatTemplate::Parse(nots + "1 }}", "", ""));
  EXPECT_FALSE(ChatTemplate::Parse(blocks, "", ""));
}

void ExpectEnded(const std::string& text) {
  const auto rendered = Render(text);
  ASSERT_FALSE(rendered) << text;
  EXPECT_EQ(rendered.error().code, Errc::kUnsupported);
}

TEST(ChatTemplate, WhatMakesMuchOfLittleIsEnded) {
  ExpectEnded("{{ range(1000000000) }}");
  ExpectEnded("{{ 'x' | indent(1000000000) }}");
  ExpectEnded("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}");
  ExpectEnded(
      "{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a ~ ns.a %}"
      "{% endfor %}");
}

// A value that holds itself is printed and compared without end, and one that holds another twice,
// which holds a third twice, nearly so.
TEST(ChatTemplate, ValuesAreTrees) {
  const std::string made = "{% set ns = namespace(a=1, l=[1], d={'k': 1}) %}";
  EXPECT_EQ(Render(made + "{% set ns.a = ns %}{{ ns.a.a }}{{ ns.a == ns }}"), "1False");
  EXPECT_EQ(Render(made + "{% set d = {} %}{% set d.d = d %}{{ d }}"), "{'d': {}}");
  EXPECT_EQ(Render(made + "{% set l = [1] %}{% set x = l.append(l) %}{{ l }}"), "[1, [1]]");
  EXPECT_EQ(Render("{% macro f(x) %}{% endmacro %}{% set f.f = 1 %}{{ f.f }}"), "1");
  ExpectEnded("{% macro f(x) %}{% endmacro %}{% set f.f = f %}{{ f == f }}");
  ExpectEnded("{% for x in [1] %}{% set loop.l = loop %}{{ loop }}{% endfor %}");
  ExpectEnded(made + "{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns }}");
  EXPECT_FALSE(ChatTemplate::Parse("{{ [1].insert(0, [2]) }}", "", ""));
}

TEST(ChatTemplate, ValuesThatDoubleAreEnded) {
  if (kIsSanitized) GTEST_SKIP() << "a second becomes a minute";
  ExpectEnded(
      "{% set ns = namespace(a=1) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
      "{% endfor %}{{ ns }}");
  std::string doubled = "{% set x = 'x' %}";
  std::string named = doubled;
  std::string loops;
  for (int i = 0; i < 40; ++i) {
    doubled += "{% set x = {'a': x, 'b': x} %}";
    named += "{% set x = namespace(a=x, b=x) %}";
    loops += "{% for x in [[x, x]] %}";
  }
  ExpectEnded(doubled + "{{ x }}");
  ExpectEnded(named + "{% if x == x %}1{% endif %}");
  for (int i = 0; i < 40; ++i) loops += "{% endfor %}";
  ExpectEnded("{% set x = [1] %}" + loops);
  ExpectEnded("{% macro f(x, n) %}{{ f(x ~ x, n) }}{% endmacro %}{{ f('0123456789', 1) }}");
}

// The rules for values do not change what templates say.
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

TEST(ChatTemplate, LongLoopsAreEnded) {
  if (kIsSanitized) GTEST_SKIP() << "a second becomes a minute";
  ExpectEnded("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  ExpectEnded(
      "{% set ns = namespace(a='0123456789') %}{% for i in range(15) %}"
      "{% set ns.a = ns.a ~ ns.a %}{% endfor %}{% for i in range(99999) %}{{ ns.a }}{% endfor %}");
}

TEST(TemplateGuard, LeavesWhatItSaysAsItIs) {
  const auto guarded = GuardTemplate("a {#- long words -#} {% if x %}{{- y -}}{% endif %} {z}");
  ASSERT_TRUE(guarded) << guarded.error().message;
  EXPECT_EQ(*guarded, "a {#- -#} {% if x %}{{- _moestro_keep(y ) -}}{% endif %} {z}");
}

TEST(TemplateGuard, CountsBodiesThatMayRunAgain) {
  const auto guarded = GuardTemplate("{% for x in y -%} {{ x }} {% endfor %}");
  ASSERT_TRUE(guarded) << guarded.error().message;
  EXPECT_TRUE(guarded->starts_with("{% for x in y -%}{% set _moestro_unused = _moestro_tick("))
      << *guarded;
}

// The library looks for a key among all of an object's: their number counted by its square.
TEST(ChatTemplate, JsonOfManyKeysIsRefused) {
  const auto object = [](int n) {
    std::string text = R"({"k":0)";
    for (int i = 1; i < n; ++i) text += ",\"k" + std::to_string(i) + "\":" + std::to_string(i);
    return text + "}";
  };
  EXPECT_EQ(Render("{{ k7 }}", {}, {}, object(2048)), "7");
  const auto wide = Render("{{ k7 }}", {}, {}, object(2049));
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(wide.error().message.contains("2048 keys")) << wide.error().message;
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
