// SPDX-License-Identifier: MIT
#include "chat/answer_parser.h"

namespace moestro {

AnswerParser::AnswerParser(const AnswerStyle& style, uint64_t id_seed)
    : sink_(id_seed),
      reader_(style.calls == CallFormat::kChannels ? MakeChannelReader(style)
                                                   : MakeTaggedReader(style)) {}

std::vector<ChatDelta> AnswerParser::Push(std::string_view text) {
  reader_->Read(text, sink_);
  return sink_.Take();
}

std::vector<ChatDelta> AnswerParser::Finish() {
  reader_->End(sink_);
  return sink_.Take();
}

}  // namespace moestro
