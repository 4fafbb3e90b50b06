// SPDX-License-Identifier: MIT
// Reads an answer as it grows, and separates thoughts, content and calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/answer_style.h"
#include "chat/call_scan.h"
#include "chat/chat_types.h"

namespace moestro {

// Collects an answer's deltas: joins neighbours of one kind and numbers the calls.

class DeltaSink {
 public:
  DeltaSink(uint64_t id_seed, bool has_short_ids)
      : id_seed_(id_seed), has_short_ids_(has_short_ids) {}

  void Content(std::string_view text) { Add(ChatDelta::Kind::kContent, text); }
  void Reasoning(std::string_view text) { Add(ChatDelta::Kind::kReasoning, text); }
  void BeginCall(std::string_view name);
  // Arguments of the last call.
  void Arguments(std::string_view text) { Add(ChatDelta::Kind::kCallArguments, text); }

  // The last call's arguments are complete.
  void EndCall() { is_in_call_ = false; }

  bool has_calls() const { return calls_ > 0; }
  bool is_in_call() const { return is_in_call_; }
  std::vector<ChatDelta> Take() { return std::exchange(deltas_, {}); }

 private:
  void Add(ChatDelta::Kind kind, std::string_view text);

  uint64_t id_seed_;
  bool has_short_ids_;
  uint32_t calls_ = 0;
  bool is_in_call_ = false;
  std::vector<ChatDelta> deltas_;
};

// The part of one scan's calls that has been passed on.
class CallProgress {
 public:
  // `certain`: also passes on the beginning of a call that is not whole.
  void Show(const CallScan& scan, bool certain, DeltaSink& sink);
  // A call has begun, and its end has not been passed on.
  bool is_inside() const { return begun_ > done_; }

 private:
  size_t begun_ = 0;
  size_t done_ = 0;
  size_t sent_bytes_ = 0;  // bytes of the last call's arguments
};

// The bytes at the end of `text` that may become one of `marks`.
size_t OpenEnd(std::string_view text, const std::vector<std::string_view>& marks);

// The cause of an answer's end.
enum class AnswerEnd : uint8_t {
  kWhole,    // the model: the text is complete
  kStopped,  // a stop text of the client: a call that has begun is dropped
  kCut,      // a limit: the possible beginning of a mark or of a call is dropped
};

// Reads the answers of one family of styles. Sides: TaggedReader, ChannelReader.
class AnswerReader {
 public:
  virtual ~AnswerReader() = default;
  void Read(std::string_view text, DeltaSink& sink) {
    held_ += text;
    while (!held_.empty() && Step(sink)) {
    }
  }
  void End(AnswerEnd end, DeltaSink& sink) {
    end_ = end;
    while (!held_.empty() && Step(sink)) {
    }
  }
  virtual bool is_thinking() const = 0;

 protected:
  bool has_ended() const { return end_.has_value(); }  // no more is to come
  // A call that is not whole is dropped: its words are no answer.
  bool is_cut() const { return end_ == AnswerEnd::kCut; }
  bool drops_calls() const { return has_ended() && end_ != AnswerEnd::kWhole; }
  // Whether a call in reading is scanned again: a long one, for which a scan takes time, only when
  // it has grown by one in 64.
  bool IsWorthALook() {
    constexpr size_t kShort = 4096;
    const size_t size = held_.size();
    const bool is_worth =
        has_ended() || size < kShort || size < looked_at_ || size - looked_at_ >= size / 64;
    if (is_worth) looked_at_ = size;
    return is_worth;
  }
  // The number of bytes of held_ that are certain if none of them belongs to one of `marks`, though
  // a mark may begin at the end.
  size_t CertainBytes(const std::vector<std::string_view>& marks) const {
    return has_ended() && !is_cut() ? held_.size() : held_.size() - OpenEnd(held_, marks);
  }

  std::string held_;  // not yet passed on

 private:
  std::optional<AnswerEnd> end_;
  size_t looked_at_ = 0;  // bytes of held_ at the last look

  // Takes the certain part from held_, which is not empty. True: the state changed, call again.
  virtual bool Step(DeltaSink& sink) = 0;
};
std::unique_ptr<AnswerReader> MakeTaggedReader(const AnswerStyle& style);
std::unique_ptr<AnswerReader> MakeChannelReader(const AnswerStyle& style);

// Holds back text that may be the beginning of a mark. A whole call is passed on, or one piece by
// piece if the style makes calls certain: if the answer's end then cuts a call off, its arguments
// end early. Text that begins like a call and is none comes out as content, unless the answer was
// cut within it: then the text is dropped. However the text was cut into parts, the deltas join to
// the same.
//
// Thread rule: one thread.
class AnswerParser {
 public:
  // `id_seed`: makes the calls' ids.
  AnswerParser(const AnswerStyle& style, uint64_t id_seed);
  // REQUIRES: whole UTF-8 characters. Control tokens are spelled, except those that end an answer.
  std::vector<ChatDelta> Push(std::string_view text);
  // No more is to come.
  std::vector<ChatDelta> Finish(AnswerEnd end = AnswerEnd::kWhole);
  // The text to come belongs to thoughts, as far as can be decided now.
  bool is_thinking() const { return reader_->is_thinking(); }
  bool has_calls() const { return sink_.has_calls(); }
  // The last call's arguments are not whole; after Finish() they never will be.
  bool is_in_call() const { return sink_.is_in_call(); }

 private:
  DeltaSink sink_;
  std::unique_ptr<AnswerReader> reader_;
};

}  // namespace moestro
