// SPDX-License-Identifier: MIT
#include "chat/answer_parser.h"

#include <algorithm>

#include "chat/call_ids.h"

namespace moestro {

void DeltaSink::Add(ChatDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const uint32_t call = kind == ChatDelta::Kind::kCallArguments ? calls_ - 1 : 0;
  if (deltas_.empty() || deltas_.back().kind != kind || deltas_.back().call != call) {
    deltas_.push_back({.kind = kind, .text = {}, .call = call, .name = {}, .call_id = {}});
  }
  deltas_.back().text += text;
}

void DeltaSink::BeginCall(std::string_view name) {
  deltas_.push_back({.kind = ChatDelta::Kind::kCallBegin,
                     .text = {},
                     .call = calls_,
                     .name = std::string(name),
                     .call_id = MakeCallId(id_seed_, calls_, has_short_ids_)});
  ++calls_;
  is_in_call_ = true;
}

void CallProgress::Show(const CallScan& scan, bool certain, DeltaSink& sink) {
  for (size_t i = done_; i < scan.calls.size(); ++i) {
    const ScannedCall& call = scan.calls[i];
    if (!call.is_whole && !(certain && call.is_named)) return;
    if (begun_ == i) {
      sink.BeginCall(call.name);
      ++begun_;
      sent_bytes_ = 0;
    }
    sink.Arguments(std::string_view(call.arguments).substr(sent_bytes_));
    sent_bytes_ = call.arguments.size();
    if (!call.is_whole) continue;
    ++done_;
    sink.EndCall();
  }
}

size_t OpenEnd(std::string_view text, const std::vector<std::string_view>& marks) {
  size_t open = 0;
  for (const std::string_view mark : marks) {
    if (mark.empty()) continue;
    for (size_t n = std::min(text.size(), mark.size() - 1); n > open; --n) {
      if (text.ends_with(mark.substr(0, n))) open = n;
    }
  }
  return open;
}

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
