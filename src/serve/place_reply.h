// SPDX-License-Identifier: MIT
// A client's request about a place: to save the place's text to a file, to restore a text from a
// file, to erase the text. A place is a number for one of the texts that are computed beside each
// other; llama-server and its clients call it a slot, in paths and flags.
//
// Thread rule: any thread; the thread waits for the engine, which does such tasks between two
// steps.
#pragma once

#include <string_view>

#include "serve/http_server.h"
#include "serve/ready_model.h"

namespace moestro {

// `place`: the path's last part. 404 unless `place` is a number, 501 when the server was started
// without a folder for saved texts. Returns early when the client leaves.
HttpReply ChangePlace(const ReadyModel& model, const HttpRequest& request, std::string_view place);

}  // namespace moestro
