// SPDX-License-Identifier: MIT
#include "text/draft_options.h"

#include <charconv>
#include <system_error>

namespace moestro {
namespace {

constexpr uint32_t kMostDrafted = 16;

}  // namespace

Result<DraftOptions> ParseDraft(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  DraftOptions options;
  if (name == "little") options = {.kind = DraftKind::kLittle, .most = 4};
  if (name == "ngram") options = {.kind = DraftKind::kNgram, .most = 8};
  if (!options.is_on()) {
    return Fail(Errc::kUsage, "'{}' drafts nothing; write little or ngram", name);
  }
  if (colon == std::string_view::npos) return options;
  const std::string_view number = text.substr(colon + 1);
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, options.most);
  if (error == std::errc{} && stop == end && options.most > 0 && options.most <= kMostDrafted) {
    return options;
  }
  return Fail(Errc::kUsage, "'{}' is no number of tokens from 1 to {}", number, kMostDrafted);
}

}  // namespace moestro
