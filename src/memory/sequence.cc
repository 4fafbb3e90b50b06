// SPDX-License-Identifier: MIT
#include "memory/sequence.h"

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <utility>

#include "base/result.h"
#include "core/model_spec.h"
#include "memory/memory_use.h"

namespace moestro {

Status StepSequences::Append(const Batch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchRow& row = batch.rows[i];
    const Status appended = Append(row.sequence, {&row.token, 1});
    if (appended && row.is_kept) KeepInStep(row.sequence);
    if (appended) continue;
    Undo({.rows = {batch.rows.begin(), batch.rows.begin() + static_cast<std::ptrdiff_t>(i)}});
    return appended;
  }
  return {};
}

void StepSequences::Commit(const Batch& batch) {
  for (const BatchRow& row : batch.rows) Commit(row.sequence);
}

void StepSequences::Undo(const Batch& batch) {
  for (const BatchRow& row : std::views::reverse(batch.rows)) Undo(row.sequence, row.position);
}

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
                .checkpoints = from.checkpoints,
                .used = ++uses_};
  if (copy.state) states_.Share(copy.state->state);
  if (copy.last_step) states_.Share(copy.last_step->state);
  for (const Checkpoint& checkpoint : copy.checkpoints) states_.Share(checkpoint.state);
  const SequenceId fork = New();
  timelines_.at(fork) = std::move(copy);
  return fork;
}

void SequenceTable::Drop(SequenceId id) {
  Timeline& timeline = timelines_.at(id);
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
    if (timeline.state && !timeline.is_resting) is_held[timeline.state->state.value] = 1;
    if (timeline.next) is_held[timeline.next->value] = 1;
    for (const Checkpoint& passed : timeline.passed) is_held[passed.state.value] = 1;
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

Engine::KvRoom SequenceTable::room() const {
  return {.free = blocks_.free_blocks() * KvBlocks::kPositions,
          .all = blocks_.blocks() * KvBlocks::kPositions,
          .places = available_places().value_or(Engine::KvRoom::kAnyNumber),
          .rests_hold_places = rests_hold_places()};
}

bool SequenceTable::any_lives() const {
  return std::ranges::any_of(timelines_, [](const auto& t) { return !t.second.tokens.empty(); });
}

void SequenceTable::LetGo(std::optional<Checkpoint>& checkpoint) {
  if (checkpoint) states_.GiveBack(checkpoint->state);
  checkpoint.reset();
}

// A place for a state. States before other sequences' last steps give up their places first, since
// a draft or a probe goes back to such a state at once or never; then checkpoints worth less than
// `most_worth`.
std::optional<StateSlot> SequenceTable::TakeState(double most_worth) {
  for (auto& [id, timeline] : timelines_) {
    if (states_.free() == 0 && timeline.last_step) LetGo(timeline.last_step);
  }
  while (states_.free() == 0 && ForgetCheckpoint(most_worth)) {
  }
  return states_.Take();
}

// Drops the checkpoint, or the last state of a resting sequence, that is worth the least
// (memory/memory_use.h). False if none is worth less than `most_worth`.
bool SequenceTable::ForgetCheckpoint(double most_worth) {
  const std::vector<double> worths = PlaceWorths();
  const auto least = std::ranges::min_element(worths);
  if (least == worths.end() || *least >= most_worth) return false;
  const StateSlot place{static_cast<uint32_t>(least - worths.begin())};
  for (auto& [id, timeline] : timelines_) {
    std::erase_if(timeline.checkpoints, [&](const Checkpoint& checkpoint) {
      if (checkpoint.state != place) return false;
      states_.GiveBack(place);
      return true;
    });
    if (!timeline.state || timeline.state->state != place) continue;
    const uint32_t kept = timeline.checkpoints.empty() ? 0 : timeline.checkpoints.back().position;
    CutBack(id, Reach(id, kept));
  }
  return true;
}

// The most that each place is worth to any sequence; infinity: the place cannot be given up.
std::vector<double> SequenceTable::PlaceWorths() const {
  constexpr double kHeld = std::numeric_limits<double>::infinity();
  constexpr double kUnused = -1.0;
  std::vector<double> worths(states_.size(), kUnused);
  const auto count = [&](const Checkpoint& checkpoint, double worth) {
    double& most = worths[checkpoint.state.value];
    most = std::max(most, worth);
  };
  for (const auto& [id, timeline] : timelines_) {
    const auto newer = static_cast<uint32_t>(std::ranges::count_if(
        timelines_, [&](const auto& other) { return other.second.used > timeline.used; }));
    uint32_t before = 0;
    for (const Checkpoint& checkpoint : timeline.checkpoints) {
      // A draft, or the next turn, goes back to the last checkpoint of a running text.
      const bool is_next = !timeline.is_resting && &checkpoint == &timeline.checkpoints.back();
      count(checkpoint, is_next ? std::numeric_limits<double>::max()
                                : CheckpointWorth(checkpoint.position - before, newer));
      before = checkpoint.position;
    }
    const auto last = CheckpointWorth(timeline.committed() - before, newer);
    if (timeline.state) count(*timeline.state, timeline.is_resting ? last : kHeld);
    if (timeline.last_step) count(*timeline.last_step, kHeld);
    for (const Checkpoint& passed : timeline.passed) count(passed, kHeld);
    if (timeline.next) worths[timeline.next->value] = kHeld;
  }
  std::ranges::replace(worths, kUnused, kHeld);
  return worths;
}

Status SequenceTable::Append(SequenceId id, std::span<const Token> tokens) {
  Timeline& timeline = timelines_.at(id);
  timeline.used = timeline.recent.used = ++uses_;
  if (!tokens.empty()) {
    timeline.is_resting = false;
    PassKept(timeline);
  }
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

// If the last position is kept, later tokens' states go to another place. The position is not kept
// if no place is left, or only one that is worth more or that other sequences need for their own
// steps.
void SequenceTable::PassKept(Timeline& timeline) {
  const auto length = static_cast<uint32_t>(timeline.tokens.size());
  const bool is_kept = !timeline.kept_in_step.empty() && timeline.kept_in_step.back() == length;
  const bool is_passed = !timeline.passed.empty() && timeline.passed.back().position == length;
  if (!timeline.next || !is_kept || is_passed) return;
  uint32_t before = timeline.checkpoints.empty() ? 0 : timeline.checkpoints.back().position;
  if (!timeline.passed.empty()) before = timeline.passed.back().position;
  const auto others = static_cast<uint32_t>(std::ranges::count_if(timelines_, [](const auto& t) {
    return !t.second.is_resting && !t.second.next && !t.second.tokens.empty();
  }));
  std::optional<StateSlot> place;
  if (available_states() > others) place = TakeState(CheckpointWorth(length - before, 0));
  if (!place) {
    timeline.kept_in_step.pop_back();
    return;
  }
  timeline.passed.push_back({.position = length, .state = *timeline.next});
  timeline.next = place;
}

void SequenceTable::KeepInStep(SequenceId id) {
  Timeline& timeline = timelines_.at(id);
  const auto length = static_cast<uint32_t>(timeline.tokens.size());
  const std::vector<uint32_t>& kept = timeline.kept_in_step;
  if (kept.empty() || kept.back() < length) timeline.kept_in_step.push_back(length);
}

SequenceTable::StateIndices SequenceTable::PlacesOf(SequenceId id, uint32_t position) const {
  const Timeline& timeline = timelines_.at(id);
  StateIndices places;
  if (timeline.state) places.from = timeline.state->state;
  uint32_t begin = timeline.committed();  // first row that writes to the place
  for (const Checkpoint& passed : timeline.passed) {
    if (position < passed.position) {
      return {.from = position > begin ? passed.state : places.from, .to = passed.state};
    }
    places.from = passed.state;
    begin = passed.position;
  }
  return {.from = position > begin ? timeline.next : places.from, .to = timeline.next};
}

Status SequenceTable::Advance(SequenceId id, uint32_t length) {
  if (!recent_.is_used()) return {};
  return recent_.Advance(timelines_.at(id).recent, length, Recents());
}

void SequenceTable::TrimWindow(SequenceId id) {
  if (!recent_.is_used()) return;
  Timeline& timeline = timelines_.at(id);
  KeepWindows(timeline);
  recent_.Trim(timeline.recent);
}

// Keeps windows before the positions kept in this step, as far as those are computed.
void SequenceTable::KeepWindows(Timeline& timeline) {
  for (const uint32_t position : timeline.kept_in_step) {
    if (position <= timeline.recent.now.length()) recent_.Keep(timeline.recent, position);
  }
}

Status SequenceTable::FillWindows(SequenceId id, std::span<const uint32_t> kept) {
  if (!recent_.is_used()) return {};
  Timeline& timeline = timelines_.at(id);
  TRY_STATUS(
      recent_.Fill(timeline.recent, static_cast<uint32_t>(timeline.tokens.size()), Recents()));
  for (const uint32_t position : kept) recent_.FillKept(timeline.recent, position);
  return {};
}

void SequenceTable::Commit(SequenceId id) {
  Timeline& timeline = timelines_.at(id);
  const auto length = static_cast<uint32_t>(timeline.tokens.size());
  if (recent_.is_used()) {
    KeepWindows(timeline);
    recent_.Commit(timeline.recent, length);
  }
  const std::vector<uint32_t> kept = std::exchange(timeline.kept_in_step, {});
  if (!timeline.next) return;
  timeline.last_step = timeline.state;
  timeline.checkpoints.append_range(std::exchange(timeline.passed, {}));
  timeline.state = {.position = length, .state = *std::exchange(timeline.next, std::nullopt)};
  if (!kept.empty() && kept.back() == length) Keep(id);
}

uint32_t SequenceTable::Reach(SequenceId id, uint32_t position) const {
  const Timeline& timeline = timelines_.at(id);
  // A part of a source is worth nothing: rows of a source attend to the whole.
  if (source_end_ && position < SourceLength(timeline.tokens, *source_end_)) position = 0;
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

// Makes the state after `position` tokens the sequence's; later checkpoints are dropped.
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

// Gives back places that the step under way writes after `position`; all of them if the cut comes
// before the step's first token.
void SequenceTable::UndoStates(Timeline& timeline, uint32_t position) {
  while (timeline.next && !timeline.passed.empty() && position < timeline.passed.back().position) {
    states_.GiveBack(*timeline.next);
    timeline.next = timeline.passed.back().state;
    timeline.passed.pop_back();
  }
  if (timeline.next && position <= timeline.committed()) {
    states_.GiveBack(*std::exchange(timeline.next, std::nullopt));
  }
}

void SequenceTable::CutBack(SequenceId id, uint32_t position) {
  Timeline& timeline = timelines_.at(id);
  CHECK(position <= timeline.tokens.size());
  std::erase_if(timeline.kept_in_step, [&](uint32_t kept) { return kept > position; });
  UndoStates(timeline, position);
  if (has_states() && !timeline.next) CutBackState(timeline, position);
  if (recent_.is_used()) recent_.CutBack(timeline.recent, position);
  blocks_.CutBack(timeline.cells, position);
  timeline.tokens.resize(position);
}

void SequenceTable::Keep(SequenceId id) {
  Timeline& timeline = timelines_.at(id);
  CHECK(!timeline.next);
  if (recent_.is_used()) recent_.Keep(timeline.recent, timeline.recent.done);
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
    UndoStates(timeline, 0);
    timeline.kept_in_step.clear();
    LetGo(timeline.state);
    LetGo(timeline.last_step);
    for (const Checkpoint& checkpoint : timeline.checkpoints) states_.GiveBack(checkpoint.state);
    timeline.checkpoints.clear();
  }
}

}  // namespace moestro
