// SPDX-License-Identifier: MIT
#include "native/dense_reads.h"

#include <algorithm>
#include <map>

namespace moestro {

DenseReads DenseReads::Of(const ModelWeights& weights, const ModelSpec& spec,
                          const MemoryShape& remembers) {
  const uint64_t table = weights.token_embd->extent.length;
  const uint64_t head = weights.output->extent.length;
  // A tied output is the table of embeddings, which counts once.
  const uint64_t apart = spec.tied_output ? head : head + table;
  return {.weights = weights.dense_bytes() - apart,
          .head = head,
          .embedding = table / spec.n_vocab,
          .position = remembers.position_bytes(),
          .state = 2 * remembers.state_bytes()};
}

uint64_t DenseReads::OfPass(std::span<const BatchRow> rows) const {
  std::map<SequenceId, uint32_t> visited;
  for (const BatchRow& row : rows) {
    uint32_t& length = visited[row.sequence];
    length = std::max(length, row.position + 1);
  }
  uint64_t bytes = weights + rows.size() * embedding;
  if (std::ranges::contains(rows, true, &BatchRow::wants_logits)) bytes += head;
  for (const auto& [sequence, length] : visited) bytes += length * position + state;
  return bytes;
}

}  // namespace moestro
