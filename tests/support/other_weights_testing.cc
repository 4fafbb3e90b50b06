// SPDX-License-Identifier: MIT
#include "tests/support/other_weights_testing.h"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <vector>

#include "base/result.h"

namespace moestro {

void WriteOtherWeights(const std::string& model, const std::string& path,
                       const std::function<bool(std::string_view tensor)>& is_chosen) {
  const auto file = GgufFile::Open(model);
  CHECK(file.has_value() && file->paths().size() == 1);
  std::filesystem::copy_file(model, path, std::filesystem::copy_options::overwrite_existing);
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const TensorInfo& tensor : file->tensors()) {
    if (!is_chosen(tensor.name)) continue;
    std::string data(tensor.extent.length, '\0');
    bytes.seekg(static_cast<std::streamoff>(tensor.extent.offset));
    bytes.read(data.data(), static_cast<std::streamsize>(data.size()));
    // The second of four: its lowest bit belongs to the fraction of an F32, and of a scale in F16.
    for (size_t i = 1; i < data.size(); i += 4) data[i] = static_cast<char>(data[i] ^ 1);
    bytes.seekp(static_cast<std::streamoff>(tensor.extent.offset));
    bytes.write(data.data(), static_cast<std::streamsize>(data.size()));
  }
  CHECK(bytes.good());
}

void ChangeFloats(
    const std::string& model, std::string_view suffix,
    const std::function<void(const TensorInfo& tensor, std::span<float> values)>& change) {
  const auto file = GgufFile::Open(model);
  CHECK(file.has_value() && file->paths().size() == 1);
  std::fstream bytes(model, std::ios::in | std::ios::out | std::ios::binary);
  size_t tensors = 0;
  for (const TensorInfo& tensor : file->tensors()) {
    if (!tensor.name.ends_with(suffix)) continue;
    CHECK(tensor.type == GGML_TYPE_F32);
    ++tensors;
    std::vector<float> values(tensor.extent.length / sizeof(float));
    const auto length = static_cast<std::streamsize>(tensor.extent.length);
    bytes.seekg(static_cast<std::streamoff>(tensor.extent.offset));
    bytes.read(reinterpret_cast<char*>(values.data()), length);
    change(tensor, values);
    bytes.seekp(static_cast<std::streamoff>(tensor.extent.offset));
    bytes.write(reinterpret_cast<const char*>(values.data()), length);
  }
  CHECK(tensors > 0 && bytes.flush());
}

}  // namespace moestro
