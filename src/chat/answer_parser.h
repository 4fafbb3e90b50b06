// SPDX-License-Identifier: MIT
// Reads an answer as it grows: thoughts, content and calls apart.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "chat/answer_style.h"
#include "chat/chat_types.h"
#include "chat/delta_sink.h"

namespace moestro {

// How one family of styles is read. Sides: TaggedReader, ChannelReader.
class AnswerReader {
 public:
  virtual ~AnswerReader() = default;
  void Read(std::string_view text, DeltaSink& sink) {
    held_ += text;
    while (!held_.empty() && Step(sink)) {
    }
  }
  void End(DeltaSink& sink) {
    ended_ = true;
    while (!held_.empty() && Step(sink)) {
    }
  }

 protected:
  std::string held_;    // not yet passed on
  bool ended_ = false;  // no more is to come

 private:
  // Takes from held_ what is certain, which is not empty. True: something changed, look again.
  virtual bool Step(DeltaSink& sink) = 0;
};
std::unique_ptr<AnswerReader> MakeTaggedReader(const AnswerStyle& style);
std::unique_ptr<AnswerReader> MakeChannelReader(const AnswerStyle& style);

// Holds back text that may be the beginning of a mark. A call is passed on when all of it is there,
// or piece by piece if the style says that calls are certain: then one that the answer's end cuts
// off has arguments that end early. Text that begins like a call and is none comes out as content.
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
  std::vector<ChatDelta> Finish();
  bool has_calls() const { return sink_.has_calls(); }

 private:
  DeltaSink sink_;
  std::unique_ptr<AnswerReader> reader_;
};

}  // namespace moestro
