// SPDX-License-Identifier: MIT
#include "offline/quantize/low_types.h"

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "offline/weight_types.h"

namespace moestro {
namespace {

constexpr std::array<std::string_view, kMatrices> kMatrixWords{"gate", "up", "down"};

using LowTypeChoice = std::optional<ggml_type>;

// Parses one part between commas: a type for all matrices, or one for a named matrix.
Status ParseLowPart(std::string_view part, LowTypeChoice& all,
                    std::array<LowTypeChoice, kMatrices>& own) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) {
    if (all) return Fail(Errc::kUsage, "'{}' is a second type for all matrices", part);
    TRY(all, FindWeightType(part));
    return {};
  }
  const std::string_view word = part.substr(0, equals);
  const auto found = std::ranges::find(kMatrixWords, word);
  if (found == kMatrixWords.end()) {
    return Fail(Errc::kUsage, "'{}' is no expert matrix; they are gate, up and down", word);
  }
  LowTypeChoice& choice = own[static_cast<size_t>(found - kMatrixWords.begin())];
  if (choice) return Fail(Errc::kUsage, "'{}' has two types", word);
  TRY(choice, FindWeightType(part.substr(equals + 1)));
  return {};
}

}  // namespace

std::string LowTypes::text() const {
  std::string text;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (types[m] == GGML_TYPE_COUNT) continue;
    text += Format("{}{}={}", text.empty() ? "" : ",", kMatrixWords[m], ggml_type_name(types[m]));
  }
  return text;
}

Result<LowTypes> ParseLowTypes(std::string_view text) {
  LowTypeChoice all;
  std::array<LowTypeChoice, kMatrices> own;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    TRY_STATUS(ParseLowPart(text.substr(begin, end - begin), all, own));
    begin = end + 1;
  }
  LowTypes low;
  for (size_t m = 0; m < kMatrices; ++m) {
    const bool may_lack = static_cast<Matrix>(m) == Matrix::kGate;
    if (!own[m] && !all && !may_lack) {
      return Fail(Errc::kUsage, "'{}' has no type in '{}'", kMatrixWords[m], text);
    }
    low.types[m] = own[m] ? *own[m] : all.value_or(GGML_TYPE_COUNT);
  }
  return low;
}

}  // namespace moestro
