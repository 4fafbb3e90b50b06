// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <utility>

#include "api/parse_parts.h"
#include "base/text.h"

namespace moestro {

ApiStatus SetForm(OutputForm::Kind kind, std::string definition, const std::string& where,
                  OutputForm& form) {
  if (form.kind != OutputForm::Kind::kText) {
    return BadRequest(where, Format("\"{}\" is a second rule for the answer's form; one of "
                                    "a response format, \"json_schema\" and \"grammar\" is allowed",
                                    where));
  }
  form = {.kind = kind, .definition = std::move(definition), .field = where};
  return {};
}

ApiStatus ReadBareForms(BodyFields& body, OutputForm& form) {
  TRY(const auto schema, body.Object("json_schema"));
  if (schema) {
    TRY_STATUS(SetForm(OutputForm::Kind::kJsonSchema, schema->Dump(), "json_schema", form));
  }
  TRY(std::optional<std::string> grammar, body.Text("grammar"));
  if (!grammar || grammar->empty()) return {};
  return SetForm(OutputForm::Kind::kGrammar, *std::move(grammar), "grammar", form);
}

ApiStatus ReadFormat(BodyFields& format, bool is_flat, OutputForm& form) {
  TRY(const std::string type, format.NeededText("type"));
  if (type == "text") return {};
  if (type == "json_object") {
    TRY(const auto schema, format.Object("schema"));  // llama-server's
    if (schema) return SetForm(OutputForm::Kind::kJsonSchema, schema->Dump(), format.where(), form);
    return SetForm(OutputForm::Kind::kJsonObject, "", format.where(), form);
  }
  if (type != "json_schema") {
    return WrongValue(format.Name("type"), "\"text\", \"json_object\" or \"json_schema\"",
                      *format.Find("type"));
  }
  std::optional<BodyFields> inner;
  if (!is_flat) {
    TRY(inner, format.Fields("json_schema"));
  }
  TRY(const auto schema, (inner ? *inner : format).Object("schema"));
  if (!schema) {
    std::string where = format.Name(is_flat ? "schema" : "json_schema.schema");
    std::string message = Format("\"{}\" is missing: the schema that the answer must fit", where);
    return BadRequest(std::move(where), std::move(message));
  }
  TRY_STATUS(SetForm(OutputForm::Kind::kJsonSchema, schema->Dump(), format.where(), form));
  TRY(const std::optional<bool> is_strict, (inner ? *inner : format).Boolean("strict"));
  form.is_strict = is_strict.value_or(false);
  return {};
}

ApiStatus ReadTemplateArguments(BodyFields& body, ChatInput& chat) {
  TRY(const auto arguments, body.Object("chat_template_kwargs"));
  if (arguments) chat.template_arguments = arguments->Dump();
  return {};
}

void AddTemplateArgument(std::string_view key, Json value, ChatInput& chat) {
  Json arguments = Json::Object();
  if (!chat.template_arguments.empty()) {
    if (auto parsed = Json::Parse(chat.template_arguments)) arguments = *std::move(parsed);
  }
  if (arguments.Find(key)) return;
  arguments.Set(key, std::move(value));
  chat.template_arguments = arguments.Dump();
}

ApiStatus ReadEffort(BodyFields& fields, std::string_view key, ChatInput& chat) {
  TRY(std::optional<std::string> effort, fields.Text(key));
  if (!effort) return {};
  constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                        "high", "xhigh",   "max"};
  if (std::ranges::find(kEfforts, *effort) == kEfforts.end()) {
    return WrongValue(fields.Name(key), "none, minimal, low, medium, high, xhigh or max",
                      *fields.Find(key));
  }
  if (*effort == "none") AddTemplateArgument("enable_thinking", false, chat);
  AddTemplateArgument("reasoning_effort", *effort, chat);
  return {};
}

}  // namespace moestro
