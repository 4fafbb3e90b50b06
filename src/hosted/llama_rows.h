// SPDX-License-Identifier: MIT
// Rows for llama_decode(): a token of a sequence each.
#pragma once

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

class LlamaRows {
 public:
  explicit LlamaRows(size_t most) : batch_(llama_batch_init(static_cast<int32_t>(most), 0, 1)) {}
  ~LlamaRows() { llama_batch_free(batch_); }
  LlamaRows(const LlamaRows&) = delete;
  LlamaRows& operator=(const LlamaRows&) = delete;

  // REQUIRES: fewer rows than the most were added.
  void Add(Token token, uint32_t position, llama_seq_id sequence, bool is_output) {
    const int32_t row = batch_.n_tokens++;
    batch_.token[row] = token;
    batch_.pos[row] = static_cast<llama_pos>(position);
    batch_.n_seq_id[row] = 1;
    batch_.seq_id[row][0] = sequence;
    batch_.logits[row] = is_output ? 1 : 0;
  }
  // The code of llama_decode(). kUnsupported: libllama threw; the message quotes the exception.
  Result<int32_t> Decode(llama_context* context) const {
    return Caught([&]() -> Result<int32_t> { return llama_decode(context, batch_); },
                  [](std::string_view why) -> Result<int32_t> {
                    return Fail(Errc::kUnsupported, "libllama cannot compute these rows: {}", why);
                  });
  }

 private:
  llama_batch batch_;
};

}  // namespace moestro
