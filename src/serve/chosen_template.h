// SPDX-License-Identifier: MIT
// The chat template that a server uses.
#pragma once

#include <string>

#include "base/result.h"
#include "model/vocab.h"

namespace moestro {

// The template for --chat-template: the name of a known template, else a file. `asked` empty: the
// model's own template, which may be empty, too. A warning names a file that is empty. kUsage:
// `asked` is neither a name nor a file, or the template cannot be used; the message names the
// reason.
Result<std::string> ChosenTemplate(const std::string& asked, const Vocab& vocab);

}  // namespace moestro
