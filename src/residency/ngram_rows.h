// SPDX-License-Identifier: MIT
// Rows of a table that the last tokens of a text name. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "core/ids.h"
#include "core/model_spec.h"

namespace moestro {

// Writes the rows that the last token of `text` names, [head]. Tokens before the text, and those up
// to the nearest NgramSpec::end before the last token, count as NgramSpec::end. An n-gram's hash is
// the exclusive or of its tokens times their factors, modulo 2^64. REQUIRES: the text is not empty,
// and `rows` has room for n_heads().
void NgramRows(const NgramSpec& spec, std::span<const Token> text, std::span<uint64_t> rows);

}  // namespace moestro
