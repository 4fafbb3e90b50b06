// SPDX-License-Identifier: MIT
#include "forward/dense/dense_nodes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/product_node.h"

namespace moestro {

Status DenseNodes::MakeMixers(MixerParts from, const MakeStateMixer& make_state) {
  from.norm = parts_.is_on_device ? nullptr : &norm_;
  const std::vector<LayerSpec>& layers = parts_.spec.layers;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (!layers[l].has_mixer()) {
      mixer_of_.push_back(nullptr);
      continue;
    }
    const auto alike = std::ranges::find(layers, layers[l].mixer, &LayerSpec::mixer);
    const auto first = static_cast<size_t>(alike - layers.begin());
    if (first < l) {
      mixer_of_.push_back(mixer_of_[first]);
      continue;
    }
    from.n_cells = parts_.kv.cells_of(static_cast<uint32_t>(l));
    TRY(std::unique_ptr<Mixer> mixer, MakeMixer(from, layers[l].mixer, make_state));
    mixer_of_.push_back(mixer.get());
    mixers_.push_back(std::move(mixer));
  }
  return {};
}

uint32_t DenseNodes::LayerOf(const Mixer& mixer) const {
  return static_cast<uint32_t>(std::ranges::find(mixer_of_, &mixer) - mixer_of_.begin());
}

uint32_t DenseNodes::LayersAhead(LayerId layer, uint32_t look_ahead) const {
  const uint32_t first = parts_.spec.expert_layers_before(layer.value + 1U);
  const uint32_t end = parts_.spec.n_main_expert_layers();
  return std::min(look_ahead, end - std::min(end, first));
}

// Rows of StepBuffers, [rows][width].
ggml_tensor* DenseNodes::Region(StepBuffers::Region where, StepRows rows, uint32_t width) const {
  ggml_tensor* x = ggml_new_tensor_2d(parts_.graphs.context(), GGML_TYPE_F32, width, rows.count);
  parts_.buffers.Place(x, where, rows.first * x->nb[1]);
  return x;
}

DenseNodes::LayerEnd DenseNodes::WithPartial(StepRows rows) const {
  return {.hidden = ggml_add(parts_.graphs.context(), Region(StepBuffers::kHidden, rows),
                             Region(StepBuffers::kPartial, rows))};
}

// The streams that come into a layer, or into the head behind the last layer, [rows][n_residual]:
// copies of the embedding, or those of the layer before with the result of its feed-forward part.
ggml_tensor* DenseNodes::Streams(uint32_t layer, StepRows rows) {
  ggml_context* ctx = parts_.graphs.context();
  ggml_tensor* hidden = Region(StepBuffers::kHidden, rows);
  if (layer == 0) return streams_->Begin(ctx, hidden);
  return streams_->Leave(
      ctx, {.y = hidden,
            .streams = Region(StepBuffers::kResidual, rows, parts_.spec.n_residual()),
            .weights = Region(StepBuffers::kStreamWeights, rows, streams_->n_weights())});
}

// The input of a layer, or of the head behind the last layer: hidden [rows][n_embd].
ggml_tensor* DenseNodes::Input(uint32_t layer, StepRows rows, const LayerEnd& before) {
  const auto value = [&](ggml_tensor* in_graph, StepBuffers::Region region) {
    return in_graph != nullptr ? in_graph : Region(region, rows);
  };
  ggml_tensor* x = value(before.hidden, StepBuffers::kHidden);
  if (!BringsParts(layer)) return x;
  const bool has_shared = parts_.spec.adds_shared_in_next(layer - 1);
  return EndLayer(parts_.graphs.context(), parts_.tensors.layers[layer - 1],
                  {.y = x,
                   .shared = has_shared ? value(before.shared, StepBuffers::kShared) : nullptr,
                   .residual = value(before.residual, StepBuffers::kResidual),
                   .n_latent = parts_.spec.layers[layer - 1].feed_forward.n_latent,
                   .eps = parts_.spec.rms_eps});
}

void DenseNodes::OutputAt(ggml_tensor* result, StepBuffers::Region region, uint64_t bytes) {
  // A view has no memory of its own: its source gets the place.
  parts_.buffers.Place(result->view_src != nullptr ? result->view_src : result, region, bytes);
  ggml_build_forward_expand(parts_.graphs.graph(), result);
}

void DenseNodes::LookAhead(LayerId layer, ggml_tensor* ffn_in, uint32_t look_ahead, StepRows rows) {
  const uint32_t first = parts_.spec.expert_layers_before(layer.value + 1U);
  const uint32_t layers = LayersAhead(layer, look_ahead);
  if (layers == 0) return;
  CHECK(parts_.look_ahead != nullptr);
  ggml_context* ctx = parts_.graphs.context();
  if (n_step_rows_ == 1 || parts_.is_on_device) {  // a device's logits are sorted after fetching
    Output(MultiplyNode(ctx, parts_.look_ahead->Stack(ctx, first, layers), ffn_in),
           StepBuffers::kAhead, rows.first);
    return;
  }
  for (uint32_t i = 0; i < layers; ++i) {  // a product per layer keeps the layer's rows together
    ggml_tensor* logits = MultiplyNode(ctx, parts_.look_ahead->Stack(ctx, first + i, 1), ffn_in);
    Output(logits, StepBuffers::kAhead, i * n_step_rows_ + rows.first);
  }
}

// x [rows][n_embd], each row's position, and the cell that its key and value go to.
MixerGraph DenseNodes::MixerGraphOf(LayerId layer, ggml_tensor* x, StepRows rows) {
  ggml_context* ctx = parts_.graphs.context();
  const MixerGraph in{.ctx = ctx,
                      .graph = parts_.graphs.graph(),
                      .layer = layer,
                      .first = rows.first,
                      .x = x,
                      .positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, rows.count),
                      .cells = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, rows.count)};
  const bool is_recent = parts_.kv.is_recent(layer.value);
  parts_.buffers.Place(in.positions, StepBuffers::kPositions, rows.first * sizeof(int32_t));
  parts_.buffers.Place(in.cells, is_recent ? StepBuffers::kRecentCells : StepBuffers::kCells,
                       rows.first * sizeof(int64_t));
  return in;
}

// hidden [rows][n_embd] -> keys and values of a layer that attends to the source.
void DenseNodes::Source(LayerId layer, StepRows rows) {
  ggml_tensor* x = RmsNorm(parts_.graphs.context(), Region(StepBuffers::kHidden, rows),
                           parts_.tensors.encoder_norm, nullptr, parts_.spec.rms_eps);
  mixer_of_[layer.value]->BuildSource(parts_.tensors.layers[layer.value],
                                      MixerGraphOf(layer, x, rows));
}

DenseNodes::LayerValues DenseNodes::Layer(LayerId layer, StepRows rows, const LayerWish& wish,
                                          const LayerEnd& before) {
  if (streams_) return LayerOfStreams(layer, rows, wish);
  ggml_context* ctx = parts_.graphs.context();
  const LayerTensors& w = parts_.tensors.layers[layer.value];
  const MixerGraph in = MixerGraphOf(layer, Input(layer.value, rows, before), rows);

  // mixed = mixer(norm(hidden)) [rows][n_embd], attended = hidden + mixed; without a mixer a copy
  // of hidden.
  Mixer* const mixer = mixer_of_[layer.value];
  ggml_tensor* mixed = mixer != nullptr ? mixer->Build(w, in) : nullptr;
  if (parts_.spec.has_experts(layer.value) && CanSumAndNorm(w, mixed)) {
    ggml_tensor* attended = Region(StepBuffers::kResidual, rows);
    ggml_tensor* ffn_in = SumAndNorm(ctx, norm_, mixed, in.x, w.ffn_norm, attended);
    ggml_build_forward_expand(parts_.graphs.graph(),
                              ffn_in);  // runs before nodes that read `attended`
    return InputsOfExperts(layer, attended, ffn_in, rows, wish);
  }
  ggml_tensor* attended = mixed != nullptr
                              ? AddResidual(ctx, mixed, in.x, parts_.spec.residual_scale)
                              : ggml_cont(ctx, in.x);
  if (!parts_.spec.layers[layer.value].feed_forward.is_there()) {
    Output(attended, StepBuffers::kHidden, rows.first);
    return {.hidden = attended};
  }
  // A layer without a mixer has one norm, which every family calls attention's.
  ggml_tensor* norm = w.ffn_norm != nullptr ? w.ffn_norm : w.attn_norm;
  ggml_tensor* ffn_in = RmsNorm(ctx, attended, norm, w.ffn_norm_b, parts_.spec.rms_eps);
  if (!parts_.spec.has_experts(layer.value)) return DenseBlock(layer, attended, ffn_in, rows);
  const LayerValues values = InputsOfExperts(layer, attended, ffn_in, rows, wish);
  Output(attended, StepBuffers::kResidual, rows.first);
  return values;
}

// A layer of several residual streams. The next layer adds the feed-forward part's result, which a
// dense block leaves in hidden.
DenseNodes::LayerValues DenseNodes::LayerOfStreams(LayerId layer, StepRows rows,
                                                   const LayerWish& wish) {
  using Half = HyperConnections::Half;
  ggml_context* ctx = parts_.graphs.context();
  const LayerTensors& w = parts_.tensors.layers[layer.value];
  // Stage: streams [rows][n_residual] -> x, mixed [rows][n_embd] -> streams.
  ggml_tensor* streams = Streams(layer.value, rows);
  if (parts_.spec.layers[layer.value].ngram_values > 0) {
    streams = parts_.ngrams->Build(ctx, w, streams);
  }
  HyperConnections::Entered half = streams_->Enter(ctx, w, Half::kMixer, streams);
  ggml_tensor* mixed = mixer_of_[layer.value]->Build(w, MixerGraphOf(layer, half.x, rows));
  streams = streams_->Leave(ctx, {.y = mixed, .streams = streams, .weights = half.weights});
  // Stage: streams -> ffn_in [rows][n_embd].
  half = streams_->Enter(ctx, w, Half::kFeedForward, streams);
  Output(streams, StepBuffers::kResidual, rows.first);
  Output(half.weights, StepBuffers::kStreamWeights, rows.first);
  ggml_tensor* ffn_in = RmsNorm(ctx, half.x, w.ffn_norm, w.ffn_norm_b, parts_.spec.rms_eps);
  if (parts_.spec.has_experts(layer.value)) {
    return InputsOfExperts(layer, half.x, ffn_in, rows, wish);
  }
  const float limit = parts_.spec.layers[layer.value].feed_forward.limit_shared;
  ggml_tensor* ffn = DenseFfn(ctx, parts_.spec.experts.activation, limit, w, ffn_in);
  Output(ffn, StepBuffers::kHidden, rows.first);
  return {.hidden = ffn};
}

// Whether one node adds a mixer's result to the input and norms the sum.
bool DenseNodes::CanSumAndNorm(const LayerTensors& w, const ggml_tensor* mixed) const {
  return !parts_.is_on_device && mixed != nullptr && ggml_is_contiguous(mixed) &&
         parts_.spec.residual_scale == 1.0F && w.ffn_norm != nullptr && w.ffn_norm_b == nullptr;
}

// A feed-forward block without experts: attended, ffn_in [rows][n_embd] -> the next layer's input.
DenseNodes::LayerValues DenseNodes::DenseBlock(LayerId layer, ggml_tensor* attended,
                                               ggml_tensor* ffn_in, StepRows rows) {
  ggml_context* ctx = parts_.graphs.context();
  const LayerTensors& w = parts_.tensors.layers[layer.value];
  const float limit = parts_.spec.layers[layer.value].feed_forward.limit_shared;
  ggml_tensor* ffn = DenseFfn(ctx, parts_.spec.experts.activation, limit, w, ffn_in);
  if (w.ffn_post_norm != nullptr) {
    ffn = RmsNorm(ctx, ffn, w.ffn_post_norm, nullptr, parts_.spec.rms_eps);
  }
  ffn = AddResidual(ctx, ffn, attended, parts_.spec.residual_scale);
  if (w.output_scale != nullptr) ffn = ggml_mul(ctx, ffn, w.output_scale);
  Output(ffn, StepBuffers::kHidden, rows.first);
  return {.hidden = ffn};
}

// attended, ffn_in [rows][n_embd] -> the experts' inputs but the residual.
DenseNodes::LayerValues DenseNodes::InputsOfExperts(LayerId layer, ggml_tensor* attended,
                                                    ggml_tensor* ffn_in, StepRows rows,
                                                    const LayerWish& wish) {
  ggml_context* ctx = parts_.graphs.context();
  const LayerTensors& w = parts_.tensors.layers[layer.value];
  const Activation activation = parts_.spec.experts.activation;
  const float limit = parts_.spec.layers[layer.value].feed_forward.limit_shared;
  // The experts' input [rows][n_embd_expert].
  ggml_tensor* expert_in = ffn_in;
  if (w.experts_norm != nullptr) {
    expert_in = RmsNorm(ctx, attended, w.experts_norm, nullptr, parts_.spec.rms_eps);
  }
  if (w.latent_down != nullptr) expert_in = Linear(ctx, w.latent_down, expert_in, nullptr);
  Output(expert_in, StepBuffers::kFfnIn, rows.first);
  // The router's logits [rows][n_expert] of this layer and of layers ahead, without biases.
  ggml_tensor* router_in = ffn_in;
  ggml_tensor* ahead_in = ffn_in;
  if (w.router_scale != nullptr) {  // layers looked ahead have scales of their own
    const float unit = 1.0F / std::sqrt(static_cast<float>(parts_.spec.n_embd));
    ahead_in = ggml_scale(ctx, ggml_rms_norm(ctx, attended, parts_.spec.rms_eps), unit);
    router_in = ggml_mul(ctx, ahead_in, w.router_scale);
  }
  ggml_tensor* logits = Linear(ctx, w.router, router_in, nullptr);
  OutputAt(logits, wish.logits, wish.logits_at + rows.first * logits->nb[1]);
  LookAhead(layer, ahead_in, wish.look_ahead, rows);
  // The shared expert's result, which is added to the experts' results, [rows][n_embd].
  ggml_tensor* shared = nullptr;
  if (w.shared_up != nullptr) {
    shared = SharedExpert(ctx, activation, limit, w, ffn_in);
    if (parts_.spec.residual_scale != 1.0F)
      shared = ggml_scale(ctx, shared, parts_.spec.residual_scale);
    Output(shared, StepBuffers::kShared, rows.first);
  } else if (w.dense_up != nullptr) {  // a dense block beside the experts
    shared = DenseFfn(ctx, activation, limit, w, ffn_in);
    shared = RmsNorm(ctx, shared, w.dense_post_norm, nullptr, parts_.spec.rms_eps);
    Output(shared, StepBuffers::kShared, rows.first);
  }
  return {.attended = attended, .expert_in = expert_in, .logits = logits, .shared = shared};
}

// logits [rows][n_vocab] = output * norm(hidden), from row `at` of the logits on.
void DenseNodes::Head(StepRows rows, uint32_t at) {
  ggml_context* ctx = parts_.graphs.context();
  const uint32_t end = parts_.spec.n_layer();
  ggml_tensor* x = streams_ ? streams_->End(ctx, parts_.tensors, Streams(end, rows))
                            : Input(end, rows, LayerEnd());
  Logits(RmsNorm(ctx, x, parts_.tensors.output_norm, parts_.tensors.output_norm_b,
                 parts_.spec.rms_eps),
         at);
}

// normed [rows][n_embd] -> logits [rows][n_vocab], from row `at` on.
void DenseNodes::Logits(ggml_tensor* normed, uint32_t at) {
  ggml_context* ctx = parts_.graphs.context();
  ggml_tensor* logits = Linear(ctx, parts_.tensors.output, normed, parts_.tensors.output_b);
  if (parts_.spec.logit_scale != 1.0F)
    logits = ggml_scale(ctx, logits, 1.0F / parts_.spec.logit_scale);
  if (const float cap = parts_.spec.logit_cap; cap > 0.0F) {
    ggml_tensor* capped = ggml_scale(ctx, ggml_tanh(ctx, ggml_scale(ctx, logits, 1.0F / cap)), cap);
    // NaN and infinity must not be capped: infinity less infinity is NaN.
    logits = ggml_add(ctx, capped, ggml_sub(ctx, logits, logits));
  }
  Output(logits, StepBuffers::kLogits, at);
}

// The predicting layer's output as its head takes it. Files without a norm of its own share the
// model's.
ggml_tensor* DenseNodes::PredictionNorm(ggml_tensor* hidden) const {
  ggml_tensor* const own = parts_.tensors.layers.back().predict_head_norm;
  return RmsNorm(parts_.graphs.context(), hidden, own != nullptr ? own : parts_.tensors.output_norm,
                 nullptr, parts_.spec.rms_eps);
}

// The hidden state is normed as the head takes it: the last layer's by the model's norm.
void DenseNodes::JoinPrediction(StepRows rows, HiddenOf from) {
  ggml_context* ctx = parts_.graphs.context();
  const LayerTensors& w = parts_.tensors.layers.back();
  ggml_tensor* hidden = Region(StepBuffers::kHidden, rows);
  hidden = from == HiddenOf::kPredicting
               ? PredictionNorm(hidden)
               : RmsNorm(ctx, hidden, parts_.tensors.output_norm, nullptr, parts_.spec.rms_eps);
  hidden = RmsNorm(ctx, hidden, w.predict_hidden_norm, nullptr, parts_.spec.rms_eps);
  ggml_tensor* embedding = RmsNorm(ctx, Region(StepBuffers::kFfnIn, rows), w.predict_embd_norm,
                                   nullptr, parts_.spec.rms_eps);
  ggml_tensor* both = ggml_concat(ctx, embedding, hidden, 0);
  Output(Linear(ctx, w.predict_join, both, nullptr), StepBuffers::kHidden, rows.first);
}

void DenseNodes::PredictionHead(StepRows rows) {
  Logits(PredictionNorm(Region(StepBuffers::kHidden, rows)), 0);
}

}  // namespace moestro
