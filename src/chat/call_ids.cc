// SPDX-License-Identifier: MIT
#include "chat/call_ids.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <set>

#include "base/format.h"
#include "base/hash.h"

namespace moestro {
namespace {

constexpr std::string_view kIdLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
constexpr size_t kShortId = 9;

// By splitmix64.
std::string Letters(uint64_t state, size_t n) {
  std::string letters;
  for (size_t i = 0; i < n; ++i) {
    state += 0x9E3779B97F4A7C15U;
    uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
    mixed ^= mixed >> 31U;
    letters += kIdLetters[mixed % kIdLetters.size()];
  }
  return letters;
}

class ShortIds {
 public:
  explicit ShortIds(const std::vector<ChatTurn>& turns) {
    for (const ChatTurn& turn : turns) {
      Take(turn.call_id);
      for (const ToolCall& call : turn.calls) Take(call.id);
    }
  }

  void Shorten(ChatTurn& turn) {
    for (ToolCall& call : turn.calls) {
      const bool has_none = call.id.empty();
      // No client's id: those are texts of one line.
      call.id = Of(has_none ? Format("call\n{}", n_calls_) : call.id);
      if (has_none) unanswered_.push_back(call.id);
      ++n_calls_;
    }
    if (turn.role != "tool") return;
    if (!turn.call_id.empty()) {
      turn.call_id = Of(turn.call_id);
    } else if (!unanswered_.empty()) {
      turn.call_id = unanswered_.front();
      unanswered_.pop_front();
    } else {
      turn.call_id = Of("answer\n");
    }
  }

 private:
  void Take(const std::string& id) {
    if (IsShortId(id)) taken_.insert(id);
  }
  std::string Of(const std::string& id) {
    if (IsShortId(id)) return id;
    if (const auto known = short_.find(id); known != short_.end()) return known->second;
    Fnv1a hash;
    hash.Add(id);
    uint64_t seed = hash.value();
    std::string made = Letters(seed, kShortId);
    while (!taken_.insert(made).second) made = Letters(++seed, kShortId);
    return short_.emplace(id, made).first->second;
  }

  std::map<std::string, std::string> short_;
  std::set<std::string> taken_;
  std::deque<std::string> unanswered_;  // calls that came without an id
  size_t n_calls_ = 0;
};

}  // namespace

std::string MakeCallId(uint64_t seed, uint32_t call, bool is_short) {
  const uint64_t state = seed + call * 0xD1B54A32D192ED03U;
  return is_short ? Letters(state, kShortId) : "call_" + Letters(state, 24);
}

bool IsShortId(std::string_view id) {
  const auto is_known = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return id.size() == kShortId && std::ranges::all_of(id, is_known);
}

void ShortenIds(std::vector<ChatTurn>& turns) {
  ShortIds ids(turns);
  for (ChatTurn& turn : turns) ids.Shorten(turn);
}

}  // namespace moestro
