// SPDX-License-Identifier: MIT
// An answer on the way to a client: the parts that a writer of a wire format gets, and the writer's
// interface. Each format has a writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "chat/chat_types.h"
#include "text/text_request.h"

namespace moestro {

// The part of a reply that has become certain since the last part. A call's fragments come after
// its kCallBegin and before any other delta.
struct ReplyPart {
  std::vector<ChatDelta> deltas;  // text of a completion is content; with `echo`, the prompt, too
  std::vector<TokenLogprob> logprobs;
};

enum class FinishReason : uint8_t { kStop, kLength, kToolCalls };

struct ReplyEnd {
  FinishReason reason = FinishReason::kStop;
  std::string stop;  // the stop string that ended the text; empty: no stop string did
  TextUsage usage;
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

// An answer as the server stores it.
struct StoredAnswer {
  std::string id;     // "resp_..."
  std::string reply;  // the whole body, as a request for the id gets it
  std::string items;  // the answer's items, a JSON array
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
  // Before End(), once all choices have ended: the answer, if it shall be stored.
  virtual std::optional<StoredAnswer> ToStore() const { return std::nullopt; }
  // The answer could not be stored; End() reports that.
  virtual void NotStored() {}
  // The error in the format's form; ends the stream.
  virtual std::string Failed(const ApiError& error) = 0;
  // Streamed: an empty message that keeps clients and proxies waiting. Any time after Begin().
  virtual std::string Ping() const = 0;
};

}  // namespace moestro
