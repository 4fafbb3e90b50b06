// SPDX-License-Identifier: MIT
#include "tests/support/plain_switch_testing.h"

#include <ggml-cpp.h>
#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/result.h"
#include "base/text.h"
#include "model/gguf_file.h"
#include "model/read_spec.h"

namespace moestro {
namespace {

// As T5 has them, in its own words of arithmetic.
uint32_t Bucket(int64_t distance, const RelativeBias& bias) {
  int64_t buckets = bias.n_buckets;
  int64_t bucket = 0;
  int64_t n = -distance;
  if (bias.is_two_sided) {
    buckets /= 2;
    if (n < 0) bucket += buckets;
    n = std::abs(n);
  }
  n = std::max<int64_t>(n, 0);
  const int64_t exact = buckets / 2;
  if (n < exact) return static_cast<uint32_t>(bucket + n);
  const double far = std::log(static_cast<double>(n) / static_cast<double>(exact)) /
                     std::log(static_cast<double>(bias.max_distance) / static_cast<double>(exact)) *
                     static_cast<double>(buckets - exact);
  return static_cast<uint32_t>(bucket + std::min(exact + static_cast<int64_t>(far), buckets - 1));
}

}  // namespace

PlainSwitch::PlainSwitch(const std::string& path) {
  const auto file = GgufFile::Open(path);
  CHECK(file);
  auto spec = ReadSpec(*file, Families());
  CHECK(spec && spec->encoder);
  spec_ = *std::move(spec);
  ggml_context* raw = nullptr;
  const gguf_context_ptr gguf{gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &raw})};
  CHECK(gguf != nullptr);
  const ggml_context_ptr context{raw};
  for (int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); ++i) {
    const char* name = gguf_get_tensor_name(gguf.get(), i);
    const ggml_tensor* tensor = ggml_get_tensor(raw, name);
    CHECK(tensor->type == GGML_TYPE_F32);
    const auto* values = static_cast<const float*>(tensor->data);
    tensors_[name].assign(values, values + ggml_nelements(tensor));
  }
}

PlainSwitch::Rows PlainSwitch::Embed(std::span<const Token> tokens) const {
  const std::vector<float>& table = Tensor("token_embd.weight");
  Rows rows;
  for (const Token token : tokens) {
    const auto at = table.begin() + static_cast<ptrdiff_t>(size_t(token) * spec_.n_embd);
    rows.emplace_back(at, at + spec_.n_embd);
  }
  return rows;
}

std::vector<double> PlainSwitch::Multiply(const std::string& matrix,
                                          const std::vector<double>& x) const {
  const std::vector<float>& m = Tensor(matrix);
  std::vector<double> y(m.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t i = 0; i < x.size(); ++i) y[r] += double{m[r * x.size() + i]} * x[i];
  }
  return y;
}

std::vector<double> PlainSwitch::Norm(const std::string& weight,
                                      const std::vector<double>& x) const {
  double squares = 0.0;
  for (const double v : x) squares += v * v;
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + spec_.rms_eps);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor * Tensor(weight)[i];
  return y;
}

// keys_of: the rows attended to, normed; empty: the rows themselves.
void PlainSwitch::Attend(uint32_t layer, const Rows& keys_of, Rows& rows) const {
  const AttentionSpec& a = *spec_.layers[layer].attention();
  const std::string blk = Format("blk.{}.", layer);
  Rows q;
  Rows normed;
  for (const auto& x : rows) {
    normed.push_back(Norm(blk + "attn_norm.weight", x));
    q.push_back(Multiply(blk + "attn_q.weight", normed.back()));
  }
  Rows k;
  Rows v;
  for (const auto& x : keys_of.empty() ? normed : keys_of) {
    k.push_back(Multiply(blk + "attn_k.weight", x));
    v.push_back(Multiply(blk + "attn_v.weight", x));
  }
  const bool is_causal = a.reach == AttentionReach::kPast;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<double> mixed(size_t{a.n_head} * a.head_dim_v);
    const size_t n = is_causal ? r + 1 : k.size();
    for (uint32_t h = 0; h < a.n_head; ++h) {
      std::vector<double> scores(n);
      double sum = 0.0;
      for (size_t p = 0; p < n; ++p) {
        for (uint32_t d = 0; d < a.head_dim_k; ++d) {
          scores[p] += q[r][h * a.head_dim_k + d] * k[p][h * a.head_dim_k + d];
        }
        if (a.relative) {
          const auto distance = static_cast<int64_t>(p) - static_cast<int64_t>(r);
          scores[p] +=
              Tensor(Format("blk.{}.attn_rel_b.weight",
                            a.relative->layer))[Bucket(distance, *a.relative) * a.n_head + h];
        }
      }
      const double largest = std::ranges::max(scores);
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (size_t p = 0; p < n; ++p) {
        for (uint32_t d = 0; d < a.head_dim_v; ++d) {
          mixed[h * a.head_dim_v + d] += scores[p] / sum * v[p][h * a.head_dim_v + d];
        }
      }
    }
    const std::vector<double> y = Multiply(blk + "attn_output.weight", mixed);
    for (size_t i = 0; i < y.size(); ++i) rows[r][i] += y[i];
  }
}

// down * max(up * x, 0)
std::vector<double> PlainSwitch::Block(const std::string& up, const std::string& down,
                                       size_t expert, const std::vector<double>& x) const {
  const bool is_dense = !up.contains("_exps");
  const size_t ff = is_dense ? Tensor(up).size() / x.size()
                             : Tensor(up).size() / x.size() / spec_.router.n_expert;
  const float* u = Tensor(up).data() + expert * ff * x.size();
  const float* d = Tensor(down).data() + expert * ff * x.size();
  std::vector<double> y(x.size());
  for (size_t f = 0; f < ff; ++f) {
    double value = 0.0;
    for (size_t i = 0; i < x.size(); ++i) value += double{u[f * x.size() + i]} * x[i];
    for (size_t i = 0; i < x.size() && value > 0.0; ++i) y[i] += double{d[i * ff + f]} * value;
  }
  return y;
}

void PlainSwitch::FeedForward(uint32_t layer, uint32_t capacity, Rows& rows) const {
  const std::string blk = Format("blk.{}.", layer);
  std::map<size_t, uint32_t> taken;
  for (auto& row : rows) {
    const std::vector<double> x = Norm(blk + "ffn_norm.weight", row);
    std::vector<double> y(x.size());
    if (!spec_.has_experts(layer)) {
      y = Block(blk + "ffn_up.weight", blk + "ffn_down.weight", 0, x);
    } else {
      const std::vector<double> logits = Multiply(blk + "ffn_gate_inp.weight", x);
      const size_t best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
      double sum = 0.0;
      for (const double logit : logits) sum += std::exp(logit - logits[best]);
      if (capacity == 0 || ++taken[best] <= capacity) {
        y = Block(blk + "ffn_up_exps.weight", blk + "ffn_down_exps.weight", best, x);
        for (double& value : y) value /= sum;
      }
    }
    for (size_t i = 0; i < y.size(); ++i) row[i] += y[i];
  }
}

std::vector<float> PlainSwitch::Logits(std::span<const Token> source, std::span<const Token> target,
                                       uint32_t capacity) const {
  Rows rows = Embed(source);
  for (uint32_t l = 0; l < spec_.encoder->n_layer; ++l) {
    Attend(l, {}, rows);
    FeedForward(l, capacity, rows);
  }
  Rows encoded;
  for (const auto& row : rows) encoded.push_back(Norm("encoder_norm.weight", row));
  rows = Embed(target);
  for (uint32_t l = spec_.encoder->n_layer; l < spec_.n_layer(); l += 2) {
    Attend(l, {}, rows);
    Attend(l + 1, encoded, rows);
    FeedForward(l + 1, 0, rows);
  }
  const bool is_tied = !tensors_.contains("output.weight");
  const double scale = is_tied ? 1.0 / std::sqrt(static_cast<double>(spec_.n_embd)) : 1.0;
  std::vector<float> logits;
  for (const auto& row : rows) {
    const std::vector<double> x = Norm("output_norm.weight", row);
    for (const double logit : Multiply(is_tied ? "token_embd.weight" : "output.weight", x)) {
      logits.push_back(static_cast<float>(logit * scale));
    }
  }
  return logits;
}

}  // namespace moestro
