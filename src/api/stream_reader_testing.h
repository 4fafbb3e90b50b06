// SPDX-License-Identifier: MIT
// For tests: a stream as a client reads it, and answers to write.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/api_request.h"
#include "base/json.h"

namespace moestro {

struct ReadEvent {
  std::string name;  // from the "event:" line; empty: no such line
  std::string data;

  Json json() const {
    auto parsed = Json::Parse(data);
    EXPECT_TRUE(parsed) << data;
    return parsed ? *std::move(parsed) : Json::Object();
  }
};

// Reads the events. Drops comments and, like clients, an event without an empty line at its end.
inline std::vector<ReadEvent> ReadStream(std::string_view stream) {
  std::vector<ReadEvent> events;
  ReadEvent event;
  while (!stream.empty()) {
    const size_t end = stream.find('\n');
    if (end == std::string_view::npos) {
      ADD_FAILURE() << "a line without an end: " << stream;
      break;
    }
    const std::string_view line = stream.substr(0, end);
    stream.remove_prefix(end + 1);
    if (line.empty()) {
      if (!event.data.empty()) events.push_back(std::exchange(event, {}));
    } else if (line.starts_with("event: ")) {
      event.name = line.substr(7);
    } else if (line.starts_with("data: ")) {
      EXPECT_TRUE(event.data.empty()) << "two lines of data";
      event.data = line.substr(6);
    } else {
      EXPECT_TRUE(line.starts_with(":")) << line;
    }
  }
  EXPECT_TRUE(event.data.empty()) << "an event that no empty line ends: " << event.data;
  return events;
}

inline std::unique_ptr<ReplyWriter> WriterFor(ApiKind kind, const std::string& body) {
  const auto request = ParseApiRequest(kind, body, 1000);
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  if (!request) return nullptr;
  return MakeReplyWriter(*request, {.id = "x1",
                                    .model = "tiny",
                                    .fingerprint = "fp",
                                    .created = 1700000000,
                                    .request_id = "req_1",
                                    .prompt_tokens = 12});
}

inline ChatDelta Said(std::string text) {
  ChatDelta delta;
  delta.text = std::move(text);
  return delta;
}

inline ChatDelta Thought(std::string text) {
  ChatDelta delta = Said(std::move(text));
  delta.kind = ChatDelta::Kind::kReasoning;
  return delta;
}

inline ChatDelta CallBegin(uint32_t call, std::string name) {
  ChatDelta delta;
  delta.kind = ChatDelta::Kind::kCallBegin;
  delta.call = call;
  delta.name = std::move(name);
  delta.call_id = "call_" + std::to_string(call);
  return delta;
}

inline ChatDelta CallArguments(uint32_t call, std::string text) {
  ChatDelta delta = Said(std::move(text));
  delta.kind = ChatDelta::Kind::kCallArguments;
  delta.call = call;
  return delta;
}

inline TokenLogprob Logprob(const std::string& bytes, float logprob) {
  return {.chosen = {.token = 7, .bytes = bytes, .logprob = logprob},
          .top = {{.token = 7, .bytes = bytes, .logprob = logprob},
                  {.token = 9, .bytes = "\xF0\x9F", .logprob = -3.5F}}};
}

inline ReplyEnd Ended(FinishReason reason) {
  ReplyEnd end;
  end.reason = reason;
  end.usage = {.prompt_tokens = 12,
               .cached_tokens = 4,
               .completion_tokens = 9,
               .reasoning_tokens = 3,
               .prompt_seconds = 0.5,
               .completion_seconds = 1.5};
  return end;
}

// All that a writer gives for one choice, a part for each delta.
inline std::string Written(ReplyWriter& writer, const std::vector<ChatDelta>& deltas,
                           const ReplyEnd& end) {
  std::string bytes = writer.Begin();
  for (const ChatDelta& delta : deltas)
    bytes += writer.Part({.deltas = {delta}, .logprobs = {}}, 0);
  bytes += writer.EndChoice(end, 0);
  bytes += writer.End();
  return bytes;
}

// The member at a path of keys and indexes, "choices.0.delta"; "" if there is none, else as JSON.
inline std::string At(const Json& json, std::string_view path) {
  std::optional<JsonView> view = json.view();
  while (view && !path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view step = path.substr(0, dot);
    path.remove_prefix(std::min(dot + 1, path.size()));
    view = view->kind() == JsonKind::kArray ? view->At(std::stoul(std::string(step)))
                                            : view->Find(step);
  }
  return view ? view->Dump() : "";
}

// Quotes, control characters, an emoji, and line ends of which JSON needs only some escaped.
inline constexpr const char* kHardText = "\"q\" \\ \n\r\t\x01 \xF0\x9F\x98\x80 \xE2\x80\xA8|";

}  // namespace moestro
