// SPDX-License-Identifier: MIT
// Errors as values. Everything that the world can cause (a bad file, a full disk, a budget that is
// too small) travels as Result; only our own bugs stop the process (base/check.h).
#pragma once

#include <expected>
#include <string>
#include <utility>

#include "base/format.h"

namespace moestro {

enum class Errc {
  kUsage,           // the command line is wrong: exit code 2
  kInvalidRequest,  // a setting or argument cannot work: prompt too long, budget too small
  kInvalidFile,     // the bytes of a file are not of the kind that they claim
  kUnsupported,     // well-formed, but nothing here can run it
  kIo,              // the operating system refused or a device failed
  kNoMemory,        // the machine lacks memory that the plan needs
  kInterrupted,     // the user requested a stop
  kDevice,          // a GPU or the like failed or is gone
};

struct Error {
  Errc code;
  std::string message;  // one line: file, value and remedy; no trailing newline
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

// return Fail(Errc::kIo, "cannot read {}: {}", path, why);
template <class... Args>
[[nodiscard]] std::unexpected<Error> Fail(Errc code, std::format_string<Args...> text,
                                          Args&&... args) {
  return std::unexpected(Error{code, Format(text, std::forward<Args>(args)...)});
}

}  // namespace moestro

#define MOESTRO_CONCAT_INNER(a, b) a##b
#define MOESTRO_CONCAT(a, b) MOESTRO_CONCAT_INNER(a, b)

// TRY(auto value, Compute()): declares `value` or returns the error. The expression may hold
// commas.
#define TRY(declaration, ...) \
  TRY_IMPL(MOESTRO_CONCAT(try_result_, __LINE__), declaration, __VA_ARGS__)
#define TRY_IMPL(result, declaration, ...)                        \
  auto result = (__VA_ARGS__);                                    \
  if (!result) return std::unexpected(std::move(result).error()); \
  declaration = *std::move(result)

// TRY_STATUS(Write()): returns the error, if any.
#define TRY_STATUS(...)                                      \
  do {                                                       \
    if (auto try_status = (__VA_ARGS__); !try_status)        \
      return std::unexpected(std::move(try_status).error()); \
  } while (false)
