// SPDX-License-Identifier: MIT
// The directory of a GGUF v3 model, one file or all its shards: metadata and where each tensor's
// bytes lie. Nothing is trusted: a damaged file gives an error, never a crash. A file accepted here
// is also safe for the readers of gguf.h and libllama, which abort or grow without bound on some
// input.
//
// Immutable after Open(); any thread may read it.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "core/extent.h"
#include "model/gguf_header.h"

namespace moestro {

struct TensorInfo {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::array<int64_t, 4> ne{1, 1, 1, 1};  // ne[0] is the contiguous dimension; all positive
  Extent extent;                          // checked to lie inside its file
};

class GgufFile {
 public:
  // `path`: a single file or the first shard (name-00001-of-00003.gguf); `open` finds it and the
  // other shards, here or elsewhere. Errors name the file, the value and the remedy: kIo
  // (unreadable, missing shard), kInvalidFile (damaged), kUnsupported (GGUF v1/v2, big endian).
  static Result<GgufFile> Open(const std::string& path, const OpenBytes& open = OpenFileBytes);

  GgufFile(GgufFile&&) noexcept = default;
  GgufFile& operator=(GgufFile&&) noexcept = default;
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::vector<std::string>& paths() const { return paths_; }  // Extent::file indexes this
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* Find(std::string_view name) const;  // nullptr: the file has no such tensor
  uint64_t file_bytes() const;                          // all shards
  // Stamps of paths(), when opened.
  const std::vector<FileStamp>& stamps() const { return stamps_; }
  // Adds paths() and their stamps.
  void AddTo(std::vector<WatchedFile>& files) const;

  // A value as stored in the first shard, for checks of a tokenizer's arrays; nullptr: absent.
  const MetaValue* FindValue(const std::string& key) const;
  std::vector<std::string> metadata_keys() const;  // in no order

  // Metadata by key. Integers of any width and sign convert when the value fits. nullopt: absent.
  // A key of the wrong type is kInvalidFile.
  Result<std::optional<uint64_t>> FindUint(const std::string& key) const;
  Result<std::optional<double>> FindFloat(const std::string& key) const;
  Result<std::optional<bool>> FindBool(const std::string& key) const;
  Result<std::optional<std::string>> FindString(const std::string& key) const;
  // Length of an array value (for example tokenizer.ggml.tokens).
  Result<std::optional<uint64_t>> FindArrayLength(const std::string& key) const;
  // The number of a key that may hold a number or, in some models, an array with one for each
  // layer: then the common value; kUnsupported if the entries differ.
  Result<std::optional<uint64_t>> FindUniformUint(const std::string& key) const;
  // An array of `count` whole numbers or truth values (1 and 0). REQUIRES: the key holds an array.
  // kInvalidFile: of another length or type.
  Result<std::vector<uint64_t>> ArrayOfUints(const std::string& key, uint64_t count) const;

 private:
  GgufFile() = default;
  Status AddShard(const std::string& path, GgufHeader header);
  Status OpenOtherShards(uint64_t count, const OpenBytes& open);

  std::vector<std::string> paths_;
  std::vector<TensorInfo> tensors_;
  // Keys view the names inside tensors_, which do not move once Open() has filled it.
  std::unordered_map<std::string_view, size_t> index_;
  std::unordered_map<std::string, MetaValue> metadata_;
  std::vector<FileStamp> stamps_;
};

// A number for a model's header. Files about a model (traces, tunings, paths) store this number to
// show which model they belong to.

// Depends on the metadata and on every tensor's name, type and shape, not on where the tensors lie:
// a model and its split copy have equal fingerprints. Weights do not count, so two trainings with
// equal metadata also do. Never 0.
uint64_t Fingerprint(const GgufFile& file);

// Parses a fingerprint as stored in keys of Moestro's files. nullopt: not 16 hex digits.
std::optional<uint64_t> ParseFingerprint(std::string_view text);

}  // namespace moestro
