// SPDX-License-Identifier: MIT
// What a chat template sees of a conversation. Inside src/chat only.
#pragma once

#include <string>

#include "base/result.h"
#include "base/work_limit.h"
#include "chat/template.h"

namespace minja {
class Value;
}

namespace moestro {

// The template's variables, an object. Values are trees. Takes time in proportion to the texts.
// kInvalidRequest for JSON that is none, has an object of more than 2048 keys (the library looks
// for a key among all of them) or more than 262144 values together, but for a call's arguments,
// which stay text then. And what the limit says.
Result<minja::Value> TemplateValues(const TemplateInput& input, const std::string& bos,
                                    const std::string& eos, const WorkLimit& limit);

}  // namespace moestro
