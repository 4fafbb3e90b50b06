// SPDX-License-Identifier: MIT
// Readers of the fields that several wire formats share, and a reader for each format. A reader
// changes the parts of the request that belong to its fields and leaves the rest as it is. Inside
// src/api only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "api/api_request.h"
#include "api/body_fields.h"
#include "base/json.h"

namespace moestro {

// parse_sampling.cc: fields common to all formats, also those of llama-server.
ApiStatus ReadSampling(BodyFields& body, uint32_t n_vocab, ApiRequest& request);
// The first of `keys` that the body has; all are checked.
ApiStatus ReadMaxTokens(BodyFields& body, std::initializer_list<std::string_view> keys,
                        ApiRequest& request);
// A string or an array of strings.
ApiStatus ReadStops(BodyFields& body, std::string_view key, ApiRequest& request);
// "n", answers to each of `prompts` prompts.
ApiStatus ReadAnswers(BodyFields& body, size_t prompts, ApiRequest& request);

// parse_form.cc: the form of the answer's text, and the arguments of the template.
// "grammar" and "json_schema", as in llama-server.
ApiStatus ReadBareForms(BodyFields& body, OutputForm& form);
// {"type": "text" | "json_object" | "json_schema", ...}. A flat format (responses, messages) holds
// the schema itself, another one in "json_schema".
ApiStatus ReadFormat(BodyFields& format, bool is_flat, OutputForm& form);
// Sets the answer's form; 400 if the request has a form already.
ApiStatus SetForm(OutputForm::Kind kind, std::string definition, const std::string& where,
                  OutputForm& form);
ApiStatus ReadTemplateArguments(BodyFields& body, ChatInput& chat);
// Adds the argument unless the client sent it.
void AddTemplateArgument(std::string_view key, Json value, ChatInput& chat);
ApiStatus ReadEffort(BodyFields& fields, std::string_view key, ChatInput& chat);

// parse_tools.cc
// `function`: the object with name, description and schema.
ApiStatus AddTool(BodyFields& function, std::string_view schema_key, ChatInput& chat);
// "auto", "none", "required", one of these words in {"type": ...}, {"type": "allowed_tools"}, or
// {"type": "function"} with the name in "function" or in the object itself. REQUIRES: the tools
// were read.
ApiStatus ReadToolChoice(BodyFields& body, ApiRequest& request);
// Chat's {"type": "function", "function": {...}} or the flat form of responses, where {"type":
// "namespace", "tools": [...]} holds more functions. Tools of other types are left out with a
// warning.
ApiStatus ReadTools(BodyFields& body, bool is_flat, ApiRequest& request);
// The model's name for the tool with "name" and, if present, "namespace".
ApiResult<std::string> ReadToolName(BodyFields& fields, const ApiRequest& request);
// Adds the warning that the field `where` is left out: the field's type, and what is offered
// instead. A request has some tens of warnings at most.
void Warn(ApiRequest& request, const std::string& where, std::string_view type,
          std::string_view offered);
// 400 unless the tools' names differ and the requested tool is among them.
ApiStatus CheckTools(const ChatInput& chat);
// A call's arguments, sent as a string or as an object, as JSON text of an object.
ApiResult<std::string> ReadArguments(BodyFields& call, std::string_view key);
// `text` if it is a JSON object, else {"input": text}; {} for an empty text.
std::string ObjectText(std::string_view text);

// parse_content.cc
ChatTurn NewTurn(std::string role, std::string content = {});
// Whether the last turn is an assistant's text that the answer can go on with.
bool EndsInText(const ChatInput& chat);
// A string, or text parts joined by line ends. 400 if a part is no text.
ApiResult<std::string> ReadContent(BodyFields& turn, std::string_view key);

// The text of a tool's result, or of a turn before the user's last one. Clients send these again
// with each later request, so a part that cannot be read must not end the conversation: documents
// count as their text, and for any other part (a picture, a sound) a sentence stands in the text,
// with a warning.
ApiResult<std::string> ReadEarlierContent(BodyFields& turn, std::string_view key,
                                          ApiRequest& request);
// The sentence for something that is left out, with the warning.
std::string LeftOut(const std::string& where, std::string_view type, ApiRequest& request);
// The index of the user's last turn in an array of turns, SIZE_MAX if there is none. In that turn
// parts that are no text are refused, for the user to notice at once. Turns of results of
// tools alone, which Anthropic's clients send as the user's, do not count.
size_t LastOfUser(JsonView turns);
// Anthropic's blocks "document" and "search_result".
bool IsDocument(std::string_view type);
// The block's title and text; nullopt: the block holds no text.
ApiResult<std::optional<std::string>> ReadDocument(BodyFields& block);

// The readers of the formats, a file each.
ApiStatus ReadChatBody(BodyFields& body, ApiRequest& request);
ApiStatus ReadCompletionBody(BodyFields& body, uint32_t n_vocab, ApiRequest& request);
// Circumstances of a body of responses.
struct ResponsesContext {
  ApiPurpose purpose;
  size_t body_bytes;  // of the whole body
  const RecallItems& recall;
};
ApiStatus ReadResponsesBody(BodyFields& body, const ResponsesContext& context, ApiRequest& request);
ApiStatus ReadMessagesBody(BodyFields& body, ApiPurpose purpose, ApiRequest& request);
ApiStatus ReadOllamaChatBody(BodyFields& body, uint32_t n_vocab, ApiRequest& request);
ApiStatus ReadOllamaGenerateBody(BodyFields& body, uint32_t n_vocab, ApiRequest& request);

}  // namespace moestro
