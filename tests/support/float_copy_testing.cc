// SPDX-License-Identifier: MIT
#include "tests/support/float_copy_testing.h"

#include <ggml-cpp.h>
#include <ggml.h>
#include <gguf.h>

#include <cstring>

#include "base/result.h"

namespace moestro {
namespace {

void ToFloats(const ggml_tensor* from, ggml_tensor* to) {
  if (from->type == GGML_TYPE_F32) {
    std::memcpy(to->data, from->data, ggml_nbytes(from));
    return;
  }
  ggml_get_type_traits(from->type)
      ->to_float(from->data, static_cast<float*>(to->data), ggml_nelements(from));
}

}  // namespace

std::string WriteInFloats(const std::string& path) {
  ggml_context* read = nullptr;
  const gguf_context_ptr from(gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &read}));
  CHECK(from != nullptr);
  const ggml_context_ptr its(read);
  size_t room = 0;
  for (ggml_tensor* t = ggml_get_first_tensor(read); t != nullptr;
       t = ggml_get_next_tensor(read, t)) {
    room += static_cast<size_t>(ggml_nelements(t)) * sizeof(float) + ggml_tensor_overhead() + 64;
  }
  const ggml_context_ptr made(
      ggml_init({.mem_size = room, .mem_buffer = nullptr, .no_alloc = false}));
  const gguf_context_ptr to(gguf_init_empty());
  gguf_set_kv(to.get(), from.get());
  for (int64_t i = 0; i < gguf_get_n_tensors(from.get()); ++i) {
    const ggml_tensor* tensor = ggml_get_tensor(read, gguf_get_tensor_name(from.get(), i));
    ggml_tensor* floats =
        ggml_new_tensor(made.get(), GGML_TYPE_F32, ggml_n_dims(tensor), tensor->ne);
    ggml_set_name(floats, tensor->name);
    ToFloats(tensor, floats);
    gguf_add_tensor(to.get(), floats);
  }
  std::string written = path + ".floats.gguf";
  CHECK(gguf_write_to_file(to.get(), written.c_str(), false));
  return written;
}

}  // namespace moestro
