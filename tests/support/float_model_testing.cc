// SPDX-License-Identifier: MIT
#include "tests/support/float_model_testing.h"

#include <ggml-cpp.h>
#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "core/tensor_roles.h"
#include "tests/support/running_sum_testing.h"

namespace moestro {
namespace {

constexpr double kEps = 1e-6;
constexpr double kRopeBase = 10000.0;
using Vec = std::vector<double>;

// One evaluation: a token at a time, keys and values of the earlier ones kept.
class Reference {
 public:
  Reference(const std::map<std::string, FloatTensor>& tensors, const FloatShape& shape)
      : tensors_(tensors),
        s_(shape),
        keys_(shape.layers),
        values_(shape.layers),
        sums_(shape.layers, Vec(shape.embd)) {}

  Vec Step(Token token) {
    const FloatTensor& table = Get("token_embd.weight");
    Vec x(s_.embd);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = table.values[static_cast<size_t>(token) * s_.embd + i];
    }
    for (uint32_t l = 0; l < s_.layers; ++l) {
      blk_ = Format("blk.{}.", l);
      if (HasMixer(s_, l)) {
        const Vec mixed = Norm(x, blk_ + "attn_norm.weight");
        AddTo(x, HasState(s_, l) ? RunningSum(l, mixed) : Attention(l, mixed));
      }
      if (!HasFeedForward(s_, l)) continue;
      const Vec h = Norm(x, blk_ + (HasMixer(s_, l) ? "ffn_norm.weight" : "attn_norm.weight"));
      AddTo(x, l < s_.dense_layers ? Gated(h, "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")
                                   : Experts(l, h));
    }
    ++position_;
    return Multiply("output.weight", Norm(x, "output_norm.weight"));
  }

 private:
  const FloatTensor& Get(const std::string& name) const { return tensors_.at(name); }
  static void AddTo(Vec& a, const Vec& b, double factor = 1.0) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  }
  Vec Norm(const Vec& x, const std::string& name) const {
    double squares = 0.0;
    for (const double v : x) squares += v * v;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
    Vec y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * Get(name).values[i];
    return y;
  }
  // Rows [first, first + rows) of a tensor, all matrices of it counted as one.
  Vec Rows(const std::string& name, size_t first, size_t rows, const Vec& x) const {
    const float* from = Get(name).values.data() + first * x.size();
    Vec y(rows);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < x.size(); ++i) y[r] += double{from[r * x.size() + i]} * x[i];
    }
    return y;
  }
  Vec Multiply(const std::string& name, const Vec& x) const {
    return Rows(name, 0, static_cast<size_t>(Get(name).ne[1]), x);
  }
  void AddBias(Vec& y, const std::string& name, size_t row) const {
    for (size_t i = 0; i < y.size(); ++i) y[i] += Get(blk_ + name).values[row * y.size() + i];
  }

  void Rotate(Vec& x, uint32_t heads) const {
    const uint32_t half = s_.rotated / 2;
    for (uint32_t h = 0; h < heads; ++h) {
      for (uint32_t i = 0; i < half; ++i) {
        double& a = x[size_t{h} * s_.dim_k + i];
        double& b = x[size_t{h} * s_.dim_k + half + i];
        const double angle = position_ * std::pow(kRopeBase, -2.0 * i / s_.rotated);
        const double old = a;
        a = old * std::cos(angle) - b * std::sin(angle);
        b = old * std::sin(angle) + b * std::cos(angle);
      }
    }
  }

  Vec RunningSum(uint32_t l, const Vec& x) {
    for (size_t i = 0; i < x.size(); ++i) sums_[l][i] = kFade * sums_[l][i] + x[i];
    return Multiply(blk_ + "attn_output.weight", sums_[l]);
  }

  Vec Biased(const std::string& name, const Vec& x) const {
    Vec y = Multiply(blk_ + name + ".weight", x);
    if (s_.has_attention_biases) AddBias(y, name + ".bias", 0);
    return y;
  }

  void NormQk(Vec& q, Vec& k) const {
    if (s_.qk_norm == QkNorm::kNone) return;
    const bool is_whole = s_.qk_norm == QkNorm::kWholeVector;
    for (const auto& [x, name] :
         {std::pair{&q, "attn_q_norm.weight"}, {&k, "attn_k_norm.weight"}}) {
      const size_t width = is_whole ? x->size() : s_.dim_k;
      for (size_t first = 0; first < x->size(); first += width) {
        const auto begin = x->begin() + static_cast<ptrdiff_t>(first);
        const Vec normed = Norm(Vec(begin, begin + static_cast<ptrdiff_t>(width)), blk_ + name);
        std::ranges::copy(normed, begin);
      }
    }
  }

  Vec Attention(uint32_t l, const Vec& x) {
    const bool is_odd = IsOdd(s_, l);
    const uint32_t kv_heads = KvHeadsOf(s_, l);
    Vec q = Biased("attn_q", x);
    Vec k = Biased("attn_k", x);
    if (s_.qk_norm != QkNorm::kAfterRope) NormQk(q, k);
    if (!is_odd) {
      Rotate(q, s_.heads);
      Rotate(k, kv_heads);
    }
    if (s_.qk_norm == QkNorm::kAfterRope) NormQk(q, k);
    keys_[l].push_back(k);
    values_[l].push_back(Biased("attn_v", x));
    Vec mixed(size_t{s_.heads} * s_.dim_v);
    for (uint32_t h = 0; h < s_.heads; ++h) {
      const size_t shared = h / (s_.heads / kv_heads);
      const size_t unseen =
          is_odd ? keys_[l].size() - std::min<size_t>(keys_[l].size(), s_.odd_window) : 0;
      Vec scores;
      for (size_t p = unseen; p < keys_[l].size(); ++p) {
        const Vec& key = keys_[l][p];
        double dot = 0.0;
        for (size_t i = 0; i < s_.dim_k; ++i) {
          dot += q[h * s_.dim_k + i] * key[shared * s_.dim_k + i];
        }
        scores.push_back(dot / std::sqrt(static_cast<double>(s_.dim_k)));
      }
      // A sink is a score of which no value comes.
      if (s_.has_sinks) scores.push_back(Get(blk_ + "attn_sinks.weight").values[h]);
      Softmax(scores);
      if (s_.has_sinks) scores.pop_back();
      for (size_t p = 0; p < scores.size(); ++p) {
        for (size_t i = 0; i < s_.dim_v; ++i) {
          mixed[h * s_.dim_v + i] += scores[p] * values_[l][unseen + p][shared * s_.dim_v + i];
        }
      }
    }
    return Biased("attn_output", mixed);
  }

  static void Softmax(Vec& x) {
    const double largest = *std::ranges::max_element(x);
    double sum = 0.0;
    for (double& v : x) sum += v = std::exp(v - largest);
    for (double& v : x) v /= sum;
  }
  static double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

  double Activate(double g, double u) const {
    switch (s_.activation) {
      case Activation::kSwiglu:
      case Activation::kSwigluGate:
        return g * Sigmoid(g) * u;
      case Activation::kGeglu:
        return 0.5 * g *
               (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g))) * u;
      case Activation::kSwigluOai: {
        const double limited = std::min(g, 7.0);
        return limited * Sigmoid(1.702 * limited) * (std::clamp(u, -7.0, 7.0) + 1);
      }
      case Activation::kReluSquared:
        return u > 0.0 ? u * u : 0.0;
      case Activation::kRelu:
        return std::max(u, 0.0);
    }
    return 0.0;
  }
  Vec Activated(Vec gate, const Vec& up) const {
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = Activate(gate[i], up[i]);
    return gate;
  }
  Vec Gated(const Vec& x, const char* gate, const char* up, const char* down) const {
    if (!HasGate(s_.activation)) {
      const Vec products = Multiply(blk_ + up, x);
      return Multiply(blk_ + down, Activated(products, products));
    }
    return Multiply(blk_ + down, Activated(Multiply(blk_ + gate, x), Multiply(blk_ + up, x)));
  }

  Vec OneExpert(uint32_t l, size_t e, const Vec& x) const {
    const size_t ff = WidthOf(s_, l);
    const bool fused = s_.is_fused;
    const std::string gate_name =
        blk_ + (fused ? "ffn_gate_up_exps.weight" : "ffn_gate_exps.weight");
    const std::string up_name = blk_ + (fused ? "ffn_gate_up_exps.weight" : "ffn_up_exps.weight");
    const bool has_gate = HasGate(s_.activation);
    Vec gate = has_gate ? Rows(gate_name, fused ? 2 * e * ff : e * ff, ff, x) : Vec(ff);
    Vec up = Rows(up_name, fused ? (2 * e + 1) * ff : e * ff, ff, x);
    if (s_.has_expert_biases) {
      if (has_gate) AddBias(gate, "ffn_gate_exps.bias", e);
      AddBias(up, "ffn_up_exps.bias", e);
    }
    const size_t width = x.size();
    Vec y = Rows(blk_ + "ffn_down_exps.weight", e * width, width, Activated(gate, up));
    if (s_.has_expert_biases) AddBias(y, "ffn_down_exps.bias", e);
    return y;
  }

  // Experts outside the best groups are ruled out.
  void LimitToGroups(Vec& selection) const {
    const size_t size = s_.experts / s_.groups;
    std::vector<std::pair<double, size_t>> scores;
    for (size_t g = 0; g < s_.groups; ++g) {
      Vec members(selection.begin() + static_cast<ptrdiff_t>(g * size),
                  selection.begin() + static_cast<ptrdiff_t>((g + 1) * size));
      std::ranges::sort(members, std::greater());
      scores.emplace_back(-(members[0] + members[1]), g);
    }
    std::ranges::sort(scores);
    for (size_t i = s_.groups_used; i < scores.size(); ++i) {
      for (size_t e = 0; e < size; ++e) selection[scores[i].second * size + e] = -1e30;
    }
  }

  Vec Experts(uint32_t l, const Vec& x) const {
    Vec logits = Multiply(blk_ + "ffn_gate_inp.weight", x);
    if (s_.has_router_bias) AddBias(logits, "ffn_gate_inp.bias", 0);
    Vec probabilities = logits;
    if (s_.gating == Gating::kSoftmax) Softmax(probabilities);
    if (s_.gating == Gating::kSigmoid)
      std::ranges::transform(logits, probabilities.begin(), Sigmoid);
    Vec selection = probabilities;
    if (s_.has_selection_bias) AddBias(selection, "exp_probs_b.bias", 0);
    if (s_.groups > 1) LimitToGroups(selection);
    std::vector<size_t> order(s_.experts);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order,
                             [&](size_t a, size_t b) { return selection[a] > selection[b]; });
    Vec weights;
    for (size_t k = 0; k < s_.used; ++k) weights.push_back(probabilities[order[k]]);
    if (s_.gating == Gating::kSoftmaxOfChosen) Softmax(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const Vec in = s_.latent > 0 ? Multiply(blk_ + "ffn_latent_down.weight", x) : x;
    Vec y(in.size());
    for (size_t k = 0; k < s_.used; ++k) {
      const double weight = (s_.renormalise ? weights[k] / sum : weights[k]) * s_.weight_scale;
      AddTo(y, OneExpert(l, order[k], in), weight);
    }
    if (s_.latent > 0) y = Multiply(blk_ + "ffn_latent_up.weight", y);
    if (s_.shared_ff > 0) {
      AddTo(y, Gated(x, "ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"));
    }
    return y;
  }

  const std::map<std::string, FloatTensor>& tensors_;
  const FloatShape& s_;
  std::string blk_;
  uint32_t position_ = 0;
  std::vector<std::vector<Vec>> keys_;  // [layer][position]
  std::vector<std::vector<Vec>> values_;
  std::vector<Vec> sums_;  // [layer]
};

// Keys say which layers differ from the others, and how.
Status ReadLayersThatDiffer(const MetaKeys& keys, ModelSpec& spec) {
  FloatShape shape;
  TRY(shape.state_every, keys.CountOr("state_every", {0, 64}, 0));
  TRY(shape.odd_window, keys.CountOr("odd_window", {0, 64}, 0));
  for (uint32_t l = 0; l < spec.n_layer(); ++l) {
    if (!spec.layers[l].has_mixer()) continue;
    if (HasState(shape, l)) {
      spec.layers[l].mixer = StateSpec{.kind = kRunningSum, .n_values = spec.n_embd};
    } else if (IsOdd(shape, l)) {
      auto& attention = std::get<AttentionSpec>(spec.layers[l].mixer);
      attention.rope.reset();
      attention.window = shape.odd_window;
      attention.n_head_kv = 1;
    }
  }
  return {};
}

}  // namespace

Family SyntheticFamily(const FloatShape& s) {
  Family family{
      .name = "synthetic",
      .attention = {.qk_norm = s.qk_norm},
      .experts = {.activation = s.activation},
      .router = {.gating_key = Presence::kOptional, .renormalise_by_key = true, .has_groups = true},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = s.shared_ff > 0 ? SharedExpertKind::kCounted : SharedExpertKind::kNone,
      .has_dense_layers = true,
      .has_lone_parts = s.has_lone_parts,
      .has_latent_experts = true,
      .has_value_heads_of_own = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .read = ReadLayersThatDiffer};
  LayerRoles<Presence>& layer = family.layer_tensors;
  for (Presence* p : {&layer.attn_q_norm, &layer.attn_k_norm, &layer.attn_sinks, &layer.router_b,
                      &layer.selection_b, &layer.gate_b, &layer.up_b, &layer.down_b,
                      &layer.shared_gate, &layer.shared_up, &layer.shared_down}) {
    *p = Presence::kOptional;
  }
  if (s.has_lone_parts) layer.ffn_norm = Presence::kNone;
  layer.latent_down = layer.latent_up = Presence::kRequired;
  for (Presence* p : {&layer.dense_gate, &layer.dense_up, &layer.dense_down}) {
    *p = Presence::kRequired;
  }
  return family;
}

FloatModel::FloatModel(const FloatShape& shape, uint32_t seed) : shape_(shape), random_(seed) {
  AddMatrix("token_embd.weight", {shape.embd, shape.vocab});
  AddMatrix("output.weight", {shape.embd, shape.vocab});
  Add("output_norm.weight", {shape.embd}, 1.0F, 0.1F);
  for (uint32_t l = 0; l < shape.layers; ++l) AddLayer(l);
}

void FloatModel::Add(const std::string& name, std::vector<int64_t> ne, float mean,
                     float deviation) {
  size_t count = 1;
  for (const int64_t n : ne) count *= static_cast<size_t>(n);
  FloatTensor tensor{.ne = std::move(ne), .values = std::vector<float>(count)};
  std::normal_distribution<float> normal(mean, deviation);
  for (float& value : tensor.values) value = normal(random_);
  tensors_[name] = std::move(tensor);
}

// A normalised input gives an output of a variance of about 2, so that activations and their
// limits are felt.
void FloatModel::AddMatrix(const std::string& name, std::vector<int64_t> ne) {
  const auto fan_in = static_cast<float>(ne[0]);
  Add(name, std::move(ne), 0.0F, std::sqrt(2.0F / fan_in));
}

void FloatModel::AddLayer(uint32_t layer) {
  const FloatShape& s = shape_;
  const std::string blk = Format("blk.{}.", layer);
  Add(blk + "attn_norm.weight", {s.embd}, 1.0F, 0.1F);
  if (!s.has_lone_parts) Add(blk + "ffn_norm.weight", {s.embd}, 1.0F, 0.1F);
  if (HasMixer(s, layer)) AddMixer(layer);
  if (!HasFeedForward(s, layer)) return;
  if (layer < s.dense_layers) {
    AddMatrix(blk + "ffn_gate.weight", {s.embd, s.dense_ff});
    AddMatrix(blk + "ffn_up.weight", {s.embd, s.dense_ff});
    AddMatrix(blk + "ffn_down.weight", {s.dense_ff, s.embd});
    return;
  }
  AddExperts(layer);
}

void FloatModel::AddMixer(uint32_t layer) {
  const FloatShape& s = shape_;
  const std::string blk = Format("blk.{}.", layer);
  if (HasState(s, layer)) {
    AddMatrix(blk + "attn_output.weight", {s.embd, s.embd});
  } else {
    const uint32_t kv_heads = KvHeadsOf(s, layer);
    AddMatrix(blk + "attn_q.weight", {s.embd, s.heads * s.dim_k});
    AddMatrix(blk + "attn_k.weight", {s.embd, kv_heads * s.dim_k});
    AddMatrix(blk + "attn_v.weight", {s.embd, kv_heads * s.dim_v});
    AddMatrix(blk + "attn_output.weight", {s.heads * s.dim_v, s.embd});
    AddAttentionExtras(blk, kv_heads);
  }
}

void FloatModel::AddExperts(uint32_t layer) {
  const FloatShape& s = shape_;
  const std::string blk = Format("blk.{}.", layer);
  const uint32_t ff = WidthOf(s, layer);
  const uint32_t embd = ExpertEmbd(s);
  const bool has_gate = HasGate(s.activation);
  AddMatrix(blk + "ffn_gate_inp.weight", {s.embd, s.experts});
  if (s.has_router_bias) Add(blk + "ffn_gate_inp.bias", {s.experts}, 0.0F, 1.0F);
  if (s.has_selection_bias) Add(blk + "exp_probs_b.bias", {s.experts}, 0.0F, 0.5F);
  if (s.latent > 0) {
    AddMatrix(blk + "ffn_latent_down.weight", {s.embd, s.latent});
    AddMatrix(blk + "ffn_latent_up.weight", {s.latent, s.embd});
  }
  if (s.is_fused) {
    AddMatrix(blk + "ffn_gate_up_exps.weight", {embd, 2 * ff, s.experts});
  } else {
    if (has_gate) AddMatrix(blk + "ffn_gate_exps.weight", {embd, ff, s.experts});
    AddMatrix(blk + "ffn_up_exps.weight", {embd, ff, s.experts});
  }
  AddMatrix(blk + "ffn_down_exps.weight", {ff, embd, s.experts});
  if (s.has_expert_biases) {
    if (has_gate) Add(blk + "ffn_gate_exps.bias", {ff, s.experts}, 0.0F, 1.0F);
    Add(blk + "ffn_up_exps.bias", {ff, s.experts}, 0.0F, 1.0F);
    Add(blk + "ffn_down_exps.bias", {embd, s.experts}, 0.0F, 1.0F);
  }
  if (s.shared_ff == 0) return;
  if (has_gate) AddMatrix(blk + "ffn_gate_shexp.weight", {s.embd, s.shared_ff});
  AddMatrix(blk + "ffn_up_shexp.weight", {s.embd, s.shared_ff});
  AddMatrix(blk + "ffn_down_shexp.weight", {s.shared_ff, s.embd});
}

void FloatModel::AddAttentionExtras(const std::string& blk, uint32_t kv_heads) {
  const FloatShape& s = shape_;
  if (s.has_sinks) Add(blk + "attn_sinks.weight", {s.heads}, 0.0F, 2.0F);
  if (s.has_attention_biases) {
    Add(blk + "attn_q.bias", {s.heads * s.dim_k}, 0.0F, 1.0F);
    Add(blk + "attn_k.bias", {kv_heads * s.dim_k}, 0.0F, 1.0F);
    Add(blk + "attn_v.bias", {kv_heads * s.dim_v}, 0.0F, 1.0F);
    Add(blk + "attn_output.bias", {s.embd}, 0.0F, 1.0F);
  }
  if (s.qk_norm == QkNorm::kNone) return;
  const bool is_whole = s.qk_norm == QkNorm::kWholeVector;
  Add(blk + "attn_q_norm.weight", {is_whole ? s.heads * s.dim_k : s.dim_k}, 1.0F, 0.3F);
  Add(blk + "attn_k_norm.weight", {is_whole ? kv_heads * s.dim_k : s.dim_k}, 1.0F, 0.3F);
}

void FloatModel::Write(const std::string& path) const {
  const gguf_context_ptr gguf{gguf_init_empty()};
  const auto count = [&](const char* key, uint32_t value) {
    gguf_set_val_u32(gguf.get(), Format("synthetic.{}", key).c_str(), value);
  };
  const FloatShape& s = shape_;
  gguf_set_val_str(gguf.get(), "general.architecture", "synthetic");
  gguf_set_val_str(gguf.get(), "tokenizer.ggml.model", "none");
  count("block_count", s.layers);
  count("context_length", 64);
  count("embedding_length", s.embd);
  const auto each = [&](const char* key, const std::vector<int32_t>& values) {
    gguf_set_arr_data(gguf.get(), Format("synthetic.{}", key).c_str(), GGUF_TYPE_INT32,
                      values.data(), values.size());
  };
  std::vector<int32_t> parts;
  std::vector<int32_t> widths;
  for (uint32_t l = 0; l < s.layers; ++l) {
    parts.push_back(HasFeedForward(s, l) ? static_cast<int32_t>(s.ff) : 0);
    widths.push_back(static_cast<int32_t>(WidthOf(s, l)));
  }
  if (s.has_lone_parts) {
    each("feed_forward_length", parts);
  } else {
    count("feed_forward_length", s.dense_layers > 0 ? s.dense_ff : s.ff);
  }
  if (s.odd_ff > 0) {
    each("expert_feed_forward_length", widths);
  } else {
    count("expert_feed_forward_length", s.ff);
  }
  if (s.latent > 0) count("moe_latent_size", s.latent);
  count("leading_dense_block_count", s.dense_layers);
  count("attention.head_count", s.heads);
  count("attention.head_count_kv", s.kv_heads);
  count("attention.key_length", s.dim_k);
  count("attention.value_length", s.dim_v);
  count("rope.dimension_count", s.rotated);
  count("state_every", s.state_every);
  count("odd_window", s.odd_window);
  count("expert_count", s.experts);
  count("expert_used_count", s.used);
  count("expert_group_count", s.groups);
  count("expert_group_used_count", s.groups_used);
  count("expert_shared_count", s.shared_ff / s.ff);
  count("expert_gating_func", static_cast<uint32_t>(s.gating) + 1);
  gguf_set_val_bool(gguf.get(), "synthetic.expert_weights_norm", s.renormalise);
  gguf_set_val_f32(gguf.get(), "synthetic.expert_weights_scale", s.weight_scale);
  gguf_set_val_f32(gguf.get(), "synthetic.attention.layer_norm_rms_epsilon",
                   static_cast<float>(kEps));
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) {
    bytes += tensor.values.size() * sizeof(float) + ggml_tensor_overhead() + 64;
  }
  const ggml_context_ptr context{
      ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = false})};
  for (const auto& [name, tensor] : tensors_) {
    ggml_tensor* t = ggml_new_tensor(context.get(), GGML_TYPE_F32,
                                     static_cast<int>(tensor.ne.size()), tensor.ne.data());
    ggml_set_name(t, name.c_str());
    std::memcpy(t->data, tensor.values.data(), tensor.values.size() * sizeof(float));
    gguf_add_tensor(gguf.get(), t);
  }
  CHECK(gguf_write_to_file(gguf.get(), path.c_str(), false));
}

std::vector<float> FloatModel::Logits(const std::vector<Token>& tokens,
                                      const FloatShape& shape) const {
  Reference reference(tensors_, shape);
  std::vector<float> all;
  for (const Token token : tokens) {
    for (const double logit : reference.Step(token)) all.push_back(static_cast<float>(logit));
  }
  return all;
}

}  // namespace moestro
