// SPDX-License-Identifier: MIT
// The variables that a chat template finds: a conversation's turns and tools, as transformers gives
// them. Inside src/chat only.
#pragma once

#include <string>

#include "base/result.h"
#include "chat/control_text.h"
#include "chat/template_message.h"
#include "jinja/value.h"

namespace moestro {

// A dict. Takes time in proportion to the texts, and the texts with it. `controls` are marked as in
// ChatTemplate::Parse(). kInvalidRequest for JSON that is none or has more than 262144 values
// together, but for a call's arguments, which stay text then.
Result<jinja::Value> TemplateValues(SentInput input, const std::string& bos, const std::string& eos,
                                    const ControlTexts& controls);

}  // namespace moestro
