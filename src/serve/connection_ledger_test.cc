// SPDX-License-Identifier: MIT
#include "serve/connection_ledger.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro {
namespace {

using Ids = std::vector<ConnectionLedger::Id>;

constexpr size_t kRate = 16384;

ConnectionLedger::Id ArriveAt(ConnectionLedger& ledger, double now) {
  const auto arrival = ledger.Arrive(now);
  EXPECT_TRUE(arrival);
  return arrival ? arrival->id : 0;
}

TEST(ConnectionLedger, AHeadHasTenSecondsHoweverItTrickles) {
  ConnectionLedger ledger({});
  const auto id = ArriveAt(ledger, 5.0);
  EXPECT_EQ(ledger.TakeLate(15.0), Ids{});
  EXPECT_EQ(ledger.TakeLate(15.1), Ids{id});
  EXPECT_TRUE(ledger.must_go(id));
  EXPECT_EQ(ledger.TakeLate(15.2), Ids{}) << "said once";
}

TEST(ConnectionLedger, BetweenRequestsThereIsMoreTimeUntilAHeadBegins) {
  ConnectionLedger ledger({.idle_seconds = 60.0});
  const auto id = ArriveAt(ledger, 0.0);
  ledger.HeadEnds(id, false, 1.0);
  ledger.BodyEnds(id, 1.0);
  EXPECT_EQ(ledger.TakeLate(1000.0), Ids{}) << "an answer takes as long as it takes";
  ledger.Rests(id, 1000.0);
  EXPECT_EQ(ledger.TakeLate(1060.0), Ids{});
  ledger.HeadBegins(id, 1060.0);
  EXPECT_EQ(ledger.TakeLate(1070.0), Ids{});
  EXPECT_EQ(ledger.TakeLate(1070.1), Ids{id});
}

struct Piece {
  double at;
  size_t bytes;
};

// The time when a body with these pieces is ended; 0: not ended up to a second after the last
// piece.
double EndOf(const std::vector<Piece>& pieces) {
  ConnectionLedger ledger({});
  const auto id = ArriveAt(ledger, 0.0);
  ledger.HeadEnds(id, false, 0.0);
  double now = 0.0;
  for (const Piece& piece : pieces) {
    for (; now < piece.at; now += 0.25) {
      if (!ledger.TakeLate(now).empty()) return now;
    }
    ledger.BodyGrew(id, piece.bytes, piece.at);
  }
  return 0.0;
}

std::vector<Piece> Steady(double bytes_per_second, double seconds) {
  std::vector<Piece> pieces;
  for (int i = 1; i <= static_cast<int>(seconds); ++i) {
    pieces.push_back(
        {.at = static_cast<double>(i), .bytes = static_cast<size_t>(bytes_per_second)});
  }
  return pieces;
}

TEST(ConnectionLedger, ABodyAtTheLowestRatePassesForHours) {
  EXPECT_EQ(EndOf(Steady(kRate, 7200)), 0.0);
  EXPECT_EQ(EndOf(Steady(17 * 1024, 7200)), 0.0);
}

TEST(ConnectionLedger, ASlowLinkMayPauseForSomeSeconds) {
  std::vector<Piece> pieces = Steady(kRate, 60);
  for (size_t i = 20; i < pieces.size(); ++i) pieces[i].at += 9.0;
  EXPECT_EQ(EndOf(pieces), 0.0);
}

TEST(ConnectionLedger, AFastLinkMayPauseForLonger) {
  std::vector<Piece> pieces = Steady(1e6, 60);
  for (size_t i = 20; i < pieces.size(); ++i) pieces[i].at += 28.0;
  EXPECT_EQ(EndOf(pieces), 0.0);
}

// 16 MB sent at once do not buy a quarter of an hour.
TEST(ConnectionLedger, NoBodyStandsStillForLongerThanThePatience) {
  EXPECT_NEAR(EndOf({{.at = 1.0, .bytes = 16'000'000}, {.at = 100.0, .bytes = 1}}), 31.0, 0.5);
}

TEST(ConnectionLedger, ABodyThatTricklesEndsSoon) {
  EXPECT_NEAR(EndOf(Steady(1, 3600)), 10.0, 0.5);
  EXPECT_NEAR(EndOf(Steady(kRate / 2.0, 3600)), 20.0, 1.5);
  EXPECT_NEAR(EndOf(Steady(0, 3600)), 10.0, 0.5);
}

TEST(ConnectionLedger, AReplyThatIsReadTooSlowlyEnds) {
  ConnectionLedger ledger({});
  const auto id = ArriveAt(ledger, 0.0);
  ledger.HeadEnds(id, false, 0.0);
  ledger.BodyEnds(id, 0.0);
  // The deadline limits the client's time, not the server's own hours before.
  ledger.ReplyWaits(id, 7200.0);
  EXPECT_EQ(ledger.TakeLate(7229.0), Ids{});
  ledger.ReplyGoesOn(id, 1, 7229.0);
  EXPECT_EQ(ledger.TakeLate(9000.0), Ids{});
  ledger.ReplyWaits(id, 9000.0);
  EXPECT_EQ(ledger.TakeLate(9001.5), Ids{id}) << "30 s of waiting together";
}

TEST(ConnectionLedger, AReplyThatIsReadAtTheLowestRatePasses) {
  ConnectionLedger ledger({});
  const auto id = ArriveAt(ledger, 0.0);
  ledger.HeadEnds(id, false, 0.0);
  ledger.BodyEnds(id, 0.0);
  for (double now = 0.0; now < 3600.0; now += 20.0) {
    ledger.ReplyWaits(id, now);
    EXPECT_EQ(ledger.TakeLate(now + 19.9), Ids{}) << now;
    ledger.ReplyGoesOn(id, 20 * kRate, now + 20.0);
  }
}

constexpr ConnectionLimits kSmall{.most = 4, .kept = 2};

TEST(ConnectionLedger, WhenAllPlacesAreTakenTheOldestWithoutAHeadGivesWay) {
  ConnectionLedger ledger(kSmall);
  Ids ids;
  for (int i = 0; i < 6; ++i) ids.push_back(ArriveAt(ledger, i));
  EXPECT_TRUE(ledger.HeadEnds(ids[0], false, 6.0).passes);
  for (const size_t expected : {1U, 2U, 3U}) {
    const auto arrival = ledger.Arrive(7.0);
    ASSERT_TRUE(arrival);
    EXPECT_EQ(arrival->leaves, ids[expected]);
    EXPECT_TRUE(ledger.must_go(ids[expected]));
  }
  // An idle connection's age counts from its last reply, not from its beginning.
  ledger.BodyEnds(ids[0], 8.0);
  ledger.Rests(ids[0], 8.0);
  EXPECT_EQ(ledger.Arrive(9.0)->leaves, ids[4]);
}

TEST(ConnectionLedger, WhenAllAreAnsweredANewOneFindsNoPlace) {
  ConnectionLedger ledger({.most = 2, .kept = 0});
  for (int i = 0; i < 2; ++i) {
    const auto id = ArriveAt(ledger, 0.0);
    EXPECT_TRUE(ledger.HeadEnds(id, false, 0.0).passes);
    ledger.BodyEnds(id, 0.0);
  }
  EXPECT_FALSE(ledger.Arrive(100.0));
  EXPECT_EQ(ledger.TakeLate(1e9), Ids{});
}

TEST(ConnectionLedger, TheKeptPlacesAreForTheKeptPaths) {
  ConnectionLedger ledger(kSmall);
  for (int i = 0; i < 4; ++i) {
    const auto id = ArriveAt(ledger, 0.0);
    EXPECT_TRUE(ledger.HeadEnds(id, false, 0.0).passes);
    ledger.BodyEnds(id, 0.0);
  }
  const auto request = ArriveAt(ledger, 1.0);
  EXPECT_FALSE(ledger.HeadEnds(request, false, 1.0).passes);
  const auto health = ArriveAt(ledger, 1.0);
  EXPECT_TRUE(ledger.HeadEnds(health, true, 1.0).passes);
  ledger.Gone(request);
  ledger.Gone(health);
  EXPECT_EQ(ledger.size(), 4U);
}

TEST(ConnectionLedger, WhenThereAreTooManyRequestsTheSlowestBodyGivesWay) {
  ConnectionLedger ledger(kSmall);
  Ids ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(ArriveAt(ledger, 0.0));
    EXPECT_TRUE(ledger.HeadEnds(ids.back(), false, 0.0).passes);
  }
  const auto early = ArriveAt(ledger, 1.0);
  EXPECT_FALSE(ledger.HeadEnds(early, false, 1.0).passes) << "none is known to be slow";
  ledger.Gone(early);
  ledger.BodyEnds(ids[0], 1.0);
  ledger.BodyGrew(ids[1], 1'000'000, 2.0);
  ledger.BodyGrew(ids[2], 34'000, 2.0);
  ledger.BodyGrew(ids[3], 35'000, 2.0);
  const auto next = ArriveAt(ledger, 2.5);
  const auto verdict = ledger.HeadEnds(next, false, 2.5);
  EXPECT_TRUE(verdict.passes);
  EXPECT_EQ(verdict.leaves, ids[2]);
  EXPECT_EQ(ledger.TakeLate(2.6), Ids{}) << "it has been named";
}

TEST(ConnectionLedger, OneThatSendsWhatWasRefusedIsHeardForASecond) {
  ConnectionLedger ledger({});
  const auto id = ArriveAt(ledger, 0.0);
  ledger.HeadEnds(id, false, 0.0);
  ledger.Lingers(id, 1.0);
  EXPECT_EQ(ledger.TakeLate(2.0), Ids{});
  EXPECT_EQ(ledger.TakeLate(2.1), Ids{id});
}

// A client keeps its place until as many other clients have arrived as there are places.
TEST(ConnectionLedger, AGoodClientOutlivesAFloodForAsLongAsItTakesToFillThePlaces) {
  ConnectionLedger ledger({});
  for (int i = 0; i < 300; ++i) ArriveAt(ledger, 0.001 * i);
  const auto good = ArriveAt(ledger, 1.0);
  for (int i = 0; i < 271; ++i) ArriveAt(ledger, 1.001);
  EXPECT_FALSE(ledger.must_go(good));
  ArriveAt(ledger, 1.002);
  EXPECT_TRUE(ledger.must_go(good));
}

}  // namespace
}  // namespace moestro
