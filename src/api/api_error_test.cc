// SPDX-License-Identifier: MIT
#include "api/api_error.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "base/json.h"

namespace moestro {
namespace {

TEST(ApiError, WhatTheClientCanMendIsA400) {
  for (const Errc code : {Errc::kInvalidRequest, Errc::kUnsupported, Errc::kUsage}) {
    const ApiError error = ToApiError({code, "too hot"});
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.message, "too hot");
  }
  for (const Errc code : {Errc::kInvalidFile, Errc::kIo, Errc::kNoMemory, Errc::kDevice}) {
    EXPECT_EQ(ToApiError({code, "x"}).status, 500);
    EXPECT_EQ(ToApiError({code, "x"}).type, "server_error");
  }
  // Work is interrupted when the server goes down.
  EXPECT_EQ(ToApiError({Errc::kInterrupted, "x"}).status, 503);
  EXPECT_EQ(ToApiError({Errc::kInterrupted, "x"}).code, "server_shutdown");
}

TEST(ApiError, BodiesAreWhatEachClientReads) {
  const ApiError error{.status = 400,
                       .type = "invalid_request_error",
                       .message = "say \"please\"\n",
                       .code = "rude",
                       .param = "prompt"};
  EXPECT_EQ(ErrorBody(error), R"({"error":{"message":"say \"please\"\n",)"
                              R"("type":"invalid_request_error","param":"prompt","code":"rude"}})");
  EXPECT_EQ(ErrorBody({.message = "m"}),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":null}})");
  EXPECT_EQ(MessagesErrorBody(error, "req_1"),
            R"({"type":"error","error":{"type":"invalid_request_error",)"
            R"("message":"say \"please\"\n"},"request_id":"req_1"})");
}

TEST(ApiError, MessagesHaveTypesOfTheirOwn) {
  const auto type = [](int status) { return MessagesErrorBody({.status = status}, "x"); };
  EXPECT_NE(type(401).find("\"authentication_error\""), std::string::npos);
  EXPECT_NE(type(404).find("\"not_found_error\""), std::string::npos);
  EXPECT_NE(type(413).find("\"request_too_large\""), std::string::npos);
  EXPECT_NE(type(422).find("\"invalid_request_error\""), std::string::npos);
  EXPECT_NE(type(429).find("\"rate_limit_error\""), std::string::npos);
  EXPECT_NE(type(500).find("\"api_error\""), std::string::npos);
  EXPECT_NE(type(503).find("\"overloaded_error\""), std::string::npos);
}

TEST(ApiError, AnExceededContextNamesAllNumbers) {
  const ApiError error = ContextExceeded({.prompt = 5000, .answer = 100, .most = 4096});
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_EQ(error.code, "context_length_exceeded");
  for (const char* number : {"5000", "100", "4096"})
    EXPECT_NE(error.message.find(number), std::string::npos) << error.message;
}

// The messages of an overflow in each client's format, and the searches that clients do in them.
class OverflowWords {
 public:
  explicit OverflowWords(const ContextOverflow& overflow) : error_(ContextExceeded(overflow)) {
    openai_ = Json::Parse(ErrorBody(error_))->Find("error")->Find("message")->text().value();
    messages_ =
        Json::Parse(MessagesErrorBody(error_, "r"))->Find("error")->Find("message")->text().value();
    ollama_ = OllamaErrorMessage(error_);
    llama_ = Json::Parse(LlamaOverflowBody(*error_.overflow))
                 ->Find("error")
                 ->Find("message")
                 ->text()
                 .value();
  }
  std::vector<std::string> all() const { return {openai_, messages_, ollama_, llama_}; }
  const std::string& openai() const { return openai_; }
  const std::string& messages() const { return messages_; }
  const std::string& ollama() const { return ollama_; }
  const std::string& llama() const { return llama_; }

 private:
  const ApiError error_;
  std::string openai_;
  std::string messages_;
  std::string ollama_;
  std::string llama_;
};

bool Finds(const std::string& text, const char* pattern) {
  return std::regex_search(text, std::regex(pattern, std::regex::icase));
}

// Clients shorten their conversation when an error's message has a phrase of their list. Phrases
// and places, by client:
// - pi (packages/ai/src/utils/overflow.ts, OVERFLOW_PATTERNS): any pattern, in any message;
// - Roo Code (src/core/context/context-management/context-error-handling.ts): for OpenAI's form
//   context with length or window, for Anthropic's the prompt's length or "maximum ... tokens";
// - Cline (the same file there): code 400 with "context length", or the code
//   context_length_exceeded; for Anthropic's form invalid_request_error;
// - Codex (codex-rs/codex-api, errors of responses): the code context_length_exceeded;
// - openclaw (src/agents/pi-embedded-helpers/errors.ts): "prompt too long", for Ollama's form.
TEST(ApiError, AnExceededContextHasTheWordsThatClientsLookFor) {
  for (const ContextOverflow& overflow :
       {ContextOverflow{.prompt = 600, .answer = 0, .most = 512},
        ContextOverflow{.prompt = 512, .answer = 1, .most = 512}}) {
    const OverflowWords words(overflow);
    EXPECT_TRUE(Finds(words.openai(), R"(maximum context length is \d+ tokens)"));
    EXPECT_TRUE(Finds(words.messages(), "prompt is too long"));
    EXPECT_TRUE(Finds(words.ollama(), R"(prompt too long; exceeded (?:max )?context length)"));
    EXPECT_TRUE(Finds(words.ollama(), "exceeds the available context size"));
    EXPECT_TRUE(Finds(words.llama(), "exceeds the available context size"));
    EXPECT_TRUE(Finds(words.openai(), R"(\bcontext\s*(?:length|window)\b)"));  // Roo Code
    EXPECT_TRUE(Finds(words.messages(), R"(prompt\s*is\s*too\s*long)"));
    EXPECT_TRUE(words.openai().contains("context length")) << "Cline";
    EXPECT_TRUE(words.ollama().contains("prompt too long")) << "openclaw";
    for (const std::string& text : words.all()) {
      // pi takes these words for a limit of another kind.
      EXPECT_FALSE(Finds(text, "rate limit|too many requests|throttling")) << text;
    }
  }
}

TEST(ApiError, AnExceededContextIsWordedAsEachServerDoes) {
  const ContextOverflow overflow{.prompt = 600, .answer = 0, .most = 512};
  const OverflowWords words(overflow);
  EXPECT_TRUE(words.messages().starts_with("prompt is too long: 600 tokens > 512 maximum"));
  EXPECT_TRUE(
      words.ollama().starts_with("prompt too long; exceeded max context length by 88 tokens"));
  EXPECT_TRUE(
      words.llama().starts_with("request (600 tokens) exceeds the available context size "
                                "(512 tokens), try increasing it"));
  const auto llama = Json::Parse(LlamaOverflowBody(overflow));
  EXPECT_EQ(llama->Find("error")->Find("type")->text(), "exceed_context_size_error");
  EXPECT_EQ(llama->Find("error")->Find("n_prompt_tokens")->Dump(), "600");
  EXPECT_EQ(llama->Find("error")->Find("n_ctx")->Dump(), "512");
  // A prompt that leaves no room for an answer: the message counts both.
  const OverflowWords full({.prompt = 512, .answer = 1, .most = 512});
  EXPECT_TRUE(full.messages().starts_with("prompt is too long: 513 tokens > 512 maximum"));
}

TEST(ApiError, WhatIsNotOfferedIsA501) {
  const ApiError error = NotOffered("/v1/embeddings");
  EXPECT_EQ(error.status, 501);
  EXPECT_NE(ErrorBody(error).find("/v1/embeddings"), std::string::npos);
}

}  // namespace
}  // namespace moestro
