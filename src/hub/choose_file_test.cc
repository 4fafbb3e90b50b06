// SPDX-License-Identifier: MIT
#include "hub/choose_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moestro {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::vector<HubFile> Files(const std::vector<std::pair<std::string, uint64_t>>& sizes) {
  std::vector<HubFile> files;
  for (const auto& [path, size] : sizes) files.push_back({.path = path, .size = size});
  return files;
}

ModelName Name(const std::string& quantisation, const std::string& file = {}) {
  return {.kind = ModelNameKind::kHub, .repo = "o/r", .quantisation = quantisation, .file = file};
}

// Paths of the chosen model, or the error.
std::string Chosen(const std::vector<HubFile>& files, const ModelName& name) {
  const auto model = ChooseModel(files, name);
  if (!model) return "error: " + model.error().message;
  std::string paths;
  for (const HubFile& file : model->files) paths += (paths.empty() ? "" : " ") + file.path;
  return paths;
}

const std::vector<HubFile> kMany = Files({{"README.md", 10},
                                          {"m-Q4_K_M.gguf", 18 * kGiB},
                                          {"m-Q8_0.gguf", 32 * kGiB},
                                          {"m-UD-Q4_K_XL.gguf", 17 * kGiB},
                                          {"BF16/m-BF16-00002-of-00002.gguf", 10 * kGiB},
                                          {"BF16/m-BF16-00001-of-00002.gguf", 50 * kGiB},
                                          {"mmproj-F16.gguf", kGiB},
                                          {"imatrix_unsloth.gguf", kGiB}});

TEST(ChooseFileTest, ModelsAreListedTheBestFirst) {
  std::string labels;
  for (const HubModel& model : ModelsIn(kMany)) labels += model.label() + " ";
  EXPECT_EQ(labels, "BF16 Q8_0 Q4_K_M UD-Q4_K_XL ");
}

TEST(ChooseFileTest, AQuantisationInAnyCase) {
  EXPECT_EQ(Chosen(kMany, Name("q8_0")), "m-Q8_0.gguf");
  EXPECT_EQ(Chosen(kMany, Name("ud-q4_k_xl")), "m-UD-Q4_K_XL.gguf");
  EXPECT_EQ(Chosen(kMany, Name("Q4_K_XL")), "m-UD-Q4_K_XL.gguf");
}

TEST(ChooseFileTest, WithoutAQuantisationTheUsualOne) {
  EXPECT_EQ(Chosen(kMany, Name("")), "m-Q4_K_M.gguf");
  EXPECT_EQ(Chosen(Files({{"only-Q8_0.gguf", 1}}), Name("")), "only-Q8_0.gguf");
  const std::string asked =
      Chosen(Files({{"m-Q8_0.gguf", 32 * kGiB}, {"m-Q6_K.gguf", 25 * kGiB}}), Name(""));
  EXPECT_TRUE(asked.contains("Q8_0 (32.0 GiB), Q6_K (25.0 GiB)")) << asked;
}

TEST(ChooseFileTest, AllPartsFromAnyOfThem) {
  const std::string both = "BF16/m-BF16-00001-of-00002.gguf BF16/m-BF16-00002-of-00002.gguf";
  EXPECT_EQ(Chosen(kMany, Name("bf16")), both);
  EXPECT_EQ(Chosen(kMany, Name("", "BF16/m-BF16-00001-of-00002.gguf")), both);
  EXPECT_EQ(Chosen(kMany, Name("", "BF16/m-BF16-00002-of-00002.gguf")), both);
}

TEST(ChooseFileTest, AMissingPartIsSaid) {
  const auto files = Files({{"m-Q4_0-00001-of-00003.gguf", 1}, {"m-Q4_0-00003-of-00003.gguf", 1}});
  EXPECT_TRUE(Chosen(files, Name("Q4_0")).contains("of the 3 parts of m-Q4_0 only 2"));
}

TEST(ChooseFileTest, OnePartTwiceIsNotTwoParts) {
  const auto files = Files({{"m-Q4_0-00001-of-00002.gguf", 1}, {"m-Q4_0-00001-of-00002.GGUF", 1}});
  EXPECT_TRUE(Chosen(files, Name("Q4_0")).contains("of the 2 parts"))
      << Chosen(files, Name("Q4_0"));
}

TEST(ChooseFileTest, TwoFilesThatMatchAreNamed) {
  const auto files = Files({{"a-Q4_0.gguf", 2}, {"b-Q4_0.gguf", 1}, {"b-Q8_0.gguf", 3}});
  const std::string error = Chosen(files, Name("Q4_0"));
  EXPECT_TRUE(error.contains("hf:o/r/a-Q4_0.gguf, hf:o/r/b-Q4_0.gguf")) << error;
  EXPECT_FALSE(error.contains("Q8_0")) << error;
}

TEST(ChooseFileTest, AnUnknownQuantisationHasNearestOnes) {
  const std::string error = Chosen(kMany, Name("Q8_K"));
  EXPECT_TRUE(error.contains("nearest: Q8_0")) << error;
  EXPECT_TRUE(error.contains("it has BF16 (60.0 GiB), Q8_0")) << error;
}

TEST(ChooseFileTest, AnUnknownFileHasNearestOnes) {
  EXPECT_TRUE(Chosen(kMany, Name("", "m-Q8_1.gguf")).contains("nearest: m-Q8_0.gguf"));
  EXPECT_TRUE(Chosen(kMany, Name("", "mmproj-F16.gguf")).contains("no model file"));
}

TEST(ChooseFileTest, ARepositoryWithoutGguf) {
  const std::string error =
      Chosen(Files({{"model.safetensors", 1}, {"mmproj-F16.gguf", 1}}), Name("Q4_0"));
  EXPECT_TRUE(error.contains("has no GGUF file")) << error;
}

TEST(ChooseFileTest, QuantisationsAreReadFromNames) {
  const auto label = [](const std::string& path) {
    return ModelsIn(Files({{path, 1}})).at(0).label();
  };
  EXPECT_EQ(label("Qwen3-30B-A3B-Instruct-2507-IQ4_XS.gguf"), "IQ4_XS");
  EXPECT_EQ(label("model.i1-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(label("model.Q5_K_S.GGUF"), "Q5_K_S");
  EXPECT_EQ(label("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(label("gpt-oss-20b-MXFP4_MOE.gguf"), "MXFP4_MOE");
  EXPECT_EQ(label("ggml_model_q4_0.gguf"), "Q4_0");
  EXPECT_EQ(label("q8_0/model.gguf"), "Q8_0");
  EXPECT_EQ(label("x-TQ1_0.gguf"), "TQ1_0");
  EXPECT_EQ(label("folder/plain.gguf"), "folder/plain");
}

TEST(ChooseFileTest, AWordBeforeTheTypeMayBeAsked) {
  const auto files = Files({{"m.Q4_K_M.gguf", 2}, {"m.i1-Q4_K_M.gguf", 1}});
  EXPECT_EQ(Chosen(files, Name("i1-Q4_K_M")), "m.i1-Q4_K_M.gguf");
  EXPECT_TRUE(Chosen(files, Name("Q4_K_M")).contains("several files"));
}

// Sizes that overflow their sum, numbers of parts that are none, names of nothing but marks.
TEST(ChooseFileTest, HostileListings) {
  const auto files = Files({{"a-00001-of-00002.gguf", UINT64_MAX},
                            {"a-00002-of-00002.gguf", UINT64_MAX},
                            {"b-00000-of-00000.gguf", 1},
                            {"c-00009-of-00002.gguf", 1},
                            {"-.gguf", 1},
                            {".gguf", 1},
                            {"UD-.gguf", 1},
                            {"Q_.gguf", 1}});
  EXPECT_EQ(ModelsIn(files).front().bytes(), UINT64_MAX);
  EXPECT_EQ(ModelsIn(files).size(), 6);
  EXPECT_FALSE(ChooseModel(files, Name(std::string(10000, 'Q'))));
}

}  // namespace
}  // namespace moestro
