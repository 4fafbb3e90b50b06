// SPDX-License-Identifier: MIT
// The chat template that a server uses.
#pragma once

#include <string>

#include "base/result.h"
#include "model/vocab.h"

namespace moestro {

// What --chat-template says: the name of a known one, else a file; empty: the model's own, which
// may be empty, too. kUsage: neither name nor file, or a template that cannot be used; names the
// reason.
Result<std::string> ChosenTemplate(const std::string& asked, const Vocab& vocab);

}  // namespace moestro
