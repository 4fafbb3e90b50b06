// SPDX-License-Identifier: MIT
// What clients ask of a place for texts, and what they are told, as llama-server has it:
// POST /slots/N?action=save|restore|erase.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/api_error.h"

namespace moestro {

enum class PlaceAction : uint8_t { kSave, kRestore, kErase };

struct PlaceFigures {
  uint64_t tokens = 0;
  uint64_t bytes = 0;    // of the file; erasing has none
  double seconds = 0.0;  // what it took
};

// "save", "restore" or "erase"; 400 for anything else.
ApiResult<PlaceAction> ParsePlaceAction(std::string_view action);
// The body's "filename". 400 unless it is one plain name: 1 to 200 bytes, no separator, no control
// character, no dot at the beginning and no two in a row.
ApiResult<std::string> ParseTextFile(std::string_view body);

std::string PlaceBody(PlaceAction action, uint32_t place, std::string_view file,
                      const PlaceFigures& figures);

}  // namespace moestro
