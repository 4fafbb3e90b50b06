// SPDX-License-Identifier: MIT
// The bytes of a file that is not whole yet and the state file beside them. The state never says
// more than is on the disk. Move-only; whoever has one holds the content's lock.
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
  // Goes on with what is there if it is of the same content, else begins. kIo: the disk or the
  // folder does not let it, or a limit of the process on the size of files is lower.
  static Result<PartFile> Open(const HubLayout& layout, FetchState wanted);

  // What was there when it was opened.
  const FetchState& state() const { return state_; }

  // kIo: the disk is full or failed.
  Status Write(std::span<const std::byte> bytes, uint64_t at);
  Status Read(std::span<std::byte> bytes, uint64_t at) const;
  // Says what is there. Puts the bytes on the disk first. kIo.
  Status Save(const RangeSet& done, const std::string& content_etag);
  // Forgets all bytes. kIo.
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
