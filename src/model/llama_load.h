// SPDX-License-Identifier: MIT
// Loading of models and contexts by libllama, with the reason of a failure: libllama has one log
// for the process.
//
// Thread rule: any thread; one call at a time runs, the others wait.
#pragma once

#include <llama.h>

#include <string>

namespace moestro {

// Returns nullptr on failure, with the reason in `why`. `path`: the first shard. libllama's log is
// silent afterwards.
llama_model* LoadByLlama(const std::string& path, const llama_model_params& params,
                         std::string& why);
// Like LoadByLlama(), for a context of the model.
llama_context* ContextByLlama(llama_model& model, const llama_context_params& params,
                              std::string& why);

}  // namespace moestro
