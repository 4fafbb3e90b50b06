// SPDX-License-Identifier: MIT
#include "offline/convert/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/binary_file.h"
#include "base/json.h"
#include "base/printable.h"

namespace moestro {
namespace {

constexpr size_t kMostDims = 4;
constexpr size_t kMostName = 512;

std::optional<ggml_type> TypeOf(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, ggml_type>, 3> kTypes{
      {{"F32", GGML_TYPE_F32}, {"F16", GGML_TYPE_F16}, {"BF16", GGML_TYPE_BF16}}};
  for (const auto& [name, type] : kTypes) {
    if (name == dtype) return type;
  }
  return std::nullopt;
}

// Reads the entries of one file.
class HeaderReader {
 public:
  HeaderReader(uint64_t data_begin, uint64_t file_bytes, const std::string& file)
      : data_begin_(data_begin), data_bytes_(file_bytes - data_begin), file_(file) {}

  Result<SafeTensor> ReadTensor(std::string_view name, JsonView entry) const {
    if (name.empty() || name.size() > kMostName) return Bad(name, "has an impossible name");
    SafeTensor tensor{.name = std::string(name)};
    const auto dtype = TextOf(entry, "dtype");
    if (!dtype) return Bad(name, "has no dtype");
    const auto type = TypeOf(*dtype);
    if (!type) {
      return Fail(Errc::kUnsupported, "{}: tensor '{}' is of type '{}'; F32, F16 and BF16 are read",
                  file_, Printable(name), Printable(*dtype));
    }
    tensor.type = *type;
    TRY(tensor.shape, ShapeOf(name, entry));
    TRY_STATUS(PlaceIt(entry, tensor));
    return tensor;
  }

  std::unexpected<Error> Bad(std::string_view name, std::string_view what) const {
    return Fail(Errc::kInvalidFile, "{}: tensor '{}' {}; fetch the file again", file_,
                Printable(name), what);
  }

 private:
  static std::optional<std::string> TextOf(JsonView entry, std::string_view key) {
    const auto value = entry.Find(key);
    return value ? value->text() : std::nullopt;
  }

  Result<std::vector<int64_t>> ShapeOf(std::string_view name, JsonView entry) const {
    const auto sizes = entry.Find("shape");
    if (!sizes || sizes->kind() != JsonKind::kArray) return Bad(name, "has no shape");
    if (sizes->size() == 0 || sizes->size() > kMostDims) {
      return Bad(name, Format("has {} sizes, not 1 to {}", sizes->size(), kMostDims));
    }
    std::vector<int64_t> shape;
    for (size_t i = 0; i < sizes->size(); ++i) {
      const auto size = sizes->At(i)->integer();
      if (!size || *size <= 0) return Bad(name, "has a size that is no whole number above 0");
      shape.push_back(*size);
    }
    return shape;
  }

  // Places a tensor: checks that its bytes lie in the file and that their number follows from shape
  // and type.
  Status PlaceIt(JsonView entry, SafeTensor& tensor) const {
    const auto offsets = entry.Find("data_offsets");
    if (!offsets || offsets->kind() != JsonKind::kArray || offsets->size() != 2) {
      return Bad(tensor.name, "has no pair of data_offsets");
    }
    const auto begin = offsets->At(0)->integer();
    const auto end = offsets->At(1)->integer();
    if (!begin || !end || *begin < 0 || *end < *begin) {
      return Bad(tensor.name, "has data_offsets that are no range of bytes");
    }
    if (static_cast<uint64_t>(*end) > data_bytes_) {
      return Bad(tensor.name,
                 Format("ends at byte {} of {} that the file has for tensors", *end, data_bytes_));
    }
    tensor.offset = data_begin_ + static_cast<uint64_t>(*begin);
    tensor.bytes = static_cast<uint64_t>(*end - *begin);
    uint64_t wanted = ggml_type_size(tensor.type);
    for (const int64_t size : tensor.shape) {
      if (static_cast<uint64_t>(size) > std::numeric_limits<uint64_t>::max() / wanted) {
        return Bad(tensor.name, "has a shape beyond any memory");
      }
      wanted *= static_cast<uint64_t>(size);
    }
    if (wanted == tensor.bytes) return {};
    return Bad(tensor.name, Format("has {} bytes where its shape wants {}", tensor.bytes, wanted));
  }

  uint64_t data_begin_;
  uint64_t data_bytes_;
  const std::string& file_;
};

}  // namespace

Result<uint64_t> SafetensorsHeaderBytes(std::string_view first, uint64_t file_bytes,
                                        const std::string& file) {
  if (first.size() < kSafetensorsPrefix || file_bytes < kSafetensorsPrefix) {
    return Fail(Errc::kInvalidFile, "{} is too short for a safetensors file", file);
  }
  const auto bytes = Decoder(first).Take<uint64_t>();
  if (bytes > file_bytes - kSafetensorsPrefix) {
    return Fail(Errc::kInvalidFile,
                "{}: a header of {} bytes does not fit the file's {}; it is cut short or no "
                "safetensors file",
                file, bytes, file_bytes);
  }
  if (bytes <= kMostSafetensorsHeader) return bytes;
  return Fail(Errc::kInvalidFile, "{}: a header of {} is more than the {} that are read", file,
              FormatBytes(bytes), FormatBytes(kMostSafetensorsHeader));
}

Result<std::vector<SafeTensor>> ParseSafetensors(std::string_view header, uint64_t file_bytes,
                                                 const std::string& file) {
  const auto json = Json::Parse(header, kMostSafetensorsValues);
  if (!json || json->view().kind() != JsonKind::kObject) {
    return Fail(Errc::kInvalidFile, "{}: the header is no JSON object{}{}", file, json ? "" : ": ",
                json ? "" : json.error().message);
  }
  uint64_t next = kSafetensorsPrefix + header.size();  // byte of the file
  const HeaderReader reader(next, file_bytes, file);
  std::vector<SafeTensor> tensors;
  for (const auto& [name, entry] : json->view().members()) {
    if (name == "__metadata__") continue;
    TRY(SafeTensor tensor, reader.ReadTensor(name, entry));
    tensors.push_back(std::move(tensor));
  }
  std::ranges::sort(tensors, {}, &SafeTensor::offset);
  for (const SafeTensor& tensor : tensors) {
    if (tensor.offset < next) return reader.Bad(tensor.name, "shares bytes with another");
    if (tensor.offset > next) return reader.Bad(tensor.name, "has a gap before it");
    next += tensor.bytes;
  }
  if (next == file_bytes) return tensors;
  return Fail(Errc::kInvalidFile, "{}: {} bytes at the end belong to no tensor; fetch it again",
              file, file_bytes - next);
}

}  // namespace moestro
