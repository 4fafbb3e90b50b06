// SPDX-License-Identifier: MIT
// Messages for the user who started the program, on stderr: warnings always, the others only with
// --verbose. Errors are not logged, they travel as Result. Any thread may log.
#pragma once

#include <string_view>
#include <utility>

#include "base/format.h"

namespace moestro {

enum class LogLevel { kDebug, kInfo, kWarning };

// Messages below `level` are dropped. The start value is kWarning.
void SetLogLevel(LogLevel level);
void LogLine(LogLevel level, std::string_view line);

template <class... Args>
void LogInfo(std::format_string<Args...> text, Args&&... args) {
  LogLine(LogLevel::kInfo, Format(text, std::forward<Args>(args)...));
}
template <class... Args>
void LogWarning(std::format_string<Args...> text, Args&&... args) {
  LogLine(LogLevel::kWarning, Format(text, std::forward<Args>(args)...));
}

}  // namespace moestro
