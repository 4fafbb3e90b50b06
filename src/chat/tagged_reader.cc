// SPDX-License-Identifier: MIT
// Answers that are text, with marks around thoughts and calls.
#include <algorithm>
#include <string>
#include <utility>

#include "chat/answer_parser.h"
#include "chat/call_scan.h"

namespace moestro {
namespace {

class TaggedReader : public AnswerReader {
 public:
  explicit TaggedReader(const AnswerStyle& style)
      : style_(style),
        opening_marks_(OpeningMarks(style_)),
        mode_(style.begins_in_reasoning ? Mode::kReasoning : Mode::kContent),
        is_start_(!style.begins_in_content),
        may_be_marked_(!style.begins_in_content && !style.begins_marked),
        is_marked_(style.begins_marked),
        may_be_bare_(!style.begins_in_content),
        drops_newlines_(style.begins_in_reasoning) {}

  bool is_thinking() const override { return mode_ == Mode::kReasoning; }

 private:
  enum class Mode : uint8_t { kReasoning, kContent, kCall };

  bool Step(DeltaSink& sink) override {
    switch (mode_) {
      case Mode::kReasoning:
        return ReadReasoning(sink);
      case Mode::kContent:
        return ReadContent(sink);
      case Mode::kCall:
        return ReadCall(sink);
    }
    return false;
  }

  // Drops newlines: models put thoughts and calls on lines of their own, whose ends are no text.
  void DropNewlines() {
    if (!drops_newlines_) return;
    held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
    if (!held_.empty()) drops_newlines_ = false;
  }

  bool ReadReasoning(DeltaSink& sink) {
    DropNewlines();
    if (is_start_ && !held_.empty()) {
      // Some models open thoughts again that the prompt has opened.
      const std::string_view begin = style_.reasoning_begin;
      if (held_.size() < begin.size() && begin.starts_with(held_)) {
        if (!has_ended()) return false;
        if (is_cut()) return DropHeld();
      }
      is_start_ = false;
      if (held_.starts_with(begin)) {
        held_.erase(0, begin.size());
        drops_newlines_ = true;
        return true;
      }
    }
    const size_t found = held_.find(style_.reasoning_end);
    if (style_.content_ends_thoughts) {
      const size_t content = held_.find(style_.content_begin);
      if (content < found) {
        Think(content, /*keeps_newlines=*/false, sink);
        EndThoughts();
        return true;
      }
    }
    if (found != std::string::npos) {
      Think(found, /*keeps_newlines=*/false, sink);
      held_.erase(0, held_.find(style_.reasoning_end) + style_.reasoning_end.size());
      EndThoughts();
      return true;
    }
    return ReadOpenThoughts(sink);
  }

  // Passes on the certain part of the thoughts before `end`; newlines at the end may belong to the
  // closing mark.
  void Think(size_t end, bool keeps_newlines, DeltaSink& sink) {
    while (!keeps_newlines && end > 0 && held_[end - 1] == '\n') --end;
    sink.Reasoning(std::string_view(held_).substr(0, end));
    held_.erase(0, end);
  }

  void EndThoughts() {
    mode_ = Mode::kContent;
    drops_newlines_ = true;
    may_be_bare_ = true;
    may_be_marked_ = true;
    said_call_at_ = std::string::npos;
    not_call_at_ = 0;
  }

  // Reads thoughts whose end has not come. A call within them counts only if the thoughts never
  // end, so the call is held back until then.
  bool ReadOpenThoughts(DeltaSink& sink) {
    if (said_call_at_ == std::string::npos) {
      if (!IsWorthALook()) return false;
      const CallInThoughts call = FindCall();
      if (call.state == Scan::kWhole) said_call_at_ = call.at;
      if (call.state == Scan::kOpen) return WaitForCall(call.at, sink);
    }
    if (said_call_at_ != std::string::npos) {
      const size_t before = held_.size();
      Think(said_call_at_, /*keeps_newlines=*/false, sink);
      said_call_at_ -= before - held_.size();
      if (!has_ended()) return false;
      held_.erase(0, CountBlanks(held_));  // blanks before a call are no text
      if (is_cut() && !EndsWithCall()) return DropHeld();
      EndThoughts();
      is_free_ = true;
      return true;
    }
    std::vector<std::string_view> marks(opening_marks_.begin(), opening_marks_.end());
    marks.emplace_back(style_.reasoning_end);
    if (style_.content_ends_thoughts) marks.emplace_back(style_.content_begin);
    const size_t end = CertainBytes(marks);
    const size_t before = held_.size();
    Think(end, has_ended(), sink);
    not_call_at_ -= std::min(not_call_at_, before - held_.size());
    return false;
  }

  // More text decides whether the call that may begin here is one.
  bool WaitForCall(size_t at, DeltaSink& sink) {
    const size_t before = held_.size();
    const bool is_text = has_ended() && !is_cut();
    Think(is_text ? held_.size() : at, is_text, sink);
    not_call_at_ -= std::min(not_call_at_, before - held_.size());
    if (is_cut()) held_.clear();
    return false;
  }

  struct CallInThoughts {
    Scan state = Scan::kBroken;  // kBroken: none
    size_t at = 0;
  };
  // The first call of a known tool from not_call_at_ on.
  CallInThoughts FindCall() {
    if (style_.tools.empty() || style_.calls.is_bare()) return {};
    while (true) {
      size_t at = std::string::npos;
      for (const std::string& mark : opening_marks_) {
        at = std::min(at, held_.find(mark, not_call_at_));
      }
      if (at == std::string::npos) return {};
      const CallScan scan = ScanCalls(style_, std::string_view(held_).substr(at));
      const bool is_known =
          scan.whole_end > 0 &&
          std::ranges::contains(style_.tools, scan.calls.front().name, &ToolShape::name);
      if (is_known) return {.state = Scan::kWhole, .at = at};
      if (scan.state == Scan::kOpen && scan.whole_end == 0) return {.state = Scan::kOpen, .at = at};
      not_call_at_ = at + 1;
    }
  }

  // Whether a whole call ends the text, in an answer that was cut off. Words behind a call may be
  // thoughts that would have ended.
  bool EndsWithCall() const {
    const size_t end = ScanCalls(style_, held_).whole_end;
    const std::string_view behind = std::string_view(held_).substr(end);
    const std::string_view rest = behind.substr(CountBlanks(behind));
    return rest.empty() || style_.calls.end.starts_with(rest) || rest == style_.calls.end;
  }

  bool DropHeld() {
    held_.clear();
    return false;
  }

  // Reads marks that only the first text of an answer, or of the part behind a call, can be. 1:
  // read one, 0: none, -1: more text decides.
  int ReadFirst() {
    const bool is_bare = style_.calls.is_bare() && may_be_bare_;
    const bool may_think = is_start_ && !style_.reasoning_begin.empty();
    const bool may_be_marked = may_be_marked_ && !style_.content_begin.empty();
    if (!is_bare && !may_think && !may_be_marked) return 0;
    const std::string_view skipped = is_bare && !is_start_ ? " \t\r\n;" : kBlanks;
    const size_t first = held_.find_first_not_of(skipped);
    if (first == std::string::npos) {
      if (is_cut() && !is_start_) held_.clear();
      return has_ended() ? 0 : -1;
    }
    const std::string_view rest = std::string_view(held_).substr(first);
    const std::string_view begin = style_.reasoning_begin;
    if (may_think && rest.starts_with(begin)) {
      held_.erase(0, first + begin.size());
      mode_ = Mode::kReasoning;
      drops_newlines_ = true;
      return 1;
    }
    const std::string_view content_begin = style_.content_begin;
    if (may_be_marked && rest.starts_with(content_begin)) {
      held_.erase(0, first + content_begin.size());
      may_be_marked_ = false;
      is_marked_ = true;
      drops_newlines_ = true;
      return 1;
    }
    const std::string_view turn_begin = style_.turn_begin;
    const bool may_be_turn = may_be_marked && !turn_begin.empty();
    if (may_be_turn && rest.starts_with(turn_begin)) {
      held_.erase(0, first + turn_begin.size());
      return 1;
    }
    const bool may_become_mark = (may_think && begin.starts_with(rest)) ||
                                 (may_be_marked && content_begin.starts_with(rest)) ||
                                 (may_be_turn && turn_begin.starts_with(rest));
    if (may_become_mark) {
      if (!has_ended()) return -1;
      if (is_cut()) held_.clear();
      return 0;
    }
    if (is_bare && rest.starts_with('{')) {
      EnterCall(first);
      return 1;
    }
    return 0;
  }

  void EnterCall(size_t at) {
    blanks_ = held_.substr(0, at);
    held_.erase(0, at);
    progress_ = {};
    mode_ = Mode::kCall;
  }

  bool ReadContent(DeltaSink& sink) {
    DropNewlines();
    if (held_.empty()) return false;
    if (is_behind_call_) {
      if (DropClosingMark()) return true;
      if (is_behind_call_) return false;
    }
    const int first = ReadFirst();
    is_start_ = is_start_ && first < 0;
    if (first != 0 || held_.empty()) return first > 0;
    std::vector<std::string_view> marks(opening_marks_.begin(), opening_marks_.end());
    if (is_marked_) marks.emplace_back(style_.content_end);
    size_t found = std::string::npos;
    for (const std::string_view mark : marks) found = std::min(found, held_.find(mark));
    const bool has_mark = found != std::string::npos;
    size_t end = has_mark ? found : CertainBytes(marks);
    const size_t mark_at = end;
    const bool keeps_blanks = marks.empty() || (has_ended() && end == held_.size());
    while (!keeps_blanks && end > 0 && kBlanks.contains(held_[end - 1])) --end;
    if (end > 0) may_be_bare_ = may_be_marked_ = false;
    sink.Content(std::string_view(held_).substr(0, end));
    held_.erase(0, end);
    if (!has_mark) return false;
    if (is_marked_ &&
        std::string_view(held_).substr(mark_at - end).starts_with(style_.content_end)) {
      held_.erase(0, mark_at - end + style_.content_end.size());
      is_marked_ = false;
      drops_newlines_ = true;
      return true;
    }
    EnterCall(mark_at - end);
    return true;
  }

  bool ReadCall(DeltaSink& sink) {
    if (!IsWorthALook()) return false;
    const CallScan scan = ScanCalls(style_, held_);
    progress_.Show(scan, style_.calls_are_certain && scan.is_held && !is_free_, sink);
    if (scan.state == Scan::kOpen && !has_ended()) return false;
    mode_ = Mode::kContent;
    may_be_bare_ = scan.whole_end > 0;
    may_be_marked_ = scan.whole_end > 0 && !is_marked_;
    drops_newlines_ = scan.whole_end > 0;
    is_behind_call_ = scan.whole_end > 0;
    if (scan.state == Scan::kWhole) {
      held_.erase(0, scan.end);
    } else if (scan.state == Scan::kOpen && drops_calls()) {
      held_.clear();
    } else if (progress_.is_inside()) {
      held_.erase(0, scan.state == Scan::kOpen ? held_.size() : scan.end);
    } else if (scan.whole_end > 0) {
      held_.erase(0, scan.whole_end);
      DropOpenEnd();
    } else {
      GiveUp(scan, sink);
    }
    return true;
  }

  // No call after all: the scanned text is content.
  void GiveUp(const CallScan& scan, DeltaSink& sink) {
    const size_t end = scan.state == Scan::kOpen ? held_.size() : std::max<size_t>(scan.end, 1);
    sink.Content(std::exchange(blanks_, {}));
    sink.Content(std::string_view(held_).substr(0, end));
    held_.erase(0, end);
  }

  // Drops a closing mark of a call: models close calls whose opening mark they have left out, or
  // close calls twice. True: a mark was dropped. While more text decides, is_behind_call_ stays.
  bool DropClosingMark() {
    const size_t first = CountBlanks(held_);
    const std::string_view rest = std::string_view(held_).substr(first);
    const CallStyle& calls = style_.calls;
    bool may_come = rest.empty();
    for (const std::string_view mark : {calls.end, calls.other_end, calls.call_end}) {
      if (mark.size() < 2) continue;
      if (rest.starts_with(mark)) {
        held_.erase(0, first + mark.size());
        drops_newlines_ = true;
        return true;
      }
      may_come = may_come || mark.starts_with(rest);
    }
    if (may_come && has_ended() && !rest.empty()) held_.clear();
    is_behind_call_ = may_come && !has_ended();
    return false;
  }

  // Drops the beginning of a closing mark: a model may end its answer there.
  void DropOpenEnd() {
    const size_t first = CountBlanks(held_);
    const std::string_view rest = std::string_view(held_).substr(first);
    if (has_ended() && style_.calls.end.starts_with(rest)) held_.clear();
  }

  AnswerStyle style_;
  std::vector<std::string> opening_marks_;
  std::string blanks_;  // blanks before the call in reading
  CallProgress progress_;
  Mode mode_;
  bool is_start_;        // nothing was passed on yet
  bool may_be_marked_;   // content's opening mark may stand here
  bool is_marked_;       // content's closing mark has not come
  bool may_be_bare_;     // a bare call may begin here
  bool drops_newlines_;  // until other text comes
  bool is_behind_call_ = false;
  bool is_free_ = false;    // no grammar holds the calls that come
  size_t not_call_at_ = 0;  // no call begins before this place in the held thoughts
  size_t said_call_at_ = std::string::npos;  // place of a call in them
};

}  // namespace

std::unique_ptr<AnswerReader> MakeTaggedReader(const AnswerStyle& style) {
  return std::make_unique<TaggedReader>(style);
}

}  // namespace moestro
