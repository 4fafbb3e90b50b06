// SPDX-License-Identifier: MIT
#include "hub/hub_reply.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

const std::string kSha(64, 'b');
const std::string kGitId(40, 'c');

TEST(HubReplyTest, ACommit) {
  EXPECT_EQ(ParseCommit(R"({"sha":")" + kGitId + R"(","id":"o/r"})"), kGitId);
  for (const char* body : {"", "{}", "[]", R"({"sha":7})", R"({"sha":"../../x"})", "<html>"}) {
    EXPECT_FALSE(ParseCommit(body)) << body;
  }
}

TEST(HubReplyTest, FilesOfATree) {
  const auto files = ParseTree(
      R"([{"type":"directory","path":"a","size":0,"oid":"x"},
          {"type":"file","path":"a/b.gguf","size":9,"oid":")" +
      kGitId + R"(","lfs":{"oid":")" + kSha + R"(","size":12345678901,"pointerSize":134}},
          {"type":"file","path":"README.md","size":7,"oid":")" +
      kGitId + R"("}])");
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 2);
  EXPECT_EQ(files->at(0).path, "a/b.gguf");
  EXPECT_EQ(files->at(0).size, 12345678901);
  EXPECT_EQ(files->at(0).sha256, kSha);
  EXPECT_EQ(files->at(1).sha256, "");
  EXPECT_EQ(files->at(1).git_id, kGitId);
}

TEST(HubReplyTest, HostileFilesArePassedOver) {
  for (const char* entry :
       {R"({"type":"file","path":"../x.gguf","size":1})", R"({"type":"file","path":"/x","size":1})",
        R"({"type":"file","path":"a\u0000b","size":1})",
        R"({"type":"file","path":"a\nb","size":1})", R"({"type":"file","path":"x","size":-1})",
        R"({"type":"file","path":"x","size":1e300})",
        R"({"type":"file","path":"x","size":9223372036854775808})",
        R"({"type":"file","path":"x","size":"1"})", R"({"type":"file","path":7,"size":1})",
        R"({"type":"file","size":1})", R"({"type":"file"})", "{}", "7", "null", "[]"}) {
    const auto files = ParseTree("[" + std::string(entry) + "]");
    ASSERT_TRUE(files) << entry;
    EXPECT_TRUE(files->empty()) << entry;
  }
  const auto odd = ParseTree(
      R"([{"type":"file","path":"x","size":1,"oid":"..","lfs":{"oid":"../../x","size":1}}])");
  ASSERT_EQ(odd->size(), 1);
  EXPECT_EQ(odd->at(0).sha256 + odd->at(0).git_id, "");
}

// Git's name of a large file is that of a pointer, and no hash of what comes.
TEST(HubReplyTest, ALargeFileHasItsOwnHashOrNone) {
  const std::string upper = "ABCDEF" + kSha.substr(6);
  const std::string lower = "abcdef" + kSha.substr(6);
  for (const auto& [said, taken] : {std::pair(upper, lower), std::pair("sha256:" + lower, lower),
                                    std::pair(std::string("x"), std::string())}) {
    const auto files = ParseTree(R"([{"type":"file","path":"b.gguf","size":9,"oid":")" + kGitId +
                                 R"(","lfs":{"oid":")" + said + R"(","size":5}}])");
    ASSERT_TRUE(files);
    EXPECT_EQ(files->at(0).sha256, taken);
    EXPECT_EQ(files->at(0).git_id, "");
  }
}

TEST(HubReplyTest, DeepAndHugeRepliesAreRefused) {
  EXPECT_FALSE(ParseTree(std::string(1'000'000, '[')));
  std::string huge = "[";
  for (int i = 0; i < 500'000; ++i) huge += "[],";
  EXPECT_FALSE(ParseTree(huge + "[]]"));
  EXPECT_FALSE(ParseTree(R"({"error":"x"})"));
  EXPECT_FALSE(ParseTree(""));
}

TEST(HubReplyTest, NamesOfRepositories) {
  EXPECT_EQ(ParseRepoNames(R"([{"id":"o/r"},{"id":"../x"},{"id":7},7,{},{"id":"o/s"}])"),
            (std::vector<std::string>{"o/r", "o/s"}));
  for (const char* body : {"", "{}", "7", "null", "[[]]"})
    EXPECT_TRUE(ParseRepoNames(body).empty());
}

TEST(HubReplyTest, TheNextPage) {
  EXPECT_EQ(NextPage(R"(<https://h/x?cursor=a>; rel="next")"), "https://h/x?cursor=a");
  EXPECT_EQ(NextPage(R"(<https://h/1>; rel="prev", <https://h/2>; rel="next")"), "https://h/2");
  EXPECT_EQ(NextPage(R"(<https://h/1>; rel="last")"), "");
  for (const char* link : {"", "<", ">", "><", "<<<", "<>", "<a"}) EXPECT_EQ(NextPage(link), "");
}

TEST(HubReplyTest, Etags) {
  EXPECT_EQ(PlainEtag("\"abc\""), "abc");
  EXPECT_EQ(PlainEtag("W/\"abc\""), "abc");
  EXPECT_EQ(PlainEtag("\""), "\"");
  EXPECT_EQ(StrongEtag({.headers = {{"etag", "\"abc\""}}}), "\"abc\"");
  EXPECT_EQ(StrongEtag({.headers = {{"etag", "W/\"abc\""}}}), "");
  EXPECT_EQ(StrongEtag({.headers = {{"etag", "\"a\x01\""}}}), "");
  EXPECT_EQ(StrongEtag({}), "");
  EXPECT_TRUE(IsBlobName(kSha));
  for (const std::string name : {"", "..", "a/b", "../../../../../../x", "0123456789abcdef.part"}) {
    EXPECT_FALSE(IsBlobName(name)) << name;
  }
}

TEST(HubReplyTest, ContentRanges) {
  const auto range = ParseContentRange("bytes 10-19/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->range, (ByteRange{10, 20}));
  EXPECT_EQ(range->whole, 100);
  for (const char* text :
       {"", "bytes", "bytes 0-9", "bytes 9-0/10", "bytes 0-10/10", "bytes 0-9/*", "bytes */10",
        "bytes 0/10-9", "bytes -1-9/10", "items 0-9/10", "bytes 0-9/18446744073709551616",
        "bytes 0-9223372036854775808/9223372036854775809", "bytes 0x0-9/10"}) {
    EXPECT_FALSE(ParseContentRange(text)) << text;
  }
}

TEST(HubReplyTest, Sizes) {
  EXPECT_EQ(ParseSize("9223372036854775807"), 9223372036854775807U);
  for (const char* text : {"", "-1", "+1", "1 ", " 1", "9223372036854775808", "1e3", "0x1"}) {
    EXPECT_FALSE(ParseSize(text)) << text;
  }
}

}  // namespace
}  // namespace moestro
