// SPDX-License-Identifier: MIT
#include "serve/prefix_pool.h"

#include <algorithm>
#include <utility>

namespace moestro {
namespace {

// Whether the sequence begins with the tokens and can be cut back to them.
bool Covers(const Sequence& sequence, std::span<const Token> tokens) {
  const auto n = static_cast<uint32_t>(tokens.size());
  return std::ranges::starts_with(sequence.tokens(), tokens) && sequence.Reach(n) == n;
}

}  // namespace

std::optional<PrefixMatch> PrefixPool::Find(std::span<const Token> tokens, uint32_t most) const {
  return LongestPrefix(
      kept_, [](const CachedPrefix& kept) { return kept.sequence.tokens(); },
      [](const CachedPrefix& kept, uint32_t common) { return kept.sequence.Reach(common); }, tokens,
      most);
}

uint32_t PrefixPool::MostInCommon(std::span<const Token> tokens, uint32_t most) const {
  size_t common = 0;
  for (const CachedPrefix& kept : kept_) {
    common = std::max(common, CommonPrefix(kept.sequence.tokens(), tokens));
  }
  return static_cast<uint32_t>(std::min<size_t>(common, most));
}

Sequence PrefixPool::Begin(const PrefixMatch& match, double now) {
  CachedPrefix& kept = kept_[match.index];
  kept.used = now;
  Sequence sequence = kept.sequence.Fork();
  sequence.GoBack(match.common);  // to the beginning, if the engine had no place for a fork
  return sequence;
}

void PrefixPool::Keep(Sequence sequence, bool is_saved, double now) {
  const auto longer = std::ranges::find_if(
      kept_, [&](const CachedPrefix& kept) { return Covers(kept.sequence, sequence.tokens()); });
  if (longer != kept_.end()) {
    longer->used = now;
    return;
  }
  // The covered texts include texts that were cut back to their beginning while they rested.
  std::erase_if(kept_,
                [&](const CachedPrefix& kept) { return Covers(sequence, kept.sequence.tokens()); });
  sequence.Rest();
  kept_.push_back({.sequence = std::move(sequence), .used = now, .is_saved = is_saved});
}

std::optional<Sequence> PrefixPool::ForkWhole(std::span<const Token> tokens) const {
  const auto found = std::ranges::find_if(
      kept_, [&](const CachedPrefix& kept) { return Covers(kept.sequence, tokens); });
  if (tokens.empty() || found == kept_.end()) return std::nullopt;
  Sequence sequence = found->sequence.Fork();
  if (!Covers(sequence, tokens)) return std::nullopt;  // the engine had no place for the fork
  sequence.CutBack(static_cast<uint32_t>(tokens.size()));
  return sequence;
}

bool PrefixPool::BeginWith(std::span<const Token> tokens) const {
  return std::ranges::any_of(kept_, [&](const CachedPrefix& kept) {
    return std::ranges::starts_with(kept.sequence.tokens(), tokens);
  });
}

bool PrefixPool::Drop(std::span<const Token> tokens) {
  return std::erase_if(kept_, [&](const CachedPrefix& kept) {
           return std::ranges::starts_with(tokens, kept.sequence.tokens());
         }) > 0;
}

PrefixPool::CachedPrefix* PrefixPool::FindOldest() {
  return kept_.empty() ? nullptr : &*std::ranges::min_element(kept_, {}, &CachedPrefix::used);
}

bool PrefixPool::DropOldest() {
  if (kept_.empty()) return false;
  kept_.erase(std::ranges::min_element(kept_, {}, &CachedPrefix::used));
  return true;
}

PrefixPool::CachedPrefix* PrefixPool::FindUnsaved(double before) {
  const auto found = std::ranges::find_if(
      kept_, [&](const CachedPrefix& kept) { return !kept.is_saved && kept.used <= before; });
  return found == kept_.end() ? nullptr : &*found;
}

}  // namespace moestro
