// SPDX-License-Identifier: MIT
#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace moestro {

Status Output::Write(std::string_view text) {
  while (!text.empty() && !closed_) {
    const ssize_t n = write(fd_, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EPIPE) {
      closed_ = true;
    } else if (errno != EINTR) {
      return Fail(Errc::kIo, "cannot write to standard output: {}", std::strerror(errno));
    }
  }
  return {};
}

}  // namespace moestro
