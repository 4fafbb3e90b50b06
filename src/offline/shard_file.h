// SPDX-License-Identifier: MIT
// A share of a text's windows, so that several processes and machines can work on one text. Pure
// values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/binary_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "engine/engine_options.h"

namespace moestro {

inline constexpr uint32_t kMostShards = 65536;

struct Shard {
  uint32_t index = 1;  // from 1 to count
  uint32_t count = 1;
  bool operator==(const Shard&) const = default;
};

// Parses "2/5". kUsage, naming the text, for anything else.
Result<Shard> ParseShard(const std::string& text);

// A range of windows; `end` is excluded.
struct WindowRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};
// The windows of a shard: neighbours, each window in exactly one shard; shares differ by one window
// at most. Empty where windows are fewer than shards. REQUIRES: windows < 2^48.
WindowRange WindowsOf(const Shard& shard, uint64_t windows);

// kUsage: with these options the results of a window depend on the windows before it, which another
// shard has.
Status CheckShardable(const EngineOptions& options);

// Settings that decide the results, a line each: "ctx 512". Settings of place and speed are left
// out. Commands add lines of their own.
struct WindowSettings {
  bool is_native = true;
  uint32_t n_ctx = 0;
};
std::string SettingsText(const EngineOptions& options, const WindowSettings& windows);

// A shard's file for `moestro merge`: the shard's place in its run, then the command's payload.
// docs/shards.md describes every byte.
//
// Thread rule: none, calls share nothing but the file system.

// The command whose run was divided into shards. Files hold the numbers of the enumerators.
enum class ShardOf : uint32_t { kEval = 1, kImatrix = 2, kProfile = 3, kTrace = 4 };
std::string_view CommandOf(ShardOf command);

struct ShardRequest {
  ShardOf command = ShardOf::kEval;
  Shard shard = {};
};

struct ShardInfo {
  ShardOf command = ShardOf::kEval;
  Shard shard = {};
  std::string model = {};    // its name, for messages and for what is merged
  uint64_t fingerprint = 0;  // of the model's header
  uint64_t weights = 0;      // model/weights_id.h; 0: not known
  uint64_t text_hash = 0;    // of the tokens of all windows
  uint64_t windows = 0;      // of the whole text, at least one
  std::string settings = {};

  WindowRange range() const { return WindowsOf(shard, windows); }
  bool operator==(const ShardInfo&) const = default;
};

// A new file that waits for `payload_bytes` of payload and BinaryWriter::Finish(). A shard without
// windows has no payload. Errors: those of BinaryWriter::Create().
Result<BinaryWriter> BeginShard(const OutputPath& path, const ShardInfo& info,
                                uint64_t payload_bytes);
// Writes a shard's file with its whole payload. Errors: kIo.
Status WriteShard(const OutputPath& path, const ShardInfo& info, std::string_view payload);

struct FoundShard {
  std::string path;
  ShardInfo info = {};
  uint64_t payload_begin = 0;
  uint64_t payload_bytes = 0;
};

// All shards of one run, the first one first. Trusts nothing in the files and checks each to its
// last byte. kInvalidRequest, naming the files: a shard is given twice or missing, or is of another
// command, model, text, number of shards or of other settings than the first of `paths`.
// kInvalidFile: no shard, cut short or damaged; kUnsupported; kIo. REQUIRES: paths is not empty.
Result<std::vector<FoundShard>> FindShards(std::span<const std::string> paths);

// Reads a payload front to back.
class ShardPayload {
 public:
  // kIo; kInvalidFile: the file is not the found one.
  static Result<ShardPayload> Open(const FoundShard& found);

  const std::string& path() const { return file_.path(); }
  uint64_t left() const { return end_ - at_; }
  // The next bytes. kInvalidFile: fewer are left.
  Result<std::string> Take(uint64_t bytes);
  template <class T>
  Result<T> TakeNumber() {
    TRY(const std::string bytes, Take(sizeof(T)));
    return Decoder(bytes).Take<T>();
  }
  // A window of the file at a time.
  template <class T>
  Status TakeNumbers(std::span<T> numbers) {
    constexpr size_t kAtOnce = kFileWindow / sizeof(T);
    while (!numbers.empty()) {
      const auto now = numbers.first(std::min(numbers.size(), kAtOnce));
      TRY(const std::string bytes, Take(now.size_bytes()));
      std::memcpy(now.data(), bytes.data(), bytes.size());
      numbers = numbers.subspan(now.size());
    }
    return {};
  }
  Status CheckEnd() const;  // kInvalidFile: something is left
  std::unexpected<Error> Damaged(std::string_view what) const { return file_.Damaged(what); }

 private:
  ShardPayload(InputFile file, uint64_t at, uint64_t end)
      : file_(std::move(file)), at_(at), end_(end) {}

  InputFile file_;
  uint64_t at_;
  uint64_t end_;
};

// The payload and the checksum as a file of another format (InputFile::Rest()). Errors: as above.
Result<InputFile> OpenPayloadAs(const FoundShard& found, const FileFormat& format);

// Joins the traces of all shards. docs/shards.md describes the bytes.

// Writes the trace of the run over the whole text, to the byte, but for the numbers of slots, which
// are those of the first shard's engine. Returns the number of its tokens. Errors: kInvalidFile,
// kIo; kInvalidRequest: the engines recorded different things.
// REQUIRES: the shards are those of FindShards(), of trace.
Result<uint64_t> MergeTraces(std::span<const FoundShard> shards, const OutputPath& path);

}  // namespace moestro
