// SPDX-License-Identifier: MIT
#include "base/file_watch.h"

namespace moestro {
namespace {

constexpr double kSecondsBetweenLooks = 1.0;

const char* WhatChanged(const FileStamp& before, const FileStamp& now) {
  if (before.device != now.device || before.inode != now.inode) return "is another file now";
  if (before.size != now.size) return "has another size now";
  return "has been written to";
}

}  // namespace

Status FileWatch::Look() {
  if (clock_ != nullptr) last_look_ = (*clock_)();
  for (const WatchedFile& file : files_) {
    const Result<FileStamp> now = FileStamp::Of(file.path);
    if (!now || *now == file.stamp) continue;
    return Fail(Errc::kInvalidFile,
                "{} {}, after it was opened; its old and new weights would mix, so the run ends: "
                "start again",
                file.path, WhatChanged(file.stamp, *now));
  }
  return {};
}

Status FileWatch::LookNowAndThen() {
  if (files_.empty() || (*clock_)() - last_look_ < kSecondsBetweenLooks) return {};
  return Look();
}

}  // namespace moestro
