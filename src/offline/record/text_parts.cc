// SPDX-License-Identifier: MIT
#include "offline/record/text_parts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "model/vocab.h"
#include "text/text_file.h"
#include "text/text_tokens.h"

namespace moestro {

Result<std::vector<NamedTokens>> TokenizeTexts(const std::vector<std::string>& paths, uint32_t most,
                                               const EngineOptions& options, const GgufFile& file) {
  std::vector<NamedTokens> all;
  if (paths.empty()) return all;
  TRY(const Vocab vocab, Vocab::Load(file));
  for (const std::string& path : paths) {
    TRY(TextSource source, OpenText(path));
    TRY(std::vector<Token> tokens, TokenizeText(vocab, std::move(source), path, most, options));
    all.push_back(
        {.name = std::filesystem::path(path).filename().string(), .tokens = std::move(tokens)});
  }
  return all;
}

Status ForEachPart(std::span<const NamedTokens> texts, size_t n_ctx, const Progress& progress,
                   const std::function<Status(std::span<const Token> part)>& evaluate) {
  for (const NamedTokens& text : texts) {
    std::span<const Token> rest = text.tokens;
    while (!rest.empty()) {
      const auto part = rest.first(std::min(rest.size(), n_ctx));
      TRY_STATUS(evaluate(part));
      rest = rest.subspan(part.size());
      if (progress) {
        progress(text.name.c_str(), text.tokens.size() - rest.size(), text.tokens.size());
      }
    }
  }
  return {};
}

}  // namespace moestro
