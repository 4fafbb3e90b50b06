// SPDX-License-Identifier: MIT
// Turns a client's body into work for the engine: the prompts' tokens, and the jobs.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "api/api_request.h"
#include "base/work_limit.h"
#include "chat/answer_style.h"
#include "chat/chat_format.h"
#include "chat/chat_types.h"
#include "core/ids.h"
#include "serve/body_room.h"
#include "serve/job.h"
#include "serve/ready_model.h"

namespace moestro {

// Tokens of a client's text, within a request's limits of memory and time.
//
// Thread rule: any thread.

// Whether a text of so many bytes is longer than any prompt of the context could be.
bool IsHopeless(const ReadyModel& model, size_t bytes);
// The 400 for a hopeless text.
ApiError TooManyBytes(const ReadyModel& model, size_t bytes);
struct TokenWish {
  bool add_special = true;
  bool parse_special = true;
  bool cuts = false;  // a text that is too long for the context ends there, in place of a 400
};
// The tokens of a text. 400 "context_length_exceeded": the text is far beyond the context; at most
// its first quarter of a million of tokens are computed then. 400: the text is not UTF-8, or the
// limit is over.
ApiResult<std::vector<Token>> TokensOf(const ReadyModel& model, const std::string& text,
                                       TokenWish wish, const WorkLimit& limit);
// The tokens of a prompt that a template or a client wrote.
ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const std::string& text,
                                           const WorkLimit& limit);
// The tokens of a conversation. Control tokens that a client spelled stay words.
ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const RenderedChat& chat,
                                           const WorkLimit& limit);

// A request after parsing: request.n jobs for each prompt, and how to read the answers.
struct Work {
  ApiRequest request;  // without the texts, which are tokens by now
  AnswerStyle style = {};
  std::vector<std::shared_ptr<Job>> jobs = {};
  std::shared_ptr<const Grammar> grammar = {};  // of all jobs; null: no grammar
  std::vector<std::string> echoes = {};         // each prompt as text, if requested
  uint64_t id_seed = 0;                         // makes the ids of calls
  double submitted = 0.0;                       // by SteadySeconds()
  std::unique_ptr<BodyRoom::Share> kept = {};   // share of Preparing::kept()
  size_t kept_bytes = 0;
};

// The number of tokens of all prompts.
uint32_t PromptLength(const Work& work);

// Finds positions at which later prompts of a conversation may part from this prompt. A state
// cannot be cut back, so the scheduler keeps the states at these positions.
//
// Thread rule: any thread.

// Numbers of tokens of `prompt`, which was rendered from `chat`, rising: the end of the part that
// all conversations with these instructions and tools share, and a place before the beginning of
// the answer, which a later turn often renders otherwise. Found by rendering the conversation with
// another message, and without an answer; a conversation that cannot be rendered gives no position.
std::vector<uint32_t> CheckpointsOf(const ReadyModel& model, const ChatInput& chat,
                                    std::span<const Token> prompt, const WorkLimit& limit);

// 64 bits from the system's source of random numbers.
uint64_t RandomBits();

// Makes the body's jobs and submits them. Waits for a turn (preparing.h), and for a grammar's
// trial. `owner`: the client whose stored answers the body may go on from. 400: the body is wrong,
// or takes too long; 429 and 503 as Scheduler::Submit(); 503 also when other requests keep all the
// bytes.
ApiResult<Work> MakeWork(const ReadyModel& model, ApiKind kind, std::string body,
                         const std::string& owner);

// The prompt of a conversation, without answering it.
struct PromptBody {
  ApiKind kind;
  std::string_view body;
  RecallItems recall = {};
};
ApiResult<RenderedChat> RenderedPrompt(const ReadyModel& model, const PromptBody& asked,
                                       const WorkLimit& limit);

}  // namespace moestro
