// SPDX-License-Identifier: MIT
// The keys of a Switch Transformers GGUF but for its tokenizer: docs/switch-format.md.
#pragma once

#include <ggml.h>
#include <gguf.h>

#include "offline/convert/switch_config.h"

namespace moestro {

// type: of the matrices, one of those of FindConvertType().
void SetSwitchKeys(gguf_context* gguf, const SwitchConfig& config, ggml_type type);

}  // namespace moestro
