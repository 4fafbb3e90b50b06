// SPDX-License-Identifier: MIT
#include "jinja/word_wrap.h"

#include <algorithm>
#include <span>
#include <vector>

#include "jinja/characters.h"

namespace moestro::jinja {
namespace {

using Characters = std::span<const std::string_view>;

uint32_t CodeOf(std::string_view c) { return FirstCharacter(c).code_point; }
bool IsOfWord(std::string_view c) { return IsLetter(CodeOf(c)) || IsDigit(CodeOf(c)) || c == "_"; }
bool IsWordOrPunctuation(std::string_view c) {
  return IsOfWord(c) || (c.size() == 1 && std::string_view("!\"'&.,?").contains(c));
}
// Letters and "_".
bool IsLetterLike(std::string_view c) { return IsOfWord(c) && !IsDigit(CodeOf(c)); }
bool IsWrapBlank(std::string_view c) {
  return c.size() == 1 && std::string_view("\t\n\v\f\r ").contains(c);
}

// A line's words and blanks.
class ChunkReader {
 public:
  ChunkReader(Characters text, bool breaks_at_hyphens)
      : text_(text), breaks_at_hyphens_(breaks_at_hyphens) {}

  std::vector<Characters> Read() {
    std::vector<Characters> chunks;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = EndOf(at);
      chunks.push_back(text_.subspan(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  bool IsAt(size_t at, bool (*is_kind)(std::string_view)) const {
    return at < text_.size() && is_kind(text_[at]);
  }
  bool IsDash(size_t at) const { return at < text_.size() && text_[at] == "-"; }

  // Behind dashes from `at` on, two or more, before a word; 0: there are none.
  size_t EndOfDashes(size_t at) const {
    size_t end = at;
    while (IsDash(end)) ++end;
    return end >= at + 2 && IsAt(end, IsOfWord) ? end : 0;
  }
  // Whether the hyphen at `at` stands between two parts of a word.
  bool IsHyphen(size_t at) const {
    const bool is_behind_letters =
        at >= 2 && IsAt(at - 1, IsLetterLike) &&
        (IsAt(at - 2, IsLetterLike) || (at >= 3 && IsDash(at - 2) && IsAt(at - 3, IsLetterLike)));
    return is_behind_letters && IsAt(at + 1, IsLetterLike) &&
           (IsAt(at + 2, IsLetterLike) || (IsDash(at + 2) && IsAt(at + 3, IsLetterLike)));
  }

  size_t EndOf(size_t at) const {
    size_t end = at;
    while (IsAt(end, IsWrapBlank)) ++end;
    if (end > at) return end;
    if (breaks_at_hyphens_ && at > 0 && IsWordOrPunctuation(text_[at - 1])) {
      if (const size_t dashes = EndOfDashes(at)) return dashes;
    }
    for (end = at + 1; end < text_.size() && !IsWrapBlank(text_[end]); ++end) {
      if (!breaks_at_hyphens_) continue;
      if (IsDash(end) && IsHyphen(end)) return end + 1;
      if (IsWordOrPunctuation(text_[end - 1]) && EndOfDashes(end) > 0) return end;
    }
    return end;
  }

  Characters text_;
  bool breaks_at_hyphens_;
};

class LineBreaker {
 public:
  LineBreaker(std::vector<Characters> chunks, const WrapForm& form)
      : chunks_(std::move(chunks)), form_(form) {}

  std::vector<std::string> Break() {
    while (next_ < chunks_.size()) ReadLine();
    return std::move(lines_);
  }

 private:
  static bool IsBlankChunk(Characters chunk) {
    return std::ranges::all_of(chunk, [](std::string_view c) { return IsBlank(CodeOf(c)); });
  }

  void ReadLine() {
    if (!lines_.empty() && IsBlankChunk(chunks_[next_])) ++next_;
    std::vector<Characters> line;
    size_t length = 0;
    while (next_ < chunks_.size() && length + chunks_[next_].size() <= form_.width) {
      length += chunks_[next_].size();
      line.push_back(chunks_[next_++]);
    }
    if (next_ < chunks_.size() && chunks_[next_].size() > form_.width) TakeLong(line, length);
    if (!line.empty() && IsBlankChunk(line.back())) line.pop_back();
    if (line.empty()) return;
    std::string& text = lines_.emplace_back();
    for (const Characters chunk : line) {
      for (const std::string_view c : chunk) text += c;
    }
  }

  // Cuts a word for which no line has room.
  void TakeLong(std::vector<Characters>& line, size_t length) {
    Characters& chunk = chunks_[next_];
    if (!form_.breaks_long_words) {
      if (line.empty()) line.push_back(chunks_[next_++]);
      return;
    }
    const size_t room = form_.width - length;
    size_t end = room;
    if (form_.breaks_at_hyphens) {
      size_t hyphen = room;
      while (hyphen > 0 && chunk[hyphen - 1] != "-") --hyphen;
      const Characters before = chunk.first(hyphen > 0 ? hyphen - 1 : 0);
      if (std::ranges::any_of(before, [](std::string_view c) { return c != "-"; })) end = hyphen;
    }
    line.push_back(chunk.first(end));
    chunk = chunk.subspan(end);
  }

  std::vector<Characters> chunks_;
  const WrapForm& form_;
  size_t next_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace

std::string WrapWords(std::string_view text, const WrapForm& form) {
  std::string wrapped;
  bool is_first = true;
  for (const std::string_view line : SplitLines(text)) {
    if (!is_first) wrapped += form.between;
    is_first = false;
    const std::vector<std::string_view> characters = SplitCharacters(line);
    bool is_first_part = true;
    for (const std::string& part :
         LineBreaker(ChunkReader(characters, form.breaks_at_hyphens).Read(), form).Break()) {
      if (!is_first_part) wrapped += form.between;
      is_first_part = false;
      wrapped += part;
    }
  }
  return wrapped;
}

}  // namespace moestro::jinja
