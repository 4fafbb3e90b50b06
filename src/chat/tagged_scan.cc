// SPDX-License-Identifier: MIT
// Calls whose arguments are in tags, or in Python's spelling.
#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "chat/argument_scan.h"
#include "chat/call_scanner.h"

namespace moestro {
namespace {

// REQUIRES: the text is JSON without blanks around it.
JsonKind JsonKindOf(std::string_view json) {
  switch (json.front()) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kText;
    case 't':
    case 'f':
      return JsonKind::kBoolean;
    case 'n':
      return JsonKind::kNull;
    default:
      return JsonKind::kNumber;
  }
}

}  // namespace

// Reads a call with tags. Without NAME_END a name ends with the first character of the next tag.
bool CallScanner::ReadTags() {
  const bool has_name_end = !calls_.name_end.empty();
  const std::string_view name_end = has_name_end ? calls_.name_end : calls_.key_begin.substr(0, 1);
  // Words about such tags name no tool, so a name must be a known tool's.
  const bool must_be_known = lacks_begin_ || calls_.may_lack_begin;
  if (must_be_known && !MayBeTool()) return in_.Fail();
  if (!TakeName(in_, name_end, call().name)) return false;
  if (must_be_known && !IsTool(call().name)) return in_.Fail();
  std::string_view ignored;
  if (!calls_.tag_end.empty() && !in_.TakeUntil(calls_.tag_end, ignored)) return false;
  call().is_named = true;
  call().arguments = "{";
  int next = 0;
  for (bool is_first = true; (next = TakeTag(!has_name_end && is_first)) == 0; is_first = false) {
    if (!ReadTag()) return false;
  }
  if (next < 0) return false;
  call().arguments += "}";
  has_end_ = calls_.call_end.empty();
  return Whole();
}

// 0: the beginning of an argument, 1: the end of the call, -1: neither. `has_first`: the tag's
// first character is behind.
int CallScanner::TakeTag(bool has_first) {
  const std::string_view end = calls_.call_end.empty() ? calls_.end : calls_.call_end;
  if (!calls_.name_end.empty()) {
    in_.SkipBlanks();
    return in_.TakeOne({calls_.key_begin, end});
  }
  if (!has_first) {
    in_.SkipBlanks();
    if (!in_.Take(calls_.key_begin.substr(0, 1))) return -1;
  }
  return in_.TakeOne({calls_.key_begin.substr(1), end.substr(1)});
}

bool CallScanner::ReadTag() {
  std::string_view value;
  if (calls_.value_begin.empty()) {
    std::string key;
    std::string_view attributes;
    if (!TakeName(in_, calls_.key_end, key)) return false;
    if (!calls_.tag_end.empty() && !in_.TakeUntil(calls_.tag_end, attributes)) return false;
    if (!TakeValue(key, value)) return false;
    // Blanks that are the style's, once.
    if (value.starts_with(calls_.behind_key)) value.remove_prefix(calls_.behind_key.size());
    if (value.ends_with(calls_.before_value_end)) {
      value.remove_suffix(calls_.before_value_end.size());
    }
    // The tag's attribute decides only where the schema leaves the kind open.
    const bool is_said_text = !attributes.empty() && attributes.contains(calls_.text_attribute);
    const bool is_open = !IsText(key) && KindsOf(key) == nullptr;
    AddArgument(key, is_said_text && is_open ? Json(value).Dump() : ValueText(key, value));
    return true;
  }
  std::string_view key;
  if (!in_.TakeUntil(calls_.key_end, key)) return false;
  key = WithoutBlanksAround(key);
  in_.SkipBlanks();
  if (!in_.Take(calls_.value_begin) || !TakeValue(key, value)) return false;
  AddArgument(key, ValueText(key, value));
  return true;
}

// Takes a value up to its mark. A string within JSON may hold this mark, so JSON ends at its own
// end, if the mark follows there. A value that only begins like JSON ends at the first mark.
bool CallScanner::TakeValue(std::string_view key, std::string_view& value) {
  const std::string_view rest = in_.rest();
  const size_t blanks = CountBlanks(rest);
  const bool may_be_json = blanks < rest.size() && std::string_view("{[\"").contains(rest[blanks]);
  if (!may_be_json || IsText(key)) return in_.TakeUntil(calls_.value_end, value);
  const JsonScan json = ScanJson(rest);
  if (json.state == Scan::kOpen) return in_.Wait();
  const std::string_view behind = rest.substr(json.length);
  const std::string_view end = behind.substr(CountBlanks(behind));
  if (json.state == Scan::kWhole &&
      calls_.value_end.starts_with(end.substr(0, calls_.value_end.size()))) {
    if (end.size() < calls_.value_end.size()) return in_.Wait();
    const size_t length = rest.size() - end.size();
    value = rest.substr(0, length);
    return in_.Skip(length + calls_.value_end.size());
  }
  return in_.TakeUntil(calls_.value_end, value);
}

// Reads tags that are named like keys; only the outermost ones have a schema.
bool CallScanner::ReadNested() {
  if (lacks_begin_ && !MayBeTool()) return in_.Fail();
  if (!TakeName(in_, calls_.name_end, call().name)) return false;
  if (lacks_begin_ && !IsTool(call().name)) return in_.Fail();
  call().is_named = true;
  const NestedText text_of = [this](std::optional<std::string_view> key, std::string_view text) {
    if (key) return ValueText(*key, text);
    return Json::IsJson(text) ? std::string(WithoutBlanksAround(text)) : Json(text).Dump();
  };
  const bool is_whole = in_.TakeFound(ScanNested(calls_, in_.rest(), text_of), call().arguments);
  return is_whole && (Json::IsJson(call().arguments) ? Whole() : in_.Fail());
}

bool CallScanner::ReadPython() {
  if (lacks_begin_ && !MayBeTool()) return in_.Fail();
  if (!TakeName(in_, calls_.name_end, call().name)) return false;
  if (lacks_begin_ && !IsTool(call().name)) return in_.Fail();
  call().is_named = true;
  const bool is_whole = in_.TakeFound(ScanPythonArguments(in_.rest()), call().arguments);
  return is_whole && (Json::IsJson(call().arguments) ? Whole() : in_.Fail());
}

void CallScanner::AddArgument(std::string_view key, const std::string& json) {
  std::string& arguments = call().arguments;
  if (arguments.size() > 1) arguments += ", ";
  arguments += Json(key).Dump() + ": " + json;
}

// Whether the call's parameter is declared to be text.
bool CallScanner::IsText(std::string_view key) const {
  const ToolShape* const tool = Tool();
  return tool != nullptr && std::ranges::contains(tool->text_parameters, key);
}

const ToolShape::Described* CallScanner::KindsOf(std::string_view key) const {
  const ToolShape* const tool = Tool();
  if (tool == nullptr) return nullptr;
  const auto found = std::ranges::find(tool->other_parameters, key, &ToolShape::Described::name);
  return found == tool->other_parameters.end() ? nullptr : &*found;
}

std::string CallScanner::ValueText(std::string_view key, std::string_view value) const {
  if (IsText(key)) return Json(value).Dump();
  const std::string_view trimmed = WithoutBlanksAround(value);
  std::string json(trimmed);
  if (trimmed == "True") json = "true";
  if (trimmed == "False") json = "false";
  if (trimmed == "None") json = "null";
  const bool is_json = Json::IsJson(json);
  const ToolShape::Described* const described = KindsOf(key);
  const auto takes = [described](JsonKind kind) {
    return described != nullptr && std::ranges::contains(described->kinds, kind);
  };
  const bool is_meant = is_json && (!takes(JsonKind::kText) || takes(JsonKindOf(json)));
  // An empty tag is an empty list or object where text is none of the kinds.
  if (trimmed.empty() && takes(JsonKind::kArray) && !takes(JsonKind::kText)) return "[]";
  if (trimmed.empty() && takes(JsonKind::kObject) && !takes(JsonKind::kText)) return "{}";
  return is_meant ? json : Json(value).Dump();
}

}  // namespace moestro
