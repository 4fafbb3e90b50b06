// SPDX-License-Identifier: MIT
#include "serve/request_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <set>
#include <string>

#include "base/json.h"

namespace moestro {
namespace {

TEST(RequestId, APrintableOneStays) {
  const std::string longest(128, '~');
  for (const std::string& id : {std::string("a"), std::string("a \"b\" \\ {}"), longest}) {
    EXPECT_EQ(RequestId(id), id);
  }
}

TEST(RequestId, OthersAreReplacedEachByAnother) {
  std::set<std::string> ids;
  for (const std::string& asked :
       {std::string(), std::string(129, 'a'), std::string("a\r\nX-Admin: 1"), std::string("a\tb"),
        std::string("caf\xc3\xa9"), std::string("a\x7f"), std::string(1, '\0')}) {
    const std::string id = RequestId(asked);
    EXPECT_TRUE(id.starts_with("req_")) << id;
    EXPECT_EQ(id.size(), 20U);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 7U);
}

TEST(LogLine, HasTheFiguresAndNoPath) {
  const RequestRecord record{.id = "quote \" and \\",
                             .path = "/secret words",
                             .route = "/chat/completions",
                             .key = 2,
                             .status = 200,
                             .seconds = 1.5,
                             .finish = "length",
                             .prompt_tokens = 11,
                             .cached_tokens = 7,
                             .completion_tokens = 5,
                             .queue_seconds = 0.25,
                             .prompt_seconds = 0.5,
                             .completion_seconds = 0.125};
  EXPECT_EQ(LogLineOf(record, 1700000000.125, 0),
            R"({"time":1700000000.125,"id":"quote \" and \\","key":"key 2",)"
            R"("route":"/chat/completions","status":200,"total_ms":1500.0,"prompt_tokens":11,)"
            R"("cached_tokens":7,"completion_tokens":5,"queue_ms":250.0,"prefill_ms":500.0,)"
            R"("decode_ms":125.0,"finish":"length"})");
  EXPECT_EQ(
      LogLineOf({.id = "a", .route = "/health", .status = 503}, 1.0, 3),
      R"({"time":1.0,"id":"a","route":"/health","status":503,"total_ms":0.0,"lines_lost":3})");
}

const RequestRecord kRecord{.id = "a", .route = "/health", .status = 200};

// A reader stands still; when it goes on, the next line counts the lost ones.
TEST(RequestLines, AFullPipeHoldsUpNobody) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  RequestLines log(ends[1]);
  for (int i = 0; i < 10000; ++i) log.Write(kRecord);
  std::string all(1U << 20U, '\0');
  const ssize_t n = read(ends[0], all.data(), all.size());
  ASSERT_GT(n, 0);
  log.Write(kRecord);
  std::array<char, 4096> last{};
  const ssize_t size = read(ends[0], last.data(), last.size());
  ASSERT_GT(size, 0);
  const Result<Json> line = Json::Parse({last.data(), static_cast<size_t>(size)});
  ASSERT_TRUE(line);
  EXPECT_GT(line->Find("lines_lost")->integer().value_or(0), 1000);
  close(ends[0]);
  close(ends[1]);
}

TEST(RequestLines, AClosedPipeAndAFullDiskEndNothing) {
  signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  RequestLines closed(ends[1]);
  closed.Write(kRecord);
  close(ends[1]);
  closed.Write(kRecord);
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  RequestLines log(full);
  log.Write(kRecord);
  close(full);
}

}  // namespace
}  // namespace moestro
