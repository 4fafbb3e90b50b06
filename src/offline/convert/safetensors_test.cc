// SPDX-License-Identifier: MIT
#include "offline/convert/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/switch_folder_testing.h"

namespace moestro {
namespace {

// With `data` bytes of tensors behind the header.
Result<std::vector<SafeTensor>> Parse(const std::string& json, uint64_t data) {
  return ParseSafetensors(json, kSafetensorsPrefix + json.size() + data, "m.safetensors");
}

void ExpectRefused(const std::string& json, uint64_t data, const std::string& part,
                   Errc code = Errc::kInvalidFile) {
  const auto parsed = Parse(json, data);
  ASSERT_FALSE(parsed) << json;
  EXPECT_EQ(parsed.error().code, code) << parsed.error().message;
  EXPECT_TRUE(parsed.error().message.contains("m.safetensors")) << parsed.error().message;
  EXPECT_TRUE(parsed.error().message.contains(part)) << part << "\n" << parsed.error().message;
}

// An entry of one tensor.
std::string Entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "F32") {
  return Format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                offsets);
}
std::string One(const std::string& shape, const std::string& offsets,
                const std::string& dtype = "F32") {
  return "{" + Entry("a", shape, offsets, dtype) + "}";
}

TEST(SafetensorsTest, TensorsComeInTheOrderOfTheirBytes) {
  const std::string json = "{" + Entry("z", "[3]", "[24,30]", "BF16") +
                           R"(,"__metadata__":{"a":"b"},)" + Entry("a", "[2,3]", "[0,24]") + "," +
                           Entry("m", "[1,1,1,2]", "[30,34]", "F16") + "}";
  const auto parsed = Parse(json, 34);
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->size(), 3U);
  EXPECT_EQ((*parsed)[0].name, "a");
  EXPECT_EQ((*parsed)[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*parsed)[0].offset, 8 + json.size());
  EXPECT_EQ((*parsed)[0].bytes, 24U);
  EXPECT_EQ((*parsed)[1].name, "z");
  EXPECT_EQ((*parsed)[1].type, GGML_TYPE_BF16);
  EXPECT_EQ((*parsed)[2].offset, 8 + json.size() + 30);
  EXPECT_TRUE(Parse("{}", 0));
}

TEST(SafetensorsTest, LengthsThatLieAreRefused) {
  const auto bytes = [](const std::string& first, uint64_t file) {
    return SafetensorsHeaderBytes(first, file, "m");
  };
  const std::string ten = SafetensorsHeader("{        }");
  EXPECT_EQ(bytes(ten, 18).value(), 10U);
  EXPECT_FALSE(bytes(ten, 17));
  EXPECT_FALSE(bytes(ten.substr(0, 7), 7));
  EXPECT_FALSE(bytes(std::string(8, '\xFF'), 1000));                           // 2^64 - 1
  EXPECT_FALSE(bytes(std::string("\xF8\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8), 8));  // wraps around
  EXPECT_FALSE(bytes(std::string("\0\0\0\0\0\0\0\x80", 8), UINT64_MAX));       // 2^63
  EXPECT_FALSE(bytes(std::string("\x01\0\0\x01\0\0\0\0", 8), UINT64_MAX));     // 16 MiB and one
}

TEST(SafetensorsTest, PlacesThatLieAreRefused) {
  ExpectRefused(One("[2]", "[0,12]"), 8, "ends at byte 12 of 8");
  ExpectRefused(One("[2]", "[0,8]"), 12, "4 bytes at the end");
  ExpectRefused(One("[2]", "[4,12]"), 12, "gap");
  ExpectRefused("{" + Entry("a", "[2]", "[0,8]") + "," + Entry("b", "[2]", "[4,12]") + "}", 12,
                "shares bytes");
  ExpectRefused("{" + Entry("a", "[2]", "[0,8]") + "," + Entry("b", "[2]", "[0,8]") + "}", 8,
                "shares bytes");
  ExpectRefused(One("[2]", "[8,0]"), 8, "no range");
  ExpectRefused(One("[2]", "[-8,0]"), 8, "no range");
  ExpectRefused(One("[2]", "[0,9223372036854775808]"), 8, "no range");
  ExpectRefused(One("[2]", "[0,9223372036854775807]"), 8, "ends at byte 9223372036854775807");
  ExpectRefused(One("[2]", "[0,1e30]"), 8, "no range");
  ExpectRefused(One("[2]", "[0,8.5]"), 8, "no range");
  ExpectRefused(One("[2]", "[0]"), 8, "pair");
  ExpectRefused(One("[2]", "\"0,8\""), 8, "pair");
}

TEST(SafetensorsTest, ShapesThatLieAreRefused) {
  ExpectRefused(One("[3]", "[0,8]"), 8, "has 8 bytes where its shape wants 12");
  ExpectRefused(One("[4294967296,4294967296]", "[0,8]"), 8, "beyond any memory");
  ExpectRefused(One("[9223372036854775807,9223372036854775807,4,4]", "[0,8]"), 8, "beyond any");
  ExpectRefused(One("[9223372036854775808]", "[0,8]"), 8, "no whole number above 0");
  ExpectRefused(One("[0]", "[0,0]"), 0, "no whole number above 0");
  ExpectRefused(One("[-2]", "[0,8]"), 8, "no whole number above 0");
  ExpectRefused(One("[]", "[0,4]"), 4, "0 sizes");
  ExpectRefused(One("[1,1,1,1,2]", "[0,8]"), 8, "5 sizes");
  ExpectRefused(One("2", "[0,8]"), 8, "no shape");
}

TEST(SafetensorsTest, OtherTextsAndTypesAreRefused) {
  ExpectRefused(One("[1]", "[0,8]", "F64"), 8, "'F64'", Errc::kUnsupported);
  ExpectRefused(One("[8]", "[0,8]", "I8"), 8, "F32, F16 and BF16", Errc::kUnsupported);
  ExpectRefused(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "no dtype");
  ExpectRefused(R"({"a":7})", 8, "no dtype");
  ExpectRefused(R"({"":{}})", 0, "impossible name");
  ExpectRefused("{" + Entry(std::string(513, 'x'), "[2]", "[0,8]") + "}", 8, "impossible name");
  ExpectRefused("[]", 0, "no JSON object");
  ExpectRefused("", 0, "no JSON object");
  ExpectRefused("{\"a\":", 0, "no JSON object");
  ExpectRefused(std::string(100, '['), 0, "no JSON object");
}

}  // namespace
}  // namespace moestro
