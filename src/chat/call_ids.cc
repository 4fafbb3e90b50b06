// SPDX-License-Identifier: MIT
#include "chat/call_ids.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <set>

#include "base/hash.h"
#include "base/text.h"

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
      // no client's id, which has one line
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

class NumberedIds {
 public:
  explicit NumberedIds(std::string_view begin) : begin_(begin) {}

  void Number(ChatTurn& turn) {
    for (ToolCall& call : turn.calls) {
      const std::string sent = call.id;
      if (!Says(call.name, sent) || taken_.contains(sent)) call.id = Free(call.name);
      Take(call.id);
      ++n_calls_;
      if (sent.empty()) {
        unanswered_.push_back(call.id);
      } else {
        now_[sent] = call.id;
      }
    }
    if (turn.role != "tool") return;
    if (const auto known = now_.find(turn.call_id); known != now_.end()) {
      turn.call_id = known->second;
    } else if (turn.call_id.empty() && !unanswered_.empty()) {
      turn.call_id = unanswered_.front();
      unanswered_.pop_front();
    } else if (!turn.name.empty() && !Says(turn.name, turn.call_id)) {
      turn.call_id = Format("{}{}:{}", begin_, turn.name, n_calls_);
    }
  }

 private:
  // The id is of the form, for this tool.
  bool Says(std::string_view name, std::string_view id) const {
    constexpr size_t kMostDigits = 9;
    const std::string head = Format("{}{}:", begin_, name);
    return id.starts_with(head) && id.size() > head.size() &&
           id.size() <= head.size() + kMostDigits &&
           id.find_first_not_of("0123456789", head.size()) == std::string_view::npos;
  }
  void Take(const std::string& id) {
    taken_.insert(id);
    largest_ = std::max<size_t>(largest_, std::stoul(id.substr(id.rfind(':') + 1)));
  }
  std::string Free(std::string_view name) const {
    std::string id = Format("{}{}:{}", begin_, name, n_calls_);
    return taken_.contains(id) ? Format("{}{}:{}", begin_, name, largest_ + 1) : id;
  }

  std::string_view begin_;
  std::map<std::string, std::string> now_;  // new ids by the ids as sent
  std::set<std::string> taken_;
  std::deque<std::string> unanswered_;  // calls that came without an id
  size_t n_calls_ = 0;
  size_t largest_ = 0;  // number of all that are taken
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

void NumberIds(std::vector<ChatTurn>& turns, std::string_view begin) {
  NumberedIds ids(begin);
  for (ChatTurn& turn : turns) ids.Number(turn);
}

void ShortenIds(std::vector<ChatTurn>& turns) {
  ShortIds ids(turns);
  for (ChatTurn& turn : turns) ids.Shorten(turn);
}

}  // namespace moestro
