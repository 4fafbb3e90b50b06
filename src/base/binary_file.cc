// SPDX-License-Identifier: MIT
#include "base/binary_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/hash.h"
#include "base/input_file.h"
#include "base/text.h"

namespace moestro {

std::unexpected<Error> FailShard(std::string_view path, std::string_view what) {
  return Fail(Errc::kInvalidFile,
              "{}: a shard of a run, not {}; 'moestro merge' makes one of all its shards", path,
              what);
}

Result<InputFile> InputFile::Open(const std::string& path, const FileFormat& format) {
  Result<UniqueFd> fd = OpenRegularFile(path);
  if (!fd) {
    return Fail(Errc::kIo, "{}; give the path of {}", fd.error().message, format.what);
  }
  struct stat info{};
  if (fstat(fd->get(), &info) != 0) {
    return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  }
  InputFile file(*std::move(fd), path, format);
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

Result<std::string> InputFile::ReadHeader() const {
  const FileFormat& f = *format_;
  TRY(const std::string bytes,
      Read(0, static_cast<size_t>(std::min<uint64_t>(size_, f.header_bytes))));
  if (!bytes.starts_with(f.magic)) {
    if (bytes.starts_with(kShardMagic)) return FailShard(path_, f.what);
    return Fail(Errc::kInvalidFile, "{}: not {}, it does not begin with {}; {}", path_, f.what,
                f.magic, f.origin);
  }
  const size_t version_end = f.magic.size() + sizeof(uint32_t);
  if (bytes.size() < version_end) return CutShort("a longer header");
  const auto version = Decoder(std::string_view(bytes).substr(f.magic.size())).Take<uint32_t>();
  if (version > f.version) {
    return Fail(Errc::kUnsupported,
                "{}: {} of format {}, newer than the {} that is known here; update Moestro", path_,
                f.what, version, f.version);
  }
  if (version == 0) return Damaged("its format is 0, which does not exist");
  if (version < f.oldest) {
    return Fail(Errc::kUnsupported,
                "{}: {} of format {}, written by an older Moestro; {} is the oldest that is read, "
                "{}",
                path_, f.what, version, f.oldest, f.remedy);
  }
  if (bytes.size() < f.header_bytes) return CutShort("a longer header");
  return bytes.substr(version_end);
}

InputFile InputFile::Rest(uint64_t begin, const FileFormat& format) && {
  InputFile rest(std::move(*this));
  rest.begin_ += begin;
  rest.size_ -= begin;
  rest.format_ = &format;
  return rest;
}

Result<std::string> InputFile::Read(uint64_t offset, size_t bytes) const {
  return ReadAt(begin_ + offset, bytes);
}

Result<std::string> InputFile::ReadAt(uint64_t offset, size_t bytes) const {
  std::string out(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    const ssize_t got =
        pread(fd_.get(), out.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return Fail(Errc::kIo, "cannot read {} at byte {}: {}", path_, offset + done,
                  got < 0 ? std::strerror(errno) : "the file became shorter");
    }
    done += static_cast<size_t>(got);
  }
  return out;
}

Status InputFile::CheckSum() const {
  Fnv1a sum;
  const uint64_t end = begin_ + size_ - kChecksumBytes;
  for (uint64_t at = 0; at < end; at += kFileWindow) {
    TRY(const std::string window,
        ReadAt(at, static_cast<size_t>(std::min<uint64_t>(kFileWindow, end - at))));
    sum.Add(window);
  }
  TRY(const std::string bytes, ReadAt(end, kChecksumBytes));
  const auto stored = Decoder(bytes).Take<uint64_t>();
  if (stored == sum.value()) return {};
  return Damaged(
      Format("its checksum is {:016x}, not {:016x} as written down", sum.value(), stored));
}

std::unexpected<Error> InputFile::CutShort(std::string_view expected) const {
  return Fail(Errc::kInvalidFile,
              "{}: ends at byte {}, it should have {}; it is damaged or incomplete, {}", path_,
              size_, expected, format_->remedy);
}

std::unexpected<Error> InputFile::Damaged(std::string_view what) const {
  return Fail(Errc::kInvalidFile, "{}: {}; it is damaged, {}", path_, what, format_->remedy);
}

Result<BinaryWriter> BinaryWriter::Create(OutputPath path, FileReaders readers) {
  TRY(OutputFile file, OutputFile::Create(std::move(path), readers));
  return BinaryWriter(std::move(file));
}

Status BinaryWriter::Add(std::string_view bytes) {
  sum_.Add(bytes);
  return file_.Write(std::as_bytes(std::span(bytes)));
}

Status BinaryWriter::Finish() {
  std::string sum;
  AppendNumber(sum, sum_.value());
  TRY_STATUS(file_.Write(std::as_bytes(std::span(sum))));
  TRY_STATUS(file_.Publish());
  file_.Keep();
  return {};
}

}  // namespace moestro
