// SPDX-License-Identifier: MIT
#include "api/writers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/text.h"

namespace moestro {
namespace {

double PerSecond(uint32_t n, double seconds) { return seconds > 0.0 ? n / seconds : 0.0; }

Json CandidateJson(const TokenLogprob::Candidate& candidate) {
  Json bytes = Json::Array();
  for (const char byte : candidate.bytes) bytes.Push(static_cast<uint8_t>(byte));
  Json json = Json::Object();
  json.Set("token", candidate.bytes)
      .Set("logprob", LogprobJson(candidate.logprob))
      .Set("bytes", std::move(bytes));
  return json;
}

}  // namespace

std::string StreamEvent(std::string_view data) { return Format("data: {}\n\n", data); }

std::string StreamEvent(std::string_view name, const Json& data) {
  return Format("event: {}\ndata: {}\n\n", name, data.Dump());
}

std::string StreamComment() { return ": ping\n\n"; }

const char* FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
  }
  return "stop";
}

Json UsageJson(const TextUsage& usage) {
  Json json = Json::Object();
  Json details = Json::Object();
  details.Set("cached_tokens", usage.cached_tokens);
  if (usage.recomputed_tokens > 0) details.Set("recomputed_tokens", usage.recomputed_tokens);
  json.Set("prompt_tokens", usage.prompt_tokens)
      .Set("completion_tokens", usage.completion_tokens)
      .Set("total_tokens", uint64_t{usage.prompt_tokens} + usage.completion_tokens)
      .Set("prompt_tokens_details", std::move(details))
      .Set("completion_tokens_details",
           std::move(Json::Object().Set("reasoning_tokens", usage.reasoning_tokens)));
  return json;
}

Json TimingsJson(const TextUsage& usage) {
  const uint32_t computed =
      usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens);
  Json json = Json::Object();
  json.Set("cache_n", usage.cached_tokens)
      .Set("prompt_n", computed)
      .Set("prompt_ms", usage.prompt_seconds * 1e3)
      .Set("prompt_per_second", PerSecond(computed, usage.prompt_seconds))
      .Set("predicted_n", usage.completion_tokens)
      .Set("predicted_ms", usage.completion_seconds * 1e3)
      .Set("predicted_per_second", PerSecond(usage.completion_tokens, usage.completion_seconds));
  if (usage.drafted_tokens > 0) {
    json.Set("draft_n", usage.drafted_tokens).Set("draft_n_accepted", usage.accepted_drafts);
  }
  return json;
}

Json ProgressJson(const PromptProgress& progress) {
  Json json = Json::Object();
  json.Set("total", progress.total)
      .Set("cache", progress.cached)
      .Set("processed", progress.processed)
      .Set("time_ms", static_cast<int64_t>(progress.seconds * 1e3));
  return json;
}

void AddUsage(const TextUsage& more, TextUsage& sum) {
  sum.prompt_tokens += more.prompt_tokens;
  sum.cached_tokens += more.cached_tokens;
  sum.recomputed_tokens += more.recomputed_tokens;
  sum.completion_tokens += more.completion_tokens;
  sum.drafted_tokens += more.drafted_tokens;
  sum.accepted_drafts += more.accepted_drafts;
  sum.reasoning_tokens += more.reasoning_tokens;
  sum.prompt_seconds += more.prompt_seconds;
  sum.completion_seconds += more.completion_seconds;
}

Json NumberJson(float number) {
  if (!std::isfinite(number)) return {};
  const std::string text = Format("{}", number);
  double nearest = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), nearest);
  return nearest;
}

Json LogprobJson(float logprob) {
  constexpr float kCannotBe = -9999.0F;
  return NumberJson(logprob < kCannotBe ? kCannotBe : logprob);
}

Json LogprobsJson(std::span<const TokenLogprob> logprobs) {
  Json array = Json::Array();
  PushLogprobs(logprobs, array);
  return array;
}

void PushLogprobs(std::span<const TokenLogprob> logprobs, Json& array) {
  for (const TokenLogprob& logprob : logprobs) {
    Json top = Json::Array();
    for (const TokenLogprob::Candidate& candidate : logprob.top) top.Push(CandidateJson(candidate));
    array.Push(std::move(CandidateJson(logprob.chosen).Set("top_logprobs", std::move(top))));
  }
}

bool OpensItem(std::span<const AnswerItem> items, const ChatDelta& delta) {
  switch (delta.kind) {
    case ChatDelta::Kind::kCallBegin:
      return true;
    case ChatDelta::Kind::kCallArguments:
      return false;
    case ChatDelta::Kind::kContent:
    case ChatDelta::Kind::kReasoning:
      break;
  }
  return !delta.text.empty() && (items.empty() || items.back().kind != delta.kind);
}

AnswerItem NewItem(const ChatDelta& delta) {
  AnswerItem item;
  item.kind = delta.kind;
  item.name = delta.name;
  item.call_id = delta.call_id;
  return item;
}

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
