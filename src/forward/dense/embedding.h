// SPDX-License-Identifier: MIT
// Looks up the input of the first layer.
#pragma once

#include <ggml.h>

#include <span>

#include "forward/dense/step_rows.h"

namespace moestro {

// Each row's token of the table [n_embd, n_vocab], in memory, times `scale` -> out [rows][n_embd].
// Any thread.
void EmbedRows(const ggml_tensor& table, float scale, std::span<const StepRow> rows, float* out);

}  // namespace moestro
