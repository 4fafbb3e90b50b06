// SPDX-License-Identifier: MIT
// The bytes of a file that is not whole yet and the state file beside them. The state never lists
// bytes that are not on the disk. Move-only; its owner holds the content's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "hub/fetch_state.h"
#include "hub/hub_layout.h"
#include "hub/shared_folder.h"

namespace moestro {

class PartFile {
 public:
  // Opens the existing part if it is of the same content, else begins a new one. kIo: the disk or
  // the folder does not allow it, or the process's limit on the size of files is lower.
  static Result<PartFile> Open(const HubLayout& layout, FetchState wanted);

  // State of the part when it was opened.
  const FetchState& state() const { return state_; }

  // kIo: the disk is full or failed.
  Status Write(std::span<const std::byte> bytes, uint64_t at);
  Status Read(std::span<std::byte> bytes, uint64_t at) const;
  // Writes the state file, after the bytes have reached the disk. kIo.
  Status Save(const RangeSet& done, const std::string& content_etag);
  // Discards all bytes. kIo.
  Status Clear();
  // Gives the whole file its name and removes the state. kIo.
  Status Publish();
  // Removes both files.
  void Delete();

 private:
  PartFile(UniqueFd fd, FetchState state, SharedFolder folder);
  std::unexpected<Error> Failed(const char* what) const;

  UniqueFd fd_;
  FetchState state_;
  SharedFolder folder_;
  std::string part_;  // names in the folder
  std::string state_name_;
};

}  // namespace moestro
