// SPDX-License-Identifier: MIT
// Finds the name that a mistyped name stands for. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// The number of single bytes to insert, leave out, exchange or swap with their neighbour to make
// `b` of `a`, none of them twice (optimal string alignment). std::nullopt: more than `most`, which
// shows after at most (a.size() + 1) * (2 * most + 1) comparisons.
std::optional<size_t> EditDistance(std::string_view a, std::string_view b, size_t most);

// The nearest of `names`, the first of several: at most a third of its bytes differ, or `typed` is
// its beginning, three bytes or more. Dashes in front of both count for nothing. std::nullopt: no
// name is near. The work is bounded by the lengths of the names, however long `typed` is.
std::optional<std::string> NearestName(std::string_view typed, std::span<const std::string> names);

// The nearest of `words` to `word` by the number of differing letters, at most `most`; dissimilar
// words are left out. Large and small letters are alike.
std::vector<std::string> NearestWords(std::string_view word, std::span<const std::string> words,
                                      size_t most);

// "; nearest: a, b, c" for the end of a message; empty if no word is similar.
std::string NearestText(std::string_view word, std::span<const std::string> words);

}  // namespace moestro
