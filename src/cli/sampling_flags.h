// SPDX-License-Identifier: MIT
// llama.cpp's sampling flags under llama.cpp's names.
#pragma once

#include "cli/flags.h"
#include "text/sampler.h"

namespace moestro {

// `options` must outlive the parsing. The seed is a common flag.
void AddSamplingFlags(Flags flags, SamplingOptions& options);

}  // namespace moestro
