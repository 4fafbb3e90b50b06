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
  // "function: error loading model: reason": only the reason helps a user. The last line that
  // libllama writes merely says that it failed.
  constexpr std::string_view kMarker = "error loading model: ";
  const std::string_view line(text);
  const size_t at = line.find(kMarker);
  if (at != std::string_view::npos) last = line.substr(at + kMarker.size());
  if (last.empty()) last = line;
}

}  // namespace

llama_model* LoadByLlama(const std::string& path, const llama_model_params& params,
                         std::string& why) {
  static std::mutex log_mutex;
  const std::scoped_lock lock(log_mutex);
  llama_log_set(KeepLastError, &why);
  llama_model* model = nullptr;
  try {
    model = llama_model_load_from_file(path.c_str(), params);
  } catch (const std::exception& e) {
    why = e.what();
  }
  llama_log_set(IgnoreLog, nullptr);
  while (!why.empty() && why.back() == '\n') why.pop_back();
  return model;
}

}  // namespace moestro
