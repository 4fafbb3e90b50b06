// SPDX-License-Identifier: MIT
#include "chat/call_scan.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "chat/marked_object.h"

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
  // More text has to come.
  bool Wait() {
    state_ = Scan::kOpen;
    return false;
  }
  bool Skip(size_t bytes) {
    at_ += bytes;
    return true;
  }
  void GoBack(size_t bytes) { at_ -= bytes; }
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
  // The same of an object with marked strings, as JSON.
  bool TakeMarked(std::string_view mark, std::string& out) {
    MarkedScan found = ScanMarked(rest(), mark);
    out = std::move(found.json);
    at_ += found.length;
    state_ = found.state;
    return found.state == Scan::kWhole;
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
  return IsToolName(out) || in.Fail();
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
    if (calls_.shape == CallShape::kNone || calls_.shape == CallShape::kChannels) {
      return in_.Fail();
    }
    if (!ReadBegin()) return false;
    if (!calls_.list_begin.empty()) return ReadList();
    if (calls_.is_around_all && !calls_.is_bare()) return ReadRow();
    return ReadCall() && (lacks_begin_ || ReadEnd());
  }

  // What a call may begin with that lacks its mark.
  std::string_view Unmarked() const { return calls_.is_bare() ? "{" : calls_.call_begin; }

  bool ReadBegin() {
    lacks_begin_ = calls_.may_lack_begin && in_.rest().starts_with(Unmarked());
    if (!lacks_begin_) return in_.Take(calls_.begin);
    // A grammar holds a bare call where a name's field begins it as Triggers() says.
    scan_.is_held =
        calls_.is_bare() && std::ranges::any_of(style_.tools, [this](const ToolShape& tool) {
          return in_.rest().starts_with(BareBegin(tool.name));
        });
    return true;
  }

  bool ReadCall() {
    if (calls_.shape == CallShape::kEnvelope) return ReadEnvelope();
    Add();
    if (!calls_.call_begin.empty()) {
      in_.SkipBlanks();
      if (!in_.Take(calls_.call_begin)) return false;
    }
    return ReadNamed();
  }
  // Behind CALL_BEGIN.
  bool ReadNamed() { return calls_.shape == CallShape::kTags ? ReadTags() : ReadMarked(); }

  ScannedCall& Add() { return scan_.calls.emplace_back(); }
  ScannedCall& call() { return scan_.calls.back(); }
  bool Whole() {
    call().is_whole = true;
    scan_.whole_end = in_.at();
    return true;
  }
  bool ReadEnd() {
    if (calls_.end.empty() || has_end_) return true;
    in_.SkipBlanks();
    return in_.Take(calls_.end);
  }

  // The arguments of a call whose name is known.
  bool ReadObject() {
    in_.SkipBlanks();
    if (!in_.rest().empty() && !in_.rest().starts_with('{')) return in_.Fail();
    call().is_named = !in_.rest().empty();
    if (!calls_.string_mark.empty()) {
      return in_.TakeMarked(calls_.string_mark, call().arguments) &&
             (Json::Parse(call().arguments).has_value() || in_.Fail());
    }
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
    if (!IsToolName(call().name)) return in_.Fail();
    return !calls_.is_bare() || IsTool(call().name) || in_.Fail();
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
    if (calls_.is_bare() && !is_known) return in_.Fail();
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
    if (!in_.Take(calls_.list_begin)) return false;
    while (true) {
      if (!ReadCall()) return false;
      in_.SkipBlanks();
      const int next = in_.TakeOne({calls_.separator, calls_.list_end});
      if (next < 0) return false;
      if (next == 1) return ReadEnd();
    }
  }

  // Calls with marks of their own, up to the end of all.
  bool ReadRow() {
    while (true) {
      in_.SkipBlanks();
      const int next = in_.TakeOne({calls_.call_begin, calls_.end});
      if (next < 0) return false;
      if (next == 1) return !scan_.calls.empty() || in_.Fail();
      Add();
      if (!ReadNamed()) return false;
    }
  }

  // NAME NAME_END {...}, or KIND NAME_END NAME and the object in a fence.
  bool ReadMarked() {
    std::string name;
    const bool has_name_end = !calls_.name_end.empty();
    if (!TakeName(in_, has_name_end ? calls_.name_end : "{", name)) return false;
    if (!has_name_end) in_.GoBack(1);
    const bool has_fence = !calls_.kind.empty() && name == calls_.kind;
    if (has_fence && (!TakeName(in_, "\n", name) || !in_.Take(calls_.fence_begin))) return false;
    call().name = name;
    if (!calls_.before_end.empty()) {
      call().name = Trim(std::string_view(name).substr(0, name.find(calls_.before_end)));
      if (!IsToolName(call().name)) return in_.Fail();
    }
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

  // Without NAME_END a name ends with the first character of what follows.
  bool ReadTags() {
    const bool has_name_end = !calls_.name_end.empty();
    const std::string_view name_end =
        has_name_end ? calls_.name_end : calls_.key_begin.substr(0, 1);
    if (!TakeName(in_, name_end, call().name)) return false;
    // Words about such tags, which name no tool.
    if (calls_.may_lack_begin && !IsTool(call().name)) return in_.Fail();
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
  int TakeTag(bool has_first) {
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

  bool ReadTag() {
    std::string_view value;
    if (calls_.value_begin.empty()) {
      std::string key;
      if (!TakeName(in_, calls_.key_end, key) || !TakeValue(key, value)) return false;
      // Blanks that are the style's, once.
      if (value.starts_with(calls_.behind_key)) value.remove_prefix(calls_.behind_key.size());
      if (value.ends_with(calls_.before_value_end)) {
        value.remove_suffix(calls_.before_value_end.size());
      }
      AddArgument(key, value);
      return true;
    }
    std::string_view key;
    if (!in_.TakeUntil(calls_.key_end, key)) return false;
    in_.SkipBlanks();
    if (!in_.Take(calls_.value_begin) || !TakeValue(Trim(key), value)) return false;
    AddArgument(Trim(key), value);
    return true;
  }

  // A value up to its mark. A string within JSON may hold this mark, so JSON ends where it ends by
  // itself, if the mark follows there. What only begins like JSON ends at the first mark.
  bool TakeValue(std::string_view key, std::string_view& value) {
    const std::string_view rest = in_.rest();
    const size_t blanks = CountBlanks(rest);
    const bool may_be_json =
        blanks < rest.size() && std::string_view("{[\"").contains(rest[blanks]);
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

  void AddArgument(std::string_view key, std::string_view value) {
    std::string& arguments = call().arguments;
    if (arguments.size() > 1) arguments += ", ";
    arguments += Json(key).Dump() + ": " + ValueText(key, value);
  }

  // Whether the call's parameter is declared to be text.
  bool IsText(std::string_view key) const {
    const auto tool = std::ranges::find(style_.tools, call_name(), &ToolShape::name);
    return tool != style_.tools.end() && std::ranges::contains(tool->text_parameters, key);
  }

  // As JSON: what is not declared to be text and reads as JSON is JSON.
  std::string ValueText(std::string_view key, std::string_view value) const {
    if (IsText(key)) return Json(value).Dump();
    const std::string_view trimmed = Trim(value);
    if (trimmed == "True") return "true";
    if (trimmed == "False") return "false";
    if (trimmed == "None") return "null";
    return Json::Parse(trimmed) ? std::string(trimmed) : Json(value).Dump();
  }
  std::string_view call_name() const { return scan_.calls.back().name; }

  const AnswerStyle& style_;
  const CallStyle& calls_ = style_.calls;
  CallCursor in_;
  CallScan scan_;
  bool lacks_begin_ = false;
  bool has_end_ = false;  // the mark that ends a call is behind
};

}  // namespace

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && Trim(name) == name &&
         name.find_first_of("\r\n\t<>{}\"") == std::string_view::npos;
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

std::vector<std::string_view> OpeningMarks(const AnswerStyle& style) {
  const CallStyle& calls = style.calls;
  if (calls.shape == CallShape::kNone || calls.shape == CallShape::kChannels) return {};
  std::vector<std::string_view> marks{calls.begin};
  if (calls.may_lack_begin && !calls.is_bare()) marks.push_back(calls.call_begin);
  return marks;
}

}  // namespace moestro
