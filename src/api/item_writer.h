// SPDX-License-Identifier: MIT
// The common part of the formats that answer with a list of items (responses, messages). An item is
// opened, grows and is closed, each with events. Inside src/api only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/reply.h"
#include "api/reply_json.h"

namespace moestro {

class ItemWriter : public ReplyWriter {
 public:
  std::string Part(const ReplyPart& part, uint32_t choice) final;
  std::string EndChoice(const ReplyEnd& end, uint32_t choice) final;

 protected:
  ItemWriter(bool is_stream, bool has_logprobs)
      : is_stream_(is_stream), has_logprobs_(has_logprobs) {}

  // Events of the last item. Called only if the answer is streamed.
  virtual std::string Opened() = 0;
  virtual std::string Grown(const std::string& text, std::span<const TokenLogprob> logprobs) = 0;
  // is_whole: no limit cut the item off.
  virtual std::string Closed(bool is_whole) = 0;

  bool is_stream() const { return is_stream_; }
  const std::vector<AnswerItem>& items() const { return items_; }
  const ReplyEnd& end() const { return end_; }

 private:
  const bool is_stream_;
  const bool has_logprobs_;
  std::vector<AnswerItem> items_;
  std::vector<TokenLogprob> logprobs_;  // waiting for text
  ReplyEnd end_;
};

}  // namespace moestro
