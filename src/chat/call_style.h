// SPDX-License-Identifier: MIT
// A model's way to write calls of tools, as a value. Two interpreters read it: call_scan.h takes
// calls out of an answer, call_rules.h writes the grammar that holds calls. A model that writes
// calls in a new way of a known shape is one more row of the table in call_style.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// The places of a call's name and arguments.
enum class CallShape : uint8_t {
  kNone,      // calls are not looked for
  kEnvelope,  // {"name": NAME, KEY: {...}}
  kObject,    // NAME {...}, with marks around
  kTags,      // NAME, each argument between tags, with marks around
  kNested,    // NAME, each argument in a tag named as its key; values in a value have tags, too
  kPython,    // [NAME(KEY=VALUE, ...), ...]
  kChannels,  // <|channel|>commentary to=functions.NAME ...<|message|>{...}: channel_reader.cc
};

// The texts must outlive a style; an empty text: no such mark.
struct CallStyle {
  CallShape shape = CallShape::kNone;
  std::string_view title = "none";  // for the log
  // Around each call, or around all calls in a row.
  std::string_view begin = {};
  std::string_view end = {};
  // Marks that are also read in place of `begin` and `end`.
  std::string_view other_begin = {};
  std::string_view other_end = {};
  bool is_around_all = false;
  bool may_lack_begin = false;       // a grammar holds such calls all the same
  std::string_view list_begin = {};  // inside `begin` and `end`, if these are around all calls
  std::string_view list_end = {};
  std::string_view list_blank = {};       // GBNF of blanks inside the two
  std::string_view separator = {};        // between calls, which is needed
  std::string_view between = R"("\n"?)";  // GBNF of all that may stand between calls
  bool has_lines = false;                 // `begin` and `end` stand on lines of their own
  // kEnvelope: {"ID_KEY": "0", "NAME_KEY": NAME, "ARGUMENTS_KEY": {...}}; other usual keys are
  // read, too.
  std::string_view id_key = {};
  std::string_view name_key = "name";
  std::string_view arguments_key = {};
  // kObject, kTags, kNested: CALL_BEGIN NAME NAME_END arguments CALL_END. Without NAME_END a name
  // ends where the first tag begins.
  std::string_view call_begin = {};
  std::string_view name_end = {};
  std::string_view call_end = {};
  std::string_view before_end = {};  // kObject: NAME BEFORE_END anything NAME_END is read, too
  std::string_view id_end = {};      // kObject: CALL_BEGIN ID ID_END NAME is written
  // kObject: CALL_BEGIN NUMBERED_BEGIN NAME:NUMBER NAME_END is written. A template that writes a
  // call's id writes it here, so the id must have this form (call_ids.h).
  std::string_view numbered_begin = {};
  // kObject: strings of the arguments stand between these marks, and keys have no quotes
  // (json_scan.h). Without NAME_END a name ends where the arguments begin.
  std::string_view string_mark = {};
  // kObject: CALL_BEGIN KIND NAME_END NAME FENCE_BEGIN {...} FENCE_END CALL_END is read, too, and
  // written if `is_fenced`. Fences stand on lines of their own.
  std::string_view kind = {};
  std::string_view fence_begin = {};
  std::string_view fence_end = {};
  bool is_fenced = false;
  // kTags: KEY_BEGIN KEY KEY_END VALUE_BEGIN VALUE VALUE_END. kNested: KEY_BEGIN KEY KEY_END VALUE
  // VALUE_END KEY KEY_END.
  std::string_view key_begin = {};
  std::string_view key_end = {};
  std::string_view value_begin = {};
  std::string_view value_end = {};
  // kTags, with TAG_END: behind NAME_END and KEY_END a tag has attributes up to TAG_END. A value's
  // attributes decide between text and JSON. `name_attribute` and `json_attribute` are GBNF.
  std::string_view tag_end = {};
  std::string_view name_attribute = {};
  std::string_view text_attribute = {};
  std::string_view json_attribute = {};
  std::string_view plain_json_attribute = {};  // an example of json_attribute
  // kTags: blanks that are written behind NAME_END, KEY_END and VALUE_END, and before VALUE_END.
  std::string_view behind_name = "\n";
  std::string_view behind_key = "\n";
  std::string_view behind_value = "\n";
  std::string_view before_value_end = {};

  // Whether a whole answer, or the text behind `begin`, may be a call's JSON object.
  bool is_bare() const { return shape == CallShape::kEnvelope && may_lack_begin; }
};

// The text before and behind a call's arguments, without `begin` and `end`.
struct AroundArguments {
  std::string before;
  std::string behind;
};
// REQUIRES: the shape is neither kNone nor kChannels.
AroundArguments TextAround(const CallStyle& style, std::string_view name);

// The style whose marks occur in a chat template's text. nullopt: no known style.
std::optional<CallStyle> FindCallStyle(std::string_view template_text);
// Tagged JSON: the style described to a model whose template has no calls.
CallStyle PlainCallStyle();
// True if `text`, of two characters or more, belongs to a mark of the calls.
bool IsOfMark(const CallStyle& style, std::string_view text);
// The titles of all styles, each once, for documents and their tests.
std::vector<std::string_view> CallStyleTitles();

// Marks of channels.
inline constexpr std::string_view kChannelMark = "<|channel|>";
inline constexpr std::string_view kStartMark = "<|start|>";
inline constexpr std::string_view kMessageMark = "<|message|>";
inline constexpr std::string_view kEndMark = "<|end|>";
inline constexpr std::string_view kCallMark = "<|call|>";
inline constexpr std::string_view kReturnMark = "<|return|>";
inline constexpr std::string_view kConstrainMark = "<|constrain|>";
inline constexpr std::string_view kRecipient = "to=functions.";

}  // namespace moestro
