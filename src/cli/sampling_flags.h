// SPDX-License-Identifier: MIT
// llama.cpp's sampling flags under llama.cpp's names.
#pragma once

#include "decode/sampler.h"

namespace CLI {
class App;
}

namespace moestro {

// `options` must outlive the parsing. The seed is a common flag, not one of these.
void AddSamplingFlags(CLI::App& app, SamplingOptions& options);

}  // namespace moestro
