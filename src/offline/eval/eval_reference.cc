// SPDX-License-Identifier: MIT
#include "offline/eval/eval_reference.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/output_file.h"

namespace moestro {
namespace {

constexpr FileFormat kReference{
    .magic = "MOEEXACT",
    .version = 2,
    .oldest = 2,
    .header_bytes = 8 + 4 + 4 * 8 + 2 * 4,
    .what = "a reference",
    .origin = "'moestro eval --against exact --reference FILE' writes one",
    .remedy = "delete it, and the next run writes it again",
};

}  // namespace

uint64_t ReferenceInfo::file_bytes() const {
  return kReference.header_bytes + rows * n_vocab * sizeof(float) + kChecksumBytes;
}

ReferenceInfo ReferenceInfo::Of(const ModelFile& model, const EvalText& text) {
  return {.fingerprint = model.id.fingerprint,
          .token_hash = text.Hash(),
          .rows = text.n_evaluated(),
          .n_vocab = text.n_vocab,
          .n_ctx = text.n_ctx};
}

Result<ReferenceWriter> ReferenceWriter::Create(const OutputPath& path, const ReferenceInfo& info) {
  TRY(const uint64_t room, FreeBytesFor(path));
  if (room < info.file_bytes()) {
    return Fail(Errc::kIo,
                "{}: the exact run's log-probabilities take {}, there are {}; evaluate fewer "
                "--tokens, or name another folder with --scratch",
                path.text(), FormatBytes(info.file_bytes()), FormatBytes(room));
  }
  TRY(BinaryWriter writer, BinaryWriter::Create(path));
  std::string header = BeginHeader(kReference);
  AppendNumber(header, info.fingerprint);
  AppendNumber(header, info.weights);
  AppendNumber(header, info.token_hash);
  AppendNumber(header, info.rows);
  AppendNumber(header, info.n_vocab);
  AppendNumber(header, info.n_ctx);
  TRY_STATUS(writer.Add(header));
  return ReferenceWriter(std::move(writer));
}

Status ReferenceWriter::Add(std::span<const float> row) {
  const auto bytes = std::as_bytes(row);
  return writer_.Add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<ReferenceReader> ReferenceReader::Open(const std::string& path, const ReferenceInfo& info) {
  TRY(InputFile file, InputFile::Open(path, kReference));
  TRY(const std::string header, file.ReadHeader());
  Decoder decoder(header);
  const auto fingerprint = decoder.Take<uint64_t>();
  const auto weights = decoder.Take<uint64_t>();
  const auto token_hash = decoder.Take<uint64_t>();
  const auto rows = decoder.Take<uint64_t>();
  const auto n_vocab = decoder.Take<uint32_t>();
  const auto n_ctx = decoder.Take<uint32_t>();
  const bool is_same_model = fingerprint == info.fingerprint && n_vocab == info.n_vocab;
  if (is_same_model && weights != info.weights) {
    return Fail(Errc::kInvalidRequest,
                "{}: a reference of other weights, of a model with the same header; name another "
                "file, or delete it and this run writes it again",
                path);
  }
  const bool is_same_text = token_hash == info.token_hash && rows == info.rows;
  if (!is_same_model || !is_same_text || n_ctx != info.n_ctx) {
    return Fail(
        Errc::kInvalidRequest,
        "{}: a reference of another {}; name another file, or delete it and this run "
        "writes it again",
        path,
        is_same_model ? (is_same_text ? "context" : "text, part of it or --score-from") : "model");
  }
  if (file.size() != info.file_bytes()) {
    return file.CutShort(Format("{} bytes", info.file_bytes()));
  }
  TRY_STATUS(file.CheckSum());
  return ReferenceReader(std::move(file), n_vocab);
}

Result<std::span<const float>> ReferenceReader::Row(uint64_t index) {
  const size_t bytes = row_.size() * sizeof(float);
  TRY(const std::string raw, file_.Read(kReference.header_bytes + index * bytes, bytes));
  std::memcpy(row_.data(), raw.data(), bytes);
  return std::span<const float>(row_);
}

Result<std::string> ScratchFolder(const std::string& asked, const std::string& text) {
  std::string folder = asked;
  if (asked.empty()) {
    folder = std::filesystem::path(text).parent_path().string();
    if (folder.empty() || access(folder.c_str(), W_OK) != 0) folder = ".";
  }
  TRY(const bool is_in_memory, LiesInMemory(folder));
  std::error_code unreadable;
  if (!std::filesystem::is_directory(folder, unreadable)) {
    return Fail(Errc::kIo, "{} is no folder; name one for scratch files with --scratch", folder);
  }
  if (access(folder.c_str(), W_OK) != 0) {
    return Fail(Errc::kIo, "cannot write into folder {}: {}; name another with --scratch", folder,
                std::strerror(errno));
  }
  if (asked.empty() && is_in_memory) {
    return Fail(Errc::kInvalidRequest,
                "scratch files would go to {}, which lies in memory; name a folder on a disk with "
                "--scratch (or this one, if it shall be so)",
                folder);
  }
  return folder;
}

}  // namespace moestro
