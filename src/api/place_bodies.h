// SPDX-License-Identifier: MIT
// A client's request about a place, and the answer, in llama-server's form: POST
// /slots/N?action=save|restore|erase. llama-server calls a place a slot: one of the texts that are
// computed beside each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/api_error.h"

namespace moestro {

enum class PlaceAction : uint8_t { kSave, kRestore, kErase };

struct PlaceFigures {
  uint64_t tokens = 0;
  uint64_t bytes = 0;    // bytes of the file; 0 for erasing
  double seconds = 0.0;  // time that the task took
};

// "save", "restore" or "erase"; 400 for any other word.
ApiResult<PlaceAction> ParsePlaceAction(std::string_view action);
// The body's "filename". 400 unless it is a plain name: 1 to 200 bytes, no separator, no control
// character, no dot at the beginning, no two dots in a row.
ApiResult<std::string> ParseTextFile(std::string_view body);

std::string PlaceBody(PlaceAction action, uint32_t place, std::string_view file,
                      const PlaceFigures& figures);

}  // namespace moestro
