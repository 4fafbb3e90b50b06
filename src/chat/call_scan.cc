// SPDX-License-Identifier: MIT
#include "chat/call_scan.h"

#include <algorithm>
#include <initializer_list>

#include "base/format.h"
#include "base/json.h"

namespace moestro {
namespace {

// A place in the text. What returns a bool gives false when the text is not what was asked for;
// state() then says whether that is certain (kBroken) or more text may mend it (kOpen).
class CallCursor {
 public:
  explicit CallCursor(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  Scan state() const { return state_; }
  std::string_view rest() const { return text_.substr(at_); }

  void SkipBlanks() { at_ += CountBlanks(rest()); }
  bool Fail() {
    state_ = Scan::kBroken;
    return false;
  }
  // Takes one of these texts: its index, or -1.
  int TakeOne(std::initializer_list<std::string_view> texts) {
    int index = 0;
    bool may_come = false;
    for (const std::string_view text : texts) {
      if (rest().starts_with(text)) {
        at_ += text.size();
        return index;
      }
      may_come = may_come || text.starts_with(rest());
      ++index;
    }
    state_ = may_come ? Scan::kOpen : Scan::kBroken;
    return -1;
  }
  bool Take(std::string_view text) { return TakeOne({text}) == 0; }
  bool TakeUntil(std::string_view mark, std::string_view& out) {
    const size_t found = rest().find(mark);
    if (found == std::string_view::npos) {
      state_ = Scan::kOpen;
      return false;
    }
    out = rest().substr(0, found);
    at_ += found + mark.size();
    return true;
  }
  // A JSON value. What there is of one that is not whole is in `out`, too.
  bool TakeJson(std::string_view& out) {
    SkipBlanks();
    const JsonScan found = ScanJson(rest());
    out = rest().substr(0, found.length);
    at_ += found.length;
    state_ = found.state;
    return found.state == Scan::kWhole;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  Scan state_ = Scan::kOpen;
};

// Longer names are a text that was not meant as a call.
constexpr size_t kMaxNameBytes = 256;

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         name.find_first_of("\r\n\t<>{}\"") == std::string_view::npos;
}

std::string_view Trim(std::string_view text) {
  text.remove_prefix(CountBlanks(text));
  while (!text.empty() && kBlanks.contains(text.back())) text.remove_suffix(1);
  return text;
}

// What TakeUntil() does for a name, which fails as soon as it is too long for one.
bool TakeName(CallCursor& in, std::string_view mark, std::string& out) {
  std::string_view name;
  // Where the mark would be seen at the latest.
  const std::string_view head = in.rest().substr(0, kMaxNameBytes + mark.size());
  const bool is_full = head.size() == kMaxNameBytes + mark.size();
  if (is_full && !head.contains(mark)) return in.Fail();
  if (!in.TakeUntil(mark, name)) return false;
  out = Trim(name);
  return IsName(out) || in.Fail();
}

class CallScanner {
 public:
  CallScanner(const AnswerStyle& style, std::string_view text) : style_(style), in_(text) {}

  CallScan Run() {
    const bool is_whole = Read();
    scan_.state = is_whole ? Scan::kWhole : in_.state();
    scan_.end = in_.at();
    return std::move(scan_);
  }
  CallScan RunArguments(std::string_view name) {
    Add().name = name;
    const bool is_whole = ReadObject();
    if (is_whole) Whole();
    scan_.state = is_whole ? Scan::kWhole : in_.state();
    scan_.end = in_.at();
    return std::move(scan_);
  }

 private:
  bool Read() {
    switch (style_.calls) {
      case CallFormat::kTaggedJson:
        return in_.Take(style_.call_begin) && ReadEnvelope() && ReadEnd();
      case CallFormat::kList:
        return in_.Take(style_.call_begin) && ReadList();
      case CallFormat::kNamed:
        return in_.Take(style_.call_begin) && ReadNamed();
      case CallFormat::kBareJson:
        return ReadBare();
      case CallFormat::kParameterTags:
        return ReadParameterTags();
      case CallFormat::kKeyValueTags:
        return in_.Take(style_.call_begin) && ReadKeyValueTags();
      case CallFormat::kFenced:
        return in_.Take(style_.call_begin) && ReadFenced();
      case CallFormat::kNone:
      case CallFormat::kChannels:
        break;
    }
    return in_.Fail();
  }

  ScannedCall& Add() { return scan_.calls.emplace_back(); }
  ScannedCall& call() { return scan_.calls.back(); }
  bool Whole() {
    call().is_whole = true;
    scan_.whole_end = in_.at();
    return true;
  }
  bool ReadEnd() {
    if (style_.call_end.empty()) return true;
    in_.SkipBlanks();
    return in_.Take(style_.call_end);
  }

  // The arguments of a call whose name is known.
  bool ReadObject() {
    in_.SkipBlanks();
    if (!in_.rest().empty() && !in_.rest().starts_with('{')) return in_.Fail();
    call().is_named = !in_.rest().empty();
    std::string_view text;
    const bool is_whole = in_.TakeJson(text);
    call().arguments = text;
    // Half of a pair of surrogates and the like.
    return is_whole && (Json::Parse(text).has_value() || in_.Fail());
  }

  bool IsTool(std::string_view name) const {
    return std::ranges::contains(style_.tools, name, &ToolShape::name);
  }

  // The value of "arguments"; some models write the object's text as a string.
  bool ReadArgumentsField() {
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
    if (!Trim(inner).starts_with('{') || !Json::Parse(inner)) return in_.Fail();
    call().arguments = inner;
    return true;
  }

  bool ReadNameField() {
    std::string_view text;
    if (!in_.TakeJson(text)) return false;
    const auto value = Json::Parse(text);
    call().name = value ? value->text().value_or("") : "";
    if (!IsName(call().name)) return in_.Fail();
    return style_.calls != CallFormat::kBareJson || IsTool(call().name) || in_.Fail();
  }

  bool ReadField() {
    std::string_view key;
    if (!in_.rest().empty() && !in_.rest().starts_with('"')) return in_.Fail();
    if (!in_.TakeJson(key)) return false;
    in_.SkipBlanks();
    if (!in_.Take(":")) return false;
    if (key == "\"name\"") return ReadNameField();
    if (key == "\"arguments\"" || key == "\"parameters\"") return ReadArgumentsField();
    // A bare object is a call only if it looks like one from its beginning on.
    const bool is_known = key == "\"type\"" || key == "\"id\"";
    if (style_.calls == CallFormat::kBareJson && !is_known) return in_.Fail();
    std::string_view ignored;
    return in_.TakeJson(ignored);
  }

  // {"name": ..., "arguments": {...}}, in any order.
  bool ReadEnvelope() {
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

  bool ReadList() {
    in_.SkipBlanks();
    if (!in_.Take("[")) return false;
    while (true) {
      if (!ReadEnvelope()) return false;
      in_.SkipBlanks();
      const int next = in_.TakeOne({",", "]"});
      if (next < 0) return false;
      if (next == 1) return ReadEnd();
    }
  }

  bool ReadNamed() {
    Add();
    std::string name;
    if (!TakeName(in_, kArgumentsMark, name)) return false;
    call().name = Trim(name.substr(0, name.find(kCallIdMark)));
    if (!IsName(call().name)) return in_.Fail();
    return ReadObject() && Whole();
  }

  // Behind the mark a grammar holds it, and where a name's field begins it as Triggers() says.
  bool ReadBare() {
    if (in_.rest().starts_with('{')) {
      scan_.is_held = std::ranges::any_of(style_.tools, [this](const ToolShape& tool) {
        return in_.rest().starts_with(BareBegin(tool.name));
      });
    } else if (!in_.Take(style_.call_begin)) {
      return false;
    }
    return ReadEnvelope();
  }

  bool ReadFenced() {
    while (true) {
      in_.SkipBlanks();
      const int next = in_.TakeOne({kFencedBegin, style_.call_end});
      if (next < 0) return false;
      if (next == 1) return !scan_.calls.empty() || in_.Fail();
      if (!ReadFencedCall()) return false;
    }
  }

  // NAME SEPARATOR {...}, or "function" SEPARATOR NAME and the object in a fence.
  bool ReadFencedCall() {
    Add();
    std::string name;
    if (!TakeName(in_, kFencedSeparator, name)) return false;
    const bool has_fence = name == "function";
    if (has_fence && (!TakeName(in_, "\n", name) || !in_.Take("```json"))) return false;
    call().name = name;
    if (!ReadObject()) return false;
    in_.SkipBlanks();
    if (has_fence && !in_.Take("```")) return false;
    in_.SkipBlanks();
    return in_.Take(kFencedEnd) && Whole();
  }

  bool ReadParameterTags() {
    const bool is_tagged = !in_.rest().starts_with(kFunctionTag);
    scan_.is_held = is_tagged;
    if (is_tagged && !in_.Take(style_.call_begin)) return false;
    in_.SkipBlanks();
    Add();
    if (!in_.Take(kFunctionTag) || !TakeName(in_, ">", call().name)) return false;
    // Words about such tags, which name no tool.
    if (!IsTool(call().name)) return in_.Fail();
    call().is_named = true;
    call().arguments = "{";
    while (true) {
      in_.SkipBlanks();
      const int next = in_.TakeOne({kParameterTag, kFunctionEnd});
      if (next < 0) return false;
      if (next == 1) break;
      std::string key;
      std::string_view value;
      if (!TakeName(in_, ">", key) || !in_.TakeUntil(kParameterEnd, value)) return false;
      // The tags stand on lines of their own.
      if (value.starts_with('\n')) value.remove_prefix(1);
      if (value.ends_with('\n')) value.remove_suffix(1);
      AddArgument(key, value);
    }
    call().arguments += "}";
    Whole();
    return !is_tagged || ReadEnd();
  }

  bool ReadKeyValueTags() {
    Add();
    if (!TakeName(in_, "<", call().name)) return false;
    call().is_named = true;
    call().arguments = "{";
    while (true) {
      // The tag's '<' is behind.
      const int next =
          in_.TakeOne({kKeyTag.substr(1), std::string_view(style_.call_end).substr(1)});
      if (next < 0) return false;
      if (next == 1) break;
      std::string_view key;
      std::string_view value;
      if (!in_.TakeUntil(kKeyEnd, key)) return false;
      in_.SkipBlanks();
      if (!in_.Take(kValueTag) || !in_.TakeUntil(kValueEnd, value)) return false;
      AddArgument(Trim(key), value);
      in_.SkipBlanks();
      if (!in_.Take("<")) return false;
    }
    call().arguments += "}";
    return Whole();
  }

  void AddArgument(std::string_view key, std::string_view value) {
    std::string& arguments = call().arguments;
    if (arguments.size() > 1) arguments += ", ";
    arguments += Json(key).Dump() + ": " + ValueText(key, value);
  }

  // As JSON: what is not declared to be text and reads as JSON is JSON.
  std::string ValueText(std::string_view key, std::string_view value) const {
    const auto tool = std::ranges::find(style_.tools, call_name(), &ToolShape::name);
    const bool is_text =
        tool != style_.tools.end() && std::ranges::contains(tool->text_parameters, key);
    if (is_text) return Json(value).Dump();
    const std::string_view trimmed = Trim(value);
    if (trimmed == "True") return "true";
    if (trimmed == "False") return "false";
    if (trimmed == "None") return "null";
    return Json::Parse(trimmed) ? std::string(trimmed) : Json(value).Dump();
  }
  std::string_view call_name() const { return scan_.calls.back().name; }

  const AnswerStyle& style_;
  CallCursor in_;
  CallScan scan_;
};

}  // namespace

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

std::string ChannelCallBegin() { return Format("{}commentary {}", kChannelMark, kRecipient); }

std::vector<std::string_view> OpeningMarks(const AnswerStyle& style) {
  if (style.calls == CallFormat::kNone || style.calls == CallFormat::kChannels) return {};
  std::vector<std::string_view> marks{style.call_begin};
  if (style.calls == CallFormat::kParameterTags) marks.push_back(kFunctionTag);
  return marks;
}

}  // namespace moestro
