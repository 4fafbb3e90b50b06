// SPDX-License-Identifier: MIT
#include "api/place_bodies.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "api/body_fields.h"
#include "base/format.h"
#include "base/json.h"
#include "base/printable.h"

namespace moestro {
namespace {

// A file system's limit is 255 bytes, and a file has a longer name while it is written.
constexpr size_t kLongestFileName = 200;

bool IsPlainName(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; };
  return !name.starts_with('.') && !name.contains("..") &&
         name.find_first_of("/\\") == std::string_view::npos &&
         std::ranges::none_of(name, is_control);
}

}  // namespace

ApiResult<PlaceAction> ParsePlaceAction(std::string_view action) {
  if (action == "save") return PlaceAction::kSave;
  if (action == "restore") return PlaceAction::kRestore;
  if (action == "erase") return PlaceAction::kErase;
  return BadRequest("action", Format("\"action\" must be save, restore or erase, not \"{}\"",
                                     Printable(action, 40)));
}

ApiResult<std::string> ParseTextFile(std::string_view body) {
  TRY(const Json json, ParseBody(body));
  TRY(BodyFields fields, BodyFields::Of(json.view(), ""));
  TRY(std::string name, fields.NeededText("filename"));
  if (name.size() > kLongestFileName || !IsPlainName(name)) {
    return BadRequest("filename",
                      Format("\"filename\" must be a plain name of at most {} bytes, without "
                             "folders, \"..\" or a dot at the beginning, not \"{}\"",
                             kLongestFileName, Printable(name, 64)));
  }
  return name;
}

std::string PlaceBody(PlaceAction action, uint32_t place, std::string_view file,
                      const PlaceFigures& figures) {
  Json body = Json::Object();
  body.Set("id_slot", place);
  if (action == PlaceAction::kErase) return body.Set("n_erased", figures.tokens).Dump();
  const bool saves = action == PlaceAction::kSave;
  Json timings = Json::Object();
  timings.Set(saves ? "save_ms" : "restore_ms", figures.seconds * 1e3);
  body.Set("filename", file)
      .Set(saves ? "n_saved" : "n_restored", figures.tokens)
      .Set(saves ? "n_written" : "n_read", figures.bytes)
      .Set("timings", std::move(timings));
  return body.Dump();
}

}  // namespace moestro
