// SPDX-License-Identifier: MIT
#include "chat/answer_parser.h"

namespace moestro {

AnswerParser::AnswerParser(const AnswerStyle& style, uint64_t id_seed)
    : sink_(id_seed, style.has_short_ids),
      reader_(style.calls.shape == CallShape::kChannels ? MakeChannelReader(style)
                                                        : MakeTaggedReader(style)) {}

std::vector<ChatDelta> AnswerParser::Push(std::string_view text) {
  reader_->Read(text, sink_);
  return sink_.Take();
}

std::vector<ChatDelta> AnswerParser::Finish(AnswerEnd end) {
  reader_->End(end, sink_);
  return sink_.Take();
}

}  // namespace moestro
