// SPDX-License-Identifier: MIT
#include "memory/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moestro {

SequenceId SequenceTable::New() {
  const SequenceId id{next_id_++};
  timelines_.try_emplace(id);
  return id;
}

SequenceId SequenceTable::Fork(SequenceId id) {
  const Timeline& from = timelines_.at(id);
  CHECK(!from.next);
  Timeline copy{.cells = blocks_.Fork(from.cells),
                .recent = recent_.Fork(from.recent),
                .tokens = from.tokens,
                .state = from.state,
                .last_step = from.last_step,
                .checkpoints = from.checkpoints};
  if (copy.state) states_.Share(copy.state->state);
  if (copy.last_step) states_.Share(copy.last_step->state);
  for (const Checkpoint& checkpoint : copy.checkpoints) states_.Share(checkpoint.state);
  const SequenceId fork = New();
  timelines_.at(fork) = std::move(copy);
  return fork;
}

void SequenceTable::Drop(SequenceId id) {
  Timeline& timeline = timelines_.at(id);
  if (timeline.next) states_.GiveBack(*std::exchange(timeline.next, std::nullopt));
  CutBack(id, 0);
  recent_.Drop(timeline.recent);
  timelines_.erase(id);
}

const Timeline* SequenceTable::Find(SequenceId id) const {
  const auto found = timelines_.find(id);
  return found == timelines_.end() ? nullptr : &found->second;
}

std::vector<SequenceId> SequenceTable::ids() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, timeline] : timelines_) ids.push_back(id);
  return ids;
}

uint32_t SequenceTable::available_states() const {
  std::vector<uint8_t> is_held(states_.size(), 0);
  for (const auto& [id, timeline] : timelines_) {
    if (timeline.state) is_held[timeline.state->state.value] = 1;
    if (timeline.next) is_held[timeline.next->value] = 1;
  }
  return static_cast<uint32_t>(std::ranges::count(is_held, 0));
}

uint32_t SequenceTable::available_windows() const {
  const auto held = static_cast<uint32_t>(std::ranges::count_if(
      timelines_, [](const auto& t) { return t.second.recent.now.length() > 0; }));
  return recent_.room().places - std::min(held, recent_.room().places);
}

std::optional<uint32_t> SequenceTable::available_places() const {
  std::optional<uint32_t> places;
  if (has_states()) places = available_states();
  if (recent_.is_used()) places = std::min(places.value_or(UINT32_MAX), available_windows());
  return places;
}

std::vector<RecentTimeline*> SequenceTable::Recents() {
  std::vector<RecentTimeline*> all;
  for (auto& [id, timeline] : timelines_) all.push_back(&timeline.recent);
  return all;
}

bool SequenceTable::any_lives() const {
  return std::ranges::any_of(timelines_, [](const auto& t) { return !t.second.tokens.empty(); });
}

void SequenceTable::LetGo(std::optional<Checkpoint>& checkpoint) {
  if (checkpoint) states_.GiveBack(checkpoint->state);
  checkpoint.reset();
}

// Checkpoints of the sequence that was made first go first, then what others could go back to.
std::optional<StateSlot> SequenceTable::TakeState() {
  for (auto& [id, timeline] : timelines_) {
    while (states_.free() == 0 && !timeline.checkpoints.empty()) {
      states_.GiveBack(timeline.checkpoints.front().state);
      timeline.checkpoints.erase(timeline.checkpoints.begin());
    }
  }
  for (auto& [id, timeline] : timelines_) {
    if (states_.free() == 0 && timeline.last_step) LetGo(timeline.last_step);
  }
  return states_.Take();
}

Status SequenceTable::Append(SequenceId id, std::span<const Token> tokens) {
  Timeline& timeline = timelines_.at(id);
  if (has_states() && !timeline.next) {
    LetGo(timeline.last_step);
    timeline.next = TakeState();
    if (!timeline.next) {
      return Fail(Errc::kInvalidRequest,
                  "the states of {} sequences take all {} places; end one, or allow for more",
                  timelines_.size(), states_.size());
    }
  }
  const Status extended = blocks_.Extend(timeline.cells, static_cast<uint32_t>(tokens.size()));
  if (!extended) {
    const bool is_first = timeline.tokens.size() == timeline.committed();
    if (timeline.next && is_first) states_.GiveBack(*std::exchange(timeline.next, std::nullopt));
    return extended;
  }
  timeline.tokens.insert(timeline.tokens.end(), tokens.begin(), tokens.end());
  return {};
}

Status SequenceTable::Advance(SequenceId id, uint32_t length) {
  if (!recent_.is_used()) return {};
  return recent_.Advance(timelines_.at(id).recent, length, Recents());
}

void SequenceTable::TrimWindow(SequenceId id) {
  if (recent_.is_used()) recent_.Trim(timelines_.at(id).recent);
}

Status SequenceTable::FillWindow(SequenceId id) {
  if (!recent_.is_used()) return {};
  Timeline& timeline = timelines_.at(id);
  return recent_.Fill(timeline.recent, static_cast<uint32_t>(timeline.tokens.size()), Recents());
}

void SequenceTable::Commit(SequenceId id) {
  Timeline& timeline = timelines_.at(id);
  if (recent_.is_used()) {
    recent_.Commit(timeline.recent, static_cast<uint32_t>(timeline.tokens.size()));
  }
  if (!timeline.next) return;
  timeline.last_step = timeline.state;
  timeline.state = {.position = static_cast<uint32_t>(timeline.tokens.size()),
                    .state = *std::exchange(timeline.next, std::nullopt)};
}

uint32_t SequenceTable::Reach(SequenceId id, uint32_t position) const {
  const Timeline& timeline = timelines_.at(id);
  for (;;) {
    const uint32_t by_state = StateReach(timeline, position);
    const uint32_t both = recent_.is_used() ? recent_.Reach(timeline.recent, by_state) : by_state;
    if (both == by_state) return both;
    position = both;
  }
}

uint32_t SequenceTable::StateReach(const Timeline& timeline, uint32_t position) const {
  if (!has_states()) return position;
  uint32_t reached = 0;
  const auto look = [&](const Checkpoint& at) {
    if (at.position <= position) reached = std::max(reached, at.position);
  };
  for (const auto* at : {&timeline.state, &timeline.last_step}) {
    if (*at) look(**at);
  }
  std::ranges::for_each(timeline.checkpoints, look);
  return reached;
}

// The state after `position` tokens becomes the sequence's; what comes later goes.
void SequenceTable::CutBackState(Timeline& timeline, uint32_t position) {
  if (position == timeline.committed()) return;
  std::optional<Checkpoint> found;
  if (timeline.last_step && timeline.last_step->position == position) found = timeline.last_step;
  for (const Checkpoint& checkpoint : timeline.checkpoints) {
    if (checkpoint.position == position) found = checkpoint;
  }
  CHECK(found || position == 0);
  if (found) states_.Share(found->state);
  LetGo(timeline.state);
  timeline.state = found;
  if (timeline.last_step && timeline.last_step->position >= position) LetGo(timeline.last_step);
  std::erase_if(timeline.checkpoints, [&](const Checkpoint& checkpoint) {
    if (checkpoint.position <= position) return false;
    states_.GiveBack(checkpoint.state);
    return true;
  });
}

void SequenceTable::CutBack(SequenceId id, uint32_t position) {
  Timeline& timeline = timelines_.at(id);
  CHECK(position <= timeline.tokens.size());
  if (timeline.next && position <= timeline.committed()) {
    states_.GiveBack(*std::exchange(timeline.next, std::nullopt));
  }
  if (has_states() && !timeline.next) CutBackState(timeline, position);
  if (recent_.is_used()) recent_.CutBack(timeline.recent, position);
  blocks_.CutBack(timeline.cells, position);
  timeline.tokens.resize(position);
}

void SequenceTable::Keep(SequenceId id) {
  Timeline& timeline = timelines_.at(id);
  CHECK(!timeline.next);
  if (recent_.is_used()) recent_.Keep(timeline.recent);
  if (!timeline.state) return;
  const bool is_kept = !timeline.checkpoints.empty() &&
                       timeline.checkpoints.back().position == timeline.state->position;
  if (is_kept) return;
  states_.Share(timeline.state->state);
  timeline.checkpoints.push_back(*timeline.state);
}

void SequenceTable::LoseStates() {
  for (auto& [id, timeline] : timelines_) {
    recent_.Drop(timeline.recent);
    if (timeline.next) states_.GiveBack(*std::exchange(timeline.next, std::nullopt));
    LetGo(timeline.state);
    LetGo(timeline.last_step);
    for (const Checkpoint& checkpoint : timeline.checkpoints) states_.GiveBack(checkpoint.state);
    timeline.checkpoints.clear();
  }
}

}  // namespace moestro
