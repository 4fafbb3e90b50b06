// SPDX-License-Identifier: MIT
#include "model/text_cut.h"

#include <algorithm>
#include <array>

namespace moestro {
namespace {

// Size of the hashed set of pairs. A pair outside the vocabulary is taken for a member with the
// probability that a bit is set: 20 % with the 230,000 pairs of 32,000 tokens. That only costs
// places to cut.
constexpr size_t kPairBits = size_t{1} << 20;

constexpr uint32_t kSpaceMark = 0x2581;  // stands for a space in SentencePiece's tokens

// Names of pre-tokenizers by what holds for all their expressions. Others, such as superbpe,
// exaone-moe and the bloom family, join words or leave characters out.
constexpr std::array<std::string_view, 2> kLetterNames = {"deepseek-llm", "deepseek-coder"};
constexpr std::array<std::string_view, 35> kVisibleNames = {
    "",           "default",   "llama3",      "llama-v3",    "llama-bpe",
    "gpt-2",      "phi-2",     "olmo",        "qwen2",       "deepseek-r1-qwen",
    "qwen35",     "dbrx",      "smaug-bpe",   "stablelm2",   "starcoder",
    "refact",     "command-r", "smollm",      "codeshell",   "mpt",
    "falcon",     "jais",      "glm4",        "chatglm-bpe", "tekken",
    "gpt-4o",     "llama4",    "deepseek-v3", "hunyuan",     "hunyuan-dense",
    "bailingmoe", "llada-moe", "seed-coder",  "minimax-m2",  "grok-2"};

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// The character that begins at `at`, and its length in bytes. Bytes that are not UTF-8 also give a
// character: tokenizing refuses the part later.
struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
};
Character CharacterAt(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  size_t bytes = 1;
  uint32_t code = lead;
  if (lead >= 0xF0) {
    bytes = 4;
    code = lead & 0x07U;
  } else if (lead >= 0xE0) {
    bytes = 3;
    code = lead & 0x0FU;
  } else if (lead >= 0xC0) {
    bytes = 2;
    code = lead & 0x1FU;
  }
  bytes = std::min(bytes, text.size() - at);
  for (size_t i = 1; i < bytes; ++i) {
    code = code << 6U | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  }
  return {.code = code, .bytes = bytes};
}

uint32_t CodeBefore(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && IsContinuation(text[begin])) --begin;
  return CharacterAt(text, begin).code;
}

bool IsAsciiLetter(uint32_t code) {
  return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}

bool IsAsciiSpace(uint32_t code) { return code == ' ' || (code >= '\t' && code <= '\r'); }

// Neither a control character nor any of Unicode's white space; some that are visible are left out.
bool IsVisible(uint32_t code) {
  if (code < 0x80) return code > ' ' && code < 0x7F;
  return code > 0xA0 && code != 0x1680 && code != 0x180E && code != 0x3000 &&
         (code < 0x2000 || code > 0x206F);
}

bool EndsLetters(uint32_t before, uint32_t after) {
  return IsAsciiLetter(before) && (after == ' ' || after == '\n' || after == '\r' || after == '\t');
}

// After a single line break. Some expressions continue signs and a line break with '/'.
bool FollowsLineBreak(std::string_view text, size_t at, uint32_t after) {
  return at >= 2 && text[at - 1] == '\n' && IsVisible(CodeBefore(text, at - 1)) &&
         IsVisible(after) && after != '/';
}

}  // namespace

TextCutter::Kind TextCutter::KindOfPreTokenizer(std::string_view name) {
  if (std::ranges::contains(kVisibleNames, name)) return Kind::kAfterVisible;
  if (std::ranges::contains(kLetterNames, name)) return Kind::kAfterLetters;
  return Kind::kNowhere;
}

std::vector<std::string> TextCutter::PreTokenizers() {
  std::vector<std::string> names(kVisibleNames.begin(), kVisibleNames.end());
  names.insert(names.end(), kLetterNames.begin(), kLetterNames.end());
  return names;
}

TextCutter::TextCutter(Kind kind) : kind_(kind) {
  if (kind == Kind::kSentencePiece) pairs_.resize(kPairBits / 64);
}

size_t TextCutter::PairBit(uint32_t before, uint32_t after) const {
  const uint64_t pair = uint64_t{before} << 32U | after;
  return static_cast<size_t>((pair * 0x9E3779B97F4A7C15U) >> 32U) % kPairBits;
}

void TextCutter::AddToken(std::string_view text) {
  if (kind_ != Kind::kSentencePiece || text.empty()) return;
  Character before = CharacterAt(text, 0);
  for (size_t at = before.bytes; at < text.size();) {
    const Character after = CharacterAt(text, at);
    const size_t bit = PairBit(before.code, after.code);
    pairs_[bit / 64] |= uint64_t{1} << (bit % 64);
    at += after.bytes;
    before = after;
  }
}

void TextCutter::AddSpecial(std::string_view text) {
  if (text.empty()) return;
  specials_.emplace_back(text);
  longest_special_ = std::max(longest_special_, text.size());
}

size_t TextCutter::LastCut(std::string_view text, size_t first, size_t last) const {
  if (kind_ == Kind::kNowhere) return 0;
  for (size_t at = last; at > first; --at) {
    if (IsCut(text, at)) return at;
  }
  return 0;
}

bool TextCutter::IsCut(std::string_view text, size_t at) const {
  if (IsContinuation(text[at])) return false;
  const uint32_t before = CodeBefore(text, at);
  const uint32_t after = CharacterAt(text, at).code;
  if (kind_ == Kind::kSentencePiece) {
    const auto marked = [](uint32_t code) { return code == ' ' ? kSpaceMark : code; };
    const size_t bit = PairBit(marked(before), marked(after));
    if ((pairs_[bit / 64] >> (bit % 64) & 1U) != 0) return false;
    // Some special tokens take the white space around them.
    return !IsAsciiSpace(before) && !TouchesSpecial(text, at);
  }
  if (kind_ == Kind::kAtLines) {
    return (before == '\n') != (after == '\n') && !TouchesSpecial(text, at);
  }
  const bool ends_word = EndsLetters(before, after) ||
                         (kind_ == Kind::kAfterVisible && ((IsVisible(before) && after == ' ') ||
                                                           FollowsLineBreak(text, at, after)));
  return ends_word && !TouchesSpecial(text, at);
}

// Whether a special token's text begins, ends or lies across `at`.
bool TextCutter::TouchesSpecial(std::string_view text, size_t at) const {
  return std::ranges::any_of(specials_, [&](const std::string& special) {
    const size_t begin = at - std::min(at, special.size());
    return text.substr(begin, at + special.size() - begin).contains(special);
  });
}

}  // namespace moestro
