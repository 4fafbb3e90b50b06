// SPDX-License-Identifier: MIT
// An answer on the way to a client: the parts that a writer of a wire format gets, and the writer's
// interface. Each format has a writer.
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
    float logprob = 0.0F;  // NaN: not known, as for an echoed prompt's first token
  };
  Candidate chosen;
  std::vector<Candidate> top;  // likeliest first
};

// The part of a reply that has become certain since the last part. A call's fragments come after
// its kCallBegin and before any other delta.
struct ReplyPart {
  std::vector<ChatDelta> deltas;  // text of a completion is content; with `echo`, the prompt, too
  std::vector<TokenLogprob> logprobs;
};

enum class FinishReason : uint8_t { kStop, kLength, kToolCalls };

struct ReplyUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt, not computed again
  // of the prompt, computed again: a kept text has the tokens, and no state at their end
  uint32_t recomputed_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t reasoning_tokens = 0;  // of the completion
  uint32_t drafted_tokens = 0;    // --draft: tokens that were guessed
  uint32_t accepted_drafts = 0;   // of these, tokens that the completion took
  double prompt_seconds = 0.0;
  double completion_seconds = 0.0;
};

// The computed part of a prompt.
struct PromptProgress {
  uint32_t total = 0;      // tokens
  uint32_t cached = 0;     // of `total`, not computed again
  uint32_t processed = 0;  // computed or cached
  double seconds = 0.0;    // since the prompt's first step
};

struct ReplyEnd {
  FinishReason reason = FinishReason::kStop;
  std::string stop;  // the stop string that ended the text; empty: no stop string did
  ReplyUsage usage;
};

// The answer's model, time and ids.
struct ReplyHead {
  std::string id;           // random part; each writer adds a prefix
  std::string model;        // the name in /v1/models
  std::string fingerprint;  // identifies program and model ("system_fingerprint"); empty: not sent
  int64_t created = 0;      // seconds since 1970
  std::string request_id = {};  // for formats whose errors contain the request's id
  uint32_t prompt_tokens = 0;   // for formats that begin with a usage
};

// Streamed: Begin(), Part()..., EndChoice() of each choice, End(); or Failed() at any point. Each
// call gives whole events for the wire, with the empty line that ends an event, or no bytes.
// Not streamed: Begin(), Part() and EndChoice() give no bytes. End() gives the whole body, and
// Failed() gives the body of the error.
//
// Thread rule: one thread.
class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;
  virtual std::string Begin() = 0;
  // `choice`: the number of the answer, over all prompts and n answers to each; 0 but for chat and
  // completions.
  virtual std::string Part(const ReplyPart& part, uint32_t choice) = 0;
  // Bytes for a streamed reply in formats that have progress; else none.
  virtual std::string Progress(const PromptProgress&, uint32_t) { return ""; }
  // One choice has been written to the end.
  virtual std::string EndChoice(const ReplyEnd& end, uint32_t choice) = 0;
  virtual std::string End() = 0;
  // The error in the format's form; ends the stream.
  virtual std::string Failed(const ApiError& error) = 0;
  // Streamed: an empty message that keeps clients and proxies waiting. Any time after Begin().
  virtual std::string Ping() const = 0;
};

}  // namespace moestro
