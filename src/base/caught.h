// SPDX-License-Identifier: MIT
// Catches exceptions at the edge of a foreign library and at the end of a thread.
#pragma once

#include <exception>
#include <string_view>
#include <utility>

namespace moestro {

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
