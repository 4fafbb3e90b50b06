// SPDX-License-Identifier: MIT
#include "serve/connection_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moestro {
namespace {

// A client that has been waited for so long can be called slow.
constexpr double kKnownAfter = 2.0;

}  // namespace

Pace::Pace(const ConnectionLimits& limits, double start, double now)
    : each_(1.0 / limits.bytes_per_second),
      patience_(limits.patience),
      began_(now),
      deadline_(now + start) {}

void Pace::Moved(size_t bytes, double now) {
  bytes_ += static_cast<double>(bytes);
  deadline_ = std::min(deadline_ + (static_cast<double>(bytes) * each_), now + patience_);
}

void Pace::GoOn(double now) {
  began_ += now - paused_;
  deadline_ += now - paused_;
}

double Pace::bytes_per_second(double now) const {
  return bytes_ / std::max(age(now), std::numeric_limits<double>::min());
}

void ConnectionLedger::Enter(Id id, Stage stage, double now) {
  Entry& entry = entries_.at(id);
  entry.stage = stage;
  entry.since = now;
}

bool ConnectionLedger::LacksHead(const Entry& entry) {
  return entry.stage == Stage::kIdle || entry.stage == Stage::kHead ||
         entry.stage == Stage::kLinger;
}

std::optional<ConnectionLedger::Arrival> ConnectionLedger::Arrive(double now) {
  Arrival arrival{.id = next_};
  const auto stays = [](const auto& entry) { return !entry.second.must_go; };
  if (std::cmp_greater_equal(std::ranges::count_if(entries_, stays), limits_.most + limits_.kept)) {
    Entry* oldest = nullptr;
    for (auto& [id, entry] : entries_) {
      if (entry.must_go || !LacksHead(entry)) continue;
      if (oldest != nullptr && oldest->since <= entry.since) continue;
      oldest = &entry;
      arrival.leaves = id;
    }
    if (oldest == nullptr) return std::nullopt;
    oldest->must_go = true;
  }
  entries_.emplace(next_++, Entry{.since = now});
  return arrival;
}

void ConnectionLedger::HeadBegins(Id id, double now) {
  if (entries_.at(id).stage == Stage::kIdle) Enter(id, Stage::kHead, now);
}

ConnectionLedger::Verdict ConnectionLedger::HeadEnds(Id id, bool is_kept, double now) {
  Enter(id, Stage::kBody, now);
  entries_.at(id).body.emplace(limits_, limits_.start_seconds, now);
  if (is_kept) return {};
  const auto counts = [](const auto& e) { return e.second.counts && !e.second.must_go; };
  Verdict verdict;
  if (std::cmp_greater_equal(std::ranges::count_if(entries_, counts), limits_.most)) {
    verdict.leaves = SlowestRequest(now);
    if (!verdict.leaves) return {.passes = false};
    entries_.at(*verdict.leaves).must_go = true;
  }
  entries_.at(id).counts = true;
  return verdict;
}

std::optional<ConnectionLedger::Id> ConnectionLedger::SlowestRequest(double now) const {
  std::optional<Id> slowest;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [id, entry] : entries_) {
    const bool is_waited_for = entry.stage == Stage::kBody || entry.stage == Stage::kBlockedReply;
    if (entry.must_go || !entry.counts || !is_waited_for) continue;
    const Pace& pace = entry.stage == Stage::kBody ? *entry.body : *entry.reply;
    if (pace.age(now) < kKnownAfter || pace.bytes_per_second(now) >= least) continue;
    least = pace.bytes_per_second(now);
    slowest = id;
  }
  return slowest;
}

void ConnectionLedger::BodyGrew(Id id, size_t bytes, double now) {
  if (auto& body = entries_.at(id).body) body->Moved(bytes, now);
}

void ConnectionLedger::BodyEnds(Id id, double now) { Enter(id, Stage::kAnswer, now); }

void ConnectionLedger::ReplyWaits(Id id, double now) {
  Enter(id, Stage::kBlockedReply, now);
  auto& reply = entries_.at(id).reply;
  if (reply) {
    reply->GoOn(now);
  } else {
    reply.emplace(limits_, limits_.patience, now);
  }
}

void ConnectionLedger::ReplyGoesOn(Id id, size_t bytes, double now) {
  Enter(id, Stage::kAnswer, now);
  auto& reply = entries_.at(id).reply;
  reply->Moved(bytes, now);
  reply->Pause(now);
}

void ConnectionLedger::Rests(Id id, double now) {
  Entry& entry = entries_.at(id);
  entry = {.stage = Stage::kIdle, .since = now, .must_go = entry.must_go};
}

void ConnectionLedger::Lingers(Id id, double now) {
  Rests(id, now);
  Enter(id, Stage::kLinger, now);
}

double ConnectionLedger::DeadlineOf(const Entry& entry) const {
  switch (entry.stage) {
    case Stage::kIdle:
      return entry.since + limits_.idle_seconds;
    case Stage::kHead:
      return entry.since + limits_.head_seconds;
    case Stage::kBody:
      return entry.body->deadline();
    case Stage::kBlockedReply:
      return entry.reply->deadline();
    case Stage::kLinger:
      return entry.since + limits_.linger_seconds;
    case Stage::kAnswer:
      break;
  }
  return std::numeric_limits<double>::infinity();
}

std::vector<ConnectionLedger::Id> ConnectionLedger::TakeLate(double now) {
  std::vector<Id> late;
  for (auto& [id, entry] : entries_) {
    if (entry.must_go || now <= DeadlineOf(entry)) continue;
    late.push_back(id);
    entry.must_go = true;  // set only for connections in the list
  }
  return late;
}

bool ConnectionLedger::must_go(Id id) const { return entries_.at(id).must_go; }

bool ConnectionLedger::is_sending(Id id) const {
  const Stage stage = entries_.at(id).stage;
  return stage == Stage::kHead || stage == Stage::kBody;
}

std::vector<ConnectionLedger::Id> ConnectionLedger::waited_for() const {
  std::vector<Id> ids;
  for (const auto& [id, entry] : entries_) {
    if (entry.stage != Stage::kAnswer) ids.push_back(id);
  }
  return ids;
}

}  // namespace moestro
