// SPDX-License-Identifier: MIT
#include "model/llama_load.h"

#include <cstddef>
#include <exception>
#include <mutex>
#include <string_view>

namespace moestro {
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
