// SPDX-License-Identifier: MIT
#include "store/block_reader.h"

#include "store/pread_reader.h"
#include "store/uring_reader.h"

namespace moestro {

Result<std::unique_ptr<BlockReader>> OpenReader(const ReaderOptions& options,
                                                const std::vector<std::string>& paths) {
  if (options.kind != ReaderKind::kPread) {
    auto reader = OpenUringReader(paths, options.queue_depth);
    const bool can_fall_back = options.kind == ReaderKind::kAuto;
    if (reader || !can_fall_back || reader.error().code != Errc::kUnsupported) return reader;
  }
  return OpenPreadReader(paths, {.threads = options.threads, .queue_depth = options.queue_depth});
}

}  // namespace moestro
