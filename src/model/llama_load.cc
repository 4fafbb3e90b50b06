// SPDX-License-Identifier: MIT
#include "model/llama_load.h"

#include <ggml-cpp.h>
#include <gguf.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/text.h"

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

namespace {

void IgnoreLog(ggml_log_level, const char*, void*) {}

void KeepLastError(ggml_log_level level, const char* text, void* user_data) {
  if (level != GGML_LOG_LEVEL_ERROR) return;
  std::string& last = *static_cast<std::string*>(user_data);
  // Only the reason helps a user in "function: error loading model: reason" and "function: failed
  // to initialize the context: reason". The last line that libllama writes merely reports failure.
  const std::string_view line(text);
  for (const std::string_view marker :
       {"error loading model: ", "failed to initialize the context: "}) {
    const size_t at = line.find(marker);
    if (at != std::string_view::npos) last = line.substr(at + marker.size());
  }
  if (last.empty()) last = line;
}

// One for all kinds of calls.
std::mutex& LogMutex() {
  static std::mutex mutex;
  return mutex;
}

// Returns make()'s result; if null, `why` holds libllama's reason.
template <class Make>
auto WithReason(std::string& why, Make make) -> decltype(make()) {
  const std::scoped_lock lock(LogMutex());
  llama_log_set(KeepLastError, &why);
  decltype(make()) made = nullptr;
  try {
    made = make();
  } catch (const std::exception& e) {
    why = e.what();
  }
  llama_log_set(IgnoreLog, nullptr);
  while (!why.empty() && why.back() == '\n') why.pop_back();
  return made;
}

}  // namespace

llama_model* LoadByLlama(const std::string& path, const llama_model_params& params,
                         std::string& why) {
  return WithReason(why, [&] { return llama_model_load_from_file(path.c_str(), params); });
}

llama_context* ContextByLlama(llama_model& model, const llama_context_params& params,
                              std::string& why) {
  return WithReason(why, [&] { return llama_init_from_model(&model, params); });
}

}  // namespace moestro
