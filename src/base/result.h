// SPDX-License-Identifier: MIT
// Errors as values. Everything that the world can cause (a bad file, a full disk, a budget that is
// too small) travels as Result; only our own bugs stop the process (CHECK).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

// CHECK is for mistakes that only our own code can make. The check stays on in release builds.

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

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

namespace moestro {

// Catches exceptions at the edge of a foreign library and at the end of a thread.

// Returns work()'s result; if work() throws, the result of `failed`, which is called with the
// exception's words.
template <class Work, class Failed>
auto Caught(Work&& work, Failed&& failed) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::exception& e) {
    return std::forward<Failed>(failed)(std::string_view(e.what()));
  } catch (...) {
    return std::forward<Failed>(failed)(std::string_view("an unknown exception"));
  }
}

}  // namespace moestro
