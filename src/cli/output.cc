// SPDX-License-Identifier: MIT
#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "base/output_file.h"

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

Status WriteFile(const std::string& path, std::string_view text) {
  TRY(OutputFile file, OutputFile::Create(path));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

}  // namespace moestro
