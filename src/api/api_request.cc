// SPDX-License-Identifier: MIT
#include "api/api_request.h"

#include <utility>

#include "api/parse_parts.h"
#include "api/server_bodies.h"
#include "api/writers.h"
#include "base/result.h"

namespace moestro {
namespace {

ApiStatus ReadKind(BodyFields& body, uint32_t n_vocab, const ResponsesContext& context,
                   ApiRequest& request) {
  switch (request.kind) {
    case ApiKind::kChat:
      return ReadChatBody(body, request);
    case ApiKind::kCompletion:
      return ReadCompletionBody(body, n_vocab, request);
    case ApiKind::kResponses:
      return ReadResponsesBody(body, context, request);
    case ApiKind::kMessages:
      return ReadMessagesBody(body, context.purpose, request);
    case ApiKind::kOllamaChat:
      return ReadOllamaChatBody(body, n_vocab, request);
    case ApiKind::kOllamaGenerate:
      return ReadOllamaGenerateBody(body, n_vocab, request);
  }
  CHECK(false);
}

bool IsOllama(ApiKind kind) {
  return kind == ApiKind::kOllamaChat || kind == ApiKind::kOllamaGenerate;
}

// Reads fields that clients send often and that have no meaning here, so that the log does not list
// them.
void AskForSilentFields(BodyFields& body) {
  for (const char* key :
       {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier",
        "cache_control", "prompt_cache_retention", "truncation", "verbosity"}) {
    body.Find(key);
  }
}

// Checks fields against each other, where no single field is at fault.
ApiStatus CheckTogether(const ApiRequest& request) {
  TRY_STATUS(CheckTools(request.chat));
  const bool has_grammar = request.form.kind != OutputForm::Kind::kText ||
                           request.chat.tool_use == ToolUse::kRequired ||
                           request.chat.tool_use == ToolUse::kNamed;
  if (request.chat.continues_last && has_grammar) {
    return BadRequest("messages",
                      "a last message of the assistant is gone on with, which excludes a form of "
                      "the answer and a call that must be: leave that message out");
  }
  if (request.sampling.ignore_eos && has_grammar) {
    return BadRequest("ignore_eos",
                      "\"ignore_eos\" excludes a form of the answer and a call that must be: what "
                      "is complete must be able to end");
  }
  return {};
}

}  // namespace

ApiResult<ApiRequest> ParseApiRequest(ApiKind kind, std::string_view body, uint32_t n_vocab,
                                      ApiPurpose purpose, const WorkLimit& limit,
                                      const RecallItems& recall) {
  TRY(const Json json, ParseBody(body, limit));
  TRY(BodyFields fields, BodyFields::Of(json.view(), ""));
  ApiRequest request;
  request.kind = kind;
  TRY_STATUS(ReadSampling(fields, n_vocab, request));
  if (kind != ApiKind::kMessages) TRY_STATUS(ReadBareForms(fields, request.form));
  TRY_STATUS(ReadTemplateArguments(fields, request.chat));
  const ResponsesContext context{.purpose = purpose, .body_bytes = body.size(), .recall = recall};
  TRY_STATUS(ReadKind(fields, n_vocab, context, request));
  TRY_STATUS(CheckTogether(request));
  AskForSilentFields(fields);
  for (std::string& field : fields.Unasked()) request.ignored.push_back(std::move(field));
  return request;
}

const char* StreamType(ApiKind kind) {
  return IsOllama(kind) ? "application/x-ndjson" : "text/event-stream";
}

std::string ErrorBodyFor(ApiKind kind, const ApiError& error, std::string_view request_id) {
  if (IsOllama(kind)) return OllamaErrorBody(error);
  return kind == ApiKind::kMessages ? MessagesErrorBody(error, request_id) : ErrorBody(error);
}

std::unique_ptr<ReplyWriter> MakeReplyWriter(const ApiRequest& request, const ReplyHead& head) {
  switch (request.kind) {
    case ApiKind::kChat:
      return MakeChatWriter(request, head);
    case ApiKind::kCompletion:
      return MakeCompletionWriter(request, head);
    case ApiKind::kResponses:
      return MakeResponsesWriter(request, head);
    case ApiKind::kMessages:
      return MakeMessagesWriter(request, head);
    case ApiKind::kOllamaChat:
    case ApiKind::kOllamaGenerate:
      return MakeOllamaWriter(request, head);
  }
  CHECK(false);
}

}  // namespace moestro
