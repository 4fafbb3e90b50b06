// SPDX-License-Identifier: MIT
#include "offline/synth/synth_shapes.h"

#include <array>

#include "model/families/families.h"
#include "offline/synth/synth_family.h"

namespace moestro {
namespace {

struct Range {
  std::string_view what;
  uint32_t value;
  uint32_t low;
  uint32_t high;
};

// Hyperparameters as in the published configurations.
const auto kShapes = std::to_array<SynthShape>({
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
     .rms_eps = 1e-5F,
     .billions = 46.7},
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
     .rms_eps = 1e-5F,
     .billions = 41.9},
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
     .rms_eps = 1e-6F,
     .billions = 14.3},
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
     .rms_eps = 1e-5F,
     .billions = 6.92},
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
     .rms_eps = 1e-6F,
     .billions = 30.5},
    {.name = "dots1-142b-a14b",
     .arch = "dots1",
     .layers = 62,
     .experts = 128,
     .used = 6,
     .embd = 4096,
     .ff = 1408,
     .shared_ff = 2816,
     .dense_layers = 1,
     .dense_ff = 10944,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 128,
     .vocab = 152064,
     .context = 32768,
     .orig_context = 0,
     .rope_base = 1e7F,
     .rms_eps = 1e-5F,
     .billions = 142.8},
    {.name = "gpt-oss-20b",
     .arch = "gpt-oss",
     .layers = 24,
     .experts = 32,
     .used = 4,
     .embd = 2880,
     .ff = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .window = 128,
     .vocab = 201088,
     .context = 131072,
     .orig_context = 4096,
     .yarn_factor = 32,
     .rope_base = 1.5e5F,
     .rms_eps = 1e-5F,
     .billions = 20.9},
    {.name = "gpt-oss-120b",
     .arch = "gpt-oss",
     .layers = 36,
     .experts = 128,
     .used = 4,
     .embd = 2880,
     .ff = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .window = 128,
     .vocab = 201088,
     .context = 131072,
     .orig_context = 4096,
     .yarn_factor = 32,
     .rope_base = 1.5e5F,
     .rms_eps = 1e-5F,
     .billions = 116.8},
    {.name = "glm-4.5-air",
     .arch = "glm4moe",
     .layers = 46,
     .experts = 128,
     .used = 8,
     .embd = 4096,
     .ff = 1408,
     .shared_ff = 1408,
     .dense_layers = 1,
     .dense_ff = 10944,
     .heads = 96,
     .kv_heads = 8,
     .head_dim = 128,
     .rotated = 64,
     .vocab = 151552,
     .context = 131072,
     .rope_base = 1e6F,
     .rms_eps = 1e-5F,
     .billions = 106.8},
    {.name = "minimax-m2",
     .arch = "minimax-m2",
     .layers = 62,
     .experts = 256,
     .used = 8,
     .embd = 3072,
     .ff = 1536,
     .heads = 48,
     .kv_heads = 8,
     .head_dim = 128,
     .rotated = 64,
     .vocab = 200064,
     .context = 196608,
     .rope_base = 5e6F,
     .rms_eps = 1e-6F,
     .billions = 228.7},
    {.name = "ernie-21b",
     .arch = "ernie4_5-moe",
     .layers = 28,
     .experts = 64,
     .used = 6,
     .embd = 2560,
     .ff = 1536,
     .shared_ff = 3072,
     .dense_layers = 1,
     .dense_ff = 12288,
     .heads = 20,
     .kv_heads = 4,
     .head_dim = 128,
     .is_tied = true,
     .vocab = 103424,
     .context = 131072,
     .rope_base = 5e5F,
     .rms_eps = 1e-5F,
     .billions = 21.8},
    {.name = "hunyuan-a13b",
     .arch = "hunyuan-moe",
     .layers = 32,
     .experts = 64,
     .used = 8,
     .embd = 4096,
     .ff = 3072,
     .shared_ff = 3072,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .is_tied = true,
     .vocab = 128167,
     .context = 262144,
     .rope_base = 11158840.0F,
     .rms_eps = 1e-5F,
     .billions = 80.4},
    {.name = "ling-mini-2.0",
     .arch = "bailingmoe2",
     .layers = 20,
     .experts = 256,
     .used = 8,
     .embd = 2048,
     .ff = 512,
     .shared_ff = 512,
     .dense_layers = 1,
     .dense_ff = 5120,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 128,
     .rotated = 64,
     .groups = 8,
     .groups_used = 4,
     .vocab = 157184,
     .context = 32768,
     .rope_base = 6e5F,
     .rms_eps = 1e-6F,
     .billions = 16.3},
    {.name = "ling-flash-2.0",
     .arch = "bailingmoe2",
     .layers = 32,
     .experts = 256,
     .used = 8,
     .embd = 4096,
     .ff = 1024,
     .shared_ff = 1024,
     .dense_layers = 1,
     .dense_ff = 9216,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .rotated = 64,
     .groups = 8,
     .groups_used = 4,
     .vocab = 157184,
     .context = 32768,
     .rope_base = 6e5F,
     .rms_eps = 1e-6F,
     .billions = 102.9},
    {.name = "k-exaone-236b",
     .arch = "exaone-moe",
     .layers = 48,
     .experts = 128,
     .used = 8,
     .embd = 6144,
     .ff = 2048,
     .shared_ff = 2048,
     .dense_layers = 1,
     .dense_ff = 18432,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .window = 128,
     .vocab = 153600,
     .context = 262144,
     .rope_base = 1e6F,
     .rms_eps = 1e-5F,
     .billions = 236.6},
    {.name = "qwen3.6-35b-a3b",
     .arch = "qwen35moe",
     .layers = 40,
     .experts = 256,
     .used = 8,
     .embd = 2048,
     .ff = 512,
     .shared_ff = 512,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .rotated = 64,
     .attention_every = 4,
     .state_heads = 32,
     .state_key_heads = 16,
     .state_dim = 128,
     .taps = 4,
     .vocab = 248320,
     .context = 262144,
     .rope_base = 1e7F,
     .rms_eps = 1e-6F,
     .billions = 34.7},
    {.name = "qwen3.5-122b-a10b",
     .arch = "qwen35moe",
     .layers = 48,
     .experts = 256,
     .used = 8,
     .embd = 3072,
     .ff = 1024,
     .shared_ff = 1024,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 256,
     .rotated = 64,
     .attention_every = 4,
     .state_heads = 64,
     .state_key_heads = 16,
     .state_dim = 128,
     .taps = 4,
     .vocab = 248320,
     .context = 262144,
     .rope_base = 1e7F,
     .rms_eps = 1e-6F,
     .billions = 122.1},
    {.name = "qwen3.5-397b-a17b",
     .arch = "qwen35moe",
     .layers = 60,
     .experts = 512,
     .used = 10,
     .embd = 4096,
     .ff = 1024,
     .shared_ff = 1024,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 256,
     .rotated = 64,
     .attention_every = 4,
     .state_heads = 64,
     .state_key_heads = 16,
     .state_dim = 128,
     .taps = 4,
     .vocab = 248320,
     .context = 262144,
     .rope_base = 1e7F,
     .rms_eps = 1e-6F,
     .billions = 396.3},
    {.name = "qwen3-next-80b-a3b",
     .arch = "qwen3next",
     .layers = 48,
     .experts = 512,
     .used = 10,
     .embd = 2048,
     .ff = 512,
     .shared_ff = 512,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .rotated = 64,
     .attention_every = 4,
     .state_heads = 32,
     .state_key_heads = 16,
     .state_dim = 128,
     .taps = 4,
     .vocab = 151936,
     .context = 262144,
     .rope_base = 1e7F,
     .rms_eps = 1e-6F,
     .billions = 79.7},
    {.name = "lfm2-8b-a1b",
     .arch = "lfm2moe",
     .layers = 24,
     .experts = 32,
     .used = 4,
     .embd = 2048,
     .ff = 1792,
     .dense_layers = 2,
     .dense_ff = 7168,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 64,
     .attention_every = 4,
     .taps = 3,
     .is_tied = true,
     .vocab = 65536,
     .context = 128000,
     .rope_base = 1e6F,
     .rms_eps = 1e-5F,
     .billions = 8.3},
    {.name = "granite-4-h-tiny",
     .arch = "granitehybrid",
     .layers = 40,
     .experts = 64,
     .used = 6,
     .embd = 1536,
     .ff = 512,
     .shared_ff = 1024,
     .heads = 12,
     .kv_heads = 4,
     .head_dim = 128,
     .attention_every = 10,
     .state_heads = 48,
     .state_key_heads = 1,
     .state_size = 128,
     .state_dim = 64,
     .taps = 4,
     .is_tied = true,
     .vocab = 100352,
     .context = 131072,
     .rope_base = 1e4F,
     .rms_eps = 1e-5F,
     .billions = 6.94},
    {.name = "granite-4-h-small",
     .arch = "granitehybrid",
     .layers = 40,
     .experts = 72,
     .used = 10,
     .embd = 4096,
     .ff = 768,
     .shared_ff = 1536,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .attention_every = 10,
     .state_heads = 128,
     .state_key_heads = 1,
     .state_size = 128,
     .state_dim = 64,
     .taps = 4,
     .is_tied = true,
     .vocab = 100352,
     .context = 131072,
     .rope_base = 1e4F,
     .rms_eps = 1e-5F,
     .billions = 32.2},
    {.name = "granite-3.1-3b-a800m",
     .arch = "granitemoe",
     .layers = 32,
     .experts = 40,
     .used = 8,
     .embd = 1536,
     .ff = 512,
     .heads = 24,
     .kv_heads = 8,
     .head_dim = 64,
     .is_tied = true,
     .vocab = 49155,
     .context = 131072,
     .rope_base = 1e7F,
     .rms_eps = 1e-6F,
     .billions = 3.3},
    {.name = "nemotron-3-nano",
     .arch = "nemotron_h_moe",
     .layers = 52,
     .experts = 128,
     .used = 6,
     .embd = 2688,
     .ff = 1856,
     .shared_ff = 3712,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 128,
     .pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
     .state_heads = 64,
     .state_key_heads = 8,
     .state_size = 128,
     .state_dim = 64,
     .taps = 4,
     .vocab = 131072,
     .context = 262144,
     .rope_base = 1e4F,
     .rms_eps = 1e-5F,
     .billions = 31.6},
    {.name = "nemotron-3-super",
     .arch = "nemotron_h_moe",
     .layers = 88,
     .experts = 512,
     .used = 22,
     .embd = 4096,
     .ff = 2688,
     .shared_ff = 5376,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 128,
     .pattern = "MEMEMEMEM*E",  // of each kind as many as published, in a regular order
     .latent = 1024,
     .state_heads = 128,
     .state_key_heads = 8,
     .state_size = 128,
     .state_dim = 64,
     .taps = 4,
     .vocab = 131072,
     .context = 262144,
     .rope_base = 1e4F,
     .rms_eps = 1e-5F,
     .billions = 120.6},
});

Status CheckSharedExpert(const SynthShape& s, const Family& family) {
  const bool wants_one = family.shared_expert != SharedExpert::kNone;
  const bool may_lack_one = family.shared_expert == SharedExpert::kOptional && s.shared_ff == 0;
  if ((wants_one != (s.shared_ff > 0) && !may_lack_one) || s.shared_ff > 1048576) {
    return Fail(Errc::kInvalidRequest, "shared expert width {} does not fit {}, which {}",
                s.shared_ff, s.arch, wants_one ? "needs one of 1 to 1048576" : "has none");
  }
  if (family.shared_expert == SharedExpert::kCounted && s.shared_ff % s.ff != 0) {
    return Fail(Errc::kInvalidRequest,
                "shared expert width {} is no multiple of {}, an expert's width, as {} wants it",
                s.shared_ff, s.ff, s.arch);
  }
  return {};
}

Status CheckRotation(const SynthShape& s, const Family& family) {
  if (s.head_dim % 2 != 0) {
    return Fail(Errc::kInvalidRequest, "head dimension {} is odd; rope turns pairs", s.head_dim);
  }
  if (s.rotated == 0) return {};
  if (family.written.has_rope_length_key && s.rotated <= s.head_dim && s.rotated % 2 == 0) {
    return {};
  }
  return Fail(Errc::kInvalidRequest, "{} rotated dimensions of {} do not fit {}", s.rotated,
              s.head_dim, s.arch);
}

Status CheckWindow(const SynthShape& s, const Family& family) {
  const bool has_windows = family.windows.period > 0;
  if (has_windows == (s.window > 0) && s.window <= 16777216) return {};
  return Fail(Errc::kInvalidRequest, "a window of {} positions does not fit {}, which {}", s.window,
              s.arch, has_windows ? "needs one" : "has none");
}

Status CheckPattern(const SynthShape& s) {
  bool has_attention = false;
  bool has_experts = false;
  for (uint32_t l = 0; l < s.layers && !s.pattern.empty(); ++l) {
    has_attention = has_attention || s.has_attention(l);
    has_experts = has_experts || s.has_experts(l);
  }
  if (has_attention && has_experts && s.latent <= s.embd) return {};
  return Fail(Errc::kInvalidRequest,
              "{} layers of the pattern '{}' lack attention (*) or experts (E), or experts are "
              "wider than the hidden state",
              s.layers, s.pattern);
}

Status CheckStates(const SynthShape& s, const Family& family) {
  const bool wants_states = family.states.mixer != StateMixer::kNone;
  if (family.has_lone_parts) {
    TRY_STATUS(CheckPattern(s));
  } else if (wants_states != (s.attention_every > 0)) {
    return Fail(Errc::kInvalidRequest, "attention in each {}-th layer does not fit {}, which {}",
                s.attention_every, s.arch, wants_states ? "has other layers" : "has it in all");
  }
  if (!wants_states) return {};
  const bool has_heads = family.states.mixer != StateMixer::kShortConv;
  const bool heads_fit = s.state_key_heads >= 1 && s.state_heads <= 1024 &&
                         s.state_heads % s.state_key_heads == 0 && s.state_dim >= 32 &&
                         s.state_dim <= 1024 && s.state_dim % 32 == 0;
  const bool is_mamba = family.states.mixer == StateMixer::kMamba2;
  const bool size_fits = s.state_size >= 16 && s.state_size <= 1024 && s.state_size % 16 == 0;
  const bool fits = s.attention_every <= 512 && s.taps >= 2 && s.taps <= 4 &&
                    (!has_heads || heads_fit) && (!is_mamba || size_fits) && s.embd % 16 == 0;
  if (fits) return {};
  return Fail(Errc::kInvalidRequest,
              "a state of {} heads of {}, {} of them for keys, over {} positions does not fit {}",
              s.state_heads, s.state_dim, s.state_key_heads, s.taps, s.arch);
}

Status CheckGroups(const SynthShape& s, const Family& family) {
  if (s.groups <= 1) return {};
  const bool fits = family.router.has_groups && s.experts % s.groups == 0 &&
                    s.experts / s.groups >= 2 && s.groups_used >= 1 && s.groups_used <= s.groups &&
                    s.groups_used * (s.experts / s.groups) >= s.used;
  if (fits) return {};
  return Fail(Errc::kInvalidRequest, "{} experts in {} groups, {} of them used, do not fit {}",
              s.experts, s.groups, s.groups_used, s.arch);
}

Status CheckDenseLayers(const SynthShape& s, const Family& family) {
  if (s.dense_layers == 0) return {};
  if (!family.has_dense_layers || s.dense_layers >= s.layers) {
    return Fail(Errc::kInvalidRequest, "{} of {} layers without experts do not fit {}",
                s.dense_layers, s.layers, s.arch);
  }
  if (s.dense_ff >= 32 && s.dense_ff <= 1048576) return {};
  return Fail(Errc::kInvalidRequest, "dense width of {} is outside 32 to 1048576", s.dense_ff);
}

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
  const Family* family = FindSynthFamily(s.arch);
  if (family == nullptr) {
    return Fail(Errc::kInvalidRequest, "architecture '{}' is unknown; known are {}", s.arch,
                FamilyNames(Families()));
  }
  if (!family->written.has_free_heads && s.q_width() != s.embd) {
    return Fail(Errc::kInvalidRequest,
                "{} heads of {} make {}, but {} wants exactly the embedding width {}", s.heads,
                s.head_dim, s.q_width(), s.arch, s.embd);
  }
  if (!family->written.shares_kv_heads && s.kv_heads != s.heads) {
    return Fail(Errc::kInvalidRequest, "{} shares no kv heads: {} kv heads for {} heads", s.arch,
                s.kv_heads, s.heads);
  }
  TRY_STATUS(CheckRotation(s, *family));
  TRY_STATUS(CheckWindow(s, *family));
  TRY_STATUS(CheckStates(s, *family));
  TRY_STATUS(CheckGroups(s, *family));
  TRY_STATUS(CheckSharedExpert(s, *family));
  return CheckDenseLayers(s, *family);
}

}  // namespace moestro
