// SPDX-License-Identifier: MIT
// Runs the built program as a user would and keeps what it says.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moestro::testing {

inline const std::string kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

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
  std::string binary = MOESTRO_BINARY;
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
  void Interrupt() const;         // what Ctrl-C sends
  void Signal(int number) const;  // SIGTERM, ...
  Finished Wait();                // reads all output, then waits for the end

 private:
  pid_t child_ = -1;
  int out_ = -1;
  int err_ = -1;
};

// The number under a key of what --json printed; -1 and a failure if there is none.
inline double NumberAt(JsonView object, std::string_view key) {
  const auto value = object.Find(key);
  EXPECT_TRUE(value && value->number()) << key;
  return value ? value->number().value_or(-1.0) : -1.0;
}
inline double NumberAt(const Json& object, std::string_view key) {
  return NumberAt(object.view(), key);
}

}  // namespace moestro::testing
