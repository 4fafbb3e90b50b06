// SPDX-License-Identifier: MIT
#include "offline/record/imatrix_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "offline/gguf_output.h"

namespace moestro {
namespace {

constexpr const char* kImatrixType = "imatrix";  // of general.type
constexpr std::string_view kSumsSuffix = ".in_sum2";
constexpr std::string_view kCountsSuffix = ".counts";
// The least share of a column, so that a column of zeros, whose weights cannot be judged, is still
// quantised to something near them.
constexpr float kLeastShare = 1e-6F;

std::string SumsName(const std::string& tensor) { return Format("{}{}", tensor, kSumsSuffix); }
std::string CountsName(const std::string& tensor) { return Format("{}{}", tensor, kCountsSuffix); }

// An expert's row of importances, made fit for quantising.
void Normalise(std::span<float> row) {
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  if (sum <= 0) {
    std::ranges::fill(row, 1.0F);
    return;
  }
  const double mean = sum / static_cast<double>(row.size());
  const int exponent = -(std::ilogb(mean) & ~1);  // even, so that a square root is exact too
  const auto least = static_cast<float>(std::ldexp(mean, exponent)) * kLeastShare;
  for (float& value : row) value = std::max(std::ldexp(value, exponent), least);
}

// Writes values as F32, a part at a time: the sums of a model may already take most of the memory.
template <class T>
Status WriteAsFloats(OutputFile& file, std::span<const T> values) {
  constexpr size_t kAtOnce = 64 * kKiB;
  std::vector<float> floats;
  while (!values.empty()) {
    const auto part = values.first(std::min(values.size(), kAtOnce));
    floats.clear();
    for (const T value : part) floats.push_back(static_cast<float>(value));
    TRY_STATUS(file.Write(std::as_bytes(std::span(floats))));
    values = values.subspan(part.size());
  }
  return PadTo(file, GGUF_DEFAULT_ALIGNMENT);
}

}  // namespace

Status WriteImatrix(const OutputPath& path, const ImatrixInfo& info,
                    std::span<const ImatrixEntry> entries) {
  const gguf_context_ptr gguf = NewGguf();
  std::vector<const char*> datasets;
  for (const std::string& name : info.datasets) datasets.push_back(name.c_str());
  gguf_set_val_str(gguf.get(), "general.type", kImatrixType);
  gguf_set_arr_str(gguf.get(), "imatrix.datasets", datasets.data(), datasets.size());
  gguf_set_val_u32(gguf.get(), "imatrix.chunk_count", info.chunk_count);
  gguf_set_val_u32(gguf.get(), "imatrix.chunk_size", info.chunk_size);
  for (const ImatrixEntry& entry : entries) {
    const auto rows = static_cast<int64_t>(entry.counts.size());
    AddTensor(gguf.get(), SumsName(entry.name), GGML_TYPE_F32,
              std::array{int64_t{entry.n_in}, rows});
    AddTensor(gguf.get(), CountsName(entry.name), GGML_TYPE_F32, std::array{int64_t{1}, rows});
  }
  TRY(OutputFile file, OutputFile::Create(path));
  TRY_STATUS(file.Write(HeaderBytes(gguf.get())));
  for (const ImatrixEntry& entry : entries) {
    TRY_STATUS(WriteAsFloats(file, entry.sums));
    TRY_STATUS(WriteAsFloats(file, entry.counts));
  }
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

Result<ImatrixFile> ImatrixFile::Open(const std::string& path) {
  auto opened = GgufFile::Open(path);
  if (!opened && opened.error().code == Errc::kInvalidFile) {
    return Fail(Errc::kInvalidFile,
                "{}; importances are read from GGUF files, as 'moestro imatrix' and llama-imatrix "
                "write them",
                opened.error().message);
  }
  TRY(GgufFile gguf, std::move(opened));
  TRY(const auto type, gguf.FindString("general.type"));
  if (!type || *type != kImatrixType) {
    return Fail(Errc::kInvalidFile,
                "{}: general.type is '{}', not '{}'; make importances with 'moestro imatrix'", path,
                type ? Printable(*type) : "", kImatrixType);
  }
  TRY(ExtentReader reader, ExtentReader::Open(gguf.paths()));
  return ImatrixFile(std::move(gguf), std::move(reader));
}

Result<std::vector<float>> ImatrixFile::ReadValues(const std::string& name, uint32_t width,
                                                   uint32_t rows) const {
  const TensorInfo* tensor = gguf_.Find(name);
  if (tensor == nullptr) {
    return Fail(Errc::kInvalidFile, "{}: has no '{}'; it was made for another model", path(), name);
  }
  if (tensor->type != GGML_TYPE_F32 || tensor->ne != std::array<int64_t, 4>{width, rows, 1, 1}) {
    return Fail(
        Errc::kInvalidFile,
        "{}: '{}' is {} [{}, {}], this model needs f32 [{}, {}]; it was made for another one",
        path(), name, ggml_type_name(tensor->type), tensor->ne[0], tensor->ne[1], width, rows);
  }
  TRY(const ExtentBytes read, reader_.Read(tensor->extent));
  std::vector<float> values(size_t{width} * rows);
  std::memcpy(values.data(), read.bytes.data(), read.bytes.size());
  const auto bad =
      std::ranges::find_if(values, [](float v) { return !(v >= 0 && std::isfinite(v)); });
  if (bad == values.end()) return values;
  return Fail(Errc::kInvalidFile, "{}: '{}' holds {}, which is no sum of squares; make it again",
              path(), name, *bad);
}

Result<Importances> ImatrixFile::Read(const std::string& tensor, uint32_t n_in,
                                      uint32_t n_experts) const {
  TRY(const std::vector<float> counts, ReadValues(CountsName(tensor), 1, n_experts));
  const auto part = std::ranges::find_if(counts, [](float n) { return n > 0 && n < 1; });
  if (part != counts.end()) {
    return Fail(Errc::kInvalidFile,
                "{}: '{}' holds {}, which is no number of inputs; make it again", path(),
                CountsName(tensor), *part);
  }
  Importances found;
  TRY(found.columns, ReadValues(SumsName(tensor), n_in, n_experts));
  const auto row = [&](size_t e) { return std::span(found.columns).subspan(e * n_in, n_in); };
  std::vector<double> all(n_in);  // of the inputs of all experts
  for (size_t e = 0; e < n_experts; ++e) {
    for (size_t c = 0; c < n_in && counts[e] > 0; ++c) all[c] += static_cast<double>(row(e)[c]);
  }
  // Normalise() takes away any common factor.
  for (size_t e = 0; e < n_experts; ++e) {
    if (counts[e] > 0) {
      for (float& value : row(e)) value /= counts[e];
    } else {
      ++found.unvisited;
      const double largest = std::max(*std::ranges::max_element(all), 1e-30);
      for (size_t c = 0; c < n_in; ++c) row(e)[c] = static_cast<float>(all[c] / largest);
    }
    Normalise(row(e));
  }
  return found;
}

Result<uint64_t> ImatrixFile::Hash() const {
  Fnv1a hash;
  for (const TensorInfo& tensor : gguf_.tensors()) {
    hash.Add(tensor.name);
    TRY(const ExtentBytes read, reader_.Read(tensor.extent));
    hash.Add({reinterpret_cast<const char*>(read.bytes.data()), read.bytes.size()});
  }
  return hash.value();
}

}  // namespace moestro
