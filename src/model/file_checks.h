// SPDX-License-Identifier: MIT
// Metadata and tensors of a file, each held to a range, a type or a shape before its use.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/gguf_file.h"

namespace moestro {

// The metadata of one architecture: "<arch>.<key>", each value held to a range. Errors name the
// file, the key and the value.

class MetaKeys {
 public:
  struct Range {
    uint64_t min;
    uint64_t max;
  };
  // Counts and widths that no real model comes near. With them every product of two dimensions fits
  // in 64 bits.
  static constexpr uint64_t kMaxFeedForward = uint64_t{1} << 20;
  static constexpr uint64_t kMaxHeads = 4096;
  static constexpr uint64_t kMaxHeadDim = 4096;
  static constexpr uint64_t kMaxContext = uint64_t{1} << 30;

  // `file` is borrowed.
  MetaKeys(const GgufFile& file, std::string_view arch) : file_(file), prefix_(arch) {
    prefix_ += '.';
  }

  std::string Full(std::string_view key) const { return prefix_ + std::string(key); }
  const std::string& path() const { return file_.paths().front(); }
  const GgufFile& file() const { return file_; }

  Result<std::optional<uint32_t>> FindCount(std::string_view key, Range range) const;
  Result<uint32_t> Count(std::string_view key, Range range) const;  // kInvalidFile when missing
  Result<uint32_t> CountOr(std::string_view key, Range range, uint64_t fallback) const;
  // A count for each of `n` layers, from an array or from one number for all. An array may also
  // have entries for the first `n_first` layers alone, the evaluated ones: then the last entry
  // counts for the others. kInvalidFile: the key is missing, or an array has another length.
  Result<std::vector<uint32_t>> Counts(std::string_view key, Range range, uint32_t n,
                                       uint32_t n_first) const;
  bool Has(std::string_view key) const;
  // Whether the key holds an array.
  bool IsArray(std::string_view key) const;
  // Finite and at least 0.
  Result<std::optional<float>> FindFactor(std::string_view key) const;
  // A factor for each of the first `n_first` of `n` layers, from an array for either or from one
  // number for all; zeros where the key is missing.
  Result<std::vector<float>> Factors(std::string_view key, uint32_t n, uint32_t n_first) const;

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// Checks of tensors before their use. Pure functions.

using TensorShape = std::array<int64_t, 4>;  // ggml's order: values in a row first

// The types that a weight matrix may have, in no order.
std::span<const ggml_type> MatrixTypes();
std::string MatrixTypeNames();  // "f32, f16, q4_0"

// kInvalidFile, with both shapes. `tensor` belongs to `file`; `arch`: the model's architecture.
Status CheckTensorShape(const GgufFile& file, const TensorInfo& tensor, const TensorShape& shape,
                        std::string_view arch);
// kUnsupported unless the tensor's type is one of MatrixTypes().
Status CheckMatrixType(const GgufFile& file, const TensorInfo& tensor);

}  // namespace moestro
