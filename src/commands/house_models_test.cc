// SPDX-License-Identifier: MIT
#include "commands/house_models.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/number.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using Texts = std::vector<std::string>;

CommandText ServeCommand() {
  return {.name = "serve",
          .help = "",
          .footer = "",
          .flags = {{.positional = "MODEL", .value = "MODEL"},
                    {.names = {"--models"}, .value = "DIR|LIST"},
                    {.names = {"--port"}, .value = "N"},
                    {.names = {"--ram"}, .value = "SIZE"},
                    {.names = {"--ctx"}, .value = "N"},
                    {.names = {"--keep-alive"}, .value = "TIME"},
                    {.names = {"--log-requests"}},
                    {.names = {"--for"}, .value = "NAME:FLAG=VALUE"}}};
}

class HouseModelsTest : public ::testing::Test {
 protected:
  std::string Touch(const std::string& name) const {
    std::ofstream(folder_.File(name)) << "x";
    return folder_.File(name);
  }
  static FlagSetting For(const std::string& text) {
    const auto setting = ParseModelFlag(ServeCommand(), text);
    EXPECT_TRUE(setting) << text;
    return setting.value_or(FlagSetting{.name = "", .value = ""});
  }
  Result<std::vector<HouseModel>> Read(const HouseWish& wish) const {
    return ReadHouseModels(wish, ServeCommand(),
                           [this](const std::string& text) -> Result<std::string> {
                             if (text == "owner/repo:Q4") return folder_.File("blob");
                             return Fail(Errc::kInvalidRequest, "{} is nowhere", text);
                           });
  }
  std::string Refusal(const HouseWish& wish) const {
    const auto models = Read(wish);
    EXPECT_FALSE(models);
    return models ? "" : models.error().message;
  }

  TempFolder folder_;
};

TEST_F(HouseModelsTest, AFoldersModelsAreInOrderAndHaveTheCommandsFlags) {
  Touch("b.gguf");
  Touch("a-00001-of-00002.gguf");
  Touch("a-00002-of-00002.gguf");
  Touch("notes.txt");
  std::filesystem::create_directory(folder_.File("folder.gguf"));
  const auto models = Read({.models = folder_.path().string(),
                            .given = {"--models", "x", "--ctx", "5", "--port=1", "--ram=4G",
                                      "--log-requests", "--for", "a:ctx=7", "--keep-alive", "5m"},
                            .keep_alive = 300.0});
  ASSERT_TRUE(models) << models.error().message;
  ASSERT_EQ(models->size(), 2U);
  EXPECT_EQ((*models)[0].name, "a");
  EXPECT_EQ((*models)[1].name, "b");
  EXPECT_EQ((*models)[1].arguments,
            (Texts{"--ctx", "5", "--log-requests", "--alias=b", folder_.File("b.gguf")}));
  EXPECT_EQ((*models)[1].keep_alive, 300.0);
}

TEST_F(HouseModelsTest, AListHasFilesAndNames) {
  Touch("blob");
  const std::string a = Touch("a.gguf");
  const auto models = Read({.models = a + ", owner/repo:Q4,"});
  ASSERT_TRUE(models) << models.error().message;
  ASSERT_EQ(models->size(), 2U);
  EXPECT_EQ((*models)[1].name, "owner/repo:Q4");
  EXPECT_EQ((*models)[1].path, folder_.File("blob"));
  EXPECT_TRUE(Refusal({.models = "other/repo"}).contains("nowhere"));
  EXPECT_TRUE(Refusal({.models = a + "," + a}).contains("two models are called a"));
  EXPECT_TRUE(Refusal({.models = a + "," + folder_.path().string()}).contains("is a folder"));
  EXPECT_TRUE(Refusal({.models = ","}).contains("no GGUF"));
  std::filesystem::remove(folder_.File("blob"));
  EXPECT_TRUE(Refusal({.models = "owner/repo:Q4"}).contains("there is no file"));
}

TEST_F(HouseModelsTest, FlagsOfOneModelGoBeforeThoseOfAll) {
  const std::string a = Touch("a.gguf");
  const std::string b = Touch("b.gguf");
  const auto models =
      Read({.models = a + "," + b,
            .flags = {For("a:ctx=7"), For("a:ctx=8"), For("a:log-requests=off"), For("a:ram=2G"),
                      For("a:keep-alive=-1"), For("small:model=" + b)},
            .given = {"--ctx=5", "--log-requests"},
            .keep_alive = 60.0});
  ASSERT_TRUE(models) << models.error().message;
  ASSERT_EQ(models->size(), 2U) << "b has the name of its section alone";
  EXPECT_EQ((*models)[0].arguments, (Texts{"--ctx=8", "--alias=a", a}));
  EXPECT_EQ((*models)[0].most, 2 * kGiB);
  EXPECT_LT((*models)[0].keep_alive, 0.0);
  EXPECT_EQ((*models)[1].name, "small");
  EXPECT_EQ((*models)[1].arguments, (Texts{"--ctx=5", "--log-requests", "--alias=small", b}));
}

TEST_F(HouseModelsTest, TwoSectionsMayShareAFile) {
  const std::string a = Touch("a.gguf");
  const auto models = Read({.models = a,
                            .flags = {For("fast:model=" + a), For("fast:ctx=1"),
                                      For("long:model=" + a), For("long:ctx=2")}});
  ASSERT_TRUE(models) << models.error().message;
  ASSERT_EQ(models->size(), 2U) << "the file has the names of its sections alone";
  EXPECT_EQ((*models)[0].arguments, (Texts{"--ctx=1", "--alias=fast", a}));
  EXPECT_EQ((*models)[1].arguments, (Texts{"--ctx=2", "--alias=long", a}));
}

TEST_F(HouseModelsTest, WrongSectionsAreNamed) {
  const std::string a = Touch("alpha.gguf");
  const auto refusal = [&](const std::string& text) {
    return Refusal({.models = a, .flags = {For(text)}});
  };
  EXPECT_TRUE(refusal("alphb:ctx=1").contains("nearest: alpha"));
  EXPECT_TRUE(refusal("alpha:port=1").contains("whole server"));
  EXPECT_TRUE(refusal("alpha:for=1").contains("whole server"));
  EXPECT_TRUE(refusal("alpha:keep-alive=soon").contains("no time"));
  EXPECT_FALSE(refusal("alpha:ram=much").empty());
  EXPECT_TRUE(refusal("alpha:log-requests=maybe").contains("on or off"));
  EXPECT_TRUE(refusal("new:model=absent").contains("nowhere"));
}

}  // namespace
}  // namespace moestro
