// SPDX-License-Identifier: MIT
// An answer on its way to a client: what every wire format's writer is given, and what it gives
// back. Each format has a writer of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "chat/chat_types.h"
#include "core/ids.h"

namespace moestro {

struct TokenLogprob {
  struct Candidate {
    Token token = 0;
    std::string bytes;     // may be part of a character
    float logprob = 0.0F;  // NaN: not known, as of an echoed prompt's first token
  };
  Candidate chosen;
  std::vector<Candidate> top;  // likeliest first
};

// What has become certain since the last part. A call's fragments come after its kCallBegin and
// before any other delta.
struct ReplyPart {
  std::vector<ChatDelta> deltas;  // text of a completion is content; with `echo`, the prompt, too
  std::vector<TokenLogprob> logprobs;
};

enum class FinishReason : uint8_t { kStop, kLength, kToolCalls };

struct ReplyUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt, not computed again
  uint32_t completion_tokens = 0;
  uint32_t reasoning_tokens = 0;  // of the completion
  double prompt_seconds = 0.0;
  double completion_seconds = 0.0;
};

// How far a prompt has been computed.
struct PromptProgress {
  uint32_t total = 0;      // tokens
  uint32_t cached = 0;     // of them, not computed again
  uint32_t processed = 0;  // computed or cached
  double seconds = 0.0;    // since it began
};

struct ReplyEnd {
  FinishReason reason = FinishReason::kStop;
  std::string stop;  // the stop string that ended it; empty: none
  ReplyUsage usage;
};

// Who answers, and when.
struct ReplyHead {
  std::string id;               // random part; a writer puts its own prefix before it
  std::string model;            // as /v1/models names it
  std::string fingerprint;      // of program and model ("system_fingerprint"); empty: none
  int64_t created = 0;          // seconds since 1970
  std::string request_id = {};  // formats whose errors name it
  uint32_t prompt_tokens = 0;   // formats that begin with a usage say it there
};

// Streamed: Begin(), Part()..., EndChoice() of each choice, End(); or Failed() at any point. Each
// gives bytes for the wire, maybe none; whole events, each with the empty line that ends it.
// Not streamed: Begin(), Part() and EndChoice() give nothing; End() gives the whole body, and
// Failed() that of the error.
//
// Thread rule: one thread.
class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;
  virtual std::string Begin() = 0;
  // `choice`: which of the n answers to a prompt, or of several prompts' answers one after another;
  // 0 but for chat and completions.
  virtual std::string Part(const ReplyPart& part, uint32_t choice) = 0;
  // Streamed, in formats that have a place for it; else nothing.
  virtual std::string Progress(const PromptProgress&, uint32_t) { return ""; }
  // All of one choice has been said.
  virtual std::string EndChoice(const ReplyEnd& end, uint32_t choice) = 0;
  virtual std::string End() = 0;
  // The error as the format's stream says it; ends the stream.
  virtual std::string Failed(const ApiError& error) = 0;
  // Streamed: says nothing, but keeps clients and proxies waiting. Any time after Begin().
  virtual std::string Ping() const = 0;
};

}  // namespace moestro
