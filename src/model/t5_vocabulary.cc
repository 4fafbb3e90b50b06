// SPDX-License-Identifier: MIT
#include "model/t5_vocabulary.h"

#include <ggml-cpp.h>
#include <gguf.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/format.h"

namespace moestro {
namespace {

// All keys but the tokenizer's.
void KeepTokenizer(gguf_context* keys) {
  std::vector<std::string> others;
  for (int64_t i = 0; i < gguf_get_n_kv(keys); ++i) {
    const std::string_view key = gguf_get_key(keys, i);
    if (!key.starts_with("tokenizer.")) others.emplace_back(key);
  }
  for (const std::string& key : others) gguf_remove_key(keys, key.c_str());
}

}  // namespace

std::string PathOf(const UniqueFd& file) { return Format("/proc/self/fd/{}", file.get()); }

Result<UniqueFd> VocabularyAsT5(const GgufFile& file) {
  const std::string& path = file.paths().front();
  const gguf_context_ptr from{
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr})};
  if (!from) return Fail(Errc::kInvalidFile, "{}: ggml cannot read the file", path);
  const gguf_context_ptr keys{gguf_init_empty()};
  gguf_set_kv(keys.get(), from.get());
  KeepTokenizer(keys.get());
  gguf_set_val_str(keys.get(), "general.architecture", "t5");
  UniqueFd memory(memfd_create("moestro-vocabulary", MFD_CLOEXEC));
  if (memory.get() < 0) {
    return Fail(Errc::kIo, "{}: no memory for the vocabulary: {}", path, std::strerror(errno));
  }
  if (gguf_write_to_file(keys.get(), PathOf(memory).c_str(), /*only_meta=*/true)) return memory;
  return Fail(Errc::kIo, "{}: the vocabulary cannot be written to memory", path);
}

}  // namespace moestro
