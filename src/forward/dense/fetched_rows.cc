// SPDX-License-Identifier: MIT
#include "forward/dense/fetched_rows.h"

namespace moestro {

void FetchedRows::AddAll(uint64_t bytes, Border& border) const {
  border.reads.push_back(buffers_->ToMemory(StepBuffers::kResidual, bytes));
  border.reads.push_back(buffers_->ToMemory(StepBuffers::kFfnIn, bytes));
  if (has_shared_) border.reads.push_back(buffers_->ToMemory(StepBuffers::kShared, bytes));
}

void FetchedRows::AddLikely(size_t layer, uint64_t bytes, Border& border) {
  // Rows beyond these take longer to copy than a wait.
  constexpr uint64_t kFew = uint64_t{128} << 10;
  layer_ = layer;
  are_here_ = were_fetched_[layer] && bytes <= kFew;
  if (are_here_) AddAll(bytes, border);
}

Status FetchedRows::Fetch(uint64_t bytes, DeviceLink& link) {
  were_fetched_[layer_] = true;
  if (are_here_) return {};
  Border border;
  AddAll(bytes, border);
  TRY_STATUS(link.Cross(border));
  are_here_ = true;
  return {};
}

}  // namespace moestro
