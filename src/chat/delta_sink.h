// SPDX-License-Identifier: MIT
// Collects an answer's deltas: joins neighbours of one kind and numbers the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/call_scan.h"
#include "chat/chat_types.h"

namespace moestro {

class DeltaSink {
 public:
  DeltaSink(uint64_t id_seed, bool has_short_ids)
      : id_seed_(id_seed), has_short_ids_(has_short_ids) {}

  void Content(std::string_view text) { Add(ChatDelta::Kind::kContent, text); }
  void Reasoning(std::string_view text) { Add(ChatDelta::Kind::kReasoning, text); }
  void BeginCall(std::string_view name);
  // Arguments of the last call.
  void Arguments(std::string_view text) { Add(ChatDelta::Kind::kCallArguments, text); }

  // The last call's arguments are complete.
  void EndCall() { is_in_call_ = false; }

  bool has_calls() const { return calls_ > 0; }
  bool is_in_call() const { return is_in_call_; }
  std::vector<ChatDelta> Take() { return std::exchange(deltas_, {}); }

 private:
  void Add(ChatDelta::Kind kind, std::string_view text);

  uint64_t id_seed_;
  bool has_short_ids_;
  uint32_t calls_ = 0;
  bool is_in_call_ = false;
  std::vector<ChatDelta> deltas_;
};

// The part of one scan's calls that has been passed on.
class CallProgress {
 public:
  // `certain`: also passes on the beginning of a call that is not whole.
  void Show(const CallScan& scan, bool certain, DeltaSink& sink);
  // A call has begun, and its end has not been passed on.
  bool is_inside() const { return begun_ > done_; }

 private:
  size_t begun_ = 0;
  size_t done_ = 0;
  size_t sent_bytes_ = 0;  // bytes of the last call's arguments
};

// The bytes at the end of `text` that may become one of `marks`.
size_t OpenEnd(std::string_view text, const std::vector<std::string_view>& marks);

}  // namespace moestro
