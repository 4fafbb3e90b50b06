// SPDX-License-Identifier: MIT
// Model files that are damaged or changed, for tests of what then happens.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/extent.h"
#include "model/gguf_file.h"

namespace moestro {

// Sets all bytes of the tensor's weights.
inline void FillWeights(const std::string& path, const std::string& tensor, char byte) {
  const auto gguf = GgufFile::Open(path);
  ASSERT_TRUE(gguf) << gguf.error().message;
  const TensorInfo* info = gguf->Find(tensor);
  ASSERT_NE(info, nullptr) << tensor;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(info->extent.offset));
  file << std::string(info->extent.length, byte);
  ASSERT_TRUE(file.flush());
}

// Sets all bits: NaN in F32, F16 and wherever a block has an F16 scale.
inline void FillWithNan(const std::string& path, const std::string& tensor) {
  FillWeights(path, tensor, '\xff');
}

// Replaces numbers of a table of I32 from the one with the number `first` on.
inline void WriteNumbers(const std::string& path, const std::string& tensor, size_t first,
                         const std::vector<int32_t>& numbers) {
  const auto gguf = GgufFile::Open(path);
  ASSERT_TRUE(gguf) << gguf.error().message;
  const TensorInfo* info = gguf->Find(tensor);
  ASSERT_NE(info, nullptr) << tensor;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(info->extent.offset + first * sizeof(int32_t)));
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(int32_t)));
  ASSERT_TRUE(file.flush());
}

// Written to a second later, as far as the file's own time says.
inline void MakeNewer(const std::string& path) {
  namespace fs = std::filesystem;
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
}

}  // namespace moestro
