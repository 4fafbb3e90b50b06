// SPDX-License-Identifier: MIT
// Any bytes as a request: what is refused is a 400 of one line, and what is accepted is in range
// and can be answered. The first byte says the kind.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/api_request.h"
#include "api/server_bodies.h"
#include "base/json.h"
#include "base/result.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr uint32_t kVocab = 100;

void CheckRefusal(const ApiError& error) {
  CHECK(error.status == 400);
  CHECK(!error.message.empty() && !error.message.contains('\n'));
  CHECK(Json::Parse(ErrorBody(error)).has_value());
  CHECK(Json::Parse(MessagesErrorBody(error, "req_1")).has_value());
}

void CheckInRange(const ApiRequest& request) {
  const SamplingOptions& sampling = request.sampling;
  CHECK(sampling.temp >= 0.0F && sampling.temp <= 2.0F && sampling.repeat_penalty > 0.0F);
  CHECK(sampling.repeat_last_n <= (1 << 20) && sampling.mirostat >= 0 && sampling.mirostat <= 2);
  for (const auto& [token, bias] : sampling.logit_bias)
    CHECK(token >= 0 && static_cast<uint32_t>(token) < kVocab && std::isfinite(bias));
  CHECK(request.max_tokens >= -1 && request.stops.size() <= 16);
  if (request.kind == ApiKind::kCompletion) CHECK(!request.prompts.empty());
  for (const Tool& tool : request.chat.tools) {
    CHECK(!tool.name.empty());
    CHECK(tool.parameters.empty() || Json::Parse(tool.parameters).has_value());
  }
  for (const ChatTurn& turn : request.chat.turns) {
    CHECK(FindInvalidUtf8(turn.content) == turn.content.size());
    for (const ToolCall& call : turn.calls) {
      const auto arguments = Json::Parse(call.arguments);
      CHECK(arguments && arguments->view().kind() == JsonKind::kObject);
    }
  }
}

ChatDelta DeltaOf(ChatDelta::Kind kind, const std::string& text) {
  ChatDelta delta;
  delta.kind = kind;
  delta.text = text;
  delta.name = text;
  return delta;
}

// Says the bytes of the request back in all ways there are.
void CheckAnswer(const ApiRequest& request, const std::string& text) {
  const auto writer = MakeReplyWriter(request, {.id = "x", .model = text, .fingerprint = text});
  using enum ChatDelta::Kind;
  const ReplyPart part{
      .deltas = {DeltaOf(kCallArguments, text), DeltaOf(kReasoning, text), DeltaOf(kContent, text),
                 DeltaOf(kCallBegin, ""), DeltaOf(kCallArguments, text)},
      .logprobs = {{.chosen = {.token = 1, .bytes = text}, .top = {}}}};
  std::string bytes = writer->Begin();
  bytes += writer->Part(part, 0);
  bytes += writer->EndChoice({.reason = FinishReason::kLength, .stop = text, .usage = {}}, 0);
  bytes += writer->End();
  CHECK(FindInvalidUtf8(bytes) == bytes.size());
  if (request.stream)
    CHECK(bytes.ends_with("\n\n"));
  else
    CHECK(Json::Parse(bytes).has_value());
}

void Answer(ApiKind kind, std::string_view body) {
  const auto request = ParseApiRequest(kind, body, kVocab);
  if (!request) return CheckRefusal(request.error());
  CheckInRange(*request);
  CheckAnswer(*request, std::string(body));
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] - '0') {
    case 4:
      if (const auto request = moestro::ParseTokenizeRequest(body); !request)
        moestro::CheckRefusal(request.error());
      break;
    case 5:
      if (const auto tokens = moestro::ParseDetokenizeRequest(body, moestro::kVocab); !tokens)
        moestro::CheckRefusal(tokens.error());
      break;
    default:
      moestro::Answer(static_cast<moestro::ApiKind>(data[0] % 4), body);
  }
  return 0;
}
