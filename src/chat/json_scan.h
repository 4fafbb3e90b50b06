// SPDX-License-Identifier: MIT
// Finds the end of a JSON value in a text that is still being written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace moestro {

enum class Scan : uint8_t {
  kWhole,
  kOpen,  // the text ends within the value
  kBroken,
};

struct JsonScan {
  Scan state = Scan::kOpen;
  // The value's length if it is whole, else the length of the part that certainly belongs to the
  // value: never less for more text.
  size_t length = 0;
};

// `text` begins with the value, perhaps after blanks, which count. A number is whole only when
// another character follows. Any depth: the scan does not recurse.
JsonScan ScanJson(std::string_view text);

// The part of a value in another spelling than JSON's that was read.
struct SpelledScan {
  Scan state = Scan::kOpen;
  size_t length = 0;  // bytes of the value if it is whole, else of the part that was read
  // The value as JSON, as far as it is certain; more text never changes this beginning.
  std::string json;
};

// Scans a value in such a spelling part by part. Any depth: the scan does not recurse.
class SpelledScanner {
 public:
  SpelledScanner(const SpelledScanner&) = delete;
  SpelledScanner& operator=(const SpelledScanner&) = delete;
  virtual ~SpelledScanner() = default;

  // Scans the text. Called once.
  SpelledScan Run();

 protected:
  SpelledScanner(std::string_view text, std::string json, std::string open)
      : json_(std::move(json)), open_(std::move(open)), text_(text) {}

  std::string_view rest() const { return text_.substr(at_); }
  // Reads one part, which begins with `c`; kWhole: go on, unless all brackets are closed.
  virtual Scan Next(char c) = 0;
  // Passes `length` bytes, which are `json` in JSON.
  void Add(std::string_view json, size_t length) {
    json_ += json;
    at_ += length;
  }

  std::string json_;
  std::string open_;  // brackets that are not closed

 private:
  std::string_view text_;
  size_t at_ = 0;
};

inline constexpr std::string_view kBlanks = " \t\r\n";
// The bytes of blanks that `text` begins with.
size_t CountBlanks(std::string_view text);

// Objects as Gemma 4 spells the arguments of a call: keys without quotes, strings between marks.

// Whether a key can be written without quotes: not empty, no mark of the spelling, no blank at its
// beginning, not longer than a sentence.
bool IsMarkedKey(std::string_view key);

// `text` begins with the object's brace. REQUIRES: `mark` is not empty.
SpelledScan ScanMarked(std::string_view text, std::string_view mark);

}  // namespace moestro
