// SPDX-License-Identifier: MIT
// The writer of each wire format. Inside src/api only.
#pragma once

#include <memory>

#include "api/api_request.h"
#include "api/reply.h"

namespace moestro {

std::unique_ptr<ReplyWriter> MakeChatWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeCompletionWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeResponsesWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeMessagesWriter(const ApiRequest& request, const ReplyHead& head);
std::unique_ptr<ReplyWriter> MakeOllamaWriter(const ApiRequest& request, const ReplyHead& head);

}  // namespace moestro
