// SPDX-License-Identifier: MIT
#include "chat/delta_sink.h"

#include <algorithm>

namespace moestro {
namespace {

// "call_" and 24 letters, which follow from the seed and the call's number (splitmix64).
std::string CallId(uint64_t seed, uint32_t call) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  uint64_t state = seed + call * 0xD1B54A32D192ED03U;
  std::string id = "call_";
  for (int letter = 0; letter < 24; ++letter) {
    state += 0x9E3779B97F4A7C15U;
    uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
    mixed ^= mixed >> 31U;
    id += kLetters[mixed % kLetters.size()];
  }
  return id;
}

}  // namespace

void DeltaSink::Add(ChatDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const uint32_t call = kind == ChatDelta::Kind::kCallArguments ? calls_ - 1 : 0;
  if (deltas_.empty() || deltas_.back().kind != kind || deltas_.back().call != call) {
    deltas_.push_back({.kind = kind, .text = {}, .call = call, .name = {}, .call_id = {}});
  }
  deltas_.back().text += text;
}

void DeltaSink::BeginCall(std::string_view name) {
  deltas_.push_back({.kind = ChatDelta::Kind::kCallBegin,
                     .text = {},
                     .call = calls_,
                     .name = std::string(name),
                     .call_id = CallId(id_seed_, calls_)});
  ++calls_;
}

void CallProgress::Show(const CallScan& scan, bool certain, DeltaSink& sink) {
  for (size_t i = done_; i < scan.calls.size(); ++i) {
    const ScannedCall& call = scan.calls[i];
    if (!call.is_whole && !(certain && call.is_named)) return;
    if (begun_ == i) {
      sink.BeginCall(call.name);
      ++begun_;
      sent_bytes_ = 0;
    }
    sink.Arguments(std::string_view(call.arguments).substr(sent_bytes_));
    sent_bytes_ = call.arguments.size();
    if (call.is_whole) ++done_;
  }
}

size_t OpenEnd(std::string_view text, const std::vector<std::string_view>& marks) {
  size_t open = 0;
  for (const std::string_view mark : marks) {
    if (mark.empty()) continue;
    for (size_t n = std::min(text.size(), mark.size() - 1); n > open; --n) {
      if (text.ends_with(mark.substr(0, n))) open = n;
    }
  }
  return open;
}

}  // namespace moestro
