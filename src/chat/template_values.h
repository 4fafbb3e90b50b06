// SPDX-License-Identifier: MIT
// The variables of a chat template: a conversation's turns and tools, as in transformers. Inside
// src/chat only.
#pragma once

#include <string>

#include "base/result.h"
#include "chat/control_text.h"
#include "chat/template_message.h"
#include "jinja/value.h"

namespace moestro {

// A dict of the variables. Takes time in proportion to the texts, and takes the texts over.
// `controls` are marked as in ChatTemplate::Parse(). kInvalidRequest for JSON that is none or has
// more than 262144 values together; a call's arguments may be no JSON, and stay text then.
Result<jinja::Value> TemplateValues(SentInput input, const std::string& bos, const std::string& eos,
                                    const ControlTexts& controls);

}  // namespace moestro
