// SPDX-License-Identifier: MIT
#include "model/gguf_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <limits>
#include <string>

#include "base/text.h"
#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class GgufFileTest : public testing::Test {
 protected:
  std::string Path(const std::string& name = "model.gguf") const {
    return (folder_.path() / name).string();
  }
  // Writes the header to a file, opens that and returns the error.
  Error ErrorOf(const RawHeader& header) const {
    WriteBytes(Path(), header.bytes());
    auto file = GgufFile::Open(Path());
    if (file) return {Errc::kInterrupted, "no error"};
    return file.error();
  }
  void ExpectInvalid(const RawHeader& header, const std::string& words) const {
    const Error error = ErrorOf(header);
    EXPECT_EQ(error.code, Errc::kInvalidFile) << error.message;
    EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(Path()), std::string::npos) << error.message;
  }

  TempFolder folder_;
};

TEST_F(GgufFileTest, AgreesWithGgufAboutEveryTensor) {
  SmallMoe("qwen2moe").Write(Path());
  const auto file = GgufFile::Open(Path());
  ASSERT_TRUE(file) << file.error().message;
  gguf_context* reference = gguf_init_from_file(Path().c_str(), {.no_alloc = true, .ctx = nullptr});
  ASSERT_NE(reference, nullptr);
  ASSERT_EQ(file->tensors().size(), static_cast<size_t>(gguf_get_n_tensors(reference)));
  for (int64_t i = 0; i < gguf_get_n_tensors(reference); ++i) {
    const TensorInfo* tensor = file->Find(gguf_get_tensor_name(reference, i));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type, gguf_get_tensor_type(reference, i));
    EXPECT_TRUE(std::equal(tensor->ne.begin(), tensor->ne.end(), gguf_get_tensor_ne(reference, i)));
    EXPECT_EQ(tensor->extent.file, 0U);
    EXPECT_EQ(tensor->extent.offset,
              gguf_get_data_offset(reference) + gguf_get_tensor_offset(reference, i));
    EXPECT_EQ(tensor->extent.length, gguf_get_tensor_size(reference, i));
  }
  gguf_free(reference);
  EXPECT_EQ(file->Find("no such tensor"), nullptr);
  EXPECT_EQ(file->file_bytes(), ReadBytes(Path()).size());
}

TEST_F(GgufFileTest, ConvertsMetadata) {
  GgufBuilder builder;
  builder.Set("u32", 7U).Set("f32", 0.5F).Set("yes", true).Set("text", "word");
  gguf_set_val_i8(builder.raw(), "i8", 5);
  gguf_set_val_i64(builder.raw(), "negative", -1);
  gguf_set_val_u64(builder.raw(), "u64", std::numeric_limits<uint64_t>::max());
  gguf_set_val_f64(builder.raw(), "f64", 0.25);
  builder.SetInts("same", {3, 3, 3}).SetInts("mixed", {3, 4}).SetStrings("words", {"a", "b"});
  builder.SetInts("long", std::vector<int32_t>(5000, 9));
  builder.Write(Path());
  const auto file = GgufFile::Open(Path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->FindUint("u32").value(), 7U);
  EXPECT_EQ(file->FindUint("i8").value(), 5U);
  EXPECT_EQ(file->FindUint("u64").value(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(file->FindUint("absent").value(), std::nullopt);
  EXPECT_EQ(file->FindUint("negative").error().code, Errc::kInvalidFile);
  EXPECT_EQ(file->FindUint("text").error().code, Errc::kInvalidFile);
  EXPECT_EQ(file->FindFloat("f32").value(), 0.5);
  EXPECT_EQ(file->FindFloat("f64").value(), 0.25);
  EXPECT_EQ(file->FindFloat("u32").value(), 7.0);
  EXPECT_EQ(file->FindFloat("yes").error().code, Errc::kInvalidFile);
  EXPECT_EQ(file->FindBool("yes").value(), true);
  EXPECT_EQ(file->FindBool("u32").error().code, Errc::kInvalidFile);
  EXPECT_EQ(file->FindString("text").value(), "word");
  EXPECT_EQ(file->FindString("words").error().code, Errc::kInvalidFile);
  EXPECT_EQ(file->FindArrayLength("words").value(), 2U);
  EXPECT_EQ(file->FindArrayLength("long").value(), 5000U);
  EXPECT_EQ(file->FindArrayLength("text").error().code, Errc::kInvalidFile);
  EXPECT_EQ(file->FindUniformUint("same").value(), 3U);
  EXPECT_EQ(file->FindUniformUint("u32").value(), 7U);
  EXPECT_EQ(file->FindUniformUint("mixed").error().code, Errc::kUnsupported);
  EXPECT_EQ(file->FindUniformUint("words").error().code, Errc::kInvalidFile);
}

TEST_F(GgufFileTest, StaysValidWhenMoved) {
  SmallMoe("llama").Write(Path());
  auto file = GgufFile::Open(Path());
  ASSERT_TRUE(file);
  const TensorInfo* before = file->Find("blk.1.ffn_norm.weight");
  const GgufFile moved = *std::move(file);
  EXPECT_EQ(moved.Find("blk.1.ffn_norm.weight"), before);
}

TEST_F(GgufFileTest, RefusesWhatIsNotAModelFile) {
  EXPECT_EQ(GgufFile::Open(Path("absent")).error().code, Errc::kIo);
  EXPECT_EQ(GgufFile::Open(folder_.path().string()).error().code, Errc::kIo);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(GgufFile::Open(Path("pipe")).error().code, Errc::kIo);
  for (const std::string& bytes : {std::string(), std::string("GG"), std::string(100, 'x')}) {
    WriteBytes(Path(), bytes);
    EXPECT_NE(GgufFile::Open(Path()).error().message.find("not a GGUF"), std::string::npos);
  }
  WriteBytes(Path(), "MOESHARD and more");
  EXPECT_NE(GgufFile::Open(Path()).error().message.find("'moestro merge'"), std::string::npos);
  for (const std::string bytes : {"MOESHAR", "MOESEQNC and more"}) {
    WriteBytes(Path(), bytes);
    EXPECT_NE(GgufFile::Open(Path()).error().message.find("does not begin"), std::string::npos);
  }
}

TEST_F(GgufFileTest, RefusesOtherVersions) {
  for (const uint32_t version : {1U, 2U, 0x03000000U}) {
    EXPECT_EQ(ErrorOf(RawHeader(0, 0, version)).code, Errc::kUnsupported) << version;
  }
  ExpectInvalid(RawHeader(0, 0, 4), "version 4");
  ExpectInvalid(RawHeader(0, 0, 0), "version 0");
}

TEST_F(GgufFileTest, RefusesAbsurdCounts) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  ExpectInvalid(RawHeader(kMax, 0), "at most");
  ExpectInvalid(RawHeader(0, kMax), "at most");
  ExpectInvalid(RawHeader(0, 1).Number(kMax), "the file ends");
  ExpectInvalid(RawHeader(0, 1).Key("k", GGUF_TYPE_STRING).Number(kMax), "the file ends");
  ExpectInvalid(RawHeader(0, 1).Number(uint64_t{70000}).Zeros(80000), "70000 bytes long");
  const auto array = [](uint32_t type, uint64_t count) {
    RawHeader header(0, 1);
    header.Key("k", GGUF_TYPE_ARRAY).Number(type).Number(count).Zeros(64);
    return header;
  };
  ExpectInvalid(array(GGUF_TYPE_UINT8, kMax), "elements");
  ExpectInvalid(array(GGUF_TYPE_UINT64, 1000), "the file ends");
  ExpectInvalid(array(GGUF_TYPE_STRING, 9), "the file ends");
  ExpectInvalid(array(GGUF_TYPE_ARRAY, 1), "array of arrays");
  ExpectInvalid(array(13, 1), "type 13");
}

TEST_F(GgufFileTest, RefusesBadKeys) {
  ExpectInvalid(RawHeader(0, 1).Key("", GGUF_TYPE_UINT8).Zeros(1), "empty");
  ExpectInvalid(RawHeader(0, 1).Key(std::string_view("a\0b", 3), GGUF_TYPE_UINT8).Zeros(1),
                "zero byte");
  ExpectInvalid(RawHeader(0, 1).Key("new\nline", 99), "new?line");
  RawHeader twice(0, 2);
  twice.Key("k", GGUF_TYPE_UINT8).Zeros(1).Key("k", GGUF_TYPE_UINT8).Zeros(1);
  ExpectInvalid(twice, "occurs twice");
}

TEST_F(GgufFileTest, RefusesBadAlignment) {
  for (const uint32_t alignment : {0U, 1U, 24U, 0x80000000U}) {
    RawHeader header(0, 1);
    header.Key("general.alignment", GGUF_TYPE_UINT32).Number(alignment);
    ExpectInvalid(header, "power of two");
  }
  ExpectInvalid(RawHeader(0, 1).Key("general.alignment", GGUF_TYPE_UINT8).Zeros(1), "32-bit");
}

TEST_F(GgufFileTest, HonoursAlignment) {
  RawHeader header(2, 1);
  header.Key("general.alignment", GGUF_TYPE_UINT32).Number(uint32_t{4096});
  header.Tensor("a", {3}, GGML_TYPE_F32, 0).Tensor("b", {2}, GGML_TYPE_F32, 4096);
  header.Zeros(4096 - header.bytes().size()).Zeros(4096 + 8);
  WriteBytes(Path(), header.bytes());
  const auto file = GgufFile::Open(Path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->Find("a")->extent, (Extent{.file = 0, .offset = 4096, .length = 12}));
  EXPECT_EQ(file->Find("b")->extent, (Extent{.file = 0, .offset = 8192, .length = 8}));
}

TEST_F(GgufFileTest, RefusesBadTensors) {
  const auto one = [](const std::vector<int64_t>& ne, uint32_t type, uint64_t offset = 0) {
    RawHeader header(1, 0);
    header.Tensor("w", ne, type, offset).Zeros(256);
    return header;
  };
  ExpectInvalid(one({}, GGML_TYPE_F32), "0 dimensions");
  ExpectInvalid(one({1, 1, 1, 1, 1}, GGML_TYPE_F32), "5 dimensions");
  ExpectInvalid(one({0}, GGML_TYPE_F32), "impossible dimension");
  ExpectInvalid(one({-4}, GGML_TYPE_F32), "impossible dimension");
  ExpectInvalid(one({int64_t{1} << 40, int64_t{1} << 40}, GGML_TYPE_F32), "impossible dimension");
  ExpectInvalid(one({std::numeric_limits<int64_t>::max()}, GGML_TYPE_F32), "impossible dimension");
  ExpectInvalid(one({4}, 4), "type number 4");  // removed from ggml
  ExpectInvalid(one({4}, 1U << 31), "type number");
  ExpectInvalid(one({33}, GGML_TYPE_Q8_0), "not a multiple of 32");
  ExpectInvalid(one({1024}, GGML_TYPE_F32), "larger than the whole file");
  ExpectInvalid(one({70}, GGML_TYPE_F32), "past the end");
  ExpectInvalid(one({4}, GGML_TYPE_F32, 32), "offset 32, expected 0");
  ExpectInvalid(RawHeader(1, 0).Tensor("", {1}, 0, 0).Zeros(99), "empty");
  ExpectInvalid(RawHeader(1, 0).Tensor(std::string(64, 'n'), {1}, 0, 0).Zeros(99), "64 bytes long");
  RawHeader twice(2, 0);
  twice.Tensor("w", {8}, GGML_TYPE_F32, 0).Tensor("w", {8}, GGML_TYPE_F32, 32).Zeros(128);
  ExpectInvalid(twice, "occurs twice");
}

class SplitFileTest : public GgufFileTest {
 protected:
  static std::string Name(int i, int of) { return Format("m-{:05}-of-{:05}.gguf", i, of); }
  // Shard i holds the tensor t<i> of 8 numbers; `change` may spoil it.
  void WriteShard(int i, int of, const std::function<void(GgufBuilder&)>& change = {}) const {
    GgufBuilder shard;
    gguf_set_val_u16(shard.raw(), "split.no", static_cast<uint16_t>(i - 1));
    gguf_set_val_u16(shard.raw(), "split.count", static_cast<uint16_t>(of));
    gguf_set_val_i32(shard.raw(), "split.tensors.count", of);
    if (i == 1) shard.Set("only.first", 1U);
    shard.Tensor("t" + std::to_string(i), GGML_TYPE_F32, {8});
    if (change) change(shard);
    shard.Write(Path(Name(i, of)));
  }
  Error ErrorOfFirst() const {
    auto file = GgufFile::Open(Path(Name(1, 3)));
    return file ? Error{Errc::kInterrupted, "no error"} : file.error();
  }
};

TEST_F(SplitFileTest, FindsTensorsInEachShard) {
  for (int i = 1; i <= 3; ++i) WriteShard(i, 3);
  const auto file = GgufFile::Open(Path(Name(1, 3)));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->paths().size(), 3U);
  EXPECT_EQ(file->paths()[2], Path(Name(3, 3)));
  EXPECT_EQ(file->Find("t1")->extent.file, 0U);
  EXPECT_EQ(file->Find("t3")->extent.file, 2U);
  // The metadata of the first shard makes its header longer.
  EXPECT_GT(file->Find("t1")->extent.offset, file->Find("t3")->extent.offset);
  EXPECT_EQ(file->FindUint("only.first").value(), 1U);
}

TEST_F(SplitFileTest, EachShardIsOpenedByTheGivenFunction) {
  for (int i = 1; i <= 3; ++i) WriteShard(i, 3);
  std::vector<std::string> opened;
  const auto file = GgufFile::Open(Path(Name(1, 3)), [&opened](const std::string& path) {
    opened.push_back(path);
    return OpenFileBytes(path);
  });
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(opened, file->paths());
}

TEST_F(SplitFileTest, NamesTheMissingShard) {
  WriteShard(1, 3);
  WriteShard(2, 3);
  const Error error = ErrorOfFirst();
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_NE(error.message.find(Name(3, 3)), std::string::npos) << error.message;
}

TEST_F(SplitFileTest, AsksForTheFirstShard) {
  for (int i = 1; i <= 3; ++i) WriteShard(i, 3);
  const auto file = GgufFile::Open(Path(Name(2, 3)));
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("-00001-of-00003.gguf"), std::string::npos);
}

TEST_F(SplitFileTest, RefusesShardsThatDoNotBelongTogether) {
  WriteShard(1, 3);
  WriteShard(3, 3);
  WriteShard(2, 3, [](GgufBuilder& s) { gguf_set_val_u16(s.raw(), "split.no", 2); });
  EXPECT_NE(ErrorOfFirst().message.find("shard 3 of 3, expected 2 of 3"), std::string::npos);
  WriteShard(2, 3, [](GgufBuilder& s) { s.Tensor("t3", GGML_TYPE_F32, {8}).RemoveTensor("t2"); });
  EXPECT_NE(ErrorOfFirst().message.find("occurs in two shards"), std::string::npos);
  WriteShard(2, 3, [](GgufBuilder& s) { s.Tensor("more", GGML_TYPE_F32, {8}); });
  EXPECT_NE(ErrorOfFirst().message.find("4 tensors in 3 shards"), std::string::npos);
  WriteShard(2, 3, [](GgufBuilder& s) { s.Remove("split.no"); });
  EXPECT_NE(ErrorOfFirst().message.find("split.no"), std::string::npos);
}

TEST_F(SplitFileTest, RefusesARenamedFirstShard) {
  for (int i = 1; i <= 3; ++i) WriteShard(i, 3);
  std::filesystem::rename(Path(Name(1, 3)), Path("renamed.gguf"));
  const auto file = GgufFile::Open(Path("renamed.gguf"));
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("rename"), std::string::npos) << file.error().message;
}

class FingerprintTest : public testing::Test {
 protected:
  uint64_t Of(const GgufBuilder& builder) const {
    const std::string path = folder_.File("model.gguf");
    builder.Write(path);
    const auto file = GgufFile::Open(path);
    EXPECT_TRUE(file) << file.error().message;
    return file ? Fingerprint(*file) : 0;
  }
  TempFolder folder_;
};

TEST_F(FingerprintTest, IsTheSameForTheSameModel) {
  EXPECT_EQ(Of(SmallMoe("qwen3moe")), Of(SmallMoe("qwen3moe")));
  GgufBuilder annotated = SmallMoe("qwen3moe");
  gguf_set_val_u16(annotated.raw(), "split.count", 1);  // a copy in shards has more such keys
  EXPECT_EQ(Of(SmallMoe("qwen3moe")), Of(annotated));
}

TEST_F(FingerprintTest, DiffersWhenAnythingElseDoes) {
  const uint64_t plain = Of(SmallMoe("qwen3moe"));
  EXPECT_NE(plain, 0U);
  EXPECT_NE(plain, Of(SmallMoe("olmoe")));
  GgufBuilder named = SmallMoe("qwen3moe");
  named.Set("general.name", "another");
  EXPECT_NE(plain, Of(named));
  GgufBuilder wider = SmallMoe("qwen3moe");
  wider.Tensor("extra", GGML_TYPE_F32, {32, 2});
  EXPECT_NE(plain, Of(wider));
  GgufBuilder other_type = SmallMoe("qwen3moe");
  other_type.Tensor("extra", GGML_TYPE_F16, {32, 2});
  EXPECT_NE(Of(wider), Of(other_type));
}

}  // namespace
}  // namespace moestro
