// SPDX-License-Identifier: MIT
// Figures of a request, without any text of the request, and the log that has a JSON line of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "api/reply.h"

namespace moestro {

struct RequestRecord {
  std::string id = {};          // the client's own (X-Request-Id), else made by us
  std::string path = {};        // as requested; not for the log, which names the route
  std::string_view route = {};  // one of the server's own names
  uint32_t key = 0;             // the number of the client's key, from 1; 0: no key
  int status = 0;               // HTTP
  std::string owner = {};       // stands for the key in names of files; not for the log
  double seconds = 0.0;         // from the first byte until the reply was sent

  // Figures of requests for text; several prompts count together.
  // "stop", "length", "tool_calls", "cancelled", "error"; empty: no text.
  std::string_view finish = {};
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt, not computed again
  uint32_t completion_tokens = 0;
  double queue_seconds = 0.0;  // before the prompt's first step, and while the text gave way
  double prompt_seconds = 0.0;
  double completion_seconds = 0.0;
};

// Whether a reply may repeat a name that a client chose: 1 to 128 characters of printable ASCII.
bool IsRepeatable(std::string_view name);

// `asked`, the client's name for the request, if it is repeatable. Else a new name, which no other
// request has.
std::string RequestId(std::string_view asked);

// Notes the end of an answer, `seconds` after the client's request.
void NoteEnd(const ReplyEnd& end, double seconds, RequestRecord& record);

// {"time": ..., "id": ..., ...} without a line end. `unix_seconds`: now.
std::string LogLineOf(const RequestRecord& record, double unix_seconds, uint64_t lost);

// Writes a JSON line for each request to the log. The log never holds up the server and never ends
// it. A line that cannot be written (a full disk, a reader that stands still or is gone) is left
// out, and the next line counts the lost ones.
//
// Thread rule: any thread.

class RequestLines {
 public:
  // `fd` must stay open as long as this lives. REQUIRES: the program ignores SIGPIPE.
  explicit RequestLines(int fd) : fd_(fd) {}

  void Write(const RequestRecord& record);

 private:
  const int fd_;
  std::mutex mutex_;
  uint64_t lost_ = 0;    // lines left out since the last line that was written
  bool is_cut_ = false;  // the last line was written in part
};

}  // namespace moestro
