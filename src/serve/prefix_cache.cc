// SPDX-License-Identifier: MIT
#include "serve/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "text/text_loop.h"

namespace moestro {
namespace {

// A prefix up to this length is computed as quickly as it is found on disk.
constexpr uint32_t kWorthReading = 32;
constexpr uint64_t kSavedAtOnce = 4 * kMiB;  // some milliseconds
constexpr uint64_t kStatesInAFile = 5;       // at most: the last one, and checkpoints

}  // namespace

PrefixCache::PrefixCache(Engine& engine, const Clock& clock, const PrefixCacheOptions& options)
    : engine_(engine),
      clock_(clock),
      files_(engine, options.folder, options.key, options.disk_bytes) {}

Sequence PrefixCache::Begin(std::span<const Token> prompt) {
  const auto most = static_cast<uint32_t>(prompt.size() - 1);
  auto match = kept_.Find(prompt, most);
  const auto saved = files_.Find(prompt, most);
  const bool is_worth_it = saved && saved->common >= (match ? match->common : 0) + kWorthReading;
  // If a text in memory begins with the whole text of the file, that text has no state there, and
  // Find() would choose that text again.
  if (is_worth_it && !kept_.BeginWith(files_.tokens(*saved))) {
    DropFor(files_.length(*saved) + TextLoop::kSlack, 2);  // for the file's text and for a fork
    Result<Sequence> restored = files_.Restore(*saved);
    if (restored) {
      const uint32_t reached = restored->Reach(std::min(saved->common, restored->position()));
      if (reached < saved->common) files_.Ignore(*saved);  // its checkpoint did not fit
      kept_.Keep(std::move(*restored), true, clock_());
    } else {
      LogWarning("a prefix on disk is not used: {}", restored.error().message);
    }
    match = kept_.Find(prompt, most);
  }
  return match ? kept_.Begin(*match, clock_()) : engine_.NewSequence();
}

void PrefixCache::Keep(Sequence sequence) {
  kept_.Keep(std::move(sequence), false, clock_());
  DropFor(0);
}

void PrefixCache::Hold(Sequence prompt) {
  const auto is_same = [&](const Sequence& held) {
    return std::ranges::equal(held.tokens(), prompt.tokens());
  };
  if (std::ranges::none_of(held_, is_same)) held_.push_back(std::move(prompt));
}

std::optional<Sequence> PrefixCache::ForkHeld(std::span<const Token> tokens) const {
  for (const Sequence& held : held_) {
    if (!std::ranges::equal(held.tokens(), tokens)) continue;
    Sequence fork = held.Fork();
    fork.GoBack(fork.position());  // to the beginning, if the engine had no place for the fork
    return fork;
  }
  return std::nullopt;
}

void PrefixCache::LetGo(const std::function<bool(std::span<const Token> held)>& is_wanted) {
  std::erase_if(held_, [&](const Sequence& held) { return !is_wanted(held.tokens()); });
}

bool PrefixCache::HasRoom(uint32_t positions, uint32_t places) const {
  const Engine::KvRoom room = engine_.kv_room();
  return room.free >= positions && room.places >= places;
}

void PrefixCache::DropFor(uint32_t positions, uint32_t places) {
  while (!HasRoom(positions, places) && DropOneFor(positions)) {
  }
}

// Whether dropping a kept text may help: if only places are short, kept texts may hold none.
bool PrefixCache::MayHelp(uint32_t positions) const {
  const Engine::KvRoom room = engine_.kv_room();
  return room.free < positions || room.rests_hold_places;
}

bool PrefixCache::DropOneFor(uint32_t positions) {
  if (MayHelp(positions)) return DropOne();
  if (held_.empty()) return false;
  held_.pop_back();
  return true;
}

bool PrefixCache::DropOne() {
  if (PrefixPool::CachedPrefix* oldest = kept_.FindOldest(); oldest != nullptr) {
    // In a small cache a text is dropped before it has rested long enough to be written, so a small
    // text is written now.
    const EngineFacts& facts = engine_.facts();
    const uint64_t bytes =
        oldest->sequence.position() * facts.position_bytes + kStatesInAFile * facts.state_bytes;
    const bool is_small = bytes <= kSavedAtOnce;
    if (files_.is_on() && !oldest->is_saved && is_small) Save(*oldest);
    return kept_.DropOldest();
  }
  if (held_.empty()) return false;
  held_.pop_back();
  return true;
}

bool PrefixCache::SaveOne(double before) {
  if (!files_.is_on()) return false;
  PrefixPool::CachedPrefix* unsaved = kept_.FindUnsaved(before);
  if (unsaved == nullptr) return false;
  Save(*unsaved);
  return true;
}

void PrefixCache::Save(PrefixPool::CachedPrefix& kept) {
  kept.is_saved = true;  // also if saving fails: a full disk is not tried again and again
  if (kept.sequence.position() < kWorthReading) return;
  const Status saved = files_.Save(kept.sequence);
  // One warning for a full disk, not one for each text.
  if (!saved && !has_failed_to_save_) {
    LogWarning("prefixes are not kept on disk for now: {}", saved.error().message);
  }
  has_failed_to_save_ = !saved;
}

uint64_t PrefixCache::tokens() const {
  uint64_t tokens = 0;
  for (const PrefixPool::CachedPrefix& kept : kept_.all()) tokens += kept.sequence.position();
  return tokens;
}

}  // namespace moestro
