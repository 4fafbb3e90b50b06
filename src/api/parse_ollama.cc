// SPDX-License-Identifier: MIT
// Ollama's chat and generate.
#include <limits>
#include <utility>

#include "api/parse_parts.h"
#include "base/text.h"

namespace moestro {
namespace {

// Whether a message has pictures, or a prompt has some beside it.
ApiResult<bool> HasImages(BodyFields& fields) {
  TRY(const auto images, fields.Array("images"));
  return images && images->size() > 0;
}

ApiStatus RefuseImages(BodyFields& fields) {
  TRY(const bool has_images, HasImages(fields));
  if (!has_images) return {};
  return BadRequest(fields.Name("images"), Format("\"{}\" has pictures: the model reads text only",
                                                  fields.Name("images")));
}

ApiStatus ReadOllamaCalls(BodyFields& message, ChatTurn& turn) {
  TRY(const auto calls, message.Array("tool_calls"));
  for (size_t i = 0; calls && i < calls->size(); ++i) {
    TRY(BodyFields call, BodyFields::Of(*calls->At(i), message.Name("tool_calls", i)));
    ToolCall made;
    TRY(std::optional<std::string> id, call.Text("id"));
    made.id = std::move(id).value_or("");
    TRY(std::optional<BodyFields> function, call.Fields("function"));
    if (!function) {
      std::string where = call.Name("function");
      std::string text = Format("\"{}\" is missing: the call's name and arguments", where);
      return BadRequest(std::move(where), std::move(text));
    }
    TRY(made.name, function->NeededText("name"));
    TRY(made.arguments, ReadArguments(*function, "arguments"));
    turn.calls.push_back(std::move(made));
  }
  return {};
}

ApiResult<ChatTurn> ReadOllamaMessage(BodyFields& message, bool is_last_of_user,
                                      ApiRequest& request) {
  TRY(std::string role, message.NeededText("role"));
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    return WrongValue(message.Name("role"), "system, user, assistant or tool",
                      *message.Find("role"));
  }
  if (is_last_of_user) TRY_STATUS(RefuseImages(message));
  TRY(const bool has_images, HasImages(message));
  TRY(std::optional<std::string> content, message.Text("content"));
  ChatTurn turn = NewTurn(std::move(role), std::move(content).value_or(""));
  if (has_images) {
    if (!turn.content.empty()) turn.content += '\n';
    turn.content += LeftOut(message.Name("images"), "image", request);
  }
  if (turn.role == "assistant") {
    TRY(std::optional<std::string> thinking, message.Text("thinking"));
    turn.reasoning = std::move(thinking).value_or("");
    TRY_STATUS(ReadOllamaCalls(message, turn));
  }
  if (turn.role == "tool") {
    TRY(std::optional<std::string> id, message.Text("tool_call_id"));
    turn.call_id = std::move(id).value_or("");
    TRY(std::optional<std::string> name, message.Text("tool_name"));
    turn.name = std::move(name).value_or("");
  }
  return turn;
}

// true, false, or how much.
ApiStatus ReadThink(BodyFields& body, ChatInput& chat) {
  const auto think = body.Find("think");
  if (!think) return {};
  if (const auto is_on = think->boolean()) {
    AddTemplateArgument("enable_thinking", *is_on, chat);
    return {};
  }
  const std::string effort = think->text().value_or("");
  if (effort != "low" && effort != "medium" && effort != "high" && effort != "max") {
    return WrongValue("think", "true, false, \"low\", \"medium\", \"high\" or \"max\"", *think);
  }
  AddTemplateArgument("enable_thinking", true, chat);
  AddTemplateArgument("reasoning_effort", effort, chat);
  return {};
}

// "json", or a schema.
ApiStatus ReadOllamaFormat(BodyFields& body, OutputForm& form) {
  const auto format = body.Find("format");
  if (!format) return {};
  if (format->kind() == JsonKind::kObject) {
    return SetForm(OutputForm::Kind::kJsonSchema, format->Dump(), "format", form);
  }
  const auto word = format->text();
  if (!word || (!word->empty() && *word != "json")) {
    return WrongValue("format", "\"json\" or an object with a JSON schema", *format);
  }
  if (word->empty()) return {};
  return SetForm(OutputForm::Kind::kJsonObject, "", "format", form);
}

// Skips fields about how the model is run, which the server's flags have decided.
void AskForRunnersFields(BodyFields& options) {
  for (const char* key :
       {"num_keep", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "vocab_only",
        "use_mmap", "use_mlock", "num_thread", "numa", "tfs_z", "penalize_newline"}) {
    options.Find(key);
  }
}

ApiStatus ReadOptions(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  TRY(std::optional<BodyFields> options, body.Fields("options"));
  if (!options) return {};
  TRY_STATUS(ReadSampling(*options, n_vocab, request));
  TRY_STATUS(ReadStops(*options, "stop", request));
  TRY(const auto most,
      options->Integer("num_predict", {.least = std::numeric_limits<int32_t>::min()}));
  if (most && *most > 0) request.max_tokens = *most;  // else the text ends by itself
  TRY(const auto context, options->Integer("num_ctx", {.least = 0}));
  request.needed_context = static_cast<uint64_t>(context.value_or(0));
  AskForRunnersFields(*options);
  for (const std::string& key : options->Unasked()) request.ignored.push_back("options." + key);
  return {};
}

// Reads the fields of both endpoints.
ApiStatus ReadOllamaFields(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  TRY_STATUS(ReadOptions(body, n_vocab, request));
  TRY(std::optional<std::string> model, body.Text("model"));
  request.model = std::move(model).value_or("");
  TRY(const auto stream, body.Boolean("stream"));
  request.stream = stream.value_or(true);
  TRY_STATUS(ReadThink(body, request.chat));
  TRY_STATUS(ReadOllamaFormat(body, request.form));
  body.Find("keep_alive");  // the model stays
  return {};
}

// Refuses fields of generate for which a conversation has no place.
ApiStatus RefuseOldFields(BodyFields& body) {
  TRY(const std::optional<std::string> suffix, body.Text("suffix"));
  if (suffix && !suffix->empty()) {
    return BadRequest("suffix", "\"suffix\" asks for the middle of a text, which is not offered");
  }
  TRY(const std::optional<std::string> text, body.Text("template"));
  if (text && !text->empty()) {
    return BadRequest("template",
                      "\"template\" replaces the model's own, which is not offered: send the "
                      "finished prompt with \"raw\"");
  }
  TRY(const auto context, body.Array("context"));
  if (context && context->size() > 0) {
    return BadRequest("context",
                      "\"context\" of an earlier reply is not offered: send the conversation to "
                      "/api/chat");
  }
  return {};
}

}  // namespace

ApiStatus ReadOllamaChatBody(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  TRY_STATUS(ReadOllamaFields(body, n_vocab, request));
  TRY_STATUS(ReadTools(body, false, request));
  TRY(const auto messages, body.Array("messages"));
  request.is_load = !messages || messages->size() == 0;
  const size_t last_of_user = request.is_load ? 0 : LastOfUser(*messages);
  for (size_t i = 0; !request.is_load && i < messages->size(); ++i) {
    TRY(BodyFields message, BodyFields::Of(*messages->At(i), body.Name("messages", i)));
    TRY(ChatTurn turn, ReadOllamaMessage(message, i == last_of_user, request));
    request.chat.turns.push_back(std::move(turn));
  }
  return {};
}

ApiStatus ReadOllamaGenerateBody(BodyFields& body, uint32_t n_vocab, ApiRequest& request) {
  TRY_STATUS(ReadOllamaFields(body, n_vocab, request));
  TRY_STATUS(RefuseOldFields(body));
  TRY_STATUS(RefuseImages(body));
  TRY(std::optional<std::string> prompt, body.Text("prompt"));
  TRY(std::optional<std::string> system, body.Text("system"));
  TRY(const auto raw, body.Boolean("raw"));
  request.is_load = prompt.value_or("").empty();
  if (request.is_load) return {};
  if (raw.value_or(false)) {
    request.prompts.emplace_back(*std::move(prompt));
    return {};
  }
  if (system && !system->empty()) {
    request.chat.turns.push_back(NewTurn("system", *std::move(system)));
  }
  request.chat.turns.push_back(NewTurn("user", *std::move(prompt)));
  return {};
}

}  // namespace moestro
