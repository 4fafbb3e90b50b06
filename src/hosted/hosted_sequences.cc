// SPDX-License-Identifier: MIT
#include "hosted/hosted_sequences.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "memory/memory_use.h"

namespace moestro {

HostedSequences::HostedSequences(llama_context* context, const MemoryTraits& traits,
                                 uint32_t n_blocks)
    : context_(context),
      memory_(llama_get_memory(context)),
      traits_(traits),
      table_(n_blocks, traits.has_states ? traits.n_places : 0) {
  if (traits_.has_states) {
    is_written_.assign(traits.n_places, 0);
  } else {
    for (uint32_t i = traits.n_places; i > 0; --i) {
      free_places_.push_back(static_cast<llama_seq_id>(i - 1));
    }
  }
}

// A fork for which no place is left has its tokens alone: Reach() returns 0, and the fork is
// computed anew from there.
SequenceId HostedSequences::Fork(SequenceId id) {
  const SequenceId fork = table_.Fork(id);
  const auto from = places_.find(id);
  if (from != places_.end() && Take(fork)) {
    llama_memory_seq_cp(memory_, from->second, places_.at(fork), -1, -1);
  }
  return fork;
}

void HostedSequences::Drop(SequenceId id) {
  GiveBack(id);
  table_.Drop(id);
}

uint32_t HostedSequences::Reach(SequenceId id, uint32_t position) const {
  if (traits_.has_states) return table_.Reach(id, position);
  const auto place = places_.find(id);
  if (place == places_.end()) return 0;
  // A memory that has forgotten the first positions takes any cut and computes wrong logits after a
  // deep one.
  const bool is_whole = llama_memory_seq_pos_min(memory_, place->second) <= 0;
  return is_whole || position == TokensOf(id).size() ? table_.Reach(id, position) : 0;
}

void HostedSequences::CutBack(SequenceId id, uint32_t position) {
  table_.CutBack(id, position);
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  if (llama_memory_seq_rm(memory_, place->second, static_cast<llama_pos>(position), -1)) return;
  GiveBack(id);  // libllama cannot cut this memory, so no position is left: Reach() returns 0
}

void HostedSequences::GiveBack(SequenceId id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  Forget(place->second);
  free_places_.push_back(place->second);
  places_.erase(place);
}

Engine::KvRoom HostedSequences::room() const {
  Engine::KvRoom room = table_.room();
  if (!traits_.has_states) room.places = static_cast<uint32_t>(free_places_.size());
  return room;
}

Status HostedSequences::Take(SequenceId id) {
  if (free_places_.empty()) {
    return Fail(Errc::kInvalidRequest, "no place is left for another sequence; end one");
  }
  places_[id] = free_places_.back();
  free_places_.pop_back();
  return {};
}

// The state's place goes on in a new one.
Status HostedSequences::BeginState(SequenceId id) {
  ForgetUnused();
  const Timeline& timeline = *table_.Find(id);
  const auto next = static_cast<llama_seq_id>(timeline.next->value);
  Forget(next);
  is_written_[timeline.next->value] = 1;
  if (timeline.state) {
    llama_memory_seq_cp(memory_, static_cast<llama_seq_id>(timeline.state->state.value), next, -1,
                        -1);
  }
  return {};
}

// Clears places that the table no longer uses. The table gives back places at many moments;
// libllama must drop their cells before others need them.
void HostedSequences::ForgetUnused() {
  for (uint32_t place = 0; place < is_written_.size(); ++place) {
    if (is_written_[place] == 0 || table_.states().is_used(StateSlot{place})) continue;
    Forget(static_cast<llama_seq_id>(place));
    is_written_[place] = 0;
  }
}

Status HostedSequences::Append(SequenceId id, std::span<const Token> tokens) {
  const auto before = static_cast<uint32_t>(table_.TokensOf(id).size());
  const bool had_next = table_.Find(id)->next.has_value();
  TRY_STATUS(table_.Append(id, tokens));
  if (traits_.has_states) return had_next ? Status() : BeginState(id);
  if (places_.contains(id)) return {};
  Status taken = before == 0
                     ? Take(id)
                     : Fail(Errc::kInvalidRequest,
                            "the sequence's keys and values had no place; evaluate it again");
  if (!taken) table_.CutBack(id, before);
  return taken;
}

void HostedSequences::Undo(SequenceId id, uint32_t position) {
  if (traits_.has_states) {
    const Timeline& timeline = *table_.Find(id);
    if (const auto& next = timeline.next) Forget(static_cast<llama_seq_id>(next->value));
    for (const Checkpoint& passed : timeline.passed) {
      Forget(static_cast<llama_seq_id>(passed.state.value));
    }
  }
  CutBack(id, position);
}

void HostedSequences::PassOn(std::span<const BatchRow> rows) {
  if (!traits_.has_states) return;
  for (const BatchRow& row : rows) {
    const std::vector<Checkpoint>& passed = table_.Find(row.sequence)->passed;
    const auto kept = std::ranges::find(passed, row.position, &Checkpoint::position);
    if (kept == passed.end()) continue;
    const llama_seq_id to = WritesTo(row.sequence, row.position);
    Forget(to);
    is_written_[static_cast<size_t>(to)] = 1;
    llama_memory_seq_cp(memory_, static_cast<llama_seq_id>(kept->state.value), to, -1, -1);
  }
}

llama_seq_id HostedSequences::WritesTo(SequenceId id, uint32_t position) const {
  if (!traits_.has_states) return places_.at(id);
  return static_cast<llama_seq_id>(table_.PlacesOf(id, position).to->value);
}

std::optional<llama_seq_id> HostedSequences::HeldIn(SequenceId id) const {
  if (traits_.has_states) {
    const std::optional<Checkpoint>& state = table_.Find(id)->state;
    return state ? std::optional(static_cast<llama_seq_id>(state->state.value)) : std::nullopt;
  }
  const auto place = places_.find(id);
  return place != places_.end() ? std::optional(place->second) : std::nullopt;
}

Result<std::string> HostedSequences::BytesOf(llama_seq_id place,
                                             llama_state_seq_flags which) const {
  std::string bytes(llama_state_seq_get_size_ext(context_, place, which), '\0');
  const size_t got = llama_state_seq_get_data_ext(
      context_, reinterpret_cast<uint8_t*>(bytes.data()), bytes.size(), place, which);
  if (bytes.empty() || got != bytes.size()) {
    return Fail(Errc::kUnsupported, "libllama gives no state to save");
  }
  return bytes;
}

bool HostedSequences::Read(std::string_view bytes, llama_seq_id place,
                           llama_state_seq_flags which) const {
  return llama_state_seq_set_data_ext(context_, reinterpret_cast<const uint8_t*>(bytes.data()),
                                      bytes.size(), place, which) > 0;
}

Result<HostedMemory> HostedSequences::Save(SequenceId id) {
  const std::optional<llama_seq_id> place = HeldIn(id);
  if (!place) {
    return Fail(Errc::kInvalidRequest,
                "the sequence's keys and values had no place; evaluate it again");
  }
  HostedMemory memory;
  TRY(memory.whole, BytesOf(*place, LLAMA_STATE_SEQ_FLAGS_NONE));
  if (traits_.has_states) {
    TRY_STATUS(AddStates(*table_.Find(id), memory));
  } else {
    TRY_STATUS(AddWindows(*place, static_cast<uint32_t>(TokensOf(id).size()), memory));
  }
  return memory;
}

Status HostedSequences::AddStates(const Timeline& timeline, HostedMemory& memory) const {
  std::vector<uint32_t> positions;
  for (const Checkpoint& kept : timeline.checkpoints) {
    if (kept.position < timeline.tokens.size()) positions.push_back(kept.position);
  }
  for (const uint32_t position : PositionsWorthSaving(positions)) {
    const auto kept =
        std::ranges::find(timeline.checkpoints, position, &Checkpoint::position)->state;
    TRY(std::string bytes,
        BytesOf(static_cast<llama_seq_id>(kept.value), LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY));
    memory.parts.push_back({.position = position, .bytes = std::move(bytes)});
  }
  return {};
}

// The number of cells that libllama writes of a window, which is `bytes` large: with or without the
// cell of the token that is outside the next one's window. Cuts the copy back.
uint32_t HostedSequences::WindowCells(llama_seq_id copy, size_t bytes) {
  const uint32_t fewer = traits_.n_window - 1;
  llama_memory_seq_rm(memory_, copy, static_cast<llama_pos>(fewer), -1);
  const size_t of_fewer =
      llama_state_seq_get_size_ext(context_, copy, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
  return of_fewer < bytes ? traits_.n_window : fewer;
}

// libllama writes the last window alone of layers with a window. A copy of the
// sequence is cut back by a window at a time, and each time its window is written. Nothing is
// added where memory has no window of its own, cannot be cut back or lacks the first positions,
// and where no place is left for the copy; such a text goes on from its end alone.
Status HostedSequences::AddWindows(llama_seq_id place, uint32_t end, HostedMemory& memory) {
  if (traits_.n_window < 2 || end < traits_.n_window || free_places_.empty()) return {};
  if (llama_memory_seq_pos_min(memory_, place) > 0) return {};
  const size_t last_window =
      llama_state_seq_get_size_ext(context_, place, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
  if (last_window >= memory.whole.size()) return {};
  const llama_seq_id copy = free_places_.back();
  llama_memory_seq_cp(memory_, place, copy, -1, -1);
  const uint32_t step = WindowCells(copy, last_window);
  llama_memory_seq_cp(memory_, place, copy, -1, -1);
  Status added;
  for (uint32_t position = end; position > step;) {
    position -= step;
    if (!llama_memory_seq_rm(memory_, copy, static_cast<llama_pos>(position), -1)) break;
    Result<std::string> bytes = BytesOf(copy, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    if (!bytes) {
      added = std::unexpected(std::move(bytes).error());
      break;
    }
    memory.parts.push_back({.position = position, .bytes = *std::move(bytes)});
  }
  Forget(copy);
  std::ranges::reverse(memory.parts);
  return added;
}

// Gives the tokens positions, and places to the states that the parts hold.
Status HostedSequences::AppendKept(SequenceId id, std::span<const Token> tokens,
                                   std::span<const HostedMemory::Part> parts) {
  uint32_t at = 0;
  for (const HostedMemory::Part& part : parts) {
    if (!traits_.has_states) break;
    TRY_STATUS(Append(id, tokens.subspan(at, part.position - at)));
    KeepInStep(id);
    at = part.position;
  }
  return Append(id, tokens.subspan(at));
}

Status HostedSequences::Restore(SequenceId id, std::span<const Token> tokens,
                                const HostedMemory& memory) {
  if (Status appended = AppendKept(id, tokens, memory.parts); !appended) {
    Undo(id, 0);
    return appended;
  }
  if (traits_.has_states) ForgetUnused();  // the table may have taken kept places back
  const auto last = static_cast<uint32_t>(tokens.size() - 1);
  const llama_seq_id to = WritesTo(id, last);
  Forget(to);
  if (traits_.has_states) is_written_[static_cast<size_t>(to)] = 1;
  bool is_taken = (!traits_.has_states && ReadWindows(to, memory)) ||
                  Read(memory.whole, to, LLAMA_STATE_SEQ_FLAGS_NONE);
  is_taken = is_taken && llama_memory_seq_pos_max(memory_, to) == static_cast<llama_pos>(last);
  if (is_taken && traits_.has_states) is_taken = ReadStates(*table_.Find(id), memory);
  if (!is_taken) {
    Undo(id, 0);
    return Fail(Errc::kInvalidFile, "libllama does not take its state");
  }
  Commit(id);
  return {};
}

// Copies of the whole sequence get the states of kept positions, and lose what is behind those. A
// copy that comes late would end on top of the kept state, so in its stead the whole is read again.
bool HostedSequences::ReadStates(const Timeline& timeline, const HostedMemory& memory) {
  const auto whole = static_cast<llama_seq_id>(timeline.next->value);
  for (const Checkpoint& kept : timeline.passed) {
    const auto part = std::ranges::find(memory.parts, kept.position, &HostedMemory::Part::position);
    const auto place = static_cast<llama_seq_id>(kept.state.value);
    const auto end = static_cast<llama_pos>(kept.position);
    Forget(place);
    is_written_[kept.state.value] = 1;
    if (traits_.copies_late) {
      if (!Read(memory.whole, place, LLAMA_STATE_SEQ_FLAGS_NONE)) return false;
    } else {
      llama_memory_seq_cp(memory_, whole, place, -1, -1);
    }
    if (!Read(part->bytes, place, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)) return false;
    if (!llama_memory_seq_rm(memory_, place, end, -1)) return false;
    if (llama_memory_seq_pos_max(memory_, place) != end - 1) return false;
  }
  return true;
}

// Joins the windows, and at last the whole text with its own last window, so that cells lie in the
// order of positions. Windows before a gap are left out. False: the place holds nothing.
//
// A read fills free cells, and those of a single sequence that are outside the window of its next
// token. Joined windows are such cells, so a second sequence shares them until all are read.
bool HostedSequences::ReadWindows(llama_seq_id place, const HostedMemory& memory) {
  if (memory.parts.empty() || free_places_.size() < 2) return false;
  const llama_seq_id window = free_places_.back();
  const llama_seq_id holder = free_places_[free_places_.size() - 2];
  const auto join = [&](std::string_view bytes, llama_state_seq_flags which) {
    if (!Read(bytes, window, which)) return false;
    const llama_pos first = llama_memory_seq_pos_min(memory_, window);
    const bool is_gap = llama_memory_seq_pos_max(memory_, place) + 1 < first;
    // No position may have two cells.
    if (!llama_memory_seq_rm(memory_, place, is_gap ? -1 : first, -1)) return false;
    llama_memory_seq_cp(memory_, window, place, -1, -1);
    Forget(window);
    Forget(holder);
    llama_memory_seq_cp(memory_, place, holder, -1, -1);
    return true;
  };
  bool is_joined = true;
  for (const HostedMemory::Part& part : memory.parts) {
    is_joined = is_joined && join(part.bytes, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
  }
  is_joined = is_joined && join(memory.whole, LLAMA_STATE_SEQ_FLAGS_NONE);
  Forget(window);
  Forget(holder);
  if (!is_joined) Forget(place);
  return is_joined;
}

}  // namespace moestro
