// SPDX-License-Identifier: MIT
// Calls around their arguments, and arguments that are JSON. Other spellings: tagged_scan.cc.
#include "chat/call_scan.h"

#include <algorithm>

#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "chat/call_scanner.h"
#include "chat/json_scan.h"

namespace moestro {
namespace {

// Longer names are a text that was not meant as a call.
constexpr size_t kMaxNameBytes = 256;
// Names of more tools are not looked for where a call may begin with one.
constexpr size_t kMostNamesLookedFor = 64;

// Whether a call of a known tool can be recognised without its mark by its beginning.
bool HasOwnBegin(const CallStyle& style) { return !style.call_begin.empty(); }

// Beginnings of the tool's calls without their mark, for styles in which a name begins a call.
std::vector<std::string> NamedBegins(const CallStyle& style, std::string_view tool) {
  switch (style.shape) {
    case CallShape::kTags:
      return {Format("{}{}", tool, style.key_begin), Format("{}\n{}", tool, style.key_begin)};
    case CallShape::kObject:
      return {Format("{}{}", tool, style.name_end)};
    case CallShape::kPython:
      return {Format("{}{}{}", style.list_begin, tool, style.name_end)};
    default:
      return {};
  }
}

// Beginnings of JSON calls without their mark; the closing mark must follow.
std::vector<std::string> EnvelopeBegins(const CallStyle& style) {
  if (style.is_bare() || style.end.empty()) return {};
  std::vector<std::string> begins;
  for (const std::string_view blank : {"", " "}) {
    begins.push_back(Format("{}{{\"{}\":{}\"", style.list_begin, style.name_key, blank));
  }
  return begins;
}

}  // namespace

std::string_view WithoutBlanksAround(std::string_view text) {
  text.remove_prefix(CountBlanks(text));
  while (!text.empty() && kBlanks.contains(text.back())) text.remove_suffix(1);
  return text;
}

bool TakeName(CallCursor& in, std::string_view mark, std::string& out) {
  std::string_view name;
  // The part in which the mark must occur.
  const std::string_view head = in.rest().substr(0, kMaxNameBytes + mark.size());
  const bool is_full = head.size() == kMaxNameBytes + mark.size();
  if (is_full && !head.contains(mark)) return in.Fail();
  if (!in.TakeUntil(mark, name)) return false;
  out = WithoutBlanksAround(name);
  return IsToolName(out) || in.Fail();
}

CallScan CallScanner::Result(bool is_whole) {
  // Without an opening mark only the closing mark separates a JSON call from an answer in JSON.
  if (!is_whole && NeedsEnd()) {
    scan_.calls.clear();
    scan_.whole_end = 0;
  }
  scan_.state = is_whole ? Scan::kWhole : in_.state();
  scan_.end = in_.at();
  return std::move(scan_);
}

CallScan CallScanner::Run() { return Result(Read()); }

CallScan CallScanner::RunArguments(std::string_view name) {
  Add().name = name;
  const bool is_whole = ReadObject();
  if (is_whole) Whole();
  return Result(is_whole);
}

bool CallScanner::Read() {
  if (calls_.shape == CallShape::kNone || calls_.shape == CallShape::kChannels) return in_.Fail();
  if (!ReadBegin()) return false;
  if (!calls_.list_begin.empty()) return ReadList();
  if (calls_.is_around_all && !calls_.is_bare() && !lacks_begin_) return ReadRow();
  return ReadCall() && ((lacks_begin_ && !NeedsEnd()) || ReadEnd());
}

bool CallScanner::NeedsEnd() const {
  return lacks_begin_ && calls_.shape == CallShape::kEnvelope && !calls_.is_bare();
}

bool CallScanner::ReadBegin() {
  const std::string_view rest = in_.rest();
  const bool has_begin = rest.starts_with(calls_.begin) ||
                         (!calls_.other_begin.empty() && rest.starts_with(calls_.other_begin));
  // A mark that has begun may still be completed.
  const bool may_have_begin = calls_.begin.starts_with(rest) ||
                              (!calls_.other_begin.empty() && calls_.other_begin.starts_with(rest));
  lacks_begin_ = !has_begin && !may_have_begin;
  if (!lacks_begin_) {
    return calls_.other_begin.empty() ? in_.Take(calls_.begin)
                                      : in_.TakeOne({calls_.begin, calls_.other_begin}) >= 0;
  }
  // A grammar holds a bare call if the call begins with the name's field, as a trigger does.
  scan_.is_held =
      calls_.is_bare() && std::ranges::any_of(style_.tools, [&rest](const ToolShape& tool) {
        return rest.starts_with(BareBegin(tool.name));
      });
  return true;
}

bool CallScanner::ReadCall() {
  if (calls_.shape == CallShape::kEnvelope) return ReadEnvelope();
  // Some write JSON where Python belongs.
  if (calls_.shape == CallShape::kPython && in_.rest().starts_with('{')) return ReadEnvelope();
  Add();
  if (!calls_.call_begin.empty()) {
    in_.SkipBlanks();
    if (!in_.Take(calls_.call_begin)) return false;
  }
  return ReadNamed();
}

// Behind CALL_BEGIN.
bool CallScanner::ReadNamed() {
  switch (calls_.shape) {
    case CallShape::kTags:
      return ReadTags();
    case CallShape::kNested:
      return ReadNested();
    case CallShape::kPython:
      return ReadPython();
    default:
      return ReadMarked();
  }
}

bool CallScanner::Whole() {
  call().is_whole = true;
  scan_.whole_end = in_.at();
  return true;
}

bool CallScanner::ReadEnd() {
  if (calls_.end.empty() || has_end_) return true;
  in_.SkipBlanks();
  if (calls_.other_end.empty()) return in_.Take(calls_.end);
  return in_.TakeOne({calls_.end, calls_.other_end}) >= 0;
}

// The arguments of a call whose name is known.
bool CallScanner::ReadObject() {
  in_.SkipBlanks();
  if (!in_.rest().empty() && !in_.rest().starts_with('{')) return in_.Fail();
  call().is_named = !in_.rest().empty();
  if (!calls_.string_mark.empty()) {
    return in_.TakeFound(ScanMarked(in_.rest(), calls_.string_mark), call().arguments) &&
           (Json::IsJson(call().arguments) || in_.Fail());
  }
  std::string_view text;
  const bool is_whole = in_.TakeJson(text);
  call().arguments = text;
  // Half of a pair of surrogates and the like.
  return is_whole && (Json::IsJson(text) || in_.Fail());
}

bool CallScanner::IsTool(std::string_view name) const {
  return std::ranges::contains(style_.tools, name, &ToolShape::name);
}

const ToolShape* CallScanner::Tool() const {
  const auto tool = std::ranges::find(style_.tools, call().name, &ToolShape::name);
  return tool == style_.tools.end() ? nullptr : &*tool;
}

// The value of "arguments"; some models write the object's text as a string.
bool CallScanner::ReadArgumentsField() {
  in_.SkipBlanks();
  if (in_.rest().empty() || in_.rest().starts_with('{')) {
    const bool has_name = !call().name.empty();
    const bool is_whole = ReadObject();
    call().is_named = call().is_named && has_name;
    return is_whole;
  }
  std::string_view text;
  if (!in_.TakeJson(text)) return false;
  const auto value = Json::Parse(text);
  if (!value) return in_.Fail();
  if (text == "null") return true;
  const std::string inner = value->text().value_or("");
  if (!WithoutBlanksAround(inner).starts_with('{') || !Json::IsJson(inner)) return in_.Fail();
  call().arguments = inner;
  return true;
}

bool CallScanner::ReadNameField() {
  std::string_view text;
  if (!in_.TakeJson(text)) return false;
  const auto value = Json::Parse(text);
  call().name = value ? value->text().value_or("") : "";
  if (!IsToolName(call().name)) return in_.Fail();
  const bool must_be_known = calls_.is_bare() || lacks_begin_;
  return !must_be_known || IsTool(call().name) || in_.Fail();
}

bool CallScanner::ReadField() {
  std::string_view key;
  if (!in_.rest().empty() && !in_.rest().starts_with('"')) return in_.Fail();
  if (!in_.TakeJson(key)) return false;
  in_.SkipBlanks();
  if (!in_.Take(":")) return false;
  const bool is_name = key == "\"name\"" || key == Json(calls_.name_key).Dump();
  if (is_name) return ReadNameField();
  if (key == "\"arguments\"" || key == "\"parameters\"") return ReadArgumentsField();
  // A bare object with any other key is no call, but may be an answer in JSON.
  const bool is_known = key == "\"type\"" || key == "\"id\"";
  if (calls_.is_bare() && !is_known) return in_.Fail();
  std::string_view ignored;
  return in_.TakeJson(ignored);
}

// {"name": ..., "arguments": {...}}, in any order.
bool CallScanner::ReadEnvelope() {
  Add();
  in_.SkipBlanks();
  if (!in_.Take("{")) return false;
  while (true) {
    in_.SkipBlanks();
    if (!ReadField()) return false;
    in_.SkipBlanks();
    const int next = in_.TakeOne({",", "}"});
    if (next < 0) return false;
    if (next == 1) break;
  }
  if (call().name.empty()) return in_.Fail();
  if (call().arguments.empty()) call().arguments = "{}";
  return Whole();
}

bool CallScanner::ReadList() {
  in_.SkipBlanks();
  if (!in_.Take(calls_.list_begin)) return false;
  while (true) {
    in_.SkipBlanks();
    if (!ReadCall()) return false;
    in_.SkipBlanks();
    const int next = in_.TakeOne({calls_.separator, calls_.list_end});
    if (next < 0) return false;
    if (next == 1) return (lacks_begin_ && !NeedsEnd()) || ReadEnd();
  }
}

// Reads calls with marks of their own, up to the end mark of all.
bool CallScanner::ReadRow() {
  while (true) {
    in_.SkipBlanks();
    const std::string_view other = calls_.other_end.empty() ? calls_.end : calls_.other_end;
    const int next = in_.TakeOne({calls_.call_begin, calls_.end, other});
    if (next < 0) return false;
    if (next > 0) return !scan_.calls.empty() || in_.Fail();
    Add();
    if (!ReadNamed()) return false;
  }
}

// Reads a name with the parts before and behind it.
bool CallScanner::ReadMarkedName() {
  std::string name;
  std::string_view id;
  if (!calls_.id_end.empty() && !in_.TakeUntil(calls_.id_end, id)) return false;
  const bool has_name_end = !calls_.name_end.empty();
  if (!TakeName(in_, has_name_end ? calls_.name_end : "{", name)) return false;
  if (!has_name_end) in_.GoBack(1);
  std::string_view given = name;
  if (!calls_.before_end.empty()) {
    given = WithoutBlanksAround(given.substr(0, given.find(calls_.before_end)));
  }
  if (!calls_.numbered_begin.empty()) {
    if (given.starts_with(calls_.numbered_begin)) given.remove_prefix(calls_.numbered_begin.size());
    const size_t colon = given.rfind(':');
    const bool is_number = colon != std::string_view::npos && colon + 1 < given.size() &&
                           given.find_first_not_of("0123456789", colon + 1) == given.npos;
    if (is_number) given = given.substr(0, colon);
  }
  call().name = given;
  return IsToolName(call().name) || in_.Fail();
}

// NAME NAME_END {...}, or KIND NAME_END NAME and the object in a fence.
bool CallScanner::ReadMarked() {
  if (lacks_begin_ && !MayBeTool()) return in_.Fail();
  if (!ReadMarkedName()) return false;
  const bool has_fence = !calls_.kind.empty() && call().name == calls_.kind;
  if (has_fence && (!TakeName(in_, "\n", call().name) || !in_.Take(calls_.fence_begin))) {
    return false;
  }
  if (lacks_begin_ && !IsTool(call().name)) return in_.Fail();
  if (!ReadObject()) return false;
  if (has_fence) {
    in_.SkipBlanks();
    if (!in_.Take(calls_.fence_end)) return false;
  }
  if (!calls_.call_end.empty()) {
    in_.SkipBlanks();
    if (!in_.Take(calls_.call_end)) return false;
  }
  return Whole();
}

// Whether the text here may be the name of a tool, or its beginning.
bool CallScanner::MayBeTool() const {
  std::string_view rest = in_.rest();
  if (!calls_.id_end.empty() || !calls_.kind.empty()) return true;
  if (!calls_.numbered_begin.empty() && rest.starts_with(calls_.numbered_begin)) {
    rest.remove_prefix(calls_.numbered_begin.size());
  }
  if (calls_.numbered_begin.starts_with(rest)) return true;
  return std::ranges::any_of(style_.tools, [rest](const ToolShape& tool) {
    return rest.starts_with(tool.name) || tool.name.starts_with(rest);
  });
}

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && WithoutBlanksAround(name) == name &&
         name.find_first_of("<>{}\"") == std::string_view::npos && Visible(name) == name;
}

CallScan ScanCalls(const AnswerStyle& style, std::string_view text) {
  return CallScanner(style, text).Run();
}

CallScan ScanArguments(std::string_view name, std::string_view text) {
  const AnswerStyle style;
  return CallScanner(style, text).RunArguments(name);
}

std::string BareBegin(std::string_view tool) {
  return Format(R"({{"name": {},)", Json(tool).Dump());
}

std::vector<std::string> ChannelCallBegins() {
  return {Format("{}commentary {}", kChannelMark, kRecipient),
          Format("{}assistant {}", kStartMark, kRecipient)};
}

std::vector<std::string> OpeningMarks(const AnswerStyle& style) {
  const CallStyle& calls = style.calls;
  if (calls.shape == CallShape::kNone || calls.shape == CallShape::kChannels) return {};
  std::vector<std::string> marks{std::string(calls.begin)};
  if (!calls.other_begin.empty()) marks.emplace_back(calls.other_begin);
  if (style.tools.empty()) return marks;
  if (calls.shape == CallShape::kEnvelope) {
    for (std::string& begin : EnvelopeBegins(calls)) marks.push_back(std::move(begin));
  } else if (HasOwnBegin(calls)) {
    marks.emplace_back(calls.call_begin);
  } else if (style.tools.size() <= kMostNamesLookedFor) {
    for (const ToolShape& tool : style.tools) {
      for (std::string& begin : NamedBegins(calls, tool.name)) marks.push_back(std::move(begin));
    }
  }
  return marks;
}

}  // namespace moestro
