// SPDX-License-Identifier: MIT
// What a chat template sees of a conversation. Inside src/chat only.
#pragma once

#include <string>

#include "base/result.h"
#include "chat/control_text.h"
#include "chat/template_message.h"

namespace minja {
class Value;
}

namespace moestro {

// The template's variables, an object. Takes time in proportion to the texts, and the texts with
// it. `controls` are marked as in ChatTemplate::Parse(). kInvalidRequest for JSON that is none, has
// an object of more than 2048 keys (the library looks for a key among all of them) or more than
// 262144 values together, but for a call's arguments, which stay text then.
Result<minja::Value> TemplateValues(SentInput input, const std::string& bos, const std::string& eos,
                                    const ControlTexts& controls);

}  // namespace moestro
