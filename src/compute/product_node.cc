// SPDX-License-Identifier: MIT
#include "compute/product_node.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "compute/expert_kernel.h"
#include "compute/row_kernel.h"
#include "compute/weight_set.h"
#include "core/machine.h"

namespace moestro {
namespace {

float Silu(float x) { return x / (1.0F + std::exp(-x)); }

float Swiglu(float gate, float up) { return Silu(gate) * up; }

float Geglu(float gate, float up) {
  constexpr float kSqrtTwoByPi = 0.79788456080286535588F;
  constexpr float kCubic = 0.044715F;
  const float inner = kSqrtTwoByPi * gate * (1.0F + kCubic * gate * gate);
  return 0.5F * gate * (1.0F + std::tanh(inner)) * up;
}

float SwigluOai(float gate, float up) {
  const float g = std::min(gate, kOaiLimit);
  const float u = std::clamp(up, -kOaiLimit, kOaiLimit);
  return g / (1.0F + std::exp(-kOaiAlpha * g)) * (u + 1.0F);
}

float ReluSquared(float /*gate*/, float up) {
  const float positive = std::max(up, 0.0F);
  return positive * positive;
}

float Relu(float /*gate*/, float up) { return std::max(up, 0.0F); }

}  // namespace

void Join(Activation activation, std::span<const float> up, std::span<float> gate, float limit) {
  const auto join = [&](auto function) {
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = function(gate[i], up[i]);
  };
  switch (activation) {
    case Activation::kSwiglu:
      if (limit == 0.0F) return join(Swiglu);
      return join([limit](float g, float u) {
        return std::min(Silu(g), limit) * std::clamp(u, -limit, limit);
      });
    case Activation::kSwigluGate:
      if (limit == 0.0F) return join(Swiglu);
      return join([limit](float g, float u) {
        return Silu(std::min(g, limit)) * std::clamp(u, -limit, limit);
      });
    case Activation::kGeglu:
      return join(Geglu);
    case Activation::kSwigluOai:
      return join(SwigluOai);
    case Activation::kReluSquared:
      return join(ReluSquared);
    case Activation::kRelu:
      return join(Relu);
  }
}

namespace {

// min(silu(gate), limit), or silu(min(gate, limit)), times up within -limit to limit. ggml's limits
// turn NaN into numbers, and change a tensor in its place.
ggml_tensor* LimitedSwiglu(ggml_context* ctx, ggml_tensor* gate, ggml_tensor* up, float limit,
                           bool is_of_gate) {
  ggml_tensor* nan = ggml_add(ctx, ggml_sub(ctx, gate, gate), ggml_sub(ctx, up, up));
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  ggml_tensor* opened = is_of_gate
                            ? ggml_silu(ctx, ggml_clamp(ctx, ggml_cont(ctx, gate), kLeast, limit))
                            : ggml_clamp(ctx, ggml_silu(ctx, gate), -limit - 1.0F, limit);
  ggml_tensor* within = ggml_clamp(ctx, ggml_cont(ctx, up), -limit, limit);
  return ggml_add(ctx, ggml_mul(ctx, opened, within), nan);
}

}  // namespace

ggml_tensor* Activate(ggml_context* ctx, Activation activation, ggml_tensor* gate, ggml_tensor* up,
                      float limit) {
  switch (activation) {
    case Activation::kSwiglu:
    case Activation::kSwigluGate:
      if (limit > 0.0F) {
        return LimitedSwiglu(ctx, gate, up, limit, activation == Activation::kSwigluGate);
      }
      return ggml_swiglu_split(ctx, gate, up);
    case Activation::kGeglu:
      return ggml_geglu_split(ctx, gate, up);
    case Activation::kSwigluOai:
      return ggml_swiglu_oai(ctx, gate, up, kOaiAlpha, kOaiLimit);
    case Activation::kReluSquared:
      return ggml_mul(ctx, ggml_relu(ctx, up), up);  // relu alone would turn NaN into 0
    case Activation::kRelu:
      return ggml_add(ctx, ggml_relu(ctx, up), ggml_sub(ctx, up, up));  // NaN stays NaN
  }
  std::unreachable();
}

namespace {

constexpr size_t kAlignment = 64;  // alignment of a quantised row
// Shares of the rows of matrices are whole tiles.
constexpr int64_t kTile = ExpertKernel::kInterleavedRows;
static_assert(kTile == kTileRows);  // pages are placed by these tiles (native/plan/numa_plan.h)
// Rows of activations of a call, few enough to stay in the second-level cache, and bytes of a
// matrix that stay there, too, until all rows of activations are multiplied with them.
constexpr int64_t kGroup = 64;
constexpr size_t kBlockBytes = size_t{256} * 1024;
constexpr size_t kMostWeights = 4;  // weights of a node, at most
constexpr size_t kNormArgument = 1 + kMostWeights;
// With at most kFewRows rows every thread quantises all rows on its own stack: that takes less time
// than a barrier between threads.
constexpr int64_t kFewRows = 4;
constexpr size_t kFewBytes = size_t{32} * 1024;
static_assert(kFewBytes + InputNorm::kMostValues * sizeof(float) < kProductStackBytes);

// ggml aligns a tensor of bytes to less than kAlignment.
std::byte* Aligned(const ggml_tensor* bytes) {
  return reinterpret_cast<std::byte*>(
      AlignUp(reinterpret_cast<uintptr_t>(bytes->data), kAlignment));
}

// The arguments of a node that quantises: x, a weight (for its kernel), and with a norm the norm's
// weight; userdata: the norm, or null. x F32 [n, rows] -> row `row` normed and quantised.
struct RowSource {
  const ggml_tensor* x;
  const ExpertKernel& kernel;
  const RowNorm* norm;       // null: no norm
  const float* norm_weight;  // [n]

  RowSource(const ggml_tensor* node, void* userdata)
      : x(node->src[0]),
        kernel(*RowProductOf(node->src[1])->kernel),
        norm(static_cast<const RowNorm*>(userdata)),
        norm_weight(norm != nullptr ? FloatsIn(node->src[kNormArgument]) : nullptr) {}

  static const float* FloatsIn(const ggml_tensor* t) { return static_cast<const float*>(t->data); }
  size_t bytes() const { return kernel.activation_bytes(x->ne[0]); }

  void Quantise(int64_t row, std::byte* to) const {
    const auto* from = reinterpret_cast<const float*>(static_cast<const std::byte*>(x->data) +
                                                      static_cast<size_t>(row) * x->nb[1]);
    if (norm == nullptr) return kernel.quantise(kernel, from, to, x->ne[0]);
    alignas(kAlignment) std::array<float, InputNorm::kMostValues> normed;
    norm->kernel.norm({.from = from,
                       .weight = norm_weight,
                       .to = normed.data(),
                       .n = static_cast<uint32_t>(x->ne[0]),
                       .eps = norm->eps});
    kernel.quantise(kernel, normed.data(), to, x->ne[0]);
  }
};

// -> [rows][activation_bytes(n)]; threads share the rows.
void Quantise(ggml_tensor* result, int thread, int n_threads, void* userdata) {
  const RowSource source(result, userdata);
  const size_t bytes = source.bytes();
  for (int64_t row = thread; row < source.x->ne[1]; row += n_threads) {
    source.Quantise(row, Aligned(result) + static_cast<size_t>(row) * bytes);
  }
}

// The arguments of a node: x, weights, and behind the places of kMostWeights weights the norm's
// weight.
using Arguments = std::array<ggml_tensor*, kNormArgument + 1>;

Arguments ArgumentsOf(ggml_tensor* x, std::span<ggml_tensor* const> weights,
                      const InputNorm& norm) {
  CHECK(weights.size() <= kMostWeights);
  CHECK(x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && x->ne[2] == 1 && x->ne[3] == 1);
  CHECK(norm.norm == nullptr || x->ne[0] <= InputNorm::kMostValues);
  Arguments arguments{x};
  std::ranges::copy(weights, arguments.begin() + 1);
  if (norm.norm != nullptr) arguments[kNormArgument] = norm.weight;
  return arguments;
}

// ggml's nodes take userdata that is not const; a norm is only read.
void* UserdataOf(const InputNorm& norm) { return const_cast<RowNorm*>(norm.norm); }

ggml_tensor* QuantiseNode(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x,
                          const InputNorm& norm) {
  Arguments arguments = ArgumentsOf(x, {&weight, 1}, norm);
  const auto bytes = static_cast<int64_t>(RowProductOf(weight)->kernel->activation_bytes(x->ne[0]));
  return ggml_custom_4d(ctx, GGML_TYPE_I8, bytes * x->ne[1] + int64_t{kAlignment}, 1, 1, 1,
                        arguments.data(), static_cast<int>(arguments.size()), Quantise,
                        GGML_N_TASKS_MAX, UserdataOf(norm));
}

struct Product {
  const ggml_tensor* weight;
  const std::byte* activations;  // [n_rows][activation_bytes]
  size_t activation_bytes;
  int64_t n_rows;  // rows of activations
  float* out;      // [n_rows][n_out]
};

const std::byte* RowOf(const ggml_tensor* weight, int64_t row) {
  return static_cast<const std::byte*>(weight->data) + static_cast<size_t>(row) * weight->nb[1];
}

// Multiplies rows [begin, end) of the matrix. `following`: the matrix that the thread reads next;
// null: none.
void MultiplyShare(const Product& p, int64_t begin, int64_t end, const ggml_tensor* following) {
  const ggml_tensor* w = p.weight;
  const RowProduct& how = *RowProductOf(w);
  const auto block = std::max(kTile, static_cast<int64_t>(kBlockBytes / w->nb[1]) / kTile * kTile);
  const int64_t most = p.n_rows <= kGroup ? end - begin : block;
  std::array<const std::byte*, kGroup> x{};
  std::array<float*, kGroup> out{};
  for (int64_t row = begin; row < end; row += most) {
    const int64_t rows = std::min(most, end - row);
    const bool is_last = row + rows == end;
    const std::byte* next = RowOf(w, row + rows);
    if (is_last && row + rows == w->ne[1]) {
      next = following != nullptr ? RowOf(following, 0) : nullptr;
    }
    for (int64_t first = 0; first < p.n_rows; first += kGroup) {
      const int64_t n = std::min(kGroup, p.n_rows - first);
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(first + i);
        x[static_cast<size_t>(i)] = p.activations + at * p.activation_bytes;
        out[static_cast<size_t>(i)] = p.out + static_cast<int64_t>(at) * w->ne[1] + row;
      }
      how.kernel->multiply(*how.kernel,
                           {.rows = RowOf(w, row),
                            .row_bytes = w->nb[1],
                            .n_in = w->ne[0],
                            .n_rows = rows,
                            .activations = x.data(),
                            .out = out.data(),
                            .n_tokens = n,
                            .next = next,
                            .next_bytes = next != nullptr ? w->nb[1] * size_t{kTile} : 0,
                            .is_interleaved = how.is_interleaved});
    }
  }
}

int64_t TilesOf(const ggml_tensor* weight) {
  return static_cast<int64_t>(moestro::TilesOf(static_cast<uint32_t>(weight->ne[1])));
}

// Multiplies tiles [begin, end) of all matrices of the node, one after the other. activations:
// [n_rows][activation_bytes].
void MultiplyTiles(ggml_tensor* node, const std::byte* activations, int64_t n_rows, int64_t begin,
                   int64_t end) {
  const std::span<ggml_tensor* const> weights(node->src + 1, kMostWeights);
  auto* out = static_cast<float*>(node->data);
  int64_t before = 0;  // tiles of earlier matrices
  for (size_t i = 0; i < kMostWeights && weights[i] != nullptr && before < end; ++i) {
    const ggml_tensor* w = weights[i];
    const auto row_at = [&](int64_t tile) {
      return std::clamp((tile - before) * kTile, int64_t{0}, w->ne[1]);
    };
    const bool goes_on = i + 1 < kMostWeights && end > before + TilesOf(w);
    if (row_at(begin) < row_at(end)) {
      const Product product{.weight = w,
                            .activations = activations,
                            .activation_bytes = RowProductOf(w)->kernel->activation_bytes(w->ne[0]),
                            .n_rows = n_rows,
                            .out = out};
      MultiplyShare(product, row_at(begin), row_at(end), goes_on ? weights[i + 1] : nullptr);
    }
    before += TilesOf(w);
    out += n_rows * w->ne[1];
  }
}

void MultiplyAll(ggml_tensor* node, const std::byte* activations, int64_t n_rows, int thread,
                 int n_threads) {
  const std::span<ggml_tensor* const> weights(node->src + 1, kMostWeights);
  const RowProduct& first = *RowProductOf(weights.front());
  const ScopedTeamTime timed(first.time, thread);
  int64_t tiles = 0;
  for (const ggml_tensor* w : weights) tiles += w != nullptr ? TilesOf(w) : 0;
  const auto multiply = [&](int64_t begin, int64_t end) {
    MultiplyTiles(node, activations, n_rows, begin, end);
  };
  if (first.shares != nullptr) return first.shares->Each(tiles, thread, n_threads, multiply);
  multiply(tiles * thread / n_threads, tiles * (thread + 1) / n_threads);
}

// Multiplies the result of QuantiseNode(), the first argument.
void Multiply(ggml_tensor* result, int thread, int n_threads, void* /*userdata*/) {
  const ggml_tensor* quantised = result->src[0];
  MultiplyAll(result, Aligned(quantised), quantised->src[0]->ne[1], thread, n_threads);
}

// Multiplies few rows of x, quantised by each thread.
void QuantiseAndMultiply(ggml_tensor* result, int thread, int n_threads, void* userdata) {
  const RowSource source(result, userdata);
  alignas(kAlignment) std::array<std::byte, kFewBytes> activations;
  for (int64_t row = 0; row < source.x->ne[1]; ++row) {
    source.Quantise(row, activations.data() + static_cast<size_t>(row) * source.bytes());
  }
  MultiplyAll(result, activations.data(), source.x->ne[1], thread, n_threads);
}

ggml_tensor* OwnNode(ggml_context* ctx, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                     std::array<int64_t, 2> ne, const InputNorm& norm) {
  const size_t bytes = RowProductOf(weights.front())->kernel->activation_bytes(x->ne[0]);
  const bool is_few = x->ne[1] <= kFewRows && bytes * static_cast<size_t>(x->ne[1]) <= kFewBytes;
  Arguments arguments = is_few ? ArgumentsOf(x, weights, norm) : ArgumentsOf(x, weights, {});
  if (!is_few) arguments[0] = QuantiseNode(ctx, weights.front(), x, norm);
  return ggml_custom_4d(ctx, GGML_TYPE_F32, ne[0], ne[1], 1, 1, arguments.data(),
                        static_cast<int>(arguments.size()), is_few ? QuantiseAndMultiply : Multiply,
                        GGML_N_TASKS_MAX, is_few ? UserdataOf(norm) : nullptr);
}

}  // namespace

ggml_tensor* MultiplyNode(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x) {
  const RowProduct* by_row = RowProductOf(weight);
  if (by_row != nullptr && by_row->kernel != nullptr) {
    return OwnNode(ctx, {&weight, 1}, x, {weight->ne[1], x->ne[1]}, {});
  }
  if (by_row == nullptr || x->ne[1] == 1) return ggml_mul_mat(ctx, weight, x);
  // [n_in, 1, rows]: one product per row.
  ggml_tensor* y = ggml_mul_mat(ctx, weight, ggml_reshape_3d(ctx, x, x->ne[0], 1, x->ne[1]));
  return ggml_reshape_2d(ctx, y, y->ne[0], y->ne[2]);
}

bool ShareNode(std::span<ggml_tensor* const> weights) {
  if (weights.empty() || weights.size() > kMostWeights) return false;
  const auto kernel_of = [](const ggml_tensor* w) {
    const RowProduct* by_row = RowProductOf(w);
    return by_row != nullptr ? by_row->kernel : nullptr;
  };
  const ExpertKernel* first = kernel_of(weights.front());
  return std::ranges::all_of(weights, [&](const ggml_tensor* w) {
    const ExpertKernel* kernel = kernel_of(w);
    return kernel != nullptr && kernel->quantise == first->quantise &&
           kernel->activation_type == first->activation_type;
  });
}

void MultiplyNodes(ggml_context* ctx, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                   std::span<ggml_tensor*> products, const InputNorm& norm) {
  CHECK(ShareNode(weights) && weights.size() == products.size());
  int64_t n_out = 0;
  for (const ggml_tensor* w : weights) n_out += w->ne[1];
  // [matrix][rows][n_out of the matrix]
  ggml_tensor* all = OwnNode(ctx, weights, x, {n_out * x->ne[1], 1}, norm);
  size_t offset = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t row_bytes = static_cast<size_t>(weights[i]->ne[1]) * sizeof(float);
    products[i] = ggml_view_2d(ctx, all, weights[i]->ne[1], x->ne[1], row_bytes, offset);
    offset += row_bytes * static_cast<size_t>(x->ne[1]);
  }
}

}  // namespace moestro
