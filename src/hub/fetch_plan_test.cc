// SPDX-License-Identifier: MIT
#include "hub/fetch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"

namespace moestro {
namespace {

TEST(RangeSetTest, NeighboursBecomeOne) {
  RangeSet set;
  set.Add({10, 20});
  set.Add({30, 40});
  set.Add({5, 5});
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{10, 20}, {30, 40}}));
  set.Add({20, 30});
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{10, 40}}));
  set.Add({0, 100});
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{0, 100}}));
}

TEST(RangeSetTest, Gaps) {
  RangeSet set;
  EXPECT_EQ(set.FirstGap(0, 100), (ByteRange{0, 100}));
  set.Add({0, 10});
  set.Add({20, 30});
  EXPECT_EQ(set.FirstMissing(), 10);
  EXPECT_EQ(set.FirstMissing(25), 30);
  EXPECT_EQ(set.FirstGap(0, 100), (ByteRange{10, 20}));
  EXPECT_EQ(set.FirstGap(20, 100), (ByteRange{30, 100}));
  EXPECT_EQ(set.FirstGap(0, 10), std::nullopt);
  EXPECT_EQ(set.bytes(), 20);
}

// Against a plain array of bytes.
TEST(RangeSetTest, AgreesWithASetOfBytes) {
  std::minstd_rand random(7);
  for (int round = 0; round < 50; ++round) {
    RangeSet set;
    std::vector<bool> bytes(64);
    for (int i = 0; i < 12; ++i) {
      const uint64_t begin = random() % 60;
      const uint64_t end = begin + random() % (64 - begin);
      set.Add({begin, end});
      for (uint64_t b = begin; b < end; ++b) bytes[b] = true;
      uint64_t sum = 0;
      uint64_t last_end = 0;
      for (const ByteRange& range : set.ranges()) {
        EXPECT_TRUE(last_end == 0 || range.begin > last_end);
        last_end = range.end;
        for (uint64_t b = range.begin; b < range.end; ++b) EXPECT_TRUE(bytes[b]);
        sum += range.size();
      }
      EXPECT_EQ(sum, static_cast<uint64_t>(std::ranges::count(bytes, true)));
      uint64_t missing = begin;
      while (missing < 64 && bytes[missing]) ++missing;
      EXPECT_EQ(set.FirstMissing(begin), missing);
    }
  }
}

FetchState Some() {
  FetchState state{.repo = "o/r",
                   .commit = std::string(40, 'a'),
                   .file = "a/m.gguf",
                   .etag = std::string(64, 'b'),
                   .size = 1000,
                   .content_etag = "\"x\""};
  state.done.Add({0, 10});
  state.done.Add({20, 1000});
  return state;
}

// The text with `from` replaced by `to`.
bool IsTaken(const std::string& from, const std::string& to) {
  std::string text = StateText(Some());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return ParseState(text).has_value();
}

TEST(FetchStateTest, IsReadBack) {
  const auto state = ParseState(StateText(Some()));
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(*state, Some());
}

TEST(FetchStateTest, TheTextIsAsDocumented) {
  EXPECT_EQ(StateText(Some()), R"({"format":1,"repo":"o/r","commit":")" + std::string(40, 'a') +
                                   R"(","file":"a/m.gguf","etag":")" + std::string(64, 'b') +
                                   R"(","size":1000,"content_etag":"\"x\"",)" +
                                   R"("done":[[0,10],[20,1000]]})" + "\n");
}

TEST(FetchStateTest, DamagedTextsAreRefused) {
  EXPECT_TRUE(IsTaken("1000,", "1000,"));
  EXPECT_FALSE(IsTaken("\"format\":1", "\"format\":2"));
  EXPECT_FALSE(IsTaken("\"size\":1000", "\"size\":999"));
  EXPECT_FALSE(IsTaken("\"size\":1000", "\"size\":-1"));
  EXPECT_FALSE(IsTaken("\"size\":1000", "\"size\":9223372036854775808"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[20,1001]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[5,1000]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[20,20]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[1000,20]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "7"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[-1,7]"));
  EXPECT_FALSE(IsTaken("a/m.gguf", "../m.gguf"));
  EXPECT_FALSE(IsTaken("o/r", "o"));
  EXPECT_FALSE(ParseState(""));
  EXPECT_FALSE(ParseState(std::string(100'000, '[')));
  EXPECT_FALSE(ParseState(std::string(kMostStateBytes + 1, ' ')));
  for (size_t n = 0; n < StateText(Some()).size() - 2; ++n) {
    EXPECT_FALSE(ParseState(StateText(Some()).substr(0, n))) << n;
  }
}

// It would go into a header.
TEST(FetchStateTest, AContentEtagThatIsNoneIsForgotten) {
  FetchState state = Some();
  state.content_etag = "\"x\"\r\nX-Evil: 1\"";
  EXPECT_EQ(ParseState(StateText(state))->content_etag, "");
}

TEST(FetchStateTest, AnotherContentIsNotGoneOnWith) {
  FetchState other = Some();
  other.commit = std::string(40, 'c');  // the same content in a newer commit
  EXPECT_TRUE(MayGoOn(Some(), other));
  other.size = 999;
  EXPECT_FALSE(MayGoOn(Some(), other));
  other = Some();
  other.etag = std::string(64, 'c');
  EXPECT_FALSE(MayGoOn(Some(), other));
}

WebHead Part(uint64_t begin, uint64_t end, uint64_t whole, const std::string& etag = "\"e\"") {
  return {.status = 206,
          .headers = {{"content-range", Format("bytes {}-{}/{}", begin, end - 1, whole)},
                      {"etag", etag}}};
}

WebHead Whole(const std::string& length, const std::string& etag = "\"e\"") {
  return {.status = 200, .headers = {{"content-length", length}, {"etag", etag}}};
}

FetchPlan Plan(uint64_t size, RangeSet done = {}, std::string etag = {}) {
  return {size, std::move(done), std::move(etag), {.range_bytes = 10, .most_requests = 3}};
}

// Takes all bytes of a request.
void Complete(FetchPlan& plan, const FetchPlan::Request& request, uint64_t size) {
  ASSERT_EQ(plan.OnHead(request.number, Part(request.range.begin, request.range.end, size)),
            HeadVerdict::kTake);
  plan.Arrived(request.number, request.range.size());
  plan.Ended(request.number);
}

TEST(FetchPlanTest, TheFirstRequestGoesAlone) {
  FetchPlan plan = Plan(35);
  const auto first = plan.Next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->range, (ByteRange{0, 10}));
  EXPECT_EQ(first->if_range, "");
  EXPECT_FALSE(plan.Next());
  EXPECT_EQ(plan.OnHead(first->number, Part(0, 10, 35)), HeadVerdict::kTake);
  const auto second = plan.Next();
  const auto third = plan.Next();
  ASSERT_TRUE(second && third);
  EXPECT_EQ(second->range, (ByteRange{10, 20}));
  EXPECT_EQ(second->if_range, "\"e\"");
  EXPECT_EQ(third->range, (ByteRange{20, 30}));
  EXPECT_FALSE(plan.Next()) << "three at once";
}

TEST(FetchPlanTest, ACutRequestIsAskedForAgainFromWhereItBroke) {
  FetchPlan plan = Plan(35);
  const auto first = *plan.Next();
  plan.OnHead(first.number, Part(0, 10, 35));
  const auto second = *plan.Next();
  plan.Arrived(first.number, 4);
  plan.Ended(first.number);
  EXPECT_EQ(plan.Next()->range, (ByteRange{4, 10}));
  EXPECT_EQ(plan.position(second.number), 10);
}

TEST(FetchPlanTest, GoesOnInGaps) {
  RangeSet done;
  done.Add({0, 5});
  done.Add({8, 30});
  FetchPlan plan = Plan(35, done, "\"e\"");
  const auto first = *plan.Next();
  EXPECT_EQ(first.range, (ByteRange{5, 8}));
  EXPECT_EQ(first.if_range, "\"e\"");
  Complete(plan, first, 35);
  const auto second = *plan.Next();
  EXPECT_EQ(second.range, (ByteRange{30, 35}));
  EXPECT_FALSE(plan.is_complete());
  Complete(plan, second, 35);
  EXPECT_TRUE(plan.is_complete());
  EXPECT_FALSE(plan.Next());
}

// If-Range did not hold: what is there belongs to another content.
TEST(FetchPlanTest, AWholeFileInsteadOfAPartStartsAgain) {
  RangeSet done;
  done.Add({0, 5});
  FetchPlan plan = Plan(35, done, "\"old\"");
  const auto first = *plan.Next();
  EXPECT_EQ(plan.OnHead(first.number, Whole("35", "\"new\"")), HeadVerdict::kStartAgain);
  EXPECT_TRUE(plan.done().ranges().empty());
  const auto again = *plan.Next();
  EXPECT_EQ(again.range, (ByteRange{0, 10}));
  EXPECT_EQ(again.if_range, "");
}

TEST(FetchPlanTest, AnotherContentInAPartStartsAgain) {
  RangeSet done;
  done.Add({0, 5});
  FetchPlan plan = Plan(35, done, "\"old\"");
  EXPECT_EQ(plan.OnHead(plan.Next()->number, Part(5, 15, 35, "\"new\"")), HeadVerdict::kStartAgain);
}

TEST(FetchPlanTest, AServerWithoutPartsGivesTheWholeFile) {
  FetchPlan plan = Plan(35);
  const auto first = *plan.Next();
  EXPECT_EQ(plan.OnHead(first.number, Whole("35")), HeadVerdict::kTakeWhole);
  EXPECT_FALSE(plan.Next());
  EXPECT_EQ(plan.room(first.number), 35);
  plan.Arrived(first.number, 35);
  plan.Ended(first.number);
  EXPECT_TRUE(plan.is_complete());
}

TEST(FetchPlanTest, StartingAgainHasAnEnd) {
  FetchPlan plan = Plan(35);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(plan.has_failed());
    const auto first = *plan.Next();
    plan.OnHead(first.number, Part(0, 10, 35, "\"a\""));
    plan.Arrived(first.number, 10);
    EXPECT_EQ(plan.OnHead(plan.Next()->number, Whole("35")), HeadVerdict::kStartAgain);
  }
  EXPECT_TRUE(plan.has_failed());
}

TEST(FetchPlanTest, HeadsThatDoNotFit) {
  const auto verdict = [](const WebHead& head) {
    FetchPlan plan = Plan(35);
    return plan.OnHead(plan.Next()->number, head);
  };
  EXPECT_EQ(verdict(Part(0, 10, 36)), HeadVerdict::kOtherSize);
  EXPECT_EQ(verdict(Whole("36")), HeadVerdict::kOtherSize);
  EXPECT_EQ(verdict({.status = 416}), HeadVerdict::kOtherSize);
  EXPECT_EQ(verdict(Part(1, 10, 35)), HeadVerdict::kTryAgain);
  EXPECT_EQ(verdict(Part(0, 11, 35)), HeadVerdict::kTryAgain);
  EXPECT_EQ(verdict({.status = 206}), HeadVerdict::kTryAgain);
  for (const int status : {400, 401, 403, 404, 410, 302}) {
    EXPECT_EQ(verdict({.status = status}), HeadVerdict::kResolveAgain) << status;
  }
  for (const int status : {429, 500, 503}) {
    EXPECT_EQ(verdict({.status = status}), HeadVerdict::kTryAgain) << status;
  }
  EXPECT_EQ(verdict({.status = 405}), HeadVerdict::kRefused);
}

TEST(FetchPlanTest, ALongerReplyHasNoRoom) {
  FetchPlan plan = Plan(35);
  const auto first = *plan.Next();
  EXPECT_EQ(plan.room(first.number), 0) << "no head let it in";
  plan.OnHead(first.number, Part(0, 10, 35));
  plan.Arrived(first.number, 8);
  EXPECT_EQ(plan.room(first.number), 2);
}

// A weak name says nothing of single bytes.
TEST(FetchPlanTest, AWeakEtagIsNotSentBack) {
  FetchPlan plan = Plan(35);
  plan.OnHead(plan.Next()->number, Part(0, 10, 35, "W/\"e\""));
  EXPECT_EQ(plan.Next()->if_range, "");
}

TEST(FetchPlanTest, AnEmptyFileIsThere) {
  FetchPlan plan = Plan(0);
  EXPECT_TRUE(plan.is_complete());
  EXPECT_FALSE(plan.Next());
}

}  // namespace
}  // namespace moestro
