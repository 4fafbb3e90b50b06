// SPDX-License-Identifier: MIT
#include "api/item_writer.h"

#include <utility>

namespace moestro {

std::string ItemWriter::Part(const ReplyPart& part, uint32_t) {
  std::string events;
  if (has_logprobs_) logprobs_.insert(logprobs_.end(), part.logprobs.begin(), part.logprobs.end());
  for (const ChatDelta& delta : part.deltas) {
    if (OpensItem(items_, delta)) {
      if (is_stream_ && !items_.empty()) events += Closed(true);
      items_.push_back(NewItem(delta));
      if (is_stream_) events += Opened();
    }
    if (delta.text.empty() || items_.empty()) continue;
    items_.back().text += delta.text;
    const std::vector<TokenLogprob> logprobs = std::exchange(logprobs_, {});
    PushLogprobs(logprobs, items_.back().logprobs);
    if (is_stream_) events += Grown(delta.text, logprobs);
  }
  return events;
}

std::string ItemWriter::EndChoice(const ReplyEnd& end, uint32_t) {
  end_ = end;
  if (!is_stream_ || items_.empty()) return "";
  return Closed(end.reason != FinishReason::kLength);
}

}  // namespace moestro
