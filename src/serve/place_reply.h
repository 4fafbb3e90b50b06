// SPDX-License-Identifier: MIT
// What a client asks of a place for texts: to save its text to a file, to restore one, to erase it.
//
// Thread rule: any thread; it waits for the engine, which does such things between two steps.
#pragma once

#include <string_view>

#include "serve/http_server.h"
#include "serve/ready_model.h"

namespace moestro {

// `place`: what the path names. 404 unless it is a number, 501 when the server was started without
// a folder for such files. Ends early when the client leaves.
HttpReply ChangePlace(const ReadyModel& model, const HttpRequest& request, std::string_view place);

}  // namespace moestro
