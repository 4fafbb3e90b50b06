// SPDX-License-Identifier: MIT
// Reads an answer as it grows: thoughts, content and calls apart.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_style.h"
#include "chat/chat_types.h"
#include "chat/delta_sink.h"

namespace moestro {

// What ended an answer.
enum class AnswerEnd : uint8_t {
  kWhole,    // the model: what it wrote is all there is
  kStopped,  // a text that the client named: a call that was begun is none
  kCut,      // a limit: what may be the beginning of a mark or of a call is neither that nor text
};

// How one family of styles is read. Sides: TaggedReader, ChannelReader.
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
  // A call that is not whole is not said: its words are no answer.
  bool is_cut() const { return end_ == AnswerEnd::kCut; }
  bool drops_calls() const { return has_ended() && end_ != AnswerEnd::kWhole; }
  // A call that is being read is looked at again when enough has come: a long one, which takes time
  // with each look, when it has grown by one in 64.
  bool IsWorthALook() {
    constexpr size_t kShort = 4096;
    const size_t size = held_.size();
    const bool is_worth =
        has_ended() || size < kShort || size < looked_at_ || size - looked_at_ >= size / 64;
    if (is_worth) looked_at_ = size;
    return is_worth;
  }
  // How much of held_ is certain if nothing in it is one of `marks`, but its end may be begun.
  size_t CertainBytes(const std::vector<std::string_view>& marks) const {
    return has_ended() && !is_cut() ? held_.size() : held_.size() - OpenEnd(held_, marks);
  }

  std::string held_;  // not yet passed on

 private:
  std::optional<AnswerEnd> end_;
  size_t looked_at_ = 0;  // bytes of held_ at the last look

  // Takes from held_ what is certain, which is not empty. True: something changed, look again.
  virtual bool Step(DeltaSink& sink) = 0;
};
std::unique_ptr<AnswerReader> MakeTaggedReader(const AnswerStyle& style);
std::unique_ptr<AnswerReader> MakeChannelReader(const AnswerStyle& style);

// Holds back text that may be the beginning of a mark. A call is passed on when all of it is there,
// or piece by piece if the style says that calls are certain: then one that the answer's end cuts
// off has arguments that end early. Text that begins like a call and is none comes out as content,
// unless the answer was cut within it: then nothing of it is said.
// However the text was cut, the deltas join to the same.
//
// Thread rule: one thread.
class AnswerParser {
 public:
  // `id_seed`: makes the calls' ids.
  AnswerParser(const AnswerStyle& style, uint64_t id_seed);
  // REQUIRES: whole UTF-8 characters. Control tokens are spelled, but for those that end an answer.
  std::vector<ChatDelta> Push(std::string_view text);
  // No more is to come.
  std::vector<ChatDelta> Finish(AnswerEnd end = AnswerEnd::kWhole);
  // What comes next belongs to thoughts, as far as it is known.
  bool is_thinking() const { return reader_->is_thinking(); }
  bool has_calls() const { return sink_.has_calls(); }
  // The last call's arguments are not whole; after Finish() they never will be.
  bool is_in_call() const { return sink_.is_in_call(); }

 private:
  DeltaSink sink_;
  std::unique_ptr<AnswerReader> reader_;
};

}  // namespace moestro
