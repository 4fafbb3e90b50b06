// SPDX-License-Identifier: MIT
#include "trace/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <format>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/output_file.h"

namespace moestro {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "MOETRACE";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kFlagWeights = 1;
constexpr uint32_t kFlagExpertsGuessed = 2;
constexpr uint8_t kKindPrefill = 1;
constexpr uint8_t kKindStartsSequence = 2;
constexpr size_t kVersionEnd = 12;
constexpr size_t kHeaderBytes = 60;  // up to the model's name
constexpr size_t kChecksumBytes = 8;
constexpr float kWeightSteps = 65535.0F;
constexpr size_t kWindow = kMiB;  // bytes written or read at a time

// FNV-1a: a changed byte always changes the result.
class Checksum {
 public:
  void Add(std::string_view bytes) {
    for (const char c : bytes) {
      value_ ^= static_cast<uint8_t>(c);
      value_ *= 0x100000001b3;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

size_t IdBytes(const TraceInfo& info) { return info.n_expert <= 256 ? 1 : 2; }

// At most 1 + 2^24 * (2 + 2) + 2^23 * 2^12 * 2: no overflow.
uint64_t TokenBytes(const TraceInfo& info) {
  const uint64_t used = uint64_t{info.n_layer} * info.n_used;
  return 1 + used * (IdBytes(info) + (info.has_weights ? 2 : 0)) +
         info.predicted_rows() * info.n_used * IdBytes(info);
}

template <class T>
void Append(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

void AppendIds(std::string& bytes, std::span<const ExpertId> ids, size_t id_bytes) {
  for (const ExpertId id : ids) {
    if (id_bytes == 1) {
      Append(bytes, static_cast<uint8_t>(id.value));
    } else {
      Append(bytes, id.value);
    }
  }
}

uint16_t FixedPoint(float weight) {
  if (!(weight > 0.0F)) return 0;  // and what is not a number
  return static_cast<uint16_t>(std::lround(std::min(weight, 1.0F) * kWeightSteps));
}

std::string EncodeHeader(const Trace& trace) {
  const TraceInfo& info = trace.info();
  std::string bytes(kMagic);
  Append(bytes, kVersion);
  Append(bytes,
         (info.has_weights ? kFlagWeights : 0) | (info.experts_guessed ? kFlagExpertsGuessed : 0));
  Append(bytes, info.n_layer);
  Append(bytes, info.n_expert);
  Append(bytes, info.n_used);
  Append(bytes, info.depth);
  Append(bytes, info.model_id);
  Append(bytes, info.expert_bytes);
  Append(bytes, uint64_t{trace.tokens()});
  Append(bytes, static_cast<uint32_t>(info.model.size()));
  return bytes + info.model;
}

void AppendToken(std::string& bytes, const Trace& trace, size_t t) {
  const size_t id_bytes = IdBytes(trace.info());
  const bool is_prefill = trace.phase(t) == Phase::kPrefill;
  Append(bytes, static_cast<uint8_t>((is_prefill ? kKindPrefill : 0) |
                                     (trace.starts_sequence(t) ? kKindStartsSequence : 0)));
  for (size_t layer = 0; layer < trace.info().n_layer; ++layer) {
    AppendIds(bytes, trace.experts(t, layer), id_bytes);
    for (const float weight : trace.weights(t, layer)) Append(bytes, FixedPoint(weight));
    for (size_t distance = 1; distance <= trace.info().depth; ++distance) {
      AppendIds(bytes, trace.predicted(t, layer, distance), id_bytes);
    }
  }
}

// A rename would put the trace in the place of a device or a pipe.
Status CheckReplaceable(const std::string& path) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return {};
  return Fail(Errc::kIo, "cannot write {}: it exists and is not a file; give another name", path);
}

class Source {
 public:
  static Result<Source> Open(const std::string& path) {
    // O_NONBLOCK: opening a named pipe must not wait for a writer.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
    Source source(fd, path);
    struct stat info{};
    if (fstat(fd, &info) != 0) {
      return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
      return Fail(Errc::kIo, "cannot read {}: not a file; give the path of a trace", path);
    }
    source.size_ = static_cast<uint64_t>(info.st_size);
    return source;
  }
  Source(Source&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), size_(other.size_), path_(std::move(other.path_)) {}
  Source& operator=(Source&&) = delete;
  ~Source() {
    if (fd_ >= 0) close(fd_);
  }

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // REQUIRES: offset + bytes <= size().
  Result<std::string> Read(uint64_t offset, size_t bytes) const {
    std::string out(bytes, '\0');
    for (size_t done = 0; done < bytes;) {
      const ssize_t got =
          pread(fd_, out.data() + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return Fail(Errc::kIo, "cannot read {} at byte {}: {}", path_, offset + done,
                    got < 0 ? std::strerror(errno) : "the file became shorter");
      }
      done += static_cast<size_t>(got);
    }
    return out;
  }

 private:
  Source(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  uint64_t size_ = 0;
  std::string path_;
};

struct Header {
  TraceInfo info;
  uint64_t tokens = 0;
  uint64_t tokens_begin = 0;  // byte of the first token
};

// REQUIRES: what is taken is there.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T Take() {
    std::array<char, sizeof(T)> raw{};
    bytes_.copy(raw.data(), raw.size());
    bytes_.remove_prefix(raw.size());
    return std::bit_cast<T>(raw);
  }
  void TakeIds(std::span<ExpertId> ids, size_t id_bytes) {
    for (ExpertId& id : ids) id.value = id_bytes == 1 ? Take<uint8_t>() : Take<uint16_t>();
  }

 private:
  std::string_view bytes_;
};

std::unexpected<Error> CutShort(const Source& source, std::string_view expected) {
  return Fail(Errc::kInvalidFile,
              "{}: ends at byte {}, it should have {}; it is damaged or incomplete, copy or record "
              "it again",
              source.path(), source.size(), expected);
}

std::unexpected<Error> Damaged(const Source& source, std::string_view what) {
  return Fail(Errc::kInvalidFile, "{}: {}; it is damaged, copy or record it again", source.path(),
              what);
}

Result<Header> ReadHeader(const Source& source) {
  TRY(const std::string bytes,
      source.Read(0, static_cast<size_t>(std::min<uint64_t>(source.size(), kHeaderBytes))));
  if (!bytes.starts_with(kMagic)) {
    return Fail(Errc::kInvalidFile,
                "{}: not a trace, it does not begin with {}; record one with 'moestro trace'",
                source.path(), kMagic);
  }
  if (bytes.size() < kVersionEnd) return CutShort(source, "a longer header");
  Decoder decoder(std::string_view(bytes).substr(kMagic.size()));
  const auto version = decoder.Take<uint32_t>();
  if (version > kVersion) {
    return Fail(Errc::kUnsupported,
                "{}: trace format {} is newer than the {} that is known here; update Moestro",
                source.path(), version, kVersion);
  }
  if (version == 0) return Damaged(source, "trace format 0 does not exist");
  if (bytes.size() < kHeaderBytes) return CutShort(source, "a longer header");
  const auto flags = decoder.Take<uint32_t>();
  if ((flags & ~(kFlagWeights | kFlagExpertsGuessed)) != 0) {
    return Damaged(source, std::format("flags {:#x} have no meaning", flags));
  }
  Header header;
  header.info.has_weights = (flags & kFlagWeights) != 0;
  header.info.experts_guessed = (flags & kFlagExpertsGuessed) != 0;
  header.info.n_layer = decoder.Take<uint32_t>();
  header.info.n_expert = decoder.Take<uint32_t>();
  header.info.n_used = decoder.Take<uint32_t>();
  header.info.depth = decoder.Take<uint32_t>();
  header.info.model_id = decoder.Take<uint64_t>();
  header.info.expert_bytes = decoder.Take<uint64_t>();
  header.tokens = decoder.Take<uint64_t>();
  header.tokens_begin = kHeaderBytes + decoder.Take<uint32_t>();
  // The counts; before they are multiplied below.
  if (const auto counts = Trace::Create(header.info); !counts) {
    return Damaged(source, counts.error().message);
  }
  const uint64_t token_bytes = TokenBytes(header.info);
  const uint64_t least = header.tokens_begin + kChecksumBytes;
  if (header.tokens > (UINT64_MAX - least) / token_bytes ||
      source.size() != least + header.tokens * token_bytes) {
    return CutShort(source,
                    std::format("{} tokens of {} bytes after byte {}, and {} more", header.tokens,
                                token_bytes, header.tokens_begin, kChecksumBytes));
  }
  return header;
}

Status CheckSum(const Source& source) {
  Checksum sum;
  const uint64_t end = source.size() - kChecksumBytes;
  for (uint64_t at = 0; at < end; at += kWindow) {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(kWindow, end - at));
    TRY(const std::string window, source.Read(at, bytes));
    sum.Add(window);
  }
  TRY(const std::string bytes, source.Read(end, kChecksumBytes));
  const auto stored = Decoder(bytes).Take<uint64_t>();
  if (stored == sum.value()) return {};
  return Damaged(source, std::format("its checksum is {:016x}, not {:016x} as written down",
                                     sum.value(), stored));
}

// One token's rows, kept from token to token.
struct TokenRows {
  explicit TokenRows(const TraceInfo& info)
      : experts(size_t{info.n_layer} * info.n_used),
        weights(info.has_weights ? experts.size() : 0),
        predicted(info.predicted_rows() * info.n_used) {}
  std::vector<ExpertId> experts;
  std::vector<float> weights;
  std::vector<ExpertId> predicted;
};

Status DecodeToken(Decoder& decoder, TokenRows& rows, Trace& trace) {
  const TraceInfo& info = trace.info();
  const size_t n_used = info.n_used;
  const size_t id_bytes = IdBytes(info);
  const auto kind = decoder.Take<uint8_t>();
  if ((kind & ~(kKindPrefill | kKindStartsSequence)) != 0) {
    return Fail(Errc::kInvalidFile, "a token of kind {} does not exist", kind);
  }
  for (size_t layer = 0; layer < info.n_layer; ++layer) {
    decoder.TakeIds(std::span(rows.experts).subspan(layer * n_used, n_used), id_bytes);
    for (size_t k = 0; info.has_weights && k < n_used; ++k) {
      rows.weights[layer * n_used + k] =
          static_cast<float>(decoder.Take<uint16_t>()) / kWeightSteps;
    }
    const size_t first = info.predicted_rows_before(layer);
    const size_t count = info.predicted_rows_before(layer + 1) - first;
    decoder.TakeIds(std::span(rows.predicted).subspan(first * n_used, count * n_used), id_bytes);
  }
  return trace.Add({.phase = (kind & kKindPrefill) != 0 ? Phase::kPrefill : Phase::kDecode,
                    .starts_sequence = (kind & kKindStartsSequence) != 0,
                    .experts = rows.experts,
                    .weights = rows.weights,
                    .predicted = rows.predicted});
}

}  // namespace

Status WriteTrace(const std::string& path, const Trace& trace) {
  TRY_STATUS(CheckReplaceable(path));
  TRY(OutputFile file, OutputFile::Create(path));
  Checksum sum;
  std::string bytes = EncodeHeader(trace);
  for (size_t t = 0; t < trace.tokens(); ++t) {
    AppendToken(bytes, trace, t);
    if (bytes.size() < kWindow) continue;
    sum.Add(bytes);
    TRY_STATUS(file.Write(std::as_bytes(std::span(bytes))));
    bytes.clear();
  }
  sum.Add(bytes);
  Append(bytes, sum.value());
  TRY_STATUS(file.Write(std::as_bytes(std::span(bytes))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

Result<Trace> ReadTrace(const std::string& path) {
  TRY(const Source source, Source::Open(path));
  TRY(Header header, ReadHeader(source));
  TRY_STATUS(CheckSum(source));
  TRY(header.info.model,
      source.Read(kHeaderBytes, static_cast<size_t>(header.tokens_begin - kHeaderBytes)));
  Result<Trace> trace = Trace::Create(std::move(header.info));
  if (!trace) return Damaged(source, trace.error().message);
  if (header.tokens == 0) return trace;  // only a token proves that the counts fit the file

  const auto token_bytes = static_cast<size_t>(TokenBytes(trace->info()));
  const uint64_t at_once = std::max<uint64_t>(1, kWindow / token_bytes);
  TokenRows rows(trace->info());
  for (uint64_t t = 0; t < header.tokens;) {
    const uint64_t count = std::min(at_once, header.tokens - t);
    TRY(const std::string bytes, source.Read(header.tokens_begin + t * token_bytes,
                                             static_cast<size_t>(count) * token_bytes));
    Decoder decoder(bytes);
    for (const uint64_t end = t + count; t < end; ++t) {
      const Status added = DecodeToken(decoder, rows, *trace);
      if (!added) return Damaged(source, std::format("token {}: {}", t, added.error().message));
    }
  }
  return trace;
}

}  // namespace moestro
