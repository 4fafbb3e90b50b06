// SPDX-License-Identifier: MIT
// What became of a request, in figures: never a word of its text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/reply.h"

namespace moestro {

struct RequestRecord {
  std::string id = {};          // the client's own (X-Request-Id), or ours
  std::string path = {};        // as it was asked for; not for the log, which names the route
  std::string_view route = {};  // one of the server's own names
  uint32_t key = 0;             // which of the server's keys came along, from 1; 0: none
  int status = 0;               // HTTP
  double seconds = 0.0;         // from its first byte until the reply was sent

  // Of requests for text; several prompts count together.
  std::string_view finish =
      {};  // "stop", "length", "tool_calls", "cancelled", "error"; empty: no text
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt, not computed again
  uint32_t completion_tokens = 0;
  double queue_seconds = 0.0;  // between its coming and its beginning, and while it gave way
  double prompt_seconds = 0.0;
  double completion_seconds = 0.0;
};

// The client's name for its request, if it is one: up to 128 printable ASCII characters. Else one
// of ours that nothing else has.
std::string RequestId(std::string_view asked);

// An answer has ended, `seconds` after it was asked for.
void NoteEnd(const ReplyEnd& end, double seconds, RequestRecord& record);

// {"time": ..., "id": ..., ...} without a line end. `unix_seconds`: now.
std::string LogLineOf(const RequestRecord& record, double unix_seconds, uint64_t lost);

}  // namespace moestro
