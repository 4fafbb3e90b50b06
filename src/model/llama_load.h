// SPDX-License-Identifier: MIT
// Loading of models and contexts by libllama, with the reason of a failure: libllama has one log
// for the process.
//
// Thread rule: any thread; one call at a time runs, the others wait.
#pragma once

#include <llama.h>

#include <string>

#include "base/input_file.h"
#include "base/result.h"
#include "model/gguf_file.h"

namespace moestro {

// libllama has T5's tokenizer but refuses the architecture of models that have an encoder and
// experts. So libllama reads their vocabulary from a file in memory that holds nothing else and
// names T5 as architecture.

// The metadata of the file's tokenizer as a GGUF in memory. kIo, kInvalidFile.
Result<UniqueFd> VocabularyAsT5(const GgufFile& file);
// A path that opens `file` while the descriptor lives.
std::string PathOf(const UniqueFd& file);

// Returns nullptr on failure, with the reason in `why`. `path`: the first shard. libllama's log is
// silent afterwards.
llama_model* LoadByLlama(const std::string& path, const llama_model_params& params,
                         std::string& why);
// Like LoadByLlama(), for a context of the model.
llama_context* ContextByLlama(llama_model& model, const llama_context_params& params,
                              std::string& why);

}  // namespace moestro
