// SPDX-License-Identifier: MIT
// The interpreter of call styles behind call_scan.h. Inside src/chat only.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "chat/answer_style.h"
#include "chat/call_scan.h"
#include "chat/json_scan.h"

namespace moestro {

// A place in the text. Methods that return a bool give false when the expected text does not
// follow; state() is then kBroken if that is certain, or kOpen if more text may complete it.
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
  // Takes the first of `texts` that follows: its index, or -1.
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
  // Takes the JSON that a scan of another spelling has found.
  template <class Found>
  bool TakeFound(Found found, std::string& out) {
    out = std::move(found.json);
    at_ += found.length;
    state_ = found.state;
    return found.state == Scan::kWhole;
  }
  // Takes a JSON value. `out` also gets the part of a value that is not whole.
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

std::string_view WithoutBlanksAround(std::string_view text);
// Like TakeUntil(), for a name: fails as soon as the text is too long for one.
bool TakeName(CallCursor& in, std::string_view mark, std::string& out);

class CallScanner {
 public:
  CallScanner(const AnswerStyle& style, std::string_view text) : style_(style), in_(text) {}

  CallScan Run();
  CallScan RunArguments(std::string_view name);

 private:
  CallScan Result(bool is_whole);
  bool Read();
  bool ReadBegin();
  bool NeedsEnd() const;
  bool ReadEnd();
  bool ReadCall();
  bool ReadNamed();
  bool ReadList();
  bool ReadRow();
  // Arguments as JSON.
  bool ReadObject();
  bool ReadEnvelope();
  bool ReadField();
  bool ReadNameField();
  bool ReadArgumentsField();
  bool ReadMarked();
  bool ReadMarkedName();
  // Arguments in other spellings: tagged_scan.cc.
  bool ReadTags();
  int TakeTag(bool has_first);
  bool ReadTag();
  bool ReadAttributes(std::string_view& attributes);
  bool ReadNested();
  bool ReadPython();
  bool TakeValue(std::string_view key, std::string_view& value);
  void AddArgument(std::string_view key, const std::string& json);
  // The value as JSON: a value not declared as text that reads as JSON is JSON.
  std::string ValueText(std::string_view key, std::string_view value) const;
  bool IsText(std::string_view key) const;
  const ToolShape::Described* KindsOf(std::string_view key) const;

  ScannedCall& Add() { return scan_.calls.emplace_back(); }
  ScannedCall& call() { return scan_.calls.back(); }
  const ScannedCall& call() const { return scan_.calls.back(); }
  bool Whole();
  bool IsTool(std::string_view name) const;
  bool MayBeTool() const;
  const ToolShape* Tool() const;  // the called tool; null: an unknown one

  const AnswerStyle& style_;
  const CallStyle& calls_ = style_.calls;
  CallCursor in_;
  CallScan scan_;
  bool lacks_begin_ = false;
  bool has_end_ = false;  // the mark that ends a call is behind
};

}  // namespace moestro
