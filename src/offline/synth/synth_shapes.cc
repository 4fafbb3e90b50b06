// SPDX-License-Identifier: MIT
#include "offline/synth/synth_shapes.h"

#include <algorithm>
#include <array>

#include "model/families/families.h"
#include "offline/synth/synth_plan.h"

namespace moestro {
namespace {

struct Range {
  std::string_view what;
  uint32_t value;
  uint32_t low;
  uint32_t high;
};

Status CheckSharedExpert(const SynthShape& s, const Family& family) {
  const bool wants_one = family.shared_expert != SharedExpertKind::kNone;
  const bool may_lack_one = family.shared_expert == SharedExpertKind::kOptional && s.shared_ff == 0;
  if ((wants_one != (s.shared_ff > 0) && !may_lack_one) || s.shared_ff > 1048576) {
    return Fail(Errc::kInvalidRequest, "shared expert width {} does not fit {}, which {}",
                s.shared_ff, s.arch, wants_one ? "needs one of 1 to 1048576" : "has none");
  }
  if (family.shared_expert == SharedExpertKind::kCounted && s.shared_ff % s.ff != 0) {
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
  const bool has_windows = family.windows.period > 0 || family.has_pooled_attention;
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

Status CheckLimits(const SynthShape& s, const Family& family) {
  const bool is_limited = s.limit_expert > 0 || s.limit_shared > 0 || s.limited_from > 0;
  const bool fits = family.limits != Limits::kNone && s.limit_expert > 0 && s.limit_shared > 0 &&
                    s.limited_from < s.layers;
  if (!is_limited || fits) return {};
  return Fail(Errc::kInvalidRequest, "limits of {} and {} from layer {} on do not fit {}",
              s.limit_expert, s.limit_shared, s.limited_from, s.arch);
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

Status CheckOwnHeads(const SynthShape& s, const Family& family) {
  if (!family.windows.has_own_heads) return {};
  const bool fits = s.window_every >= 1 && s.window_every <= s.layers && s.window_kv_heads >= 1 &&
                    s.heads % s.window_kv_heads == 0 && s.window_head_dim >= 2 &&
                    s.window_head_dim <= 1024 && s.window_head_dim % 2 == 0;
  if (fits) return {};
  return Fail(Errc::kInvalidRequest,
              "windows in all but each {}-th of {} layers with {} kv heads of {} do not fit {}",
              s.window_every, s.layers, s.window_kv_heads, s.window_head_dim, s.arch);
}

bool IndexerFits(const SynthShape& s, const Family& family) {
  if (family.latent.indexers == Indexers::kNone) return s.indexer_heads == 0;
  const bool has_pools = family.latent.indexers == Indexers::kPools;
  if (has_pools ? s.pool < 2 || s.pool > 64 || s.top_k % s.pool != 0 : s.pool != 0) return false;
  return s.indexer_heads >= 1 && s.indexer_heads <= 4096 && s.indexer_dim >= s.rotated &&
         s.indexer_dim <= 4096 && s.top_k >= 1 && s.query_latent >= 1 && !s.is_joined &&
         (s.indexer_every == 0 || family.latent.indexers != Indexers::kInEvery);
}

Status CheckLatentAttention(const SynthShape& s, const Family& family) {
  if (!family.latent.is_used && s.kv_latent == 0) return {};
  const bool is_turned = s.rotated >= 2 && s.rotated < s.head_dim;
  const bool fits = family.latent.is_used && s.kv_latent >= 2 && s.kv_latent <= 16384 &&
                    s.query_latent <= 16384 &&
                    (family.latent.has_turned ? is_turned : s.rotated == 0) && s.value_dim >= 1 &&
                    s.value_dim <= 4096 && s.kv_heads == 1 && IndexerFits(s, family);
  if (fits) return {};
  return Fail(
      Errc::kInvalidRequest,
      "latents of {} for keys and {} for queries, {} of {} values of a head rotated, values "
      "of {} and {} kv heads do not fit {}",
      s.kv_latent, s.query_latent, s.rotated, s.head_dim, s.value_dim, s.kv_heads, s.arch);
}

Status CheckPools(const SynthShape& s, const Family& family) {
  if (!family.has_pooled_attention && s.head_groups == 0 && s.token_layers == 0) return {};
  const bool fits = family.has_pooled_attention && s.head_groups >= 1 &&
                    s.heads % s.head_groups == 0 && s.group_out >= 1 && s.group_out <= 16384 &&
                    s.query_latent >= 1 && s.query_latent <= 16384 && s.kv_heads == 1 &&
                    s.indexer_heads >= 1 && s.indexer_dim >= s.rope_dim() && s.top_k >= 1 &&
                    s.token_layers <= s.layers;
  // libllama divides by the difference of the two.
  if (fits && s.indexer_dim != s.head_dim && s.indexer_dim % 64 == 0) return {};
  return Fail(Errc::kInvalidRequest,
              "{} groups of {} heads of {} projected to {} values, by way of {}, an indexer of {} "
              "heads of {} and {} layers with experts by token do not fit {}",
              s.head_groups, s.heads, s.head_dim, s.group_out, s.query_latent, s.indexer_heads,
              s.indexer_dim, s.token_layers, s.arch);
}

Status CheckStreams(const SynthShape& s, const Family& family) {
  const bool has_rank = family.streams == StreamMixing::kLowRank;
  // libllama takes four alone where Sinkhorn's iterations mix them.
  const bool streams_fit = !family.streams ? s.streams == 0
                           : has_rank      ? s.streams >= 2 && s.streams <= 64
                                           : s.streams == 4;
  const bool blocks_fit = family.blocks != BlockIndexers::kOfMeans ||
                          (s.indexer_heads >= 1 && s.indexer_dim >= s.rope_dim() && s.top_k >= 1 &&
                           s.pool != 1 && (s.pool == 0 || s.top_k % s.pool == 0));
  const bool ngrams_fit =
      s.ngram_most == 0 ||
      (family.has_ngrams && s.ngram_most >= 2 && s.ngram_most <= 8 && s.ngram_heads >= 1 &&
       uint64_t{s.ngram_names()} * s.ngram_values == s.embd && s.ngram_taps >= 2 &&
       s.ngram_rows > s.ngram_names() && s.ngram_layer < s.layers && s.has_state(s.ngram_layer) &&
       s.ngram_names() * s.ngram_rows <= 0x7FFFFFFF);
  if (streams_fit && has_rank == (s.stream_rank > 0) && blocks_fit && ngrams_fit) return {};
  return Fail(
      Errc::kInvalidRequest,
      "{} residual streams of rank {}, blocks of {} positions and n-grams of {} tokens with "
      "{} rows of {} values each do not fit {}",
      s.streams, s.stream_rank, s.pool, s.ngram_most, s.ngram_heads, s.ngram_values, s.arch);
}

Status CheckBlocksOfHeads(const SynthShape& s, const Family& family) {
  if (family.blocks != BlockIndexers::kOfHeads) return {};
  const bool fits = s.indexer_dim >= s.rope_dim() && s.indexer_dim <= 4096 && s.pool >= 1 &&
                    s.top_k >= s.pool && s.top_k % s.pool == 0 && s.last_pools >= 1 &&
                    s.last_pools <= s.top_k / s.pool;
  if (fits) return {};
  return Fail(Errc::kInvalidRequest,
              "{} positions in blocks of {}, the last {} always, by keys of {} do not fit {}",
              s.top_k, s.pool, s.last_pools, s.indexer_dim, s.arch);
}

Status CheckEncoder(const SynthShape& s, const Family& family) {
  if (!family.has_encoder && s.encoder_layers == 0) return {};
  const uint32_t decoder = s.layers - std::min(s.encoder_layers, s.layers);
  const bool fits = family.has_encoder && s.encoder_layers >= 1 && decoder >= 2 &&
                    decoder % 2 == 0 && s.sparse_every >= 1 && s.sparse_every <= s.encoder_layers &&
                    s.used == 1 && s.dense_ff >= 32 && s.dense_ff <= 1048576;
  if (fits) return {};
  return Fail(Errc::kInvalidRequest,
              "an encoder of {} of {} layers, experts in each {}-th block, {} used, and a dense "
              "width of {} do not fit {}",
              s.encoder_layers, s.layers, s.sparse_every, s.used, s.dense_ff, s.arch);
}

Status CheckDenseLayers(const SynthShape& s, const Family& family) {
  if (family.has_dense_beside) {
    if (s.dense_layers == 0 && s.dense_ff >= 32 && s.dense_ff <= 1048576) return {};
    return Fail(Errc::kInvalidRequest,
                "{} layers without experts and a dense width of {} do not fit {}, which has a "
                "dense block beside all experts",
                s.dense_layers, s.dense_ff, s.arch);
  }
  if (s.dense_layers == 0) return {};
  if (!family.has_dense_layers || s.dense_layers >= s.layers) {
    return Fail(Errc::kInvalidRequest, "{} of {} layers without experts do not fit {}",
                s.dense_layers, s.layers, s.arch);
  }
  if (s.dense_ff >= 32 && s.dense_ff <= 1048576) return {};
  return Fail(Errc::kInvalidRequest, "dense width of {} is outside 32 to 1048576", s.dense_ff);
}

}  // namespace

Result<SynthShape> FindShape(std::string_view name) {
  std::string known;
  for (const SynthShape& shape : KnownShapes()) {
    if (shape.name == name) return shape;
    known += known.empty() ? shape.name : ", " + shape.name;
  }
  return Fail(Errc::kUsage, "unknown shape '{}'; known are {}", name, known);
}

SynthShape WithLayers(SynthShape shape, uint32_t layers) {
  shape.layers = layers;
  if (shape.limited_from >= layers) {
    shape.limit_expert = shape.limit_shared = 0;
    shape.limited_from = 0;
  }
  return shape;
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
  TRY_STATUS(CheckOwnHeads(s, *family));
  TRY_STATUS(CheckLatentAttention(s, *family));
  TRY_STATUS(CheckPools(s, *family));
  TRY_STATUS(CheckStreams(s, *family));
  TRY_STATUS(CheckBlocksOfHeads(s, *family));
  TRY_STATUS(CheckStates(s, *family));
  TRY_STATUS(CheckEncoder(s, *family));
  TRY_STATUS(CheckGroups(s, *family));
  TRY_STATUS(CheckLimits(s, *family));
  TRY_STATUS(CheckSharedExpert(s, *family));
  if (s.predicting > (family->can_predict ? 1U : 0U)) {
    return Fail(Errc::kInvalidRequest, "{} layers that predict further tokens do not fit {}",
                s.predicting, s.arch);
  }
  return CheckDenseLayers(s, *family);
}

}  // namespace moestro
