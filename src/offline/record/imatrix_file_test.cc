// SPDX-License-Identifier: MIT
#include "offline/record/imatrix_file.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kIn = 4;
constexpr uint32_t kExperts = 3;

// Expert 1 was never visited.
struct Sums {
  std::vector<double> sums = {2, 4, 6, 8, 0, 0, 0, 0, 10, 0, 30, 40};
  std::vector<uint64_t> counts = {2, 0, 10};
};

Status Write(const std::string& path, const Sums& sums, const std::string& name = "experts") {
  const std::vector<ImatrixEntry> entries = {
      {.name = name, .n_in = kIn, .sums = sums.sums, .counts = sums.counts}};
  return WriteImatrix(path, {.datasets = {"a.txt", "b.txt"}, .chunk_count = 7, .chunk_size = 512},
                      entries);
}

Result<Importances> ReadBack(const std::string& path, uint32_t n_in = kIn,
                             uint32_t n_experts = kExperts) {
  TRY(const ImatrixFile file, ImatrixFile::Open(path));
  return file.Read("experts", n_in, n_experts);
}

void ExpectError(const Result<Importances>& read, const std::string& words) {
  ASSERT_FALSE(read) << words;
  EXPECT_EQ(read.error().code, Errc::kInvalidFile);
  EXPECT_NE(read.error().message.find(words), std::string::npos) << read.error().message;
}

// What columns are to each other is what counts.
void ExpectRow(std::span<const float> row, const std::vector<float>& wanted) {
  for (size_t c = 0; c < wanted.size(); ++c) {
    EXPECT_NEAR(row[c] / row[0], wanted[c] / wanted[0], 1e-5) << c;
  }
}

TEST(ImatrixFile, GivesMeanSquaresOfEachExpert) {
  const TempFolder folder;
  ASSERT_TRUE(Write(folder.File("i"), Sums()));
  const auto read = ReadBack(folder.File("i"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->unvisited, 1U);
  const std::span<const float> all = read->columns;
  ASSERT_EQ(all.size(), kIn * kExperts);
  ExpectRow(all.subspan(0, kIn), {1, 2, 3, 4});
  ExpectRow(all.subspan(kIn, kIn), {12, 4, 36, 48});       // of all inputs there were
  ExpectRow(all.subspan(2 * kIn, kIn), {1, 2e-6F, 3, 4});  // the mean is 2
  for (uint32_t e = 0; e < kExperts; ++e) {
    const auto row = all.subspan(e * kIn, kIn);
    const float mean = std::accumulate(row.begin(), row.end(), 0.0F) / kIn;
    EXPECT_GE(mean, 0.5F);
    EXPECT_LT(mean, 4.0F);
  }
}

TEST(ImatrixFile, TheFactorIsAPowerOfFour) {
  const TempFolder folder;
  for (const float size : {1e-20F, 0.3F, 5.0F, 1e20F}) {
    Sums sums;
    for (double& sum : sums.sums) sum *= static_cast<double>(size);
    ASSERT_TRUE(Write(folder.File("i"), sums));
    const auto read = ReadBack(folder.File("i"));
    ASSERT_TRUE(read) << read.error().message;
    int exponent = 0;
    EXPECT_EQ(std::frexp(read->columns[3] / static_cast<float>(sums.sums[3] / 2), &exponent), 0.5F);
    EXPECT_EQ((exponent - 1) % 2, 0);
  }
}

TEST(ImatrixFile, WithoutAnyInputAllColumnsAreAlike) {
  const TempFolder folder;
  ASSERT_TRUE(Write(folder.File("i"), {.sums = std::vector<double>(kIn * kExperts),
                                       .counts = std::vector<uint64_t>(kExperts)}));
  const auto read = ReadBack(folder.File("i"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->unvisited, kExperts);
  EXPECT_EQ(read->columns, std::vector<float>(kIn * kExperts, 1.0F));
}

TEST(ImatrixFile, TheFileIsWhatLlamaCppReads) {
  const TempFolder folder;
  ASSERT_TRUE(Write(folder.File("i"), Sums()));
  ggml_context* raw = nullptr;
  const gguf_context_ptr gguf{
      gguf_init_from_file(folder.File("i").c_str(), {.no_alloc = false, .ctx = &raw})};
  const ggml_context_ptr context{raw};
  ASSERT_TRUE(gguf);
  const auto key = [&](const char* name) { return gguf_find_key(gguf.get(), name); };
  EXPECT_STREQ(gguf_get_val_str(gguf.get(), key("general.type")), "imatrix");
  ASSERT_EQ(gguf_get_arr_n(gguf.get(), key("imatrix.datasets")), 2U);
  EXPECT_STREQ(gguf_get_arr_str(gguf.get(), key("imatrix.datasets"), 1), "b.txt");
  EXPECT_EQ(gguf_get_val_u32(gguf.get(), key("imatrix.chunk_count")), 7U);
  EXPECT_EQ(gguf_get_val_u32(gguf.get(), key("imatrix.chunk_size")), 512U);
  const ggml_tensor* sums = ggml_get_tensor(context.get(), "experts.in_sum2");
  const ggml_tensor* counts = ggml_get_tensor(context.get(), "experts.counts");
  ASSERT_TRUE(sums != nullptr && counts != nullptr);
  EXPECT_EQ(sums->ne[0], kIn);
  EXPECT_EQ(sums->ne[1], kExperts);
  EXPECT_EQ(counts->ne[0], 1);
  EXPECT_EQ(counts->ne[1], kExperts);
  EXPECT_EQ(static_cast<const float*>(sums->data)[11], 40.0F);
  EXPECT_EQ(static_cast<const float*>(counts->data)[2], 10.0F);
}

// As theirs are: dense tensors too, sums of the inputs themselves, another order.
TEST(ImatrixFile, ReadsTheirs) {
  const TempFolder folder;
  GgufBuilder file;
  file.Set("general.type", "imatrix")
      .SetStrings("imatrix.datasets", {"wiki.txt"})
      .Set("imatrix.chunk_count", 3U)
      .Set("imatrix.chunk_size", 512U)
      .Tensor("blk.0.attn_q.weight.in_sum2", GGML_TYPE_F32, {64, 1})
      .Tensor("blk.0.attn_q.weight.counts", GGML_TYPE_F32, {1, 1})
      .Tensor("experts.counts", GGML_TYPE_F32, {1, kExperts})
      .Tensor("experts.in_sum", GGML_TYPE_F32, {kIn, kExperts})
      .Tensor("experts.in_sum2", GGML_TYPE_F32, {kIn, kExperts});
  file.Write(folder.File("i"));
  // The builder fills tensors with 0, 1, 2, ... as bytes; counts are numbers of inputs.
  std::string bytes = ReadBytes(folder.File("i"));
  std::string filled;
  for (char c = 0; c < 12; ++c) filled += c;
  const size_t at = bytes.find(filled + std::string(4, '\0'));
  ASSERT_NE(at, std::string::npos);
  const std::vector<float> counts = {1.0F, 2.0F, 3.0F};
  bytes.replace(at, filled.size(), reinterpret_cast<const char*>(counts.data()), filled.size());
  WriteBytes(folder.File("i"), bytes);
  const auto read = ReadBack(folder.File("i"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->unvisited, 0U);
}

TEST(ImatrixFile, AnotherModelsIsRefused) {
  const TempFolder folder;
  ASSERT_TRUE(Write(folder.File("i"), Sums()));
  ExpectError(ReadBack(folder.File("i"), kIn + 1), "[4, 3], this model needs f32 [5, 3]");
  ExpectError(ReadBack(folder.File("i"), kIn, kExperts + 1), "[1, 3], this model needs f32 [1, 4]");
  ASSERT_TRUE(Write(folder.File("i"), Sums(), "others"));
  ExpectError(ReadBack(folder.File("i")), "has no 'experts.counts'");
}

TEST(ImatrixFile, DamagedFilesAreNamed) {
  const TempFolder folder;
  const std::string path = folder.File("i");
  EXPECT_EQ(ImatrixFile::Open(path).error().code, Errc::kIo);
  WriteBytes(path, std::string(100, '\1'));  // the old format begins with a number
  ExpectError(ReadBack(path), "llama-imatrix");
  SmallMoe("llama").Write(path);
  ExpectError(ReadBack(path), "general.type");
  ASSERT_TRUE(Write(path, Sums()));
  const std::string whole = ReadBytes(path);
  for (size_t size = 0; size + 32 < whole.size(); size += 7) {  // the end is padding
    WriteBytes(path, whole.substr(0, size));
    EXPECT_FALSE(ReadBack(path)) << size;
  }
  for (const float bad :
       {-1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Sums sums;
    sums.sums[5] = static_cast<double>(bad);
    ASSERT_TRUE(Write(path, sums));
    ExpectError(ReadBack(path), "no sum of squares");
  }
  ASSERT_TRUE(Write(path, Sums()));
  std::string bytes = ReadAll(path);
  const std::vector<float> counts = {2.0F, 0.0F, 10.0F};
  const std::string_view raw(reinterpret_cast<const char*>(counts.data()), 3 * sizeof(float));
  const size_t at = bytes.rfind(raw);
  ASSERT_NE(at, std::string::npos);
  const float tiny = 1e-40F;  // a mean without bounds
  std::memcpy(bytes.data() + at + 2 * sizeof(float), &tiny, sizeof(float));
  std::ofstream(path, std::ios::binary) << bytes;
  ExpectError(ReadBack(path), "no number of inputs");
}

TEST(ImatrixFile, AFailingDiskLeavesNothingBehind) {
  const TempFolder folder;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {300, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const Status failed = Write(folder.File("i"), Sums());
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_TRUE(folder.is_empty());
}

}  // namespace
}  // namespace moestro
