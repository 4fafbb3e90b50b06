// SPDX-License-Identifier: MIT
#include "commands/settings.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

using Strings = std::vector<std::string>;

// As serve has them: flags that exclude and need each other, a switch with an opposite.
CommandText Serve() {
  return {.name = "serve",
          .help = "",
          .footer = "",
          .flags = {{.names = {"-h", "--help"}},
                    {.positional = "MODEL", .value = "MODEL"},
                    {.names = {"--port"}, .value = "N"},
                    {.names = {"-t", "--threads"}, .value = "N"},
                    {.names = {"-c", "--ctx", "--ctx-size"}, .value = "N"},
                    {.names = {"-v", "--verbose"}},
                    {.names = {"--log-requests"}},
                    {.names = {"--rescale"}, .off_names = {"--no-rescale"}},
                    {.names = {"--quality"}, .value = "X", .excludes = {"low"}},
                    {.names = {"--low"}, .value = "FILE", .excludes = {"quality"}},
                    {.names = {"--chat-template"}, .value = "NAME|FILE"},
                    {.names = {"--low-share"}, .value = "S", .needs = {"low"}},
                    {.names = {"--cache-ram"}, .value = "SIZE"},
                    {.names = {"--for"}, .value = "NAME:FLAG=VALUE"}}};
}

std::vector<FlagSetting> Parse(std::string_view text) {
  const auto settings = ParseSettings(text, "m.conf", Serve());
  EXPECT_TRUE(settings) << settings.error().message;
  return settings.value_or(std::vector<FlagSetting>());
}

std::string MessageOf(std::string_view text) {
  const auto settings = ParseSettings(text, "m.conf", Serve());
  return settings ? "" : settings.error().message;
}

Strings Arguments(const Strings& given, const std::vector<std::vector<FlagSetting>>& sources) {
  const auto chosen = ChooseSettings(Serve(), given, sources);
  EXPECT_TRUE(chosen) << chosen.error().message;
  return chosen ? chosen->arguments : Strings();
}

TEST(Settings, ALineIsANameAndAValue) {
  const auto settings = Parse("# of this machine\n\n  port = 9000\nmodel=a = b.gguf  \n\tlow =x#y");
  ASSERT_EQ(settings.size(), 3U);
  EXPECT_EQ(settings[0].name, "port");
  EXPECT_EQ(settings[0].value, "9000");
  EXPECT_EQ(settings[0].origin, "m.conf:3");
  EXPECT_EQ(settings[1].value, "a = b.gguf");
  EXPECT_EQ(settings[2].value, "x#y");
  EXPECT_EQ(settings[2].origin, "m.conf:5");
}

TEST(Settings, ForeignEditorsMarksAndLineEndsAreNoPartOfIt) {
  const auto settings = Parse("\xef\xbb\xbfport = 1\r\nlow = \xc3\xa9\r\n");
  ASSERT_EQ(settings.size(), 2U);
  EXPECT_EQ(settings[0].value, "1");
  EXPECT_EQ(settings[1].value, "\xc3\xa9");
}

TEST(Settings, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(MessageOf("\nprot = 1"), "m.conf:2: there is no setting 'prot'; did you mean 'port'?");
  EXPECT_TRUE(MessageOf("--port = 1").contains("did you mean 'port'?")) << MessageOf("--port = 1");
  EXPECT_TRUE(MessageOf("cache_ram = 1").contains("did you mean 'cache-ram'?"));
  EXPECT_TRUE(
      MessageOf("dance = 1").starts_with("m.conf:1: there is no setting 'dance'; 'moestro "));
  EXPECT_TRUE(MessageOf("help = on").contains("no setting 'help'"));
  EXPECT_EQ(MessageOf("port"), "m.conf:1: 'port' is no setting; write name = value");
  EXPECT_TRUE(MessageOf("[server]").contains("'[server]' is no section"));
  EXPECT_TRUE(MessageOf("= 5").contains("no setting ''"));
  EXPECT_EQ(MessageOf("port ="), "m.conf:1: port has no value; write one or leave the line out");
  EXPECT_EQ(MessageOf("ctx = 1\nport = 1\nctx-size = 2"),
            "m.conf:3: ctx is set twice, first in line 1");
  EXPECT_TRUE(MessageOf(std::string("port = 1\0", 9)).contains("m.conf:1: the line is no UTF-8"));
  EXPECT_TRUE(MessageOf("port = \xff").contains("m.conf:1: the line is no UTF-8"));
  EXPECT_TRUE(
      MessageOf("\n#" + std::string(5000, 'x')).contains("m.conf:2: the line has more than"));
  EXPECT_TRUE(MessageOf("\x1b[2Jport = 1").contains("'?[2Jport'"));
}

TEST(Settings, NamesOfVariablesAreThoseOfFlags) {
  const std::vector<std::pair<std::string, std::string>> environment = {
      {"MOESTRO_CACHE_RAM", "2G"}, {"MOESTRO_PORT", ""},           {"MOESTRO_MODEL", "a.gguf"},
      {"MOESTRO_PROT", "1"},       {"MOESTRO_STARTED_AGAIN", "1"}, {"HOME", "/"},
      {"MOESTRO_HELP", "1"}};
  const auto settings = SettingsOf(environment, Serve());
  ASSERT_EQ(settings.size(), 2U);
  EXPECT_EQ(settings[0].name, "model");
  EXPECT_EQ(settings[1].name, "cache-ram");
  EXPECT_EQ(settings[1].origin, "MOESTRO_CACHE_RAM");
  const auto mistyped = MistypedVariables(environment, Serve());
  ASSERT_EQ(mistyped.size(), 1U);
  EXPECT_EQ(mistyped[0].first, "MOESTRO_PROT");
  EXPECT_EQ(mistyped[0].second, "MOESTRO_PORT");
}

TEST(Settings, WhatKubernetesSaysOfAServiceOfThisNameIsNoPort) {
  for (const char* link : {"tcp://10.0.0.7:80", "udp://10.0.0.7:80"}) {
    EXPECT_TRUE(IsServiceLink("MOESTRO_PORT", link));
    const std::vector<std::pair<std::string, std::string>> environment = {
        {"MOESTRO_PORT", link}, {"MOESTRO_LOW", "tcp://"}};
    const auto settings = SettingsOf(environment, Serve());
    ASSERT_EQ(settings.size(), 1U) << link;
    EXPECT_EQ(settings[0].name, "low");
  }
  EXPECT_FALSE(IsServiceLink("MOESTRO_PORT", "8080"));
  EXPECT_FALSE(IsServiceLink("MOESTRO_PORT", "many"));
}

// The value of a file's only setting, once paths are resolved.
std::string Resolved(std::string_view text, const std::string& home = "/models") {
  std::vector<FlagSetting> settings = Parse(text);
  const Status status = ResolvePaths(Serve(), "/etc", home, settings);
  return status ? settings.at(0).value : status.error().message;
}

TEST(Settings, PathsInAFileDoNotDependOnWhereTheProgramIsStarted) {
  EXPECT_EQ(Resolved("low = l.gguf"), "/etc/l.gguf");
  EXPECT_EQ(Resolved("low = /l.gguf"), "/l.gguf");
  EXPECT_EQ(Resolved("low = ~/l.gguf"), "/models/l.gguf");
  EXPECT_EQ(Resolved("low = -l.gguf"), "/etc/-l.gguf");
  EXPECT_EQ(Resolved("model = a.gguf"), "/etc/a.gguf");
  EXPECT_EQ(Resolved("model = ~/b/a.gguf"), "/models/b/a.gguf");
  EXPECT_EQ(Resolved("model = b/a.gguf"), "/etc/b/a.gguf");
  // What is no path.
  for (const char* text : {"model = owner/repo:Q4_K_M", "model = hf:owner/repo", "port = 80",
                           "chat-template = chatml", "cache-ram = ~/2G"}) {
    EXPECT_TRUE(std::string(text).ends_with("= " + Resolved(text))) << Resolved(text);
  }
  EXPECT_EQ(Resolved("chat-template = t/a.jinja"), "/etc/t/a.jinja");
  EXPECT_TRUE(Resolved("low = ~/l.gguf", "").starts_with("m.conf:1: low begins with ~/"));
}

TEST(Settings, TheFirstSourceThatNamesAFlagCounts) {
  const auto first = Parse("port = 1\nlog-requests = off");
  const auto second = Parse("port = 2\nthreads = 2\nlog-requests = on\nmodel = m.gguf");
  EXPECT_EQ(Arguments({}, {first, second}), (Strings{"--port=1", "--threads=2", "m.gguf"}));
  EXPECT_EQ(Arguments({"--port", "3"}, {first, second}),
            (Strings{"--threads=2", "m.gguf", "--port", "3"}));
  EXPECT_EQ(Arguments({"--port=3", "-vt", "4", "x.gguf"}, {first, second}),
            (Strings{"--port=3", "-vt", "4", "x.gguf"}));
  EXPECT_EQ(Arguments({"-t4"}, {second}).back(), "-t4");
  EXPECT_EQ(Arguments({"--ctx-size", "--port"}, {first}),
            (Strings{"--port=1", "--ctx-size", "--port"}))
      << "a value that looks like a flag is none";
  EXPECT_EQ(Arguments({"--", "-x.gguf"}, {second}).size(), 5U);
  EXPECT_EQ(Arguments({}, {Parse("model = -x.gguf\nthreads = -1")}),
            (Strings{"./-x.gguf", "--threads=-1"}));
}

TEST(Settings, ASwitchIsOnOrOff) {
  EXPECT_EQ(Arguments({}, {Parse("log-requests = on\nrescale = off")}),
            (Strings{"--log-requests", "--no-rescale"}));
  EXPECT_EQ(Arguments({}, {Parse("no-rescale = on")}), (Strings{"--no-rescale"}));
  EXPECT_EQ(Arguments({}, {Parse("no-rescale = no")}), (Strings{"--rescale"}));
  EXPECT_EQ(Arguments({"--log-requests"}, {Parse("log-requests = off")}),
            (Strings{"--log-requests"}));
  const auto bad = ChooseSettings(
      Serve(), {}, std::vector<std::vector<FlagSetting>>{Parse("\nverbose = maybe")});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "m.conf:2: verbose is 'maybe'; write on or off");
}

TEST(Settings, WhatAFlagExcludesGivesWayWithAllThatNeedsIt) {
  const auto file = Parse("low = l.gguf\nlow-share = 0.2\nport = 1");
  EXPECT_EQ(Arguments({"--quality", "0.1"}, {file}), (Strings{"--port=1", "--quality", "0.1"}));
  EXPECT_EQ(Arguments({}, {Parse("quality = 1"), file}), (Strings{"--quality=1", "--port=1"}));
  EXPECT_EQ(Arguments({}, {Parse("low-share = 0.3"), file, Parse("quality = 1")}),
            (Strings{"--low-share=0.3", "--low=l.gguf", "--port=1"}));
  EXPECT_EQ(Arguments({"--quality", "1"}, {Parse("low-share = 0.3"), Parse("low = l")}),
            (Strings{"--quality", "1"}));
  // Within one source it is a mistake, which the parser reports.
  EXPECT_EQ(Arguments({}, {Parse("low = l\nquality = 1")}), (Strings{"--low=l", "--quality=1"}));
}

TEST(Settings, OtherCommandsTakeWhatTheyKnow) {
  CommandText health{.name = "health", .help = "", .footer = "", .flags = {}};
  health.flags.push_back({.names = {"--port"}, .value = "N"});
  const auto chosen =
      ChooseSettings(health, {}, std::vector<std::vector<FlagSetting>>{Parse("low = x\nport = 7")});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->arguments, Strings{"--port=7"});
}

TEST(Settings, AMessageIsBlamedOnTheSettingItNamesFirst) {
  const std::vector<FlagSetting> used = {
      {"cache", "1", "a:1"}, {"cache-ram", "x", "a:2"}, {"ram", "y", "a:3"}};
  EXPECT_EQ(PlaceOfSetting("--cache-ram: 'x' is no size", used), "a:2");
  EXPECT_EQ(PlaceOfSetting("--ram excludes --cache", used), "a:3");
  EXPECT_EQ(PlaceOfSetting("-c,--cache: bad", used), "a:1");
  EXPECT_EQ(PlaceOfSetting("--port: bad", used), "");
  EXPECT_EQ(PlaceOfSetting("--cache-disk: bad", used), "");
}

TEST(Settings, ASectionIsOfOneModel) {
  const auto settings =
      Parse("port = 1\n[models.a/b:Q4]\nctx = 5\nlow = x\n [models.c] \r\nctx = 6\n");
  ASSERT_EQ(settings.size(), 4U);
  EXPECT_EQ(settings[0].model, "");
  EXPECT_EQ(settings[1].model, "a/b:Q4");
  EXPECT_EQ(settings[3].model, "c");
  EXPECT_EQ(Arguments({"--for", "c:ctx=7"}, {settings, Parse("[models.c]\nctx = 8\nlow = y")}),
            (Strings{"--port=1", "--for=a/b:Q4:ctx=5", "--for=a/b:Q4:low=x", "--for=c:ctx=6",
                     "--for=c:low=y", "--for", "c:ctx=7"}));
  EXPECT_EQ(MessageOf("[models.a]\nctx = 1\n\nctx-size = 2"),
            "m.conf:4: ctx is set twice, first in line 2");
  EXPECT_EQ(MessageOf("[models.a]\nprot = 1"),
            "m.conf:2: there is no setting 'prot'; did you mean 'port'?");
  for (const char* section : {"[models.]", "[models]", "[server]", "[models.a", "[models.a=b]"}) {
    EXPECT_TRUE(MessageOf(section).contains("[models.NAME]")) << section;
  }
}

TEST(Settings, AModelsSettingIsBlamedByItsOwnLine) {
  const std::vector<std::vector<FlagSetting>> sources = {
      Parse("[models.a]\nctx = 1\n[models.b]\nctx = x")};
  const auto chosen = ChooseSettings(Serve(), {}, sources);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(PlaceOfSetting("--for b:ctx: 'x' is no number", chosen->used), "m.conf:4");
}

TEST(Settings, AFlagForOneModelIsTakenApart) {
  const auto setting = ParseModelFlag(Serve(), "a/b:Q4:ctx=1:2=3");
  ASSERT_TRUE(setting);
  EXPECT_EQ(setting->model, "a/b:Q4");
  EXPECT_EQ(setting->name, "ctx");
  EXPECT_EQ(setting->value, "1:2=3");
  EXPECT_EQ(ArgumentsOf(Serve(), *setting), Strings{"--ctx=1:2=3"});
  for (const char* text : {"", "a", "a:ctx", "ctx=1", ":ctx=1", "a:ctx="}) {
    EXPECT_TRUE(ParseModelFlag(Serve(), text).error().message.contains("NAME:FLAG=VALUE")) << text;
  }
  EXPECT_TRUE(ParseModelFlag(Serve(), "a:ctz=1").error().message.contains("did you mean 'ctx'"));
}

TEST(Settings, FlagsAreTakenOutOfArguments) {
  const Strings given = {"--port",         "1",         "x.gguf", "-vc",   "2", "--low=y",
                         "--log-requests", "--rescale", "--",     "z.gguf"};
  EXPECT_EQ(ArgumentsWithout(Serve(), given, {}),
            (Strings{"--port", "1", "-vc", "2", "--low=y", "--log-requests", "--rescale"}));
  EXPECT_EQ(ArgumentsWithout(Serve(), given, {"port", "low", "log-requests"}),
            (Strings{"-vc", "2", "--rescale"}));
  EXPECT_EQ(ArgumentsWithout(Serve(), Strings{"--port"}, {"port"}), Strings());
}

}  // namespace
}  // namespace moestro
