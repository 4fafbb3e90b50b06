// SPDX-License-Identifier: MIT
// Rows through a layer that predicts further tokens. Its row at a position has that position's
// token and the last layer's output of the row before, and predicts the token behind. All rows of a
// text have keys and values there, which need neither attention's result nor experts; only drafts
// need the layer's output. Nothing here changes what the other layers compute.

#include <algorithm>
#include <array>

#include "base/result.h"
#include "forward/forward.h"

namespace moestro {

Forward::Forward(const ForwardParts& parts) : parts_(parts), router_(parts), experts_(parts) {
  if (!parts.spec.predicts()) return;
  carried_.emplace(parts.spec.n_embd);
  predicted_.resize(parts.spec.n_embd);
}

Status Forward::Follow(std::span<const StepRow> rows) {
  const uint32_t n_embd = parts_.spec.n_embd;
  carried_->Shift(rows, {parts_.buffers.hidden(), rows.size() * n_embd});
  TRY_STATUS(parts_.graph.JoinPrediction(rows, LayerGraph::HiddenOf::kLast));
  return parts_.graph.Attend(LayerId{static_cast<uint16_t>(parts_.spec.n_main_layer())});
}

Result<Token> Forward::PredictNext(const StepRow& row, bool is_first) {
  const ModelSpec& spec = parts_.spec;
  const std::array rows{row};
  constexpr std::array kKinds{RowKind::kDecode};
  const LittleStep all{};
  if (is_first) carried_->Read(row.sequence, row.position - 1, predicted_);
  TRY_STATUS(parts_.graph.SetRows(rows));
  std::ranges::copy(predicted_, parts_.buffers.hidden());
  TRY_STATUS(parts_.graph.JoinPrediction(
      rows, is_first ? LayerGraph::HiddenOf::kLast : LayerGraph::HiddenOf::kPredicting));
  Pass pass{.rows = rows,
            .kinds = kKinds,
            .little = all,
            .decodes = true,
            .layers = {.first = static_cast<uint16_t>(spec.n_main_layer()),
                       .end = static_cast<uint16_t>(spec.n_layer())},
            .predicts = true};
  TRY_STATUS(RunLayers(pass));
  std::copy_n(parts_.buffers.hidden(), predicted_.size(), predicted_.begin());
  TRY_STATUS(parts_.graph.PredictionHead());
  const std::span logits(parts_.buffers.logits(), spec.n_vocab);
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace moestro
