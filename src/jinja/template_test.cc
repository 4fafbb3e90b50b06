// SPDX-License-Identifier: MIT
#include "jinja/template.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "jinja/json_text.h"

namespace moestro::jinja {
namespace {

// The text, or "fails: " and the reason.
std::string Said(std::string_view text, std::string_view context = "{}", uint64_t most_steps = 0) {
  const auto parsed = Template::Parse(text);
  if (!parsed) return "no template: " + parsed.error().message;
  JsonReading reading{.values_left = 1'000'000};
  const auto variables = ReadJson(context, reading);
  if (!variables) return "no context: " + variables.error().message;
  std::string said;
  const Status rendered = parsed->Render(
      *variables, [&said](std::string_view part) { said += part; }, {.most_steps = most_steps});
  return rendered ? said : "fails: " + rendered.error().message;
}

std::string Repeated(std::string_view text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST(JinjaTemplate, SyntaxMistakesHaveTheirLine) {
  EXPECT_EQ(Said("a\n{{ 1 + }}"),
            "no template: an expression is expected, not the end of a print tag (line 2)");
  EXPECT_EQ(Said("{% if x %}\n\n{% endfor %}"),
            "no template: 'endfor' is no tag that is known (line 3)");
  EXPECT_EQ(Said("{% for x in y %}a"), "no template: the template ends before 'else' (line 1)");
  EXPECT_EQ(Said("\n\n{# open"), "no template: a comment without its end (line 3)");
  EXPECT_EQ(Said("{% raw %}{{"), "no template: a raw block without its end (line 1)");
  EXPECT_EQ(Said("{{ 'a"),
            "no template: unexpected character ''': a text without its end (line 1)");
  EXPECT_EQ(Said("{{ (1] }}"), "no template: unexpected ']', expected ')' (line 1)");
  EXPECT_EQ(Said("{% include 'x' %}"), "no template: 'include' is no tag that is known (line 1)");
  EXPECT_EQ(Said("{{ 09 }}"), "no template: a whole number that begins with 0 (line 1)");
}

TEST(JinjaTemplate, FailuresHaveTheirLine) {
  EXPECT_EQ(Said("a\n{{ x.y.z }}", R"({"x": {}})"),
            "fails: 'dict object' has no attribute 'y' (line 2)");
  EXPECT_EQ(Said("{% for i in [1] %}\n{{ i | nosuch }}{% endfor %}"),
            "fails: no filter is named 'nosuch' (line 2)");
  EXPECT_EQ(Said("{{ 1 is nosuch }}"), "fails: no test is named 'nosuch' (line 1)");
}

TEST(JinjaTemplate, TextBeforeAFailureIsGivenOn) {
  const auto parsed = Template::Parse("{{ 'x' * 70000 }}{{ nothing.more }}");
  ASSERT_TRUE(parsed);
  std::string said;
  EXPECT_FALSE(parsed->Render(Value::MakeDict(), [&said](std::string_view part) { said += part; }));
  EXPECT_EQ(said.size(), 70'000U);
}

TEST(JinjaTemplate, TheClockIsTheCallers) {
  const auto parsed = Template::Parse("{{ strftime_now('%d %b %Y') }}");
  ASSERT_TRUE(parsed);
  std::tm then{};
  then.tm_year = 131;
  then.tm_mon = 2;
  then.tm_mday = 9;
  std::string said;
  EXPECT_TRUE(parsed->Render(Value::MakeDict(), [&said](std::string_view part) { said += part; },
                             {.now = [then] { return then; }}));
  EXPECT_EQ(said, "09 Mar 2031");
}

TEST(JinjaTemplate, NestingIsBounded) {
  for (const int n : {60, 100'000}) {
    const bool fits = n == 60;
    for (const auto& [begin, end] : {std::pair("(", ")"), std::pair("[", "]")}) {
      const std::string said = Said("{{ " + Repeated(begin, n) + "1" + Repeated(end, n) + " }}");
      EXPECT_EQ(said.contains("levels within each other"), !fits) << n << begin;
    }
    EXPECT_EQ(Said("{{ " + Repeated("not ", n) + "1 }}").contains("levels"), !fits) << n;
    EXPECT_EQ(Said("{{ 0" + Repeated(" + 1", n) + " }}").contains("levels"), !fits) << n;
    EXPECT_EQ(Said("{{ x" + Repeated(".x", n) + " is defined }}").contains("levels"), !fits) << n;
    EXPECT_EQ(Said(Repeated("{% if true %}", n) + Repeated("{% endif %}", n)).contains("levels"),
              !fits)
        << n;
  }
  // Parts beside each other, unlike nested ones, may be many.
  EXPECT_EQ(Said("{{ 'a'" + Repeated(" ~ 'a'", 5000) + " }}").size(), 5001U);
  EXPECT_EQ(Said("{% if false %}" + Repeated("{% elif false %}", 5000) + "{% endif %}"), "");
}

TEST(JinjaTemplate, RecursionIsBounded) {
  constexpr std::string_view kWhy = "within each other";
  EXPECT_TRUE(Said("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}").contains(kWhy));
  EXPECT_TRUE(Said("{% macro f(x) %}{% for i in x %}{% if i %}{{ f([f([1])]) }}{% endif %}"
                   "{% endfor %}{% endmacro %}{{ f([1]) }}")
                  .contains(kWhy));
  EXPECT_TRUE(Said("{% set l = [1] %}{{ l.append(l) }}"
                   "{% for x in l recursive %}{{ loop(l) }}{% endfor %}")
                  .contains(kWhy));
  // A schema's levels are no matter.
  EXPECT_EQ(Said("{% macro f(n) %}{% for i in [n] %}{% if n > 0 %}({{ f(n - 1) }}){% endif %}"
                 "{% endfor %}{% endmacro %}{{ f(64) }}"),
            Repeated("(", 64) + Repeated(")", 64));
}

TEST(JinjaTemplate, ValuesThatHoldThemselvesFail) {
  constexpr std::string_view kSelf = "{% set l = [1] %}{% set _ = l.append(l) %}";
  for (const std::string_view use :
       {"{{ l }}", "{{ l | tojson }}", "{% set m = [1] %}{% set _ = m.append(m) %}{{ l == m }}",
        "{{ {(l,): 1} }}"}) {
    EXPECT_TRUE(Said(std::string(kSelf) + std::string(use)).starts_with("fails: ")) << use;
  }
  EXPECT_EQ(Said(std::string(kSelf) + "{{ l == l }}{{ l | length }}"), "True2");
  EXPECT_EQ(Said("{% set d = {} %}{% set _ = d.update({'d': d}) %}{{ d.d.d | length }}"), "1");
}

// A sanitizer's build reports leaked memory.
TEST(JinjaTemplate, CirclesAreFreedAtTheEnd) {
  for (const std::string_view text :
       {"{% set ns = namespace() %}{% set ns.self = ns %}",
        "{% set ns = namespace() %}{% macro f() %}{{ ns }}{% endmacro %}{% set ns.f = f %}",
        "{% set ns = namespace() %}{% for i in [[1]] recursive %}{% set ns.l = loop %}{% endfor %}",
        "{% set ns = namespace() %}{% macro f() %}{% set ns.c = caller %}{% endmacro %}"
        "{% for i in [1] %}{% call f() %}{{ ns }}{{ i }}{% endcall %}{% endfor %}",
        "{% set d = {} %}{% set _ = d.update(d=d) %}{% set _ = d.setdefault('e', [d]) %}",
        "{% set l = [] %}{% set _ = l.extend([l, (l,)]) %}{% set _ = l.insert(0, {'l': l}) %}",
        "{% set c = [] %}{% set y = cycler(c) %}{% set _ = c.append(y) %}"}) {
    EXPECT_FALSE(Said(text).starts_with("fails")) << text << Said(text);
  }
}

TEST(JinjaTemplate, DeepValuesAreFreedWithoutStack) {
  constexpr std::string_view kLoops =
      "{% for i in range(1000) %}{% for j in range(300) %}{% set ns.v = ";
  for (const std::string_view next : {"[ns.v]", "{'v': ns.v}", "(ns.v,)", "namespace(v=ns.v)"}) {
    const std::string text = "{% set ns = namespace(v=0) %}" + std::string(kLoops) +
                             std::string(next) + " %}{% endfor %}{% endfor %}done";
    EXPECT_EQ(Said(text), "done") << next;
  }
}

TEST(JinjaTemplate, SizesAreBounded) {
  for (const std::string_view text :
       {"{{ 'x' * 100000000 }}", "{{ [1] * 100000000 }}", "{{ range(100001) }}",
        "{{ '%99999999d' % 1 }}", "{{ '{:99999999}'.format(1) }}", "{{ '%.9999f' % 1 }}",
        "{{ 'a'.ljust(99999999) }}", "{{ 2 ** 64 }}", "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ 9223372036854775807 * 9 }}",
        "{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}"
        "{% endfor %}"}) {
    EXPECT_TRUE(Said(text).starts_with("fails: ")) << text;
  }
  EXPECT_EQ(Said("{{ (-9223372036854775807 - 1) // -1 }}").substr(0, 6), "fails:");
  EXPECT_EQ(Said("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
}

TEST(JinjaTemplate, StepsAreCounted) {
  EXPECT_EQ(Said("{% for i in range(10) %}{{ i }}{% endfor %}", "{}", 1000), "0123456789");
  EXPECT_TRUE(Said("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
                   "{}", 1000)
                  .contains("more than 1000 steps"));
}

TEST(JinjaTemplate, WholeNumbersOfAnyLengthComeBack) {
  EXPECT_EQ(Said("{{ n }} {{ n | tojson }} {{ n == n }} {{ n is integer }}",
                 R"({"n": 123456789012345678901234567890})"),
            "123456789012345678901234567890 123456789012345678901234567890 True True");
  EXPECT_EQ(Said("{{ n }}", R"({"n": 18446744073709551615})"), "18446744073709551615");
  EXPECT_TRUE(Said("{{ n + 1 }}", R"({"n": 18446744073709551615})").starts_with("fails: "));
}

TEST(JinjaTemplate, FloatsBeyondAllAreInfinite) {
  EXPECT_EQ(Said("{{ 1e999 }} {{ '1e999' | float }} {{ '-1e999' | float }} {{ 1e-999 }}"),
            "inf inf -inf 0.0");
  EXPECT_EQ(Said("{{ 1e20 | int }} {{ '1e20' | int }} {{ '1e999' | int(7) }}"),
            "100000000000000000000 100000000000000000000 7");
}

TEST(JinjaTemplate, BytesThatAreNoUtf8StayAsTheyAre) {
  EXPECT_EQ(Said("\xff{{ '\xfe\xc3' }}{{ '\xf0\x9f' | upper }}{{ 'a\xff' | length }}"),
            "\xff\xfe\xc3\xf0\x9f"
            "2");
  EXPECT_EQ(Said("{{ '\xe9\xe9'[1:] }}{{ '\xe9 ' | trim }}"), "\xe9\xe9");
  const std::string zero("a\0b{{ 'c\0' | length }}", 22);
  EXPECT_EQ(Said(zero), std::string("a\0b2", 4));
}

TEST(JinjaTemplate, AListIsNotGoneThroughWhileItGrows) {
  EXPECT_EQ(Said("{% set l = [1, 2] %}{% for i in l %}{% set _ = l.append(i) %}{{ i }}{% endfor %}"
                 "{{ l }}"),
            "12[1, 2, 1, 2]");
}

// In jinja2 a loop counts as not run if no round reaches the body's end.
TEST(JinjaTemplate, ElseFollowsALoopWithoutAWholeRound) {
  EXPECT_EQ(Said("{% for i in [1, 2] %}{{ i }}{% continue %}{% else %}e{% endfor %}"), "12e");
  EXPECT_EQ(Said("{% for i in [1] %}{% break %}{% else %}{{ loop is defined }}{% endfor %}"),
            "False");
  EXPECT_EQ(
      Said("{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}"),
      "");
}

// Like Python's generators, lazy lists are true even if empty, and can be gone through once.
TEST(JinjaTemplate, LazyListsAreAsPythonsGenerators) {
  EXPECT_EQ(Said("{% set g = [] | map('upper') %}{{ 'T' if g else 'F' }}{{ g | list }}"), "T[]");
  EXPECT_EQ(Said("{% set g = [1, 2] | select %}{{ g | first }}{{ g | list }}{{ g | list }}"),
            "1[2][]");
  EXPECT_TRUE(Said("{{ [1] | map('int') | length }}").starts_with("fails: "));
}

TEST(JinjaTemplate, AMacroSeesWhereItWasWritten) {
  EXPECT_EQ(Said("{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}"
                 "{% for i in [2] %}{% set x = 3 %}{{ f() }}{% endfor %}"),
            "11");
  EXPECT_EQ(Said("{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}"),
            "12");
}

// The words of a refusal are the evaluator's own (docs/templates.md).
TEST(JinjaTemplate, RefusalsAreSentences) {
  const auto refuses = [](const std::string& text, std::string_view words) {
    const std::string said = Said(text);
    EXPECT_TRUE(said.contains(words)) << text.substr(0, 100) << ": " << said.substr(0, 100);
  };
  refuses("{{ '\\N{BULLET}' }}", "not known by their names");
  refuses("{{ [1] | random }}", "left out on purpose");
  refuses("{{ 'a' | urlize }}", "left out on purpose");
  refuses("{{ 'a\nb' | indent(9999999999) }}", "9999999999 blanks");
  refuses("{{ [1] | tojson(indent=9999999999) }}", "9999999999 blanks");
  refuses("{{ '\ta'.expandtabs(9999999999) }}", "blanks");
  refuses("{{ 1" + std::string(5000, '0') + " }}", "more than 4300 digits");
  refuses("{{ 0x" + std::string(5000, 'f') + " }}", "more than 4300 digits");
  std::string chain = "{% set x = 'x' * 60000000 %}{{ x";
  for (int i = 0; i < 40; ++i) chain += " ~ x";
  refuses(chain + " }}", "a text of more than");
}

// Wide indents are made as they were asked for.
TEST(JinjaTemplate, IndentsAreNotCut) {
  EXPECT_EQ(Said("{{ ('a\nb' | indent(200000)) | length }}"), "200003");
  EXPECT_EQ(Said("{{ ([1] | tojson(indent=3000)) | length }}"), "3005");
}

TEST(JinjaTemplate, DictsGiveUpTheirLastItem) {
  EXPECT_EQ(Said("{% set d = {'a': 1, 'b': 2} %}{{ d.popitem() }}{{ d }}"), "('b', 2){'a': 1}");
  EXPECT_TRUE(Said("{{ {}.popitem() }}").starts_with("fails: "));
}

}  // namespace
}  // namespace moestro::jinja
