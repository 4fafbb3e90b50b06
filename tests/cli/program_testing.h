// SPDX-License-Identifier: MIT
// Runs the built program as a user would and keeps what it says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace moestro::testing {

struct Finished {
  int exit_code = -1;       // -1: it was killed by a signal
  uint64_t peak_bytes = 0;  // most resident memory, at least what the test itself has
  std::string out;
  std::string err;
};

// `out_fd` >= 0 takes its standard output instead of Finished::out, `in_fd` >= 0 is its standard
// input instead of `input`.
struct Start {
  std::vector<std::string> arguments;
  std::string input = {};
  int in_fd = -1;
  int out_fd = -1;
};

// One call of the program. Its cache folder is `folder`, where the demo model gets unpacked.
class Program {
 public:
  Program(const std::filesystem::path& folder, const Start& start);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t id() const { return child_; }
  void Interrupt() const;  // what Ctrl-C sends
  Finished Wait();         // reads all output, then waits for the end

 private:
  pid_t child_ = -1;
  int out_ = -1;
  int err_ = -1;
};

}  // namespace moestro::testing
