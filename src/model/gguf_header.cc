// SPDX-License-Identifier: MIT
#include "model/gguf_header.h"

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "base/binary_file.h"
#include "base/number.h"
#include "base/terminal.h"
#include "model/byte_source.h"

namespace moestro {
namespace {

// Far above any published model, low enough that no file can make a reader (ours or libllama's,
// whose memory is a small multiple of the header) take seconds or gigabytes.
constexpr uint64_t kMaxKeys = 4096;
constexpr uint64_t kMaxTensors = 32768;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxStringBytes = 16 * kMiB;
constexpr uint64_t kMaxArrayLength = uint64_t{1} << 21;
constexpr uint64_t kMaxHeaderBytes = 256 * kMiB;
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = kMiB;

// The size of an element; 0 for strings, whose length is stored before each.
uint64_t ElementBytes(gguf_type type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    case GGUF_TYPE_STRING:
    case GGUF_TYPE_ARRAY:
    case GGUF_TYPE_COUNT:
      break;
  }
  return 0;
}

Result<gguf_type> ReadValueType(FileCursor& in, const std::string& key) {
  TRY(const uint32_t type, in.Read<uint32_t>("a metadata type"));
  if (type < GGUF_TYPE_COUNT) return static_cast<gguf_type>(type);
  return Fail(Errc::kInvalidFile,
              "{}: metadata '{}' has type {}, known are 0 to {}; the file is damaged", in.path(),
              Printable(key), type, GGUF_TYPE_COUNT - 1);
}

Status CheckHeaderEnds(const FileCursor& in, const std::string& key) {
  if (in.position() <= kMaxHeaderBytes) return {};
  return Fail(Errc::kInvalidFile, "{}: the header goes on after {}, at metadata '{}'", in.path(),
              FormatBytes(kMaxHeaderBytes), Printable(key));
}

Status ReadArray(FileCursor& in, const std::string& key, MetaValue& value) {
  value.is_array = true;
  TRY(value.type, ReadValueType(in, key));
  TRY(value.count, in.Read<uint64_t>("an array length"));
  value.offset = in.position();
  if (value.type == GGUF_TYPE_ARRAY) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is an array of arrays, which no model uses",
                in.path(), Printable(key));
  }
  if (value.count > kMaxArrayLength) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' has {} elements, at most {} make sense",
                in.path(), Printable(key), value.count, kMaxArrayLength);
  }
  if (value.type == GGUF_TYPE_STRING) {
    for (uint64_t i = 0; i < value.count; ++i) {
      TRY(const uint64_t length, in.Read<uint64_t>("a string in an array"));
      TRY_STATUS(in.Skip(length, "a string in an array"));
      // Checked at each string, not only behind the array: from a remote file every string would be
      // fetched.
      TRY_STATUS(CheckHeaderEnds(in, key));
    }
    return {};
  }
  const uint64_t bytes = value.count * ElementBytes(value.type);
  if (value.count > MetaValue::kKeptElements) return in.Skip(bytes, "a metadata array");
  value.raw.resize(bytes);
  return in.ReadBytes(value.raw.data(), bytes, "a metadata array");
}

Result<MetaValue> ReadValue(FileCursor& in, const std::string& key) {
  MetaValue value;
  TRY(value.type, ReadValueType(in, key));
  if (value.type == GGUF_TYPE_ARRAY) {
    TRY_STATUS(ReadArray(in, key, value));
  } else if (value.type == GGUF_TYPE_STRING) {
    TRY(value.raw, in.ReadString(kMaxStringBytes, "a metadata string"));
  } else {
    value.raw.resize(ElementBytes(value.type));
    TRY_STATUS(in.ReadBytes(value.raw.data(), value.raw.size(), "a metadata value"));
  }
  TRY_STATUS(CheckHeaderEnds(in, key));
  return value;
}

Status ReadMetadata(FileCursor& in, uint64_t n_keys, GgufHeader& header) {
  for (uint64_t i = 0; i < n_keys; ++i) {
    TRY(std::string key, in.ReadString(kMaxKeyBytes, "a metadata key"));
    if (key.empty() || key.find('\0') != std::string::npos) {
      return Fail(Errc::kInvalidFile, "{}: metadata key {} '{}' is empty or contains a zero byte",
                  in.path(), i, Printable(key));
    }
    TRY(MetaValue value, ReadValue(in, key));
    const auto [at, is_new] = header.metadata.try_emplace(std::move(key), std::move(value));
    if (!is_new) {
      return Fail(Errc::kInvalidFile, "{}: metadata '{}' occurs twice", in.path(),
                  Printable(at->first));
    }
  }
  return {};
}

Result<uint64_t> Alignment(const std::string& path, const GgufHeader& header) {
  const auto found = header.metadata.find(GGUF_KEY_GENERAL_ALIGNMENT);
  if (found == header.metadata.end()) return GGUF_DEFAULT_ALIGNMENT;
  const MetaValue& value = found->second;
  if (value.type != GGUF_TYPE_UINT32 || value.is_array) {
    return Fail(Errc::kInvalidFile, "{}: {} must be a 32-bit unsigned number", path,
                GGUF_KEY_GENERAL_ALIGNMENT);
  }
  const uint64_t alignment = *value.UintAt(0);
  if (alignment < kMinAlignment || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected a power of two from {} to {}", path,
                GGUF_KEY_GENERAL_ALIGNMENT, alignment, kMinAlignment, kMaxAlignment);
  }
  return alignment;
}

// Reads n_dims and the dimensions; fails unless all are positive and their product fits in 63 bits.
Status ReadShape(FileCursor& in, TensorRecord& tensor) {
  TRY(const uint32_t n_dims, in.Read<uint32_t>("a tensor's number of dimensions"));
  if (n_dims < 1 || n_dims > GGML_MAX_DIMS) {
    return Fail(Errc::kInvalidFile, "{}: tensor '{}' has {} dimensions, expected 1 to {}",
                in.path(), Printable(tensor.name), n_dims, GGML_MAX_DIMS);
  }
  int64_t elements = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    TRY(tensor.ne[d], in.Read<int64_t>("a tensor's shape"));
    // Less than: gguf.h refuses a product of exactly the largest number.
    if (tensor.ne[d] < 1 || tensor.ne[d] >= std::numeric_limits<int64_t>::max() / elements) {
      return Fail(Errc::kInvalidFile, "{}: tensor '{}' has an impossible dimension {} of {}",
                  in.path(), Printable(tensor.name), d, tensor.ne[d]);
    }
    elements *= tensor.ne[d];
  }
  return {};
}

Status ReadTypeAndSize(FileCursor& in, TensorRecord& tensor) {
  TRY(const uint32_t type, in.Read<uint32_t>("a tensor's type"));
  const int64_t block = type < GGML_TYPE_COUNT ? ggml_blck_size(static_cast<ggml_type>(type)) : 0;
  const uint64_t block_bytes =
      type < GGML_TYPE_COUNT ? ggml_type_size(static_cast<ggml_type>(type)) : 0;
  if (block <= 0 || block_bytes == 0) {  // numbers of removed types have no size
    return Fail(
        Errc::kInvalidFile,
        "{}: tensor '{}' has type number {}, which this version of ggml does not know; update "
        "ggml or fetch the file again",
        in.path(), Printable(tensor.name), type);
  }
  tensor.type = static_cast<ggml_type>(type);
  if (tensor.ne[0] % block != 0) {
    return Fail(Errc::kInvalidFile,
                "{}: tensor '{}' of type {} has rows of {}, not a multiple of {}", in.path(),
                Printable(tensor.name), ggml_type_name(tensor.type), tensor.ne[0], block);
  }
  const int64_t elements = tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
  const auto blocks = static_cast<uint64_t>(elements / block);
  if (blocks > in.file_bytes() / block_bytes) {
    return Fail(
        Errc::kInvalidFile,
        "{}: tensor '{}' ({} x {} x {} x {}, {}) is larger than the whole file of {} bytes; the "
        "file is damaged or incomplete, fetch it again",
        in.path(), Printable(tensor.name), tensor.ne[0], tensor.ne[1], tensor.ne[2], tensor.ne[3],
        ggml_type_name(tensor.type), in.file_bytes());
  }
  tensor.bytes = blocks * block_bytes;
  return {};
}

Status ReadTensors(FileCursor& in, uint64_t n_tensors, GgufHeader& header) {
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    TensorRecord tensor;
    TRY(tensor.name, in.ReadString(GGML_MAX_NAME - 1, "a tensor's name"));
    if (tensor.name.empty() || tensor.name.find('\0') != std::string::npos) {
      return Fail(Errc::kInvalidFile,
                  "{}: the name '{}' of tensor {} is empty or contains a zero byte", in.path(),
                  Printable(tensor.name), i);
    }
    if (!names.insert(tensor.name).second) {
      return Fail(Errc::kInvalidFile, "{}: tensor '{}' occurs twice", in.path(),
                  Printable(tensor.name));
    }
    TRY_STATUS(ReadShape(in, tensor));
    TRY_STATUS(ReadTypeAndSize(in, tensor));
    TRY(tensor.offset, in.Read<uint64_t>("a tensor's offset"));
    header.tensors.push_back(std::move(tensor));
  }
  return {};
}

// Turns offsets within the data section into offsets in the file. gguf.h demands that tensors
// follow one another with padding only; with that, none can overlap another or the header.
Status PlaceTensors(const FileCursor& in, uint64_t alignment, GgufHeader& header) {
  const uint64_t data_begin = AlignUp(in.position(), alignment);
  uint64_t expected = 0;
  for (TensorRecord& tensor : header.tensors) {
    if (tensor.offset != expected) {
      return Fail(Errc::kInvalidFile,
                  "{}: tensor '{}' lies at offset {}, expected {}; the file is damaged", in.path(),
                  Printable(tensor.name), tensor.offset, expected);
    }
    const uint64_t begin = data_begin + tensor.offset;
    if (begin > in.file_bytes() || tensor.bytes > in.file_bytes() - begin) {
      return Fail(Errc::kInvalidFile,
                  "{}: tensor '{}' ends at byte {}, past the end of the file at {}; it is "
                  "incomplete, fetch "
                  "it again",
                  in.path(), Printable(tensor.name), begin + tensor.bytes, in.file_bytes());
    }
    expected += AlignUp(tensor.bytes, alignment);
    tensor.offset = begin;
  }
  return {};
}

// By the eight letters of which `begin` are the first four.
Result<bool> IsShard(FileCursor& in, std::string_view begin) {
  const std::string_view rest = kShardMagic.substr(begin.size());
  if (!kShardMagic.starts_with(begin) || in.file_bytes() < kShardMagic.size()) return false;
  std::string more(rest.size(), '\0');
  TRY_STATUS(in.ReadBytes(more.data(), more.size(), "the magic"));
  return more == rest;
}

Status CheckMagicAndVersion(FileCursor& in) {
  std::array<char, 4> magic{};
  if (in.file_bytes() >= magic.size())
    TRY_STATUS(in.ReadBytes(magic.data(), magic.size(), "the magic"));
  const std::string_view found(magic.data(), magic.size());
  if (found != GGUF_MAGIC) {
    TRY(const bool is_shard, IsShard(in, found));
    if (is_shard) return FailShard(in.path(), "a GGUF file");
    return Fail(Errc::kInvalidFile, "{}: not a GGUF file ({} bytes, does not begin with '{}')",
                in.path(), in.file_bytes(), GGUF_MAGIC);
  }
  TRY(const uint32_t version, in.Read<uint32_t>("the version"));
  if (version == GGUF_VERSION) return {};
  if (version == std::byteswap(uint32_t{GGUF_VERSION})) {
    return Fail(Errc::kUnsupported,
                "{}: big-endian GGUF; convert it with gguf-py's gguf-convert-endian or fetch a "
                "little-endian file",
                in.path());
  }
  if (version == 1 || version == 2) {
    return Fail(Errc::kUnsupported,
                "{}: GGUF version {}; only version {} is read, convert the model again", in.path(),
                version, GGUF_VERSION);
  }
  return Fail(Errc::kInvalidFile, "{}: GGUF version {} does not exist yet, expected {}", in.path(),
              version, GGUF_VERSION);
}

}  // namespace

bool MetaValue::is_integer() const {
  return type != GGUF_TYPE_STRING && type != GGUF_TYPE_ARRAY && type != GGUF_TYPE_BOOL &&
         type != GGUF_TYPE_FLOAT32 && type != GGUF_TYPE_FLOAT64 && type != GGUF_TYPE_COUNT;
}

namespace {

// Calls `use` with element i as its own C++ type.
template <class Use>
auto WithElement(const MetaValue& value, uint64_t i, Use use) {
  const auto as = [&]<class T>(T element) {
    std::memcpy(&element, value.raw.data() + i * sizeof(T), sizeof(T));
    return use(element);
  };
  switch (value.type) {
    case GGUF_TYPE_UINT8:
      return as(uint8_t{});
    case GGUF_TYPE_INT8:
      return as(int8_t{});
    case GGUF_TYPE_UINT16:
      return as(uint16_t{});
    case GGUF_TYPE_INT16:
      return as(int16_t{});
    case GGUF_TYPE_UINT32:
      return as(uint32_t{});
    case GGUF_TYPE_INT32:
      return as(int32_t{});
    case GGUF_TYPE_UINT64:
      return as(uint64_t{});
    case GGUF_TYPE_INT64:
      return as(int64_t{});
    case GGUF_TYPE_FLOAT32:
      return as(float{});
    default:
      return as(double{});
  }
}

bool Holds(const MetaValue& value, uint64_t i) {
  const uint64_t element = ElementBytes(value.type);
  return element > 0 && i < value.raw.size() / element;
}

}  // namespace

std::optional<uint64_t> MetaValue::UintAt(uint64_t i) const {
  if (!is_integer() || !Holds(*this, i)) return std::nullopt;
  return WithElement(*this, i, [](auto element) -> std::optional<uint64_t> {
    if constexpr (std::is_integral_v<decltype(element)>) {
      if (std::in_range<uint64_t>(element)) return static_cast<uint64_t>(element);
    }
    return std::nullopt;
  });
}

std::optional<double> MetaValue::FloatAt(uint64_t i) const {
  const bool is_float = type == GGUF_TYPE_FLOAT32 || type == GGUF_TYPE_FLOAT64;
  if ((!is_float && !is_integer()) || !Holds(*this, i)) return std::nullopt;
  return WithElement(
      *this, i, [](auto element) -> std::optional<double> { return static_cast<double>(element); });
}

Result<GgufHeader> ReadGgufHeader(std::unique_ptr<ByteSource> bytes) {
  FileCursor in(std::move(bytes));
  const std::string path = in.path();
  TRY_STATUS(CheckMagicAndVersion(in));
  TRY(const uint64_t n_tensors, in.Read<uint64_t>("the number of tensors"));
  TRY(const uint64_t n_keys, in.Read<uint64_t>("the number of metadata keys"));
  if (n_tensors > kMaxTensors || n_keys > kMaxKeys) {
    return Fail(
        Errc::kInvalidFile,
        "{}: {} tensors and {} metadata keys, at most {} and {} make sense; the file is damaged",
        path, n_tensors, n_keys, kMaxTensors, kMaxKeys);
  }
  GgufHeader header;
  header.stamp = in.stamp();
  TRY_STATUS(ReadMetadata(in, n_keys, header));
  TRY(const uint64_t alignment, Alignment(path, header));
  TRY_STATUS(ReadTensors(in, n_tensors, header));
  TRY_STATUS(PlaceTensors(in, alignment, header));
  return header;
}

}  // namespace moestro
