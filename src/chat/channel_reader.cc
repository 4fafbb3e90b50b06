// SPDX-License-Identifier: MIT
// Answers that are messages in channels, each behind a header: thoughts in "analysis", calls where
// the header names a function as recipient, content in the others.
#include <algorithm>
#include <optional>
#include <string>

#include "chat/answer_parser.h"
#include "chat/call_scan.h"

namespace moestro {
namespace {

// Longer headers are a text that was not meant as one.
constexpr size_t kMaxHeaderBytes = 256;

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
    if (rest.starts_with(kRecipient)) return true;
    if (!kRecipient.starts_with(rest)) return false;
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
    // Where the mark would be seen at the latest.
    constexpr size_t kMost = kMaxHeaderBytes + kMessageMark.size();
    const size_t end = std::string_view(held_).substr(0, kMost).find(kMessageMark);
    if (end == std::string::npos && held_.size() >= kMost) return GiveUp(sink);
    if (end == std::string::npos) {
      if (has_ended()) held_.clear();
      return false;
    }
    const std::string header = held_.substr(0, end);
    held_.erase(0, end + kMessageMark.size());
    const size_t to = header.find(kRecipient);
    if (to == std::string::npos) {
      mode_ = header.contains("analysis") ? Mode::kReasoning : Mode::kContent;
      return true;
    }
    const std::string_view rest = std::string_view(header).substr(to + kRecipient.size());
    name_ = rest.substr(0, rest.find_first_of(" <"));
    mode_ = name_.empty() || style_.tools.empty() ? Mode::kContent : Mode::kCall;
    is_held_ = std::ranges::any_of(ChannelCallBegins(), [&header](const std::string& begin) {
      return header.contains(begin);
    });
    progress_ = {};
    return true;
  }

  bool ReadCall(DeltaSink& sink) {
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
  std::string name_;      // of the tool that is being called
  bool is_held_ = false;  // by a grammar, if there is one: call_rules.h says where it begins
  CallProgress progress_;
  Mode mode_ = Mode::kBetween;
  bool is_start_;  // nothing was read yet
};

}  // namespace

std::unique_ptr<AnswerReader> MakeChannelReader(const AnswerStyle& style) {
  return std::make_unique<ChannelReader>(style);
}

}  // namespace moestro
