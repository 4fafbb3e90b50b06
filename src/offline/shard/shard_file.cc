// SPDX-License-Identifier: MIT
#include "offline/shard/shard_file.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/printable.h"

namespace moestro {
namespace {

constexpr FileFormat kShardFormat{
    .magic = kShardMagic,
    .version = 2,
    .oldest = 2,
    .header_bytes = 8 + 4 + 3 * 4 + 5 * 8 + 2 * 4,  // up to the settings
    .what = "a shard",
    .origin = "'moestro eval', 'imatrix', 'profile' and 'trace' write one with --shard",
    .remedy = "copy it or run that shard again"};
constexpr uint32_t kMostTextBytes = 4096;  // of settings; of a name
constexpr uint64_t kMostWindows = uint64_t{1} << 40;

std::string NameOfShard(const ShardInfo& info) {
  return Format("shard {} of {}", info.shard.index, info.shard.count);
}

Result<FoundShard> ReadShardHeader(const InputFile& source) {
  TRY(const std::string bytes, source.ReadHeader());
  Decoder decoder(bytes);
  FoundShard found{.path = source.path()};
  ShardInfo& info = found.info;
  const auto command = decoder.Take<uint32_t>();
  info.shard.index = decoder.Take<uint32_t>();
  info.shard.count = decoder.Take<uint32_t>();
  info.fingerprint = decoder.Take<uint64_t>();
  info.weights = decoder.Take<uint64_t>();
  info.text_hash = decoder.Take<uint64_t>();
  info.windows = decoder.Take<uint64_t>();
  found.payload_bytes = decoder.Take<uint64_t>();
  const auto settings_bytes = decoder.Take<uint32_t>();
  const auto name_bytes = decoder.Take<uint32_t>();
  if (command < std::to_underlying(ShardOf::kEval) ||
      command > std::to_underlying(ShardOf::kTrace)) {
    return source.Damaged(Format("it is of command {}, which does not exist", command));
  }
  info.command = ShardOf{command};
  if (info.shard.count < 1 || info.shard.count > kMostShards || info.shard.index < 1 ||
      info.shard.index > info.shard.count) {
    return source.Damaged(Format("{} does not exist", NameOfShard(info)));
  }
  if (info.windows < 1 || info.windows > kMostWindows || settings_bytes > kMostTextBytes ||
      name_bytes > kMostTextBytes) {
    return source.Damaged("its numbers are none of a shard");
  }
  found.payload_begin = kShardFormat.header_bytes + settings_bytes + name_bytes;
  const uint64_t others = found.payload_begin + kChecksumBytes;
  if (source.size() < others || source.size() - others != found.payload_bytes) {
    return source.CutShort(Format("{} bytes of payload after byte {}, and {} more",
                                  found.payload_bytes, found.payload_begin, kChecksumBytes));
  }
  if ((info.range().size() == 0) != (found.payload_bytes == 0)) {
    return source.Damaged("windows and payload contradict each other");
  }
  TRY(info.settings, source.Read(kShardFormat.header_bytes, settings_bytes));
  TRY(info.model, source.Read(kShardFormat.header_bytes + settings_bytes, name_bytes));
  return found;
}

// The first line of each text that differs from the other's.
std::pair<std::string, std::string> FirstDifference(std::string_view a, std::string_view b) {
  while (!a.empty() || !b.empty()) {
    const std::string_view line_a = a.substr(0, a.find('\n'));
    const std::string_view line_b = b.substr(0, b.find('\n'));
    if (line_a != line_b) return {Printable(line_a), Printable(line_b)};
    a.remove_prefix(std::min(a.size(), line_a.size() + 1));
    b.remove_prefix(std::min(b.size(), line_b.size() + 1));
  }
  return {};
}

// Checks that two shards are of one run. kInvalidRequest: they are not.
Status CheckSameRun(const FoundShard& first, const FoundShard& other) {
  const ShardInfo& a = first.info;
  const ShardInfo& b = other.info;
  const auto foreign = [&](const std::string& what_b, const std::string& what_a) {
    return Fail(Errc::kInvalidRequest, "{}: {}, but {} {}; merge the shards of one run", other.path,
                what_b, first.path, what_a);
  };
  if (a.command != b.command) {
    return foreign(Format("a shard of '{}'", CommandOf(b.command)),
                   Format("is one of '{}'", CommandOf(a.command)));
  }
  if (a.fingerprint != b.fingerprint) {
    return foreign(
        Format("made with the model {} (fingerprint {:016x})", Printable(b.model), b.fingerprint),
        Format("with {} ({:016x})", Printable(a.model), a.fingerprint));
  }
  if (a.weights != b.weights) {
    return foreign("made with other weights, of a model with the same header",
                   Format("with {:016x}, not {:016x}", a.weights, b.weights));
  }
  if (a.settings != b.settings) {
    const auto [line_a, line_b] = FirstDifference(a.settings, b.settings);
    return foreign(Format("made with '{}'", line_b), Format("with '{}'", line_a));
  }
  if (a.text_hash != b.text_hash || a.windows != b.windows) {
    return foreign("made of another text, or of another part of it",
                   Format("is of {} windows with the hash {:016x}", a.windows, a.text_hash));
  }
  if (a.shard.count != b.shard.count) {
    return foreign(NameOfShard(b), Format("is one of {}", a.shard.count));
  }
  return {};
}

// Checks that no shard is missing. REQUIRES: the shards are of one run, in order, none twice, at
// least one.
Status CheckComplete(std::span<const FoundShard> shards) {
  const uint32_t count = shards.front().info.shard.count;
  if (shards.size() == count) return {};
  constexpr size_t kMostNamed = 8;
  std::string missing;
  size_t named = 0;
  for (uint32_t index = 1, at = 0; index <= count && named <= kMostNamed; ++index) {
    if (at < shards.size() && shards[at].info.shard.index == index) {
      ++at;
      continue;
    }
    if (named > 0) missing += ", ";
    missing += named < kMostNamed ? Format("{}/{}", index, count) : "...";
    ++named;
  }
  return Fail(Errc::kInvalidRequest, "{} of {} shards are missing: {}; run them, then merge all",
              count - shards.size(), count, missing);
}

}  // namespace

std::string_view CommandOf(ShardOf command) {
  switch (command) {
    case ShardOf::kEval:
      return "eval";
    case ShardOf::kImatrix:
      return "imatrix";
    case ShardOf::kProfile:
      return "profile";
    case ShardOf::kTrace:
      return "trace";
  }
  return "";
}

Result<BinaryWriter> BeginShard(const OutputPath& path, const ShardInfo& info,
                                uint64_t payload_bytes) {
  const std::string name = info.model.substr(0, kMostTextBytes);
  std::string bytes = BeginHeader(kShardFormat);
  AppendNumber(bytes, std::to_underlying(info.command));
  AppendNumber(bytes, info.shard.index);
  AppendNumber(bytes, info.shard.count);
  AppendNumber(bytes, info.fingerprint);
  AppendNumber(bytes, info.weights);
  AppendNumber(bytes, info.text_hash);
  AppendNumber(bytes, info.windows);
  AppendNumber(bytes, payload_bytes);
  AppendNumber(bytes, static_cast<uint32_t>(info.settings.size()));
  AppendNumber(bytes, static_cast<uint32_t>(name.size()));
  bytes += info.settings;
  bytes += name;
  TRY(BinaryWriter file, BinaryWriter::Create(path));
  TRY_STATUS(file.Add(bytes));
  return file;
}

Status WriteShard(const OutputPath& path, const ShardInfo& info, std::string_view payload) {
  TRY(BinaryWriter file, BeginShard(path, info, payload.size()));
  TRY_STATUS(file.Add(payload));
  return file.Finish();
}

Result<std::vector<FoundShard>> FindShards(std::span<const std::string> paths) {
  std::vector<FoundShard> shards;
  for (const std::string& path : paths) {
    TRY(const InputFile source, InputFile::Open(path, kShardFormat));
    TRY(FoundShard found, ReadShardHeader(source));
    if (!shards.empty()) TRY_STATUS(CheckSameRun(shards.front(), found));
    shards.push_back(std::move(found));
  }
  const auto index = [](const FoundShard& found) { return found.info.shard.index; };
  std::ranges::stable_sort(shards, {}, index);
  const auto twice = std::ranges::adjacent_find(shards, {}, index);
  if (twice != shards.end()) {
    return Fail(Errc::kInvalidRequest, "{} and {} are both {}; give each shard once", twice->path,
                std::next(twice)->path, NameOfShard(twice->info));
  }
  TRY_STATUS(CheckComplete(shards));
  for (const FoundShard& found : shards) {  // last, because the check reads all files
    TRY(const InputFile source, InputFile::Open(found.path, kShardFormat));
    TRY_STATUS(source.CheckSum());
  }
  return shards;
}

Result<ShardPayload> ShardPayload::Open(const FoundShard& found) {
  TRY(InputFile source, InputFile::Open(found.path, kShardFormat));
  const uint64_t end = found.payload_begin + found.payload_bytes;
  if (source.size() != end + kChecksumBytes) return source.Damaged("it changes while it is read");
  return ShardPayload(std::move(source), found.payload_begin, end);
}

Result<std::string> ShardPayload::Take(uint64_t bytes) {
  if (bytes > left()) return Damaged("its payload ends too early");
  TRY(std::string taken, file_.Read(at_, static_cast<size_t>(bytes)));
  at_ += bytes;
  return taken;
}

Status ShardPayload::CheckEnd() const {
  if (left() == 0) return {};
  return Damaged(Format("its payload has {} bytes too many", left()));
}

Result<InputFile> OpenPayloadAs(const FoundShard& found, const FileFormat& format) {
  TRY(InputFile source, InputFile::Open(found.path, kShardFormat));
  if (source.size() != found.payload_begin + found.payload_bytes + kChecksumBytes) {
    return source.Damaged("it changes while it is read");
  }
  return std::move(source).Rest(found.payload_begin, format);
}

}  // namespace moestro
