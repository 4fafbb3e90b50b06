// SPDX-License-Identifier: MIT
// OpenAI's text completions, n choices for each prompt.
#include <algorithm>
#include <utility>
#include <vector>

#include "api/writers.h"
#include "base/result.h"

namespace moestro {
namespace {

class CompletionWriter final : public ReplyWriter {
 public:
  CompletionWriter(const ApiRequest& request, const ReplyHead& head)
      : is_stream_(request.stream),
        has_usage_(request.include_usage),
        has_logprobs_(request.logprobs),
        head_(head),
        choices_(std::max<size_t>(1, request.prompts.size()) * request.n) {}

  std::string Begin() override { return ""; }

  std::string Part(const ReplyPart& part, uint32_t choice) override {
    CHECK(choice < choices_.size());
    Answer& answer = choices_[choice];
    std::string text;
    for (const ChatDelta& delta : part.deltas) text += delta.text;
    if (has_logprobs_)
      answer.logprobs.insert(answer.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
    if (!is_stream_) {
      answer.text += text;
      return "";
    }
    if (text.empty()) return "";
    return Chunk(Choice(choice, text, Json()));
  }

  std::string Progress(const PromptProgress& progress, uint32_t choice) override {
    if (!is_stream_) return "";
    Json empty = Json::Object();
    empty.Set("text", "").Set("index", choice).Set("logprobs", {}).Set("finish_reason", {});
    return Chunk(std::move(empty), Json::Object().Set("prompt_progress", ProgressJson(progress)));
  }

  std::string EndChoice(const ReplyEnd& end, uint32_t choice) override {
    CHECK(choice < choices_.size());
    choices_[choice].reason = end.reason;
    AddUsage(end.usage, usage_);
    if (!is_stream_) return "";
    Json finished = Choice(choice, "", FinishName(end.reason));
    if (has_usage_) return Chunk(std::move(finished));
    Json more = Json::Object();
    more.Set("timings", TimingsJson(end.usage));
    return Chunk(std::move(finished), more);
  }

  std::string End() override {
    Json more = Json::Object();
    more.Set("usage", UsageJson(usage_)).Set("timings", TimingsJson(usage_));
    if (is_stream_) {
      const std::string usage =
          has_usage_ ? StreamEvent(Body(Json::Array(), more).Dump()) : std::string();
      return usage + StreamEvent("[DONE]");
    }
    Json choices = Json::Array();
    for (uint32_t i = 0; i < choices_.size(); ++i)
      choices.Push(Choice(i, choices_[i].text, FinishName(choices_[i].reason)));
    return Body(std::move(choices), more).Dump();
  }

  std::string Failed(const ApiError& error) override {
    return is_stream_ ? StreamEvent(ErrorBody(error)) : ErrorBody(error);
  }

  std::string Ping() const override { return StreamComment(); }

 private:
  struct Answer {
    std::string text;                    // the whole text, if it is not streamed
    std::vector<TokenLogprob> logprobs;  // not sent yet
    uint64_t offset = 0;                 // characters of the tokens whose logprobs were sent
    FinishReason reason = FinishReason::kStop;
  };

  Json Body(Json choices, const Json& more) const {
    Json body = Json::Object();
    body.Set("id", "cmpl-" + head_.id)
        .Set("object", "text_completion")
        .Set("created", head_.created)
        .Set("model", head_.model);
    if (!head_.fingerprint.empty()) body.Set("system_fingerprint", head_.fingerprint);
    body.Set("choices", std::move(choices));
    for (const auto& [key, value] : more.view().members()) body.Set(key, value.Copy());
    return body;
  }

  std::string Chunk(Json choice, const Json& more = Json::Object()) const {
    return StreamEvent(Body(std::move(Json::Array().Push(std::move(choice))), more).Dump());
  }

  Json Choice(uint32_t index, const std::string& text, Json finish_reason) {
    Json choice = Json::Object();
    // A chunk without logprobs has null; a whole answer has a list if logprobs were requested.
    const bool has_some = is_stream_ ? !choices_[index].logprobs.empty() : has_logprobs_;
    choice.Set("text", text)
        .Set("index", index)
        .Set("logprobs", has_some ? TakeOldLogprobs(choices_[index]) : Json())
        .Set("finish_reason", std::move(finish_reason));
    return choice;
  }

  // The form of old completions: parallel arrays. Offsets count characters.
  static Json TakeOldLogprobs(Answer& answer) {
    Json tokens = Json::Array();
    Json logprobs = Json::Array();
    Json tops = Json::Array();
    Json offsets = Json::Array();
    for (const TokenLogprob& token : std::exchange(answer.logprobs, {})) {
      tokens.Push(token.chosen.bytes);
      logprobs.Push(LogprobJson(token.chosen.logprob));
      Json top = Json::Object();
      for (const TokenLogprob::Candidate& candidate : token.top)
        top.Set(candidate.bytes, LogprobJson(candidate.logprob));
      tops.Push(token.top.empty() ? Json() : std::move(top));
      offsets.Push(answer.offset);
      answer.offset += static_cast<uint64_t>(std::ranges::count_if(
          token.chosen.bytes, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
    }
    Json json = Json::Object();
    json.Set("tokens", std::move(tokens))
        .Set("token_logprobs", std::move(logprobs))
        .Set("top_logprobs", std::move(tops))
        .Set("text_offset", std::move(offsets));
    return json;
  }

  const bool is_stream_;
  const bool has_usage_;
  const bool has_logprobs_;
  const ReplyHead head_;
  std::vector<Answer> choices_;
  TextUsage usage_;
};

}  // namespace

std::unique_ptr<ReplyWriter> MakeCompletionWriter(const ApiRequest& request,
                                                  const ReplyHead& head) {
  return std::make_unique<CompletionWriter>(request, head);
}

}  // namespace moestro
