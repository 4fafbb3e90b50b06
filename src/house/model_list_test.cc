// SPDX-License-Identifier: MIT
#include "house/model_list.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moestro {
namespace {

std::vector<HouseModel> Models(const std::vector<std::string>& names) {
  std::vector<HouseModel> models;
  for (const std::string& name : names) models.push_back({.name = name, .path = "/" + name});
  return models;
}

TEST(ModelList, FilesHaveNames) {
  EXPECT_EQ(ModelNameOfFile("/nowhere/Qwen3-30B-Q4_K_M.gguf"), "Qwen3-30B-Q4_K_M");
  EXPECT_EQ(ModelNameOfFile("a-00001-of-00003.gguf"), "a");
  EXPECT_EQ(ModelNameOfFile("a-1-of-3.gguf"), "a-1-of-3");
  EXPECT_EQ(ModelNameOfFile("/proc/self/fd/7"), "7");
  EXPECT_EQ(ModelNameOfFile("b.GGUF"), "b");
}

TEST(ModelList, FoldersHaveModelsAndOtherFiles) {
  for (const char* name : {"a.gguf", "a.GGUF", "a-00001-of-00003.gguf"}) {
    EXPECT_TRUE(IsModelFile(name)) << name;
  }
  for (const char* name : {"a-00002-of-00003.gguf", "mmproj-a.gguf", ".a.gguf", "a.gguf.part",
                           "a.txt", ".gguf", "gguf", ""}) {
    EXPECT_FALSE(IsModelFile(name)) << name;
  }
}

TEST(ModelList, NamesAreCheckedAndToldApart) {
  EXPECT_TRUE(CheckHouseModels(Models({"a", "owner/repo:Q4", "A", "a b"})));
  EXPECT_FALSE(CheckHouseModels({}));
  for (const std::string& name :
       {std::string(), std::string("a\nb"), std::string(513, 'a'), std::string("\xff")}) {
    EXPECT_EQ(CheckHouseModels(Models({name})).error().code, Errc::kUsage);
  }
  const Status twice = CheckHouseModels(Models({"a", "b", "a"}));
  ASSERT_FALSE(twice);
  EXPECT_TRUE(twice.error().message.contains("[models.NAME]")) << twice.error().message;
}

TEST(ModelList, ClientsNameModels) {
  const auto models = Models({"a", "owner/repo:Q4", "b:latest", "b"});
  EXPECT_EQ(FindHouseModel(models, "a"), 0U);
  EXPECT_EQ(FindHouseModel(models, "a:latest"), 0U);
  EXPECT_EQ(FindHouseModel(models, "owner/repo:Q4"), 1U);
  EXPECT_EQ(FindHouseModel(models, "b:latest"), 2U);
  EXPECT_EQ(FindHouseModel(models, "b"), 3U);
  EXPECT_EQ(FindHouseModel(models, ""), std::nullopt);
  EXPECT_EQ(FindHouseModel(models, ":latest"), std::nullopt);
  EXPECT_EQ(FindHouseModel(models, "../a"), std::nullopt);
}

TEST(ModelList, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto models = Models({"coder-30b", "writer"});
  EXPECT_TRUE(UnknownModel(models, "coder-31b").ends_with("nearest: coder-30b"));
  EXPECT_TRUE(UnknownModel(models, "zzzzzzzz").ends_with("there are coder-30b, writer"));
  EXPECT_LT(UnknownModel(models, std::string(1 << 20, 'x')).size(), 300U);
  const std::vector<std::string> many(40, "m");
  EXPECT_TRUE(UnknownModel(Models(many), "zzzzz").ends_with(", ..."));
}

}  // namespace
}  // namespace moestro
