// SPDX-License-Identifier: MIT
// From a client's text to tokens, within what a request may take of memory and time.
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

// Longer than any prompt of the context could be, so that it need not be taken apart.
bool IsHopeless(const ReadyModel& model, size_t bytes);
// 400 for such a one.
ApiError TooManyBytes(const ReadyModel& model, size_t bytes);
// The tokens of a text. 400 "context_length_exceeded" for one that is far beyond the context: it is
// not taken apart, or only its first quarter of a million of tokens. 400 for one that is not UTF-8.
// And what the limit says.
struct TokenWish {
  bool add_special = true;
  bool parse_special = true;
};
ApiResult<std::vector<Token>> TokensOf(const ReadyModel& model, const std::string& text,
                                       TokenWish wish, const WorkLimit& limit);
// Of a prompt as a template or a client wrote it: with the tokens that begin a text, unless they
// are spelled there.
ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const std::string& text,
                                           const WorkLimit& limit);
// The same of a conversation: control tokens that a client spelled stay words.
ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const RenderedChat& chat,
                                           const WorkLimit& limit);

}  // namespace moestro
