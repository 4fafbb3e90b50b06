// SPDX-License-Identifier: MIT
#include "tests/support/memory_reader_testing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/result.h"

namespace moestro {
namespace {

constexpr uint64_t kHeld = std::numeric_limits<uint64_t>::max();

}  // namespace

MemoryReader::MemoryReader(std::vector<std::vector<std::byte>> files, MemoryScript script)
    : files_(std::move(files)), script_(std::move(script)) {}

bool MemoryReader::Submit(const BlockRead& read) {
  CHECK(read.file < files_.size());
  CHECK(read.offset % block() == 0 && read.to.size() % block() == 0);
  if (pending_.size() == script_.queue_depth) return false;
  std::ranges::fill(read.to, kPoison);
  const bool is_held = script_.order == MemoryScript::Order::kByHand;
  pending_.push_back({.read = read,
                      .ready_at = is_held ? kHeld : polls_ + script_.polls + 1,
                      .fault = script_.faults.At(submitted_)});
  ++submitted_;
  return true;
}

size_t MemoryReader::Poll(std::span<BlockDone> out) {
  ++polls_;
  return Take(out, polls_);
}

size_t MemoryReader::Wait(std::span<BlockDone> out) {
  if (const size_t n = Take(out, polls_ + script_.polls + 1); n > 0 || pending_.empty()) return n;
  LetGo(0);
  return Take(out, polls_);
}

std::vector<BlockRead> MemoryReader::waiting() const {
  std::vector<BlockRead> held;
  for (const Pending& p : pending_) {
    if (p.ready_at == kHeld) held.push_back(p.read);
  }
  return held;
}

void MemoryReader::LetGo(size_t index) {
  for (Pending& p : pending_) {
    if (p.ready_at != kHeld || index-- > 0) continue;
    p.ready_at = 0;
    return;
  }
  CHECK(false);
}

size_t MemoryReader::Take(std::span<BlockDone> out, uint64_t now) {
  const bool is_reversed = script_.order == MemoryScript::Order::kReversed;
  size_t n = 0;
  for (size_t i = 0; i < pending_.size() && n < out.size();) {
    const size_t at = is_reversed ? pending_.size() - 1 - i : i;
    if (pending_[at].ready_at > now) {
      ++i;
      continue;
    }
    out[n++] = Finish(pending_[at]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return n;
}

BlockDone MemoryReader::Finish(const Pending& pending) const {
  const BlockRead& read = pending.read;
  const std::vector<std::byte>& file = files_[read.file];
  const uint64_t begin = std::min<uint64_t>(read.offset, file.size());
  const uint64_t arrived = std::min<uint64_t>(read.to.size(), file.size() - begin);
  BlockDone done{.tag = read.tag, .error = 0, .bytes = arrived};
  FaultScript::Apply(pending.fault, done);
  std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(begin), done.bytes, read.to.begin());
  return done;
}

}  // namespace moestro
