// SPDX-License-Identifier: MIT
#include "offline/synth_shapes.h"

#include <array>

namespace moestro {
namespace {

struct Range {
  std::string_view what;
  uint32_t value;
  uint32_t low;
  uint32_t high;
};

// Hyperparameters as in the published configurations.
const std::array<SynthShape, 5> kShapes = {{
    {.name = "mixtral-8x7b",
     .arch = "llama",
     .layers = 32,
     .experts = 8,
     .used = 2,
     .embd = 4096,
     .ff = 14336,
     .shared_ff = 0,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 32000,
     .context = 32768,
     .orig_context = 0,
     .rope_base = 1e6F,
     .rms_eps = 1e-5F},
    {.name = "phi-3.5-moe",
     .arch = "phimoe",
     .layers = 32,
     .experts = 16,
     .used = 2,
     .embd = 4096,
     .ff = 6400,
     .shared_ff = 0,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 32064,
     .context = 131072,
     .orig_context = 4096,
     .rope_base = 1e4F,
     .rms_eps = 1e-5F},
    {.name = "qwen1.5-moe-a2.7b",
     .arch = "qwen2moe",
     .layers = 24,
     .experts = 60,
     .used = 4,
     .embd = 2048,
     .ff = 1408,
     .shared_ff = 5632,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 128,
     .vocab = 151936,
     .context = 8192,
     .orig_context = 0,
     .rope_base = 1e6F,
     .rms_eps = 1e-6F},
    {.name = "olmoe-1b-7b",
     .arch = "olmoe",
     .layers = 16,
     .experts = 64,
     .used = 8,
     .embd = 2048,
     .ff = 1024,
     .shared_ff = 0,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 128,
     .vocab = 50304,
     .context = 4096,
     .orig_context = 0,
     .rope_base = 1e4F,
     .rms_eps = 1e-5F},
    {.name = "qwen3-30b-a3b",
     .arch = "qwen3moe",
     .layers = 48,
     .experts = 128,
     .used = 8,
     .embd = 2048,
     .ff = 768,
     .shared_ff = 0,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 151936,
     .context = 32768,
     .orig_context = 0,
     .rope_base = 1e6F,
     .rms_eps = 1e-6F},
}};

}  // namespace

std::span<const SynthShape> KnownShapes() { return kShapes; }

Result<SynthShape> FindShape(std::string_view name) {
  std::string known;
  for (const SynthShape& shape : KnownShapes()) {
    if (shape.name == name) return shape;
    known += known.empty() ? shape.name : ", " + shape.name;
  }
  return Fail(Errc::kUsage, "unknown shape '{}'; known are {}", name, known);
}

Status CheckShape(const SynthShape& s) {
  // The upper ends keep every product below inside 63 bits; 512 experts and layers are
  // llama.cpp's own limits.
  const std::array<Range, 10> ranges = {{{"layers", s.layers, 1, 512},
                                         {"experts", s.experts, 1, 512},
                                         {"used experts", s.used, 1, s.experts},
                                         {"embedding width", s.embd, 32, 65536},
                                         {"expert width", s.ff, 32, 262144},
                                         {"heads", s.heads, 1, 1024},
                                         {"kv heads", s.kv_heads, 1, s.heads},
                                         {"head dimension", s.head_dim, 2, 1024},
                                         {"vocabulary", s.vocab, 2, 4194304},
                                         {"context", s.context, 1, 16777216}}};
  for (const Range& r : ranges) {
    if (r.value < r.low || r.value > r.high) {
      return Fail(Errc::kInvalidRequest, "{} of {} is outside {} to {}", r.what, r.value, r.low,
                  r.high);
    }
  }
  if (s.heads % s.kv_heads != 0) {
    return Fail(Errc::kInvalidRequest, "{} heads cannot share {} kv heads evenly", s.heads,
                s.kv_heads);
  }
  if (s.head_dim % 2 != 0) {
    return Fail(Errc::kInvalidRequest, "head dimension {} is odd; rope turns pairs", s.head_dim);
  }
  const bool is_free = s.arch == "llama" || s.arch == "qwen3moe";
  if (!is_free && s.q_width() != s.embd) {
    return Fail(Errc::kInvalidRequest,
                "{} heads of {} make {}, but {} wants exactly the embedding width {}", s.heads,
                s.head_dim, s.q_width(), s.arch, s.embd);
  }
  if (s.arch == "olmoe" && s.kv_heads != s.heads) {
    return Fail(Errc::kInvalidRequest, "olmoe shares no kv heads: {} kv heads for {} heads",
                s.kv_heads, s.heads);
  }
  if ((s.arch == "qwen2moe") != (s.shared_ff > 0) || s.shared_ff > 1048576) {
    return Fail(Errc::kInvalidRequest,
                "shared expert width {} does not fit {}: qwen2moe needs one of at most 1048576, "
                "the others have none",
                s.shared_ff, s.arch);
  }
  return {};
}

}  // namespace moestro
