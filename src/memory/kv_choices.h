// SPDX-License-Identifier: MIT
// Settings of a run that decide the bits of keys and values, beside weights and tokens: by name, as
// a saved sequence stores them. docs/sequence-format.md lists all flags and whether they count.
// Pure values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

class KvChoices {
 public:
  // REQUIRES: names and values have no line break; a name has no space and comes once.
  void Add(std::string_view name, std::string value);
  // A line for each: name, space, value. Empty: everything is as without flags.
  std::string text() const;

  // The first difference between two texts, as the rest of a sentence about a file that was saved
  // with `saved` and is offered to a run with `ours`: "was saved with --t1 0.5, and this run has
  // --t1 0.6; ...". Empty: no difference. Lines that begin with a word of `ignored` do not count.
  static std::string Difference(std::string_view saved, std::string_view ours,
                                std::string_view ignored = {});
  // The value of a name in a text; empty if the text lacks the name.
  static std::string_view Find(std::string_view text, std::string_view name);

 private:
  std::vector<std::pair<std::string, std::string>> choices_;
};

// The name of the processor's kernels among the choices. Different kernels differ by roundings
// alone, so a file that the user named is accepted with a warning.
inline constexpr std::string_view kKernelsChoice = "kernels";

}  // namespace moestro
