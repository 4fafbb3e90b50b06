// SPDX-License-Identifier: MIT
#include "learned/norms_file.h"

#include <cmath>
#include <utility>

#include "base/binary_file.h"
#include "learned/beside_model.h"

namespace moestro {
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
