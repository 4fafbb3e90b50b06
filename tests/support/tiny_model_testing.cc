// SPDX-License-Identifier: MIT
#include "tests/support/tiny_model_testing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "model/families/families.h"
#include "offline/synth/synth.h"

namespace moestro {

std::vector<std::string> TinyArchs() {
  std::vector<std::string> archs;
  for (const Family& family : Families()) {
    if (!family.has_encoder) archs.emplace_back(family.name);
  }
  return archs;
}

bool HasStates(const std::string& arch) {
  const Family& family = *FindFamily(Families(), arch);
  return family.states.mixer != StateMixer::kNone || family.has_pooled_attention;
}

bool HasIndexers(const std::string& arch) {
  const Family& family = *FindFamily(Families(), arch);
  return family.latent.indexers != Indexers::kNone || family.blocks != BlockIndexers::kNone ||
         family.has_pooled_attention;
}

std::string MixersOf(const std::string& arch) {
  const Family& family = *FindFamily(Families(), arch);
  std::string mixers = family.latent.is_used ? "latents" : "heads";
  if (family.latent.indexers != Indexers::kNone) mixers += ", chosen";
  if (family.blocks == BlockIndexers::kOfMeans) mixers += ", blocks";
  if (family.blocks == BlockIndexers::kOfHeads) mixers += ", blocks of heads";
  if (family.has_pooled_attention) mixers = "pools, chosen, windows, states";
  if (family.has_ngrams) mixers += ", n-grams";
  if (family.windows.period > 0) mixers += ", windows";
  if (family.states.mixer != StateMixer::kNone) {
    mixers += Format(", states {}", static_cast<int>(family.states.mixer));
  }
  return mixers;
}

std::vector<std::string> TraitsOf(const std::string& arch) {
  const Family& family = *FindFamily(Families(), arch);
  const auto numbered = [](const char* name, auto value) {
    return Format("{} {}", name, static_cast<int>(value));
  };
  std::vector<std::string> traits = {MixersOf(arch), numbered("router", family.router.gating),
                                     numbered("activation", family.experts.activation),
                                     numbered("shared", family.shared_expert),
                                     numbered("norms", family.attention.qk_norm)};
  const std::pair<bool, const char*> others[] = {
      {family.router.has_groups, "groups"},
      {family.has_dense_layers, "dense layers"},
      {family.has_dense_beside, "dense beside experts"},
      {family.has_lone_parts, "lone parts"},
      {family.has_latent_experts, "latent experts"},
      {family.has_post_norms, "post norms"},
      {family.has_scales, "scales"},
      {family.streams.has_value(), "streams"},
      {family.has_token_experts, "experts of tokens"},
      {family.may_share_values, "shared values"},
      {!family.rotates, "no rotation"},
      {family.layer_tensors.attn_sinks != Presence::kNone, "sinks"},
      {family.layer_tensors.gate_b != Presence::kNone, "biases"},
  };
  for (const auto& [has, name] : others) {
    if (has) traits.emplace_back(name);
  }
  return traits;
}

namespace {

void SetLatent(const TinySpec& spec, const Family& family, SynthShape& shape) {
  const bool has_indexers = family.latent.indexers != Indexers::kNone;
  shape.kv_latent = 64;
  // libllama takes Kimi Linear without one alone.
  shape.query_latent = family.written.has_whole_queries ? 0 : spec.query_latent;
  shape.value_dim = 64;
  shape.is_joined = spec.is_joined;
  shape.indexer_heads = has_indexers ? 16 : 0;  // few would give many positions a score of 0
  shape.indexer_dim = has_indexers ? 64 : 0;
  shape.top_k = has_indexers ? spec.top_k : 0;
  const bool may_share = has_indexers && family.latent.indexers != Indexers::kInEvery;
  shape.indexer_every = may_share ? 2 : 0;
  shape.pool = family.latent.indexers == Indexers::kPools ? 4 : 0;
  if (!family.latent.has_turned) shape.rotated = 0;
  shape.yarn_log = spec.yarn_log;
  shape.has_sigmoid = spec.has_sigmoid;
  shape.weights_scale = spec.has_sigmoid ? 2.5F : 0.0F;
}

// Blocks that an indexer chooses.
void SetBlocks(const TinySpec& spec, const Family& family, SynthShape& shape) {
  const bool has_means = family.blocks == BlockIndexers::kOfMeans;
  shape.indexer_heads = has_means ? 8 : 0;  // few would give many blocks a score of 0
  shape.indexer_dim = 32;
  shape.top_k = spec.top_k;
  shape.pool = has_means ? 4 : spec.block;
  shape.last_pools = has_means ? 0 : spec.last_blocks;
}

void SetPooled(const TinySpec& spec, SynthShape& shape) {
  shape.kv_heads = 1;
  shape.head_dim = spec.head_dim + 64;  // libllama refuses the indexer's
  shape.rotated = spec.head_dim / 2;
  shape.window = spec.window;
  shape.query_latent = spec.query_latent;
  shape.head_groups = 2;
  shape.group_out = 32;
  shape.pools_from = spec.layers > 2 ? 1 : 0;
  shape.indexer_heads = 16;  // few would give many pools a score of 0
  shape.indexer_dim = 64;
  shape.top_k = std::max(spec.top_k / 4, 1U);  // of pools of four positions
  shape.token_layers = 1;
}

// Ranks of residual streams, and n-grams.
void SetStreams(const TinySpec& spec, const Family& family, SynthShape& shape) {
  shape.stream_rank = family.streams == StreamMixing::kLowRank ? 32 : 0;
  if (!family.has_ngrams || !spec.has_ngrams) return;
  shape.ngram_most = 3;
  shape.ngram_heads = 2;
  shape.ngram_values = spec.embd / 4;
  shape.ngram_rows = 1000;
  shape.ngram_layer = spec.ngram_layer;
  shape.ngram_taps = 4;
}

// As many blocks of the decoder as layers of the encoder.
void SetEncoder(const TinySpec& spec, SynthShape& shape) {
  shape.encoder_layers = spec.layers;
  shape.layers = 3 * spec.layers;
  shape.sparse_every = std::min(spec.layers, 2U);
  shape.used = 1;
  shape.dense_layers = 0;
  shape.dense_ff = spec.dense_ff;
}

void SetStates(const TinySpec& spec, const Family& family, SynthShape& shape) {
  const bool is_mamba = family.states.mixer == StateMixer::kMamba2;
  shape.attention_every = family.has_lone_parts ? 0 : spec.attention_every;
  // libllama takes Mamba-2 of Granite with twice the embedding's width alone.
  shape.state_heads = is_mamba ? spec.embd / 32 : 4;
  shape.state_key_heads = family.latent.is_used ? 4 : 2;
  shape.state_size = is_mamba ? 32 : 0;
  shape.state_dim = is_mamba ? 64 : 32;
  shape.taps = 4;
}

}  // namespace

SynthShape TinyShape(const TinySpec& spec) {
  const Family* family = FindFamily(Families(), spec.arch);
  CHECK(family != nullptr);
  const bool is_dense =
      family->has_dense_layers && !family->has_dense_beside && spec.dense_layers < spec.layers;
  const bool has_own_heads = family->windows.has_own_heads;
  const bool is_scaled = family->attention.long_short_factors || family->written.has_yarn;
  uint32_t shared_ff = 0;
  const bool has_groups =
      (family->written.has_groups || (family->latent.is_used && spec.has_sigmoid)) &&
      spec.groups > 1 && spec.experts % spec.groups == 0 &&
      spec.used <= 2 * (spec.experts / spec.groups) && spec.experts >= 2 * spec.groups;
  if (family->shared_expert != SharedExpertKind::kNone) shared_ff = spec.shared_ff;
  if (family->shared_expert == SharedExpertKind::kCounted) shared_ff = 2 * spec.ff;
  const bool is_latent = family->latent.is_used;
  SynthShape shape = {.name = "tiny-" + spec.arch,
                      .arch = spec.arch,
                      .layers = family->has_lone_parts ? 2 * spec.layers : spec.layers,
                      .experts = spec.experts,
                      .used = spec.used,
                      .embd = spec.embd,
                      .ff = spec.ff,
                      .shared_ff = shared_ff,
                      .dense_layers = is_dense ? spec.dense_layers : 0,
                      .dense_ff = is_dense || family->has_dense_beside ? spec.dense_ff : 0,
                      .heads = spec.heads,
                      .kv_heads = is_latent                         ? 1
                                  : family->written.shares_kv_heads ? spec.kv_heads
                                                                    : spec.heads,
                      .head_dim = spec.head_dim,
                      .rotated = family->written.rotates_half || is_latent ? spec.head_dim / 2
                                 : family->written.rotates_quarter         ? spec.head_dim / 4
                                                                           : 0,
                      .window = family->windows.period > 0 ? spec.window : 0,
                      .window_every = has_own_heads ? std::min(spec.layers, 2U) : 0U,
                      .window_kv_heads = has_own_heads ? spec.heads : 0,
                      .window_head_dim = has_own_heads ? spec.head_dim / 2 : 0,
                      .groups = has_groups ? spec.groups : 0,
                      .groups_used = has_groups ? 2U : 0U,
                      .pattern = !family->has_lone_parts ? ""
                                 : spec.layers > 1       ? "ME*E"
                                                         : "*E",
                      .latent = family->has_latent_experts ? spec.latent : 0,
                      .predicting = family->can_predict ? spec.predicting : 0,
                      .has_qk_norm = spec.has_qk_norm,
                      .vocab = spec.vocab,
                      .context = spec.context,
                      .orig_context = is_scaled ? spec.orig_context : 0,
                      .yarn_factor = family->written.has_yarn ? 4.0F : 0.0F,
                      .rope_base = 10000,
                      .rms_eps = spec.rms_eps};
  // Another one of the shared expert and the dense block.
  if (family->limits != Limits::kNone) {
    shape.limit_expert = spec.limit;
    shape.limit_shared = 0.75F * spec.limit;
  }
  if (family->streams) shape.streams = 4;
  if (family->states.mixer != StateMixer::kNone) SetStates(spec, *family, shape);
  if (is_latent) SetLatent(spec, *family, shape);
  if (family->has_pooled_attention) SetPooled(spec, shape);
  if (family->has_encoder) SetEncoder(spec, shape);
  if (family->blocks != BlockIndexers::kNone) SetBlocks(spec, *family, shape);
  if (family->streams) SetStreams(spec, *family, shape);
  return shape;
}

namespace {

// What tells models with latent attention apart.
std::string LatentName(const TinySpec& spec) {
  return Format("{}{}{}{}-top{}-{}x{}", spec.query_latent > 0 ? "" : "-lite",
                spec.is_joined ? "-joined" : "", spec.has_sigmoid ? "-sigmoid" : "",
                spec.yarn_log > 0 ? "" : "-plain", spec.top_k, spec.last_blocks, spec.block) +
         (spec.limit > 0 ? "-limits" : "") + (spec.predicting > 0 ? "-predicting" : "") +
         (spec.has_ngrams ? "" : "-nongrams") +
         (spec.ngram_layer > 0 ? Format("-ngrams{}", spec.ngram_layer) : "");
}

}  // namespace

std::string WriteTinyModel(const std::filesystem::path& dir, const TinySpec& spec) {
  SynthOptions options;
  options.shape = TinyShape(spec);
  options.type = spec.type;
  options.path =
      (dir / (Format("tiny-{}-{}-{}x{}x{}-ff{}-seed{}{}{}{}", spec.arch, spec.type, spec.layers,
                     spec.experts, spec.used, spec.ff, spec.seed, spec.has_qk_norm ? "-qknorm" : "",
                     spec.is_tied ? "-tied" : "", spec.latent > 0 ? "" : "-wide") +
              LatentName(spec) + ".gguf"))
          .string();
  options.vocab_path = spec.vocab_path;
  options.seed = spec.seed;
  options.skew = spec.skew;
  options.shards = spec.shards;
  options.is_tied = spec.is_tied;
  options.overwrite = true;
  const Result<SynthReport> written = WriteSynthetic(options);
  if (!written) {
    std::fprintf(stderr, "tiny model: %s\n", written.error().message.c_str());
    std::abort();
  }
  return written->paths.front();
}

}  // namespace moestro
