// SPDX-License-Identifier: MIT
#include "device/activation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace moestro {
namespace {

float Swiglu(float gate, float up) { return gate / (1.0F + std::exp(-gate)) * up; }

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

void Join(Activation activation, std::span<const float> up, std::span<float> gate) {
  const auto join = [&](auto function) {
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = function(gate[i], up[i]);
  };
  switch (activation) {
    case Activation::kSwiglu:
      return join(Swiglu);
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

ggml_tensor* Activate(ggml_context* ctx, Activation activation, ggml_tensor* gate,
                      ggml_tensor* up) {
  switch (activation) {
    case Activation::kSwiglu:
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

}  // namespace moestro
