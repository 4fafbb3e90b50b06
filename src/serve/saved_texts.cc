// SPDX-License-Identifier: MIT
#include "serve/saved_texts.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/cache_files.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

// Removes the folder from an error's message: clients use names of texts, and the place of the
// files on this machine is none of their business.
ApiError WithoutFolder(ApiError told, const std::string& folder) {
  LogWarning("a saved text: {}", Printable(told.message, 4096));
  std::error_code unknown;
  const std::string real = std::filesystem::weakly_canonical(folder, unknown).string();
  for (const std::string& spelled : {folder, real}) {
    if (spelled.empty()) continue;
    const std::string prefix = spelled.ends_with('/') ? spelled : spelled + "/";
    for (size_t at = 0; (at = told.message.find(prefix, at)) != std::string::npos;) {
      told.message.erase(at, prefix.size());
    }
  }
  return told;
}

// Turns an error about a file into a 400: the client named the file, and has to mend its request.
ApiError BlameFile(const Error& error, const std::string& folder) {
  ApiError told = WithoutFolder(ToApiError(error), folder);
  if (error.code != Errc::kInvalidFile && told.status != 400) return told;
  return BadRequest("filename", std::move(told.message)).error();
}

}  // namespace

SavedTexts::SavedTexts(Engine& engine, std::string folder, std::string key, uint32_t most_files)
    : engine_(engine), folder_(std::move(folder)), key_(std::move(key)), most_files_(most_files) {
  if (folder_.empty()) return;
  WarnIfOpenToOthers(folder_);
  // Computes the origin now, so that no request waits for it.
  if (const Result<KvOrigin> origin = engine_.kv_origin(); !origin) {
    LogWarning("texts cannot be saved or restored: {}", origin.error().message);
  }
}

// A client that invents names must not fill the disk with files, nor the folder with names.
ApiStatus SavedTexts::CheckNumber(const std::string& name) const {
  std::error_code error;
  const auto kind = std::filesystem::status(PathOf(name), error).type();
  if (kind == std::filesystem::file_type::regular) return {};
  if (kind != std::filesystem::file_type::not_found) {
    return BadRequest("filename", Format("\"{}\" is no file, so that no text can be saved there; "
                                         "take another name",
                                         Printable(name)));
  }
  uint32_t files = 0;
  for (std::filesystem::directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    ++files;
  }
  if (files < most_files_) return {};
  ApiError full = BadRequest("filename", Format("{} texts are saved, as many as may be; use one of "
                                                "their names again, or have files removed from "
                                                "the folder of --slot-save-path",
                                                files))
                      .error();
  full.code = "too_many_files";
  return std::unexpected(std::move(full));
}

// Refuses to replace a file that is no saved text: the folder may hold others, for example the
// model.
ApiStatus SavedTexts::CheckMayReplace(const std::string& name) const {
  std::error_code unknown;
  const auto there = std::filesystem::symlink_status(PathOf(name), unknown);
  if (!std::filesystem::exists(there)) return {};
  const Result<SavedTokens> saved = engine_.PeekSequence(PathOf(name));
  // A text of another model or version is one, too.
  const bool is_text = saved || saved.error().code == Errc::kInvalidRequest ||
                       saved.error().code == Errc::kUnsupported;
  if (std::filesystem::is_regular_file(there) && is_text) return {};
  return BadRequest("filename", Format("\"{}\" is there and is no saved text; use another name, or "
                                       "have it removed from the folder of --slot-save-path",
                                       Printable(name)));
}

ApiResult<uint64_t> SavedTexts::Save(const Sequence& sequence, const std::string& name) {
  TRY_STATUS(CheckNumber(name));
  TRY_STATUS(CheckMayReplace(name));
  const Status saved = engine_.SaveSequence(sequence, key_, OutputPath::OfOwn(PathOf(name)));
  if (!saved) return std::unexpected(WithoutFolder(ToApiError(saved.error()), folder_));
  return BytesOf(name);
}

uint64_t SavedTexts::BytesOf(const std::string& name) const {
  std::error_code gone;
  const uint64_t bytes = std::filesystem::file_size(PathOf(name), gone);
  return gone ? 0 : bytes;
}

ApiResult<uint32_t> SavedTexts::Length(const std::string& name) const {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(PathOf(name), unknown)) {
    return std::unexpected(
        ApiError{.status = 404,
                 .type = "invalid_request_error",
                 .message = Format("there is no saved text of the name \"{}\"", Printable(name)),
                 .param = "filename"});
  }
  const Result<SavedTokens> saved = engine_.PeekSequence(PathOf(name));
  if (!saved) return std::unexpected(BlameFile(saved.error(), folder_));
  if (saved->notes != key_) {
    return BadRequest("filename", Format("\"{}\" was not saved by a server with this model's chat "
                                         "template; save the text again",
                                         Printable(name)));
  }
  if (saved->tokens.empty()) {
    return BadRequest("filename", Format("\"{}\" holds an empty text", Printable(name)));
  }
  return static_cast<uint32_t>(saved->tokens.size());
}

ApiResult<Sequence> SavedTexts::Restore(const std::string& name) {
  Result<SavedSequence> saved = engine_.RestoreSequence(PathOf(name));
  if (!saved) return std::unexpected(BlameFile(saved.error(), folder_));
  return std::move(saved->sequence);
}

}  // namespace moestro
