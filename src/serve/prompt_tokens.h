// SPDX-License-Identifier: MIT
// Tokens of a client's text, within a request's limits of memory and time.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "base/work_limit.h"
#include "chat/chat_format.h"
#include "core/ids.h"
#include "serve/ready_model.h"

namespace moestro {

// Whether a text of so many bytes is longer than any prompt of the context could be.
bool IsHopeless(const ReadyModel& model, size_t bytes);
// The 400 for a hopeless text.
ApiError TooManyBytes(const ReadyModel& model, size_t bytes);
struct TokenWish {
  bool add_special = true;
  bool parse_special = true;
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

}  // namespace moestro
