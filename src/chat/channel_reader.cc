// SPDX-License-Identifier: MIT
// Answers that are messages in channels, each behind a header: thoughts in "analysis", calls where
// the header names a function as recipient, content in other messages.
#include <algorithm>
#include <optional>
#include <string>

#include "chat/answer_parser.h"
#include "chat/call_scan.h"

namespace moestro {
namespace {

// Longer headers are a text that was not meant as one.
constexpr size_t kMaxHeaderBytes = 256;
// Marks of a recipient and of a client's tool as recipient.
constexpr std::string_view kTo = "to=";
constexpr std::string_view kFunctions = "functions.";

class ChannelReader : public AnswerReader {
 public:
  explicit ChannelReader(const AnswerStyle& style)
      : style_(style), is_start_(!style.begins_in_content && !style.begins_in_reasoning) {
    if (style.begins_in_content) mode_ = Mode::kContent;
    if (style.begins_in_reasoning) mode_ = Mode::kReasoning;
  }

  bool is_thinking() const override { return mode_ == Mode::kReasoning; }

 private:
  enum class Mode : uint8_t { kBetween, kHeader, kReasoning, kContent, kCall };

  bool Step(DeltaSink& sink) override {
    switch (mode_) {
      case Mode::kBetween:
      case Mode::kReasoning:
      case Mode::kContent:
        return ReadBody(sink);
      case Mode::kHeader:
        return ReadHeader(sink);
      case Mode::kCall:
        return ReadCall(sink);
    }
    return false;
  }

  void Say(std::string_view text, DeltaSink& sink) const {
    if (mode_ == Mode::kReasoning) {
      sink.Reasoning(text);
    } else {
      sink.Content(text);
    }
  }

  // Whether the first header, which the prompt has begun, goes on with a recipient; nullopt: not
  // known yet.
  std::optional<bool> BeginsWithRecipient() {
    const std::string_view rest = std::string_view(held_).substr(CountBlanks(held_));
    bool may_begin = kRecipient.starts_with(rest);
    if (rest.starts_with(kRecipient)) return true;
    for (const ToolShape& tool : style_.tools) {
      const std::string begin = std::string(kTo) + tool.name;
      if (rest.starts_with(begin)) return true;
      may_begin = may_begin || std::string_view(begin).starts_with(rest);
    }
    if (!may_begin) return false;
    if (!has_ended()) return std::nullopt;
    if (is_cut()) held_.clear();
    return false;
  }

  // Text up to the next mark.
  bool ReadBody(DeltaSink& sink) {
    if (is_start_) {
      const std::optional<bool> begins = BeginsWithRecipient();
      is_start_ = !begins;
      if (!begins) return false;
      if (*begins) mode_ = Mode::kHeader;
      if (*begins || held_.empty()) return *begins;
    }
    const std::vector<std::string_view> marks{kStartMark, kChannelMark, kEndMark, kCallMark,
                                              kReturnMark};
    size_t found = std::string::npos;
    std::string_view first;
    for (const std::string_view mark : marks) {
      const size_t at = held_.find(mark);
      if (at >= found) continue;
      found = at;
      first = mark;
    }
    if (found == std::string::npos) {
      const size_t end = CertainBytes(marks);
      Say(std::string_view(held_).substr(0, end), sink);
      held_.erase(0, end);
      return false;
    }
    Say(std::string_view(held_).substr(0, found), sink);
    const bool begins_header = first == kStartMark || first == kChannelMark;
    held_.erase(0, begins_header ? found : found + first.size());
    mode_ = begins_header ? Mode::kHeader : Mode::kBetween;
    return true;
  }

  bool ReadHeader(DeltaSink& sink) {
    // The length within which the mark must occur.
    constexpr size_t kMost = kMaxHeaderBytes + kMessageMark.size();
    const std::string_view head = std::string_view(held_).substr(0, kMost);
    size_t end = head.find(kMessageMark);
    size_t length = kMessageMark.size();
    for (const std::string_view mark : {kEndMark, kCallMark, kReturnMark}) {
      const size_t at = head.find(mark);
      if (at >= end) continue;
      end = at;
      length = 0;
    }
    if (end == std::string::npos && held_.size() >= kMost) return GiveUp(sink);
    if (end == std::string::npos) {
      if (!has_ended()) return false;
      if (is_cut()) held_.clear();
      end = held_.size();
      length = 0;
    }
    const std::string header = held_.substr(0, end);
    held_.erase(0, end + length);
    if (!header.empty()) BeginMessage(header, length > 0);
    return true;
  }

  // Begins the message after a header. A header without its closing mark ends before its last
  // words, which are the message.
  void BeginMessage(std::string_view header, bool has_mark) {
    const bool is_thought = header.contains("analysis");
    size_t to = header.rfind(kTo);
    if (!has_mark) {
      const size_t object = header.find('{', to != std::string_view::npos ? to : 0);
      const std::string_view last =
          object == std::string_view::npos ? WordsBehindNames(header) : header.substr(object);
      held_.insert(0, last);
      header.remove_suffix(last.size());
      to = header.rfind(kTo);  // the last words may name a recipient, too
    }
    const bool has_recipient = to != std::string_view::npos;
    // A message to an unknown recipient is shown, in whatever channel.
    mode_ = is_thought && !has_recipient ? Mode::kReasoning : Mode::kContent;
    if (!has_recipient || style_.tools.empty()) return;
    std::string_view recipient = header.substr(to + kTo.size());
    recipient = recipient.substr(0, recipient.find_first_of(" \t\r\n<"));
    is_held_ = std::ranges::any_of(
        ChannelCallBegins(), [header](const std::string& begin) { return header.contains(begin); });
    name_ = ToolOf(recipient);
    progress_ = {};
    if (!name_.empty()) mode_ = Mode::kCall;
  }

  // The words of the header behind the channel and a recipient.
  static std::string_view WordsBehindNames(std::string_view header) {
    const size_t channel = header.rfind(kChannelMark);
    if (channel == std::string_view::npos) return {};
    std::string_view words = header.substr(channel + kChannelMark.size());
    const auto skip_word = [&words] {
      words.remove_prefix(std::min(words.find(' '), words.size()));
      words.remove_prefix(CountBlanks(words));
    };
    skip_word();
    if (words.starts_with(kTo)) skip_word();
    return words;
  }

  // Models leave the blank out between a tool's name and the type of its arguments.
  std::string ToolOf(std::string_view recipient) {
    const bool is_function = recipient.starts_with(kFunctions);
    if (is_function) recipient.remove_prefix(kFunctions.size());
    std::string_view best;
    for (const ToolShape& tool : style_.tools) {
      if (recipient == tool.name) return tool.name;
      if (!recipient.starts_with(tool.name) || tool.name.size() <= best.size()) continue;
      std::string_view behind = recipient.substr(tool.name.size());
      behind.remove_prefix(std::min(behind.find_first_not_of(".:,-_"), behind.size()));
      constexpr std::string_view kTypes[] = {"", "json", "code", "commentary", "analysis"};
      if (std::ranges::contains(kTypes, behind)) best = tool.name;
    }
    if (!best.empty()) {
      is_held_ = false;
      return std::string(best);
    }
    return is_function && IsToolName(recipient) ? std::string(recipient) : "";
  }

  bool ReadCall(DeltaSink& sink) {
    if (!IsWorthALook()) return false;
    const CallScan scan = ScanArguments(name_, held_);
    progress_.Show(scan, style_.calls_are_certain && is_held_, sink);
    if (scan.state == Scan::kOpen && !has_ended()) return false;
    mode_ = Mode::kContent;
    if (scan.state == Scan::kWhole) {
      held_.erase(0, scan.end);
      mode_ = Mode::kBetween;
    } else if (progress_.is_inside()) {
      held_.erase(0, scan.state == Scan::kOpen ? held_.size() : scan.end);
    } else if (scan.state == Scan::kOpen && drops_calls()) {
      held_.clear();
    }
    return true;
  }

  // No header after all.
  bool GiveUp(DeltaSink& sink) {
    mode_ = Mode::kContent;
    Say(std::string_view(held_).substr(0, 1), sink);
    held_.erase(0, 1);
    return true;
  }

  AnswerStyle style_;
  std::string name_;      // name of the called tool
  bool is_held_ = false;  // by a grammar, if any: the call began as in call_rules.h
  CallProgress progress_;
  Mode mode_ = Mode::kBetween;
  bool is_start_;  // nothing was read yet
};

}  // namespace

std::unique_ptr<AnswerReader> MakeChannelReader(const AnswerStyle& style) {
  return std::make_unique<ChannelReader>(style);
}

}  // namespace moestro
