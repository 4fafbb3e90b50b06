// SPDX-License-Identifier: MIT
// The demo model with a chat template and room for prompts of agents. Beyond the 256 positions that
// it learned it writes nonsense.
#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <memory>
#include <string>

namespace moestro {

// False: `from` cannot be read or `to` not written.
inline bool WriteChatModel(const std::string& from, const std::string& to,
                           const std::string& chat_template) {
  constexpr uint32_t kContext = 16384;
  ggml_context* raw = nullptr;
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> model(
      gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &raw}), gguf_free);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> tensors(raw, ggml_free);
  if (!model) return false;
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> copy(gguf_init_empty(), gguf_free);
  gguf_set_kv(copy.get(), model.get());
  gguf_set_val_u32(copy.get(), "olmoe.context_length", kContext);
  gguf_set_val_str(copy.get(), "tokenizer.chat_template", chat_template.c_str());
  for (int64_t i = 0; i < gguf_get_n_tensors(model.get()); ++i) {
    const char* name = gguf_get_tensor_name(model.get(), i);
    gguf_add_tensor(copy.get(), ggml_get_tensor(tensors.get(), name));
  }
  return gguf_write_to_file(copy.get(), to.c_str(), false);
}

}  // namespace moestro
