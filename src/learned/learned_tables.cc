// SPDX-License-Identifier: MIT
#include "learned/learned_tables.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/text.h"
#include "core/id_bytes.h"
#include "learned/beside_model.h"

namespace moestro {
namespace {

constexpr FileFormat kPathsFormat{.magic = "MOEPATHS",
                                  .version = 1,
                                  .header_bytes = 60,  // up to the model's name
                                  .what = "a file of paths",
                                  .origin = "make one with 'moestro profile'",
                                  .remedy = "copy it again or run 'moestro profile' again"};
constexpr uint64_t kKeyBytes = 5;  // without its followers
constexpr size_t kMaxNameBytes = 4096;

struct Header {
  MoeShape shape;
  uint64_t model_id = 0;
  uint64_t tokens = 0;
  uint64_t keys = 0;
  uint64_t followers = 0;
  uint32_t name_bytes = 0;
};

uint64_t FollowerBytes(const MoeShape& shape) {
  return IdBytes(shape.n_expert) + sizeof(PathShare);
}

// Bytes of a file without keys and followers. At most 2^12 * 2^14: no overflow. REQUIRES:
// CheckShape(h.shape).
uint64_t LeastBytes(const Header& h) {
  return kPathsFormat.header_bytes + h.name_bytes + kChecksumBytes +
         uint64_t{h.shape.n_layer - 1} *
             (sizeof(uint32_t) + uint64_t{h.shape.n_expert} * sizeof(PathShare));
}

std::string Encode(const PathFile& paths) {
  const MoeShape& shape = paths.table.shape();
  uint64_t followers = 0;
  for (const PathLayer& layer : paths.table.layers()) followers += layer.followers.size();
  std::string bytes = BeginHeader(kPathsFormat);
  AppendNumber(bytes, shape.n_layer);
  AppendNumber(bytes, shape.n_expert);
  AppendNumber(bytes, shape.n_used);
  AppendNumber(bytes, paths.model.fingerprint);
  AppendNumber(bytes, paths.tokens);
  AppendNumber(bytes, uint64_t{paths.table.keys()});
  AppendNumber(bytes, followers);
  AppendNumber(bytes, static_cast<uint32_t>(paths.model.name.size()));
  bytes += paths.model.name;
  for (const PathLayer& layer : paths.table.layers().subspan(1)) {
    for (const PathShare share : layer.popularity) AppendNumber(bytes, share);
    AppendNumber(bytes, static_cast<uint32_t>(layer.keys.size()));
    uint32_t at = 0;
    for (size_t k = 0; k < layer.keys.size(); ++k) {
      AppendNumber(bytes, layer.keys[k].last.value);
      AppendNumber(bytes, layer.keys[k].earlier);
      AppendNumber(bytes, static_cast<uint8_t>(layer.ends[k] - at));
      for (; at < layer.ends[k]; ++at) {
        AppendIds(bytes, {&layer.followers[at].expert, 1}, IdBytes(shape.n_expert));
        AppendNumber(bytes, layer.followers[at].share);
      }
    }
  }
  return bytes;
}

Result<Header> ReadHeader(const InputFile& source) {
  TRY(const std::string bytes, source.ReadHeader());
  Decoder decoder(bytes);
  Header h;
  h.shape.n_layer = decoder.Take<uint32_t>();
  h.shape.n_expert = decoder.Take<uint32_t>();
  h.shape.n_used = decoder.Take<uint32_t>();
  h.model_id = decoder.Take<uint64_t>();
  h.tokens = decoder.Take<uint64_t>();
  h.keys = decoder.Take<uint64_t>();
  h.followers = decoder.Take<uint64_t>();
  h.name_bytes = decoder.Take<uint32_t>();
  if (const Status fits = PathTable::CheckShape(h.shape); !fits) {
    return source.Damaged(fits.error().message);
  }
  // The order of the comparisons keeps sums from overflowing.
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
  for (uint32_t e = 0; e < left.shape.n_expert; ++e) {
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
      TakeIds(decoder, {&follower.expert, 1}, IdBytes(left.shape.n_expert));
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
  while (layers.size() < left.shape.n_layer) {
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

Result<uint64_t> WritePaths(const OutputPath& path, const PathFile& paths) {
  if (paths.model.name.size() > kMaxNameBytes) {
    return Fail(Errc::kInvalidRequest, "a model's name of {} bytes; {} are stored at most",
                paths.model.name.size(), kMaxNameBytes);
  }
  TRY(BinaryWriter file, BinaryWriter::Create(path));
  TRY_STATUS(file.Add(Encode(paths)));
  TRY_STATUS(file.Finish());
  return file.size();
}

Result<PathFile> ReadPaths(const std::string& path) {
  TRY(const InputFile source, InputFile::Open(path, kPathsFormat));
  TRY(const Header header, ReadHeader(source));
  TRY_STATUS(source.CheckSum());
  TRY(std::string name, source.Read(kPathsFormat.header_bytes, header.name_bytes));
  const uint64_t begin = kPathsFormat.header_bytes + header.name_bytes;
  TRY(const std::string rows,
      source.Read(begin, static_cast<size_t>(source.size() - begin - kChecksumBytes)));
  Result<PathTable> table = DecodeTable(rows, header);
  if (!table) return source.Damaged(table.error().message);
  return PathFile{
      .model = {.name = std::move(name), .fingerprint = header.model_id, .shape = header.shape},
      .tokens = header.tokens,
      .table = *std::move(table)};
}

Result<std::shared_ptr<const PathTable>> ReadPathsFor(const ModelId& model,
                                                      const std::string& path) {
  TRY(PathFile paths, ReadPaths(path));
  TRY_STATUS(CheckMadeFor(model, paths.model, path, "run 'moestro profile' again"));
  return std::make_shared<const PathTable>(std::move(paths.table));
}

namespace {

size_t InBoth(std::span<const ExpertId> predicted, std::span<const ExpertId> chosen) {
  return static_cast<size_t>(std::ranges::count_if(
      chosen, [&](ExpertId e) { return std::ranges::contains(predicted, e); }));
}

}  // namespace

void CountTrace(const Trace& trace, size_t most, PathCounter& counter) {
  for (size_t t = 0; t < std::min(trace.tokens(), most); ++t) {
    counter.Add(trace.token(t).experts, trace.is_source(t));
  }
}

PathRecall MeasurePaths(const PathTable& table, const PathCounter& routing, TokenRange range) {
  const MoeShape& shape = routing.shape();
  std::vector<ExpertId> best(shape.n_used);
  std::vector<float> scores;
  size_t paths = 0;
  size_t popular = 0;
  size_t repeat = 0;
  size_t asked = 0;
  for (size_t t = range.begin; t < range.end; ++t) {
    for (size_t l = 1; l < shape.n_layer; ++l) {
      if (!routing.goes_through(t, l, 1)) continue;
      const auto chosen = routing.of(t, l);
      const auto earlier =
          routing.goes_through(t, l, 2) ? routing.of(t, l - 2) : std::span<const ExpertId>();
      table.Rank(l, routing.of(t, l - 1), earlier, best, scores);
      paths += InBoth(best, chosen);
      table.Rank(l, {}, {}, best, scores);
      popular += InBoth(best, chosen);
      if (t > 0 && routing.goes_through(t - 1, l)) repeat += InBoth(routing.of(t - 1, l), chosen);
      asked += chosen.size();
    }
  }
  const auto share = [asked](size_t part) {
    return asked == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(asked);
  };
  return {.paths = share(paths), .popular = share(popular), .repeat = share(repeat)};
}

namespace {

constexpr FileFormat kNormsFormat{.magic = "MOENORMS",
                                  .version = 1,
                                  .header_bytes = 44,  // up to the model's name
                                  .what = "a file of norms",
                                  .origin = "make one with 'moestro profile'",
                                  .remedy = "copy it again or run 'moestro profile' again"};
constexpr uint32_t kMostExperts = 4096;  // of layers, too
constexpr uint32_t kMostNameBytes = 4096;

}  // namespace

Status WriteNorms(const OutputPath& path, const NormsFile& norms) {
  const MoeShape& shape = norms.norms.shape;
  std::string bytes = BeginHeader(kNormsFormat);
  AppendNumber(bytes, shape.n_layer);
  AppendNumber(bytes, shape.n_expert);
  AppendNumber(bytes, shape.n_used);
  AppendNumber(bytes, norms.model.fingerprint);
  AppendNumber(bytes, norms.tokens);
  const std::string name = norms.model.name.substr(0, kMostNameBytes);
  AppendNumber(bytes, static_cast<uint32_t>(name.size()));
  bytes += name;
  for (const float value : norms.norms.values) AppendNumber(bytes, value);
  TRY(BinaryWriter file, BinaryWriter::Create(path));
  TRY_STATUS(file.Add(bytes));
  return file.Finish();
}

Result<NormsFile> ReadNorms(const std::string& path) {
  TRY(const InputFile source, InputFile::Open(path, kNormsFormat));
  TRY(const std::string header, source.ReadHeader());
  Decoder decoder(header);
  NormsFile file;
  MoeShape& shape = file.norms.shape;
  shape.n_layer = decoder.Take<uint32_t>();
  shape.n_expert = decoder.Take<uint32_t>();
  shape.n_used = decoder.Take<uint32_t>();
  file.model.fingerprint = decoder.Take<uint64_t>();
  file.tokens = decoder.Take<uint64_t>();
  const auto name_bytes = decoder.Take<uint32_t>();
  if (shape.n_layer < 1 || shape.n_layer > kMostExperts || shape.n_expert < 1 ||
      shape.n_expert > kMostExperts || shape.n_used < 1 || shape.n_used > shape.n_expert ||
      name_bytes > kMostNameBytes) {
    return source.Damaged("its numbers of layers and experts are none of a model");
  }
  const uint64_t begin = kNormsFormat.header_bytes + name_bytes;
  const uint64_t value_bytes = uint64_t{shape.experts()} * sizeof(float);
  if (source.size() != begin + value_bytes + kChecksumBytes) {
    return source.CutShort(Format("{} bytes", begin + value_bytes + kChecksumBytes));
  }
  TRY_STATUS(source.CheckSum());
  TRY(file.model.name, source.Read(kNormsFormat.header_bytes, name_bytes));
  TRY(const std::string bytes, source.Read(begin, static_cast<size_t>(value_bytes)));
  Decoder values(bytes);
  for (uint32_t i = 0; i < shape.experts(); ++i) {
    const auto value = values.Take<float>();
    if (!std::isfinite(value) || value < 0.0F) {
      return source.Damaged(Format("value {} is {}, which is no length", i, value));
    }
    file.norms.values.push_back(value);
  }
  file.model.shape = shape;
  return file;
}

Result<std::shared_ptr<const ExpertNorms>> ReadNormsFor(const ModelId& model,
                                                        const std::string& path) {
  TRY(NormsFile file, ReadNorms(path));
  TRY_STATUS(CheckMadeFor(model, file.model, path, "run 'moestro profile' again"));
  return std::make_shared<const ExpertNorms>(std::move(file.norms));
}

}  // namespace moestro
