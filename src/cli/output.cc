// SPDX-License-Identifier: MIT
#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "base/output_file.h"

namespace moestro {

namespace {

// Whether `fd` is that of a terminal that has hung up: isatty() fails with EIO for no other file.
bool IsHungUp(int fd) { return isatty(fd) == 0 && errno == EIO; }

}  // namespace

Status Output::Write(std::string_view text) { return WriteBytes(VisibleLines(text)); }

Status Output::WriteGenerated(std::string_view part) {
  return isatty(fd_) == 1 ? WriteBytes(generated_.Add(part)) : WriteBytes(part);
}

Status Output::WriteBytes(std::string_view text) {
  while (!text.empty() && !closed_ && status_) {
    const ssize_t n = write(fd_, text.data(), text.size());
    const int why = errno;
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (why == EPIPE || (why == EIO && IsHungUp(fd_))) {
      closed_ = true;
    } else if (why != EINTR) {
      status_ = Fail(Errc::kIo, "cannot write to standard output: {}", std::strerror(why));
    }
  }
  return status_;
}

Status WriteFile(const OutputPath& path, std::string_view text) {
  TRY(OutputFile file, OutputFile::Create(path));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

}  // namespace moestro
