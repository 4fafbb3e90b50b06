// SPDX-License-Identifier: MIT
#include "engine/sequence.h"

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
  Timeline copy{.cells = blocks_.Fork(from.cells), .tokens = from.tokens};
  const SequenceId fork = New();
  timelines_.at(fork) = std::move(copy);
  return fork;
}

void SequenceTable::Drop(SequenceId id) {
  CutBack(id, 0);
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

bool SequenceTable::any_lives() const {
  return std::ranges::any_of(timelines_, [](const auto& t) { return !t.second.tokens.empty(); });
}

Status SequenceTable::Append(SequenceId id, std::span<const Token> tokens) {
  Timeline& timeline = timelines_.at(id);
  TRY_STATUS(blocks_.Extend(timeline.cells, static_cast<uint32_t>(tokens.size())));
  timeline.tokens.insert(timeline.tokens.end(), tokens.begin(), tokens.end());
  return {};
}

void SequenceTable::CutBack(SequenceId id, uint32_t position) {
  Timeline& timeline = timelines_.at(id);
  CHECK(position <= timeline.tokens.size());
  blocks_.CutBack(timeline.cells, position);
  timeline.tokens.resize(position);
}

Sequence::Sequence(Sequence&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), id_(other.id_) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(table_, other.table_);
  std::swap(id_, other.id_);
  return *this;
}

Sequence::~Sequence() {
  if (table_ != nullptr) table_->Drop(id_);
}

uint32_t Sequence::position() const {
  return static_cast<uint32_t>(table_->Find(id_)->tokens.size());
}

std::span<const Token> Sequence::tokens() const { return table_->Find(id_)->tokens; }

}  // namespace moestro
