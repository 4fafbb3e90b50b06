// SPDX-License-Identifier: MIT
#include "devices/whole_layers.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/number.h"
#include "decide/layer/router.h"

namespace moestro {

bool WholeLayers::Supports(const RouterSpec& router) { return router.n_group <= 1; }

Result<std::unique_ptr<WholeLayers>> WholeLayers::Create(Parts parts) {
  std::unique_ptr<WholeLayers> whole(new WholeLayers(std::move(parts)));
  const Parts& its = whole->parts_;
  const uint64_t alignment = BackendBuffer::AlignmentOf(its.link.device().backend());
  const uint64_t list = AlignUp(its.router.n_expert * sizeof(float), alignment);
  uint64_t bytes = 0;
  whole->layers_.resize(its.biases.size());
  for (size_t l = 0; l < its.biases.size(); ++l) {
    Layer& layer = whole->layers_[l];
    layer.form = its.form_of(ExpertLayerId{static_cast<uint16_t>(l)});
    layer.table_at = std::exchange(bytes, bytes + list);
    if (!its.biases[l].logits.empty()) layer.logits_at = std::exchange(bytes, bytes + list);
    if (!its.biases[l].selection.empty()) layer.selection_at = std::exchange(bytes, bytes + list);
  }
  TRY(whole->memory_, BackendBuffer::On(its.link.device().backend(), bytes));
  return whole;
}

WholeLayers::~WholeLayers() {
  // An error has no effect: a lost device computes nothing any more.
  [[maybe_unused]] const Status ended = parts_.link.Finish();
}

Status WholeLayers::WriteBiases() {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const auto& [logits, selection] = parts_.biases[l];
    if (!logits.empty()) {
      TRY_STATUS(memory_.Write(layers_[l].logits_at, std::as_bytes(logits)));
    }
    if (!selection.empty()) {
      TRY_STATUS(memory_.Write(layers_[l].selection_at, std::as_bytes(selection)));
    }
  }
  return {};
}

Status WholeLayers::Follow(const DeviceTier& tier) {
  if (!followed_) TRY_STATUS(WriteBiases());
  if (followed_ != tier.whole().version()) {
    for (Layer& layer : layers_) layer.slots.clear();
    ++version_;
  }
  followed_ = tier.whole().version();
  has_all_ = true;
  for (uint16_t l = 0; l < layers_.size(); ++l) {
    const ExpertLayerId id{l};
    if (tier.whole().has(id) && layers_[l].slots.empty())
      TRY_STATUS(Take(id, tier.SlotsOfWhole(id)));
    layers_[l].is_whole = tier.whole().has(id) && !layers_[l].slots.empty();
    has_all_ = has_all_ && layers_[l].is_whole;
  }
  return {};
}

// Notes the slots of a layer and writes its table, if the slots are in one piece.
Status WholeLayers::Take(ExpertLayerId id, std::span<const SlotId> slots) {
  Layer& layer = layers_[id.value];
  const auto find = [&](SlotId slot) { return parts_.transport.pools().Find(layer.form, slot); };
  layer.piece = find(slots.front()).piece;
  for (const SlotId slot : slots) {
    const auto [piece, within] = find(slot);
    if (piece != layer.piece) {
      layer.slots.clear();
      return {};
    }
    layer.slots.push_back(static_cast<int32_t>(within));
  }
  layer.lies_in_order = LiesInOrder(layer);
  return memory_.Write(layer.table_at, std::as_bytes(std::span(layer.slots)));
}

Status WholeLayers::BeginLaunch() const {
  if (!parts_.fails_launch || !parts_.fails_launch()) return {};
  return Fail(Errc::kDevice, "a launch failed on purpose");
}

// Whether the slots of a layer, from its first on, are the experts in their order, and the first is
// where tensors may begin.
bool WholeLayers::LiesInOrder(const Layer& layer) const {
  for (size_t e = 0; e < layer.slots.size(); ++e) {
    if (layer.slots[e] != layer.slots.front() + static_cast<int32_t>(e)) return false;
  }
  constexpr uint64_t kAlignment = 256;
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    const ggml_tensor* pool = parts_.transport.pools().tensor(layer.form, layer.piece, m);
    if (pool == nullptr) continue;
    if (DevicePools::SliceBytes(pool) * static_cast<uint64_t>(layer.slots.front()) % kAlignment !=
        0) {
      return false;
    }
  }
  return true;
}

bool WholeLayers::ExpertsOf(ExpertLayerId id, std::span<const int32_t> numbers, bool are_experts,
                            std::vector<ExpertId>& experts) const {
  const Layer& layer = layers_[id.value];
  const size_t n_used = parts_.router.n_used;
  const size_t width = are_experts ? parts_.router.n_expert : n_used;
  experts.clear();
  const auto expert_in = [&](int32_t slot) {
    const auto guess = static_cast<size_t>(int64_t{slot} - layer.slots.front());
    if (guess < layer.slots.size() && layer.slots[guess] == slot) return guess;
    return static_cast<size_t>(std::ranges::find(layer.slots, slot) - layer.slots.begin());
  };
  for (size_t at = 0; at < numbers.size(); at += width) {
    for (const int32_t number : numbers.subspan(at, n_used)) {
      const size_t expert = are_experts ? static_cast<size_t>(number) : expert_in(number);
      if (number < 0 || expert >= layer.slots.size()) return false;
      experts.push_back(ExpertId{static_cast<uint16_t>(expert)});
    }
  }
  return true;
}

// [E] values of a layer on the device.
ggml_tensor* WholeLayers::Values(ggml_context* context, ggml_type type, uint64_t at) const {
  ggml_tensor* values = ggml_new_tensor_1d(context, type, parts_.router.n_expert);
  memory_.Place(values, at);
  return values;
}

// logits, selection [rows][E] -> [rows]: of the K chosen and the next one, neighbours in the order
// that differ. NaN if a logit is NaN or infinite.
ggml_tensor* WholeLayers::AddClear(ggml_context* context, ggml_tensor* logits,
                                   ggml_tensor* selection) const {
  const int64_t n_rows = logits->ne[1];
  const int64_t n_expert = parts_.router.n_expert;
  const int64_t n = std::min<int64_t>(int64_t{parts_.router.n_used} + 1, n_expert);
  ggml_tensor* order = ggml_argsort_top_k(context, selection, static_cast<int>(n));
  ggml_tensor* best =
      ggml_get_rows(context, ggml_reshape_3d(context, selection, 1, n_expert, n_rows), order);
  best = ggml_reshape_2d(context, best, n, n_rows);
  const auto part = [&](size_t from) {
    return ggml_cont(context,
                     ggml_view_2d(context, best, n - 1, n_rows, best->nb[1], from * sizeof(float)));
  };
  ggml_tensor* differ = ggml_step(context, ggml_sub(context, part(0), part(1)));
  ggml_tensor* nothing = ggml_scale(context, ggml_sum_rows(context, logits), 0.0F);
  return ggml_add(context, ggml_sum_rows(context, differ), nothing);
}

WholeLayers::Choice WholeLayers::AddChoice(ggml_context* context, ExpertLayerId id,
                                           ggml_tensor* logits, bool with_clear) const {
  const RouterSpec& router = parts_.router;
  const Layer& layer = layers_[id.value];
  const auto& biases = parts_.biases[id.value];
  const int64_t n_rows = logits->ne[1];
  const int64_t n_expert = router.n_expert;
  const int64_t n_used = router.n_used;
  if (!biases.logits.empty()) {
    logits = ggml_add(context, logits, Values(context, GGML_TYPE_F32, layer.logits_at));
  }
  ggml_tensor* probabilities = logits;
  if (router.gating == Gating::kSoftmax) probabilities = ggml_soft_max(context, logits);
  if (router.gating == Gating::kSigmoid) probabilities = ggml_sigmoid(context, logits);
  if (router.gating == Gating::kSoftplusRoot) {
    probabilities = ggml_sqrt(context, ggml_softplus(context, logits));
  }
  ggml_tensor* selection = probabilities;
  if (!biases.selection.empty()) {
    selection = ggml_add(context, selection, Values(context, GGML_TYPE_F32, layer.selection_at));
  }
  Choice choice;
  if (with_clear) choice.clear = AddClear(context, logits, selection);
  choice.experts = ggml_argsort_top_k(context, selection, static_cast<int>(n_used));
  choice.order = choice.experts->view_src;
  // Stage: weights [1, K, rows].
  ggml_tensor* weights = ggml_get_rows(
      context, ggml_reshape_3d(context, probabilities, 1, n_expert, n_rows), choice.experts);
  if (router.gating == Gating::kSoftmaxOfChosen) {
    weights = ggml_soft_max(context, ggml_reshape_2d(context, weights, n_used, n_rows));
    weights = ggml_reshape_3d(context, weights, 1, n_used, n_rows);
  }
  if (router.renormalise) {
    weights = ggml_reshape_2d(context, weights, n_used, n_rows);
    ggml_tensor* sums = ggml_clamp(context, ggml_sum_rows(context, weights), kSmallestSum,
                                   std::numeric_limits<float>::infinity());
    weights = ggml_reshape_3d(context, ggml_div(context, weights, sums), 1, n_used, n_rows);
  }
  if (router.weight_scale != 0.0F && router.weight_scale != 1.0F) {
    weights = ggml_scale(context, weights, router.weight_scale);
  }
  choice.weights = weights;
  if (layer.lies_in_order && !with_clear) return choice;
  // Stage: slots [1, K, rows]. All rows have the same table.
  ggml_tensor* table = ggml_new_tensor_3d(context, GGML_TYPE_I32, 1, n_expert, n_rows);
  table->nb[2] = table->nb[3] = 0;
  memory_.Place(table, layer.table_at);
  choice.slots = ggml_get_rows(context, table, choice.experts);
  return choice;
}

// The tensors of a layer's experts, by expert. REQUIRES: the experts lie in order.
ExpertTensors WholeLayers::TensorsByExpert(ggml_context* context, ExpertLayerId id) const {
  const Layer& layer = layers_[id.value];
  ExpertTensors tensors = parts_.transport.tensors(id, layer.form, layer.piece);
  for (ggml_tensor*& pool : tensors.matrix) {
    if (pool == nullptr) continue;
    pool =
        ggml_view_3d(context, pool, pool->ne[0], pool->ne[1], parts_.router.n_expert, pool->nb[1],
                     pool->nb[2], static_cast<size_t>(layer.slots.front()) * pool->nb[2]);
  }
  return tensors;
}

ggml_tensor* WholeLayers::AddExperts(ggml_context* context, ggml_cgraph* graph, ExpertLayerId id,
                                     ggml_tensor* x, const Choice& choice) const {
  const Layer& layer = layers_[id.value];
  const bool by_expert = choice.slots == nullptr;
  const ExpertTensors tensors = by_expert ? TensorsByExpert(context, id)
                                          : parts_.transport.tensors(id, layer.form, layer.piece);
  ggml_tensor* slots =
      by_expert ? choice.experts
                : ggml_reshape_2d(context, choice.slots, choice.slots->ne[1], choice.slots->ne[2]);
  ggml_tensor* y =
      AddProducts(context, graph, tensors, ggml_reshape_3d(context, x, x->ne[0], 1, x->ne[1]),
                  {.slots = slots, .experts = choice.experts});
  return ggml_mul(context, y, choice.weights);
}

}  // namespace moestro
