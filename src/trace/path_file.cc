// SPDX-License-Identifier: MIT
#include "trace/path_file.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "trace/binary_file.h"

namespace moestro {
namespace {

constexpr std::string_view kMagic = "MOEPATHS";
constexpr uint32_t kVersion = 1;
constexpr size_t kVersionEnd = 12;
constexpr size_t kHeaderBytes = 60;  // up to the model's name
constexpr uint64_t kKeyBytes = 5;    // without its followers
constexpr size_t kMaxNameBytes = 4096;

struct Header {
  PathShape shape;
  uint64_t model_id = 0;
  uint64_t tokens = 0;
  uint64_t keys = 0;
  uint64_t followers = 0;
  uint32_t name_bytes = 0;
};

uint64_t FollowerBytes(const PathShape& shape) {
  return IdBytes(shape.experts) + sizeof(PathShare);
}

// Without keys and followers. At most 2^12 * 2^14: no overflow. REQUIRES: CheckShape(h.shape).
uint64_t LeastBytes(const Header& h) {
  return kHeaderBytes + h.name_bytes + kChecksumBytes +
         uint64_t{h.shape.layers - 1} *
             (sizeof(uint32_t) + uint64_t{h.shape.experts} * sizeof(PathShare));
}

std::string Encode(const PathFile& paths) {
  const PathShape& shape = paths.table.shape();
  uint64_t followers = 0;
  for (const PathLayer& layer : paths.table.layers()) followers += layer.followers.size();
  std::string bytes(kMagic);
  Append(bytes, kVersion);
  Append(bytes, shape.layers);
  Append(bytes, shape.experts);
  Append(bytes, shape.used);
  Append(bytes, paths.model_id);
  Append(bytes, paths.tokens);
  Append(bytes, uint64_t{paths.table.keys()});
  Append(bytes, followers);
  Append(bytes, static_cast<uint32_t>(paths.model.size()));
  bytes += paths.model;
  for (const PathLayer& layer : paths.table.layers().subspan(1)) {
    for (const PathShare share : layer.popularity) Append(bytes, share);
    Append(bytes, static_cast<uint32_t>(layer.keys.size()));
    uint32_t at = 0;
    for (size_t k = 0; k < layer.keys.size(); ++k) {
      Append(bytes, layer.keys[k].last.value);
      Append(bytes, layer.keys[k].earlier);
      Append(bytes, static_cast<uint8_t>(layer.ends[k] - at));
      for (; at < layer.ends[k]; ++at) {
        AppendIds(bytes, {&layer.followers[at].expert, 1}, IdBytes(shape.experts));
        Append(bytes, layer.followers[at].share);
      }
    }
  }
  return bytes;
}

Result<Header> ReadHeader(const InputFile& source) {
  TRY(const std::string bytes,
      source.Read(0, static_cast<size_t>(std::min<uint64_t>(source.size(), kHeaderBytes))));
  if (!bytes.starts_with(kMagic)) {
    return Fail(Errc::kInvalidFile,
                "{}: not a file of paths, it does not begin with {}; make one with 'moestro "
                "profile'",
                source.path(), kMagic);
  }
  if (bytes.size() < kVersionEnd) return source.CutShort("a longer header");
  Decoder decoder(std::string_view(bytes).substr(kMagic.size()));
  const auto version = decoder.Take<uint32_t>();
  if (version > kVersion) {
    return Fail(Errc::kUnsupported,
                "{}: format {} of paths is newer than the {} that is known here; update Moestro",
                source.path(), version, kVersion);
  }
  if (version == 0) return source.Damaged("format 0 of paths does not exist");
  if (bytes.size() < kHeaderBytes) return source.CutShort("a longer header");
  Header h;
  h.shape.layers = decoder.Take<uint32_t>();
  h.shape.experts = decoder.Take<uint32_t>();
  h.shape.used = decoder.Take<uint32_t>();
  h.model_id = decoder.Take<uint64_t>();
  h.tokens = decoder.Take<uint64_t>();
  h.keys = decoder.Take<uint64_t>();
  h.followers = decoder.Take<uint64_t>();
  h.name_bytes = decoder.Take<uint32_t>();
  if (const Status fits = PathTable::CheckShape(h.shape); !fits) {
    return source.Damaged(fits.error().message);
  }
  // In this order no sum overflows.
  const uint64_t least = LeastBytes(h);
  const uint64_t rest = source.size() - std::min(source.size(), least);
  if (h.name_bytes > kMaxNameBytes || h.keys > rest / kKeyBytes ||
      h.followers > rest / FollowerBytes(h.shape) ||
      source.size() != least + h.keys * kKeyBytes + h.followers * FollowerBytes(h.shape)) {
    return source.CutShort(Format("{} and {} keys with {} followers", least, h.keys, h.followers));
  }
  return h;
}

// The rows of one layer. `left` are the header's keys and followers that were not read yet: with
// them the decoder never comes to the end. kInvalidFile, without the file's name.
Result<PathLayer> DecodeLayer(Decoder& decoder, Header& left) {
  PathLayer layer;
  for (uint32_t e = 0; e < left.shape.experts; ++e) {
    layer.popularity.push_back(decoder.Take<PathShare>());
  }
  const auto keys = decoder.Take<uint32_t>();
  if (keys > left.keys) return Fail(Errc::kInvalidFile, "{} keys, {} are left", keys, left.keys);
  left.keys -= keys;
  for (uint32_t k = 0; k < keys; ++k) {
    PathKey key;
    key.last.value = decoder.Take<uint16_t>();
    key.earlier = decoder.Take<uint16_t>();
    const auto followers = decoder.Take<uint8_t>();
    if (followers > left.followers) {
      return Fail(Errc::kInvalidFile, "{} followers, {} are left", followers, left.followers);
    }
    left.followers -= followers;
    for (uint8_t i = 0; i < followers; ++i) {
      PathFollower follower;
      decoder.TakeIds({&follower.expert, 1}, IdBytes(left.shape.experts));
      follower.share = decoder.Take<PathShare>();
      layer.followers.push_back(follower);
    }
    layer.keys.push_back(key);
    layer.ends.push_back(static_cast<uint32_t>(layer.followers.size()));
  }
  return layer;
}

Result<PathTable> DecodeTable(std::string_view bytes, Header left) {
  Decoder decoder(bytes);
  std::vector<PathLayer> layers(1);
  while (layers.size() < left.shape.layers) {
    Result<PathLayer> layer = DecodeLayer(decoder, left);
    if (!layer) {
      return Fail(Errc::kInvalidFile, "layer {}: {}", layers.size(), layer.error().message);
    }
    layers.push_back(*std::move(layer));
  }
  if (left.keys > 0 || left.followers > 0) {
    return Fail(Errc::kInvalidFile, "{} keys and {} followers belong to no layer", left.keys,
                left.followers);
  }
  return PathTable::Create(left.shape, std::move(layers));
}

}  // namespace

std::string PathsNameOf(const std::string& model) { return model + ".paths"; }

Result<uint64_t> WritePaths(const std::string& path, const PathFile& paths) {
  if (paths.model.size() > kMaxNameBytes) {
    return Fail(Errc::kInvalidRequest, "a model's name of {} bytes; {} are stored at most",
                paths.model.size(), kMaxNameBytes);
  }
  TRY_STATUS(CheckReplaceable(path));
  TRY(OutputFile file, OutputFile::Create(path));
  std::string bytes = Encode(paths);
  Fnv1a sum;
  sum.Add(bytes);
  Append(bytes, sum.value());
  TRY_STATUS(file.Write(std::as_bytes(std::span(bytes))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return bytes.size();
}

Result<PathFile> ReadPaths(const std::string& path) {
  TRY(const InputFile source,
      InputFile::Open(path, "learned paths", "copy it again or run 'moestro profile' again"));
  TRY(const Header header, ReadHeader(source));
  TRY_STATUS(source.CheckSum());
  TRY(std::string name, source.Read(kHeaderBytes, header.name_bytes));
  const uint64_t begin = kHeaderBytes + header.name_bytes;
  TRY(const std::string rows,
      source.Read(begin, static_cast<size_t>(source.size() - begin - kChecksumBytes)));
  Result<PathTable> table = DecodeTable(rows, header);
  if (!table) return source.Damaged(table.error().message);
  return PathFile{.model = std::move(name),
                  .model_id = header.model_id,
                  .tokens = header.tokens,
                  .table = *std::move(table)};
}

std::string ModelMark::text() const {
  return Format("{} ({} layers, {} of {} experts, fingerprint {:016x})",
                name.empty() ? "an unnamed model" : name, shape.layers, shape.used, shape.experts,
                id);
}

Status CheckPathsFit(const PathFile& paths, const std::string& path, const ModelMark& model) {
  if (paths.mark().matches(model)) return {};
  return Fail(Errc::kInvalidRequest,
              "{}: learned from {}, not from {}; run 'moestro profile' again", path,
              paths.mark().text(), model.text());
}

}  // namespace moestro
