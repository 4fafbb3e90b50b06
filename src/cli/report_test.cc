// SPDX-License-Identifier: MIT
#include "cli/report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/number.h"

namespace moestro {
namespace {

class OutputTest : public testing::Test {
 protected:
  OutputTest() { signal(SIGPIPE, SIG_IGN); }
};

TEST_F(OutputTest, WritesEverything) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  Output output(ends[1]);
  EXPECT_TRUE(output.Write("hello"));
  EXPECT_TRUE(output.Write(""));
  std::array<char, 16> buffer{};
  EXPECT_EQ(read(ends[0], buffer.data(), buffer.size()), 5);
  EXPECT_EQ(std::string(buffer.data(), 5), "hello");
  EXPECT_FALSE(output.closed());
  close(ends[0]);
  close(ends[1]);
}

TEST_F(OutputTest, AReaderThatHasGoneIsNoError) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  Output output(ends[1]);
  EXPECT_TRUE(output.Write("hello"));
  EXPECT_TRUE(output.closed());
  EXPECT_TRUE(output.Write("more"));
  close(ends[1]);
}

TEST_F(OutputTest, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  Output output(full);
  const auto status = output.Write("hello");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kIo);
  EXPECT_FALSE(output.closed());
  close(full);
}

RunReport Example() {
  RunReport report;
  report.stats.prefill = {
      {.requests = 600, .hits = 100, .misses = 500, .bytes_read = 8 * kGiB}, 128, 8.0};
  report.stats.decode = {{.requests = 400,
                          .hits = 300,
                          .misses = 100,
                          .late = 12,
                          .row_requests = 1000,
                          .row_hits = 900,
                          .prefetches = 40,
                          .used_prefetches = 30,
                          .dropped_prefetches = 6,
                          .needed_bytes = 3 * kGiB,
                          .bytes_read = 3 * kGiB + 500 * kMiB},  // some for nothing
                         10,
                         2.0,
                         0.5};
  report.predictions = {
      {.asked = 80, .predicted = 80, .right = 60, .absent = 50, .absent_right = 30}};
  for (int i = 0; i < 10; ++i) report.stats.decode_ms.Add(200);
  report.probes = {.disk_bandwidth = {.best = 2.0 * static_cast<double>(kGiB),
                                      .least = 1.0 * static_cast<double>(kGiB)},
                   .compute_seconds_per_token = 0.1};
  report.memory.budget = 4 * kGiB;
  report.policy = {.name = "lfru", .parameters = {{"half_life", 8.0}}};
  report.io_depth = 8;
  report.peak_rss = 3 * kGiB;
  return report;
}

// Ten tokens of two rows each, five steps, 4 layers.
TEST(Report, TheSerialPartIsOfALayerAndOfAToken) {
  RunReport report = Example();
  report.stats.decode.serial_seconds = 0.0016;
  report.stats.decode.serial_steps = 4;  // the first one built its graphs
  report.stats.decode.touched_bytes = 5'000'000'000;
  report.probes.rows_per_step = 2;
  report.n_layer = 4;
  Json object = Json::Object();
  AddReport(object, report);
  EXPECT_DOUBLE_EQ(object.Find("serial_seconds_per_layer")->number().value_or(0), 1e-4);
  // 1e9 bytes take 5 ms at 200 GB/s, 2.5 at 400; the serial part 0.4.
  EXPECT_DOUBLE_EQ(object.Find("serial_share_16_cores")->number().value_or(0), 0.4 / 5.4);
  EXPECT_DOUBLE_EQ(object.Find("serial_share_64_cores")->number().value_or(0), 0.4 / 2.9);
  EXPECT_NE(SummaryText(report).find("serial   100.0 us of a layer's decode by one thread; that "
                                     "would be 7 % of a token with 16 cores at 200 GB/s, 14 % of "
                                     "a token with 64 cores at 400 GB/s\n"),
            std::string::npos);
  report.stats.decode.tokens = 0;
  EXPECT_FALSE(SerialShareOf(report));
  report = Example();  // an engine that does not know it
  EXPECT_FALSE(SerialShareOf(report));
  EXPECT_EQ(SummaryText(report).find("serial"), std::string::npos);
}

TEST(Report, JsonHasTheNamesThatScriptsReadAndTheirValues) {
  Json object = Json::Object();
  AddReport(object, Example());
  const auto number = [&](const char* key) {
    const auto value = object.Find(key);
    EXPECT_TRUE(value) << key;
    return value ? value->number().value_or(-1.0) : -1.0;
  };
  EXPECT_EQ(number("ram_budget"), static_cast<double>(4 * kGiB));
  EXPECT_EQ(number("peak_rss"), static_cast<double>(3 * kGiB));
  EXPECT_EQ(number("prefill_tokens"), 128.0);
  EXPECT_EQ(number("prefill_tps"), 16.0);
  EXPECT_EQ(number("prefill_disk_bound_seconds"), 4.0);
  EXPECT_EQ(number("decode_tokens"), 10.0);
  EXPECT_EQ(number("decode_tps"), 5.0);
  EXPECT_EQ(number("decode_ms_p10"), 200.0);
  EXPECT_EQ(number("decode_ms_p50"), 200.0);
  EXPECT_EQ(number("decode_ms_p95"), 200.0);
  EXPECT_EQ(number("expert_uses"), 400.0);
  EXPECT_EQ(number("hit_rate"), 0.75);
  EXPECT_EQ(number("row_uses"), 1000.0);
  EXPECT_EQ(number("row_hit_rate"), 0.9);
  EXPECT_EQ(number("bytes_per_row"), static_cast<double>(3 * kGiB + 500 * kMiB) / 10.0);
  EXPECT_EQ(number("disk_bytes_decode"), static_cast<double>(3 * kGiB + 500 * kMiB));
  EXPECT_EQ(number("needed_bytes_decode"), static_cast<double>(3 * kGiB));
  EXPECT_EQ(number("late"), 12.0);
  EXPECT_EQ(number("prefetches"), 40.0);
  EXPECT_EQ(number("used_prefetches"), 30.0);
  EXPECT_EQ(number("dropped_prefetches"), 6.0);
  const auto predictions = object.Find("predictions");
  ASSERT_TRUE(predictions);
  ASSERT_EQ(predictions->size(), 1U);
  EXPECT_EQ(predictions->At(0)->Find("recall")->number(), 0.75);
  EXPECT_EQ(predictions->At(0)->Find("absent_precision")->number(), 0.6);
  EXPECT_EQ(number("io_depth"), 8.0);
  EXPECT_EQ(number("disk_bandwidth_probe"), static_cast<double>(2 * kGiB));
  EXPECT_EQ(number("disk_bandwidth_probe_least"), static_cast<double>(kGiB));
  EXPECT_DOUBLE_EQ(number("bound_tps"), 10.0 / 1.5);
  EXPECT_DOUBLE_EQ(number("percent_of_bound"), 75.0);
}

template <Counted T>
void ExpectAll(const Json& object, const T& counts, std::string_view CounterText::* name) {
  ForEachCounter(counts, name, [&](const std::string& key, const CounterText&, auto number) {
    const auto value = object.Find(key);
    ASSERT_TRUE(value) << key;
    EXPECT_EQ(value->number(), static_cast<double>(number)) << key;
  });
}

TEST(Report, JsonHasEveryCounterThatNamesAKey) {
  RunReport report = Example();
  report.stats.decode.losses = {.missing = 1, .low = 2, .skipped = 3, .dropped = 4, .upgrades = 5};
  report.stats.little = {.tokens = 6, .again = 2, .steps = 3, .little_seconds = 1.5};
  report.stats.drafts = {.rounds = 2, .proposed = 9, .accepted = 4};
  Json object = Json::Object();
  AddReport(object, report);
  ExpectAll(object, report.stats.decode, &CounterText::json);
  ExpectAll(object, report.stats.prefill, &CounterText::prefill);
  ExpectAll(object, report.stats.little, &CounterText::json);
  ExpectAll(object, report.stats.drafts, &CounterText::json);
}

TEST(Report, SummarySaysWhatMattersInAFewLines) {
  const std::string text = SummaryText(Example());
  for (const char* part : {"16.0 tok/s", "5.0 tok/s", "75.0 % hits", "11.5 GiB read",
                           "40 experts ahead of need, 30 of them needed, 6 given up; 12 came late",
                           "1 ahead: 75.0 % recall, 75.0 % precision, 60.0 % of absent experts",
                           "set by the disk; 75.0 % reached", "3.0 GiB peak of a budget of 4.0 GiB",
                           "lfru:half_life=8"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(std::ranges::count(text, '\n'), 8);
}

TEST(Report, LimitStandsBesideTheBound) {
  RunReport report = Example();
  Json without = Json::Object();
  AddReport(without, report);
  EXPECT_FALSE(without.Find("limit_tps"));
  EXPECT_FALSE(without.Find("limit_not_given"));

  report.limit = Limit{.touched_bytes = 10 * kGiB,
                       .fewest_bytes = 1 * kGiB,
                       .memory_bandwidth = {.best = 10.0 * static_cast<double>(kGiB),
                                            .least = 4.0 * static_cast<double>(kGiB)},
                       .disk_bandwidth = {.best = 2.0 * static_cast<double>(kGiB)}};
  Json object = Json::Object();
  AddReport(object, report);
  EXPECT_EQ(object.Find("limit_tps")->number(), 10.0);
  EXPECT_EQ(object.Find("percent_of_limit")->number(), 50.0);
  EXPECT_EQ(object.Find("touched_bytes_decode")->number(), static_cast<double>(10 * kGiB));
  EXPECT_EQ(object.Find("fewest_bytes_decode")->number(), static_cast<double>(kGiB));
  EXPECT_EQ(object.Find("memory_bandwidth_probe")->number(), static_cast<double>(10 * kGiB));
  EXPECT_EQ(object.Find("memory_bandwidth_probe_least")->number(), static_cast<double>(4 * kGiB));
  const std::string given = SummaryText(report);
  EXPECT_NE(given.find("limit    10.0 tok/s in decode, set by the memory; 50.0 % reached\n"),
            std::string::npos)
      << given;

  report.limit = Fail(Errc::kUnsupported, "a device computes, too");
  Json missing = Json::Object();
  AddReport(missing, report);
  EXPECT_EQ(missing.Find("limit_not_given")->text(), "a device computes, too");
  EXPECT_FALSE(missing.Find("percent_of_limit"));
  EXPECT_NE(SummaryText(report).find("limit    not given: a device computes, too\n"),
            std::string::npos);
}

TEST(Report, SummaryOfSeveralRowsSaysWhatTheyShared) {
  RunReport report = Example();
  EXPECT_EQ(SummaryText(report).find("rows "), std::string::npos);
  report.probes.rows_per_step = 5;
  const std::string text = SummaryText(report);
  EXPECT_NE(
      text.find("rows     5 in a step, 2.50 to an expert; 90.0 % of their uses hit, 357.2 MiB "
                "read for each\n"),
      std::string::npos)
      << text;
}

TEST(PrintError, UsageIsTwoAnythingElseOne) {
  EXPECT_EQ(ExitCode({}), 0);
  EXPECT_EQ(ExitCode(Fail(Errc::kUsage, "u")), 2);
  EXPECT_EQ(ExitCode(Fail(Errc::kIo, "i")), 1);
  EXPECT_EQ(ExitCode(Fail(Errc::kInvalidFile, "f")), 1);
}

TEST(DraftFiguresText, BothFiguresAndWhetherTheyWereMeasured) {
  EXPECT_EQ(DraftFiguresText({}), "");
  EXPECT_EQ(
      DraftFiguresText({.plain_seconds = 0.04, .drafted_seconds = 0.0305, .is_measured = true}),
      "drafts   40.0 ms a token without, and 30.5 ms with them\n");
  EXPECT_EQ(DraftFiguresText({.plain_seconds = 0.04, .drafted_seconds = 0.05}),
            "drafts   40.0 ms a token without, and an expected 50.0 ms with them\n");
}

}  // namespace
}  // namespace moestro
