// SPDX-License-Identifier: MIT
// Tiny Mixture-of-Experts GGUFs for tests: every weight random and seeded, written in milliseconds,
// accepted by llama.cpp. No tokenizer unless asked for: feed token numbers below `vocab`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "offline/synth/synth_shapes.h"

namespace moestro {

struct TinySpec {
  std::string arch = "olmoe";  // one of Families()
  std::string type = "Q8_0";   // as `moestro synth --type`
  uint32_t layers = 2;
  uint32_t experts = 8;
  uint32_t used = 2;
  uint32_t embd = 256;        // K-quants need multiples of 256
  uint32_t ff = 96;           // no multiple of 256: K-quants fall back in the down matrices
  uint32_t shared_ff = 160;   // where it has a width of its own (qwen2moe)
  uint32_t dense_layers = 1;  // where the family has some, and fewer than `layers`
  uint32_t dense_ff = 224;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;  // `heads` where a family shares none
  uint32_t head_dim = 64;
  uint32_t vocab = 512;
  uint32_t context = 512;
  uint32_t window = 24;          // where the family has windows
  uint32_t attention_every = 2;  // layers, where the others have a state
  // Where a layer is a mixer or experts alone, `layers` have experts, and as many are mixers.
  uint32_t latent = 128;  // what experts take and give, where the family has that; 0: `embd`
  // Where attention is latent attention.
  uint32_t query_latent = 128;  // queries are projected by way of so many values; 0: at once
  bool is_joined = false;       // as older files
  bool has_sigmoid = false;     // a router as DeepSeek-V3's, with groups
  uint32_t top_k = 24;          // positions that an indexer chooses
  uint32_t block = 8;           // positions that are chosen together, where heads choose
  uint32_t last_blocks = 1;     // of these, the last ones that are always chosen
  bool has_ngrams = true;       // a table of n-grams, where the family may have one
  uint32_t ngram_layer = 0;
  float yarn_log = 0.07F;       // rope.scaling.yarn_log_multiplier
  uint32_t groups = 4;          // of experts, two of them used, where the family's models have them
  float limit = 0.0F;           // of gates and up projections, where the family has some; 0: none
  uint32_t predicting = 0;      // layers that predict further tokens, where the family has such
  bool has_qk_norm = false;     // where files of the family may lack these norms
  uint32_t orig_context = 128;  // phimoe: longer sequences' contexts take the long rope factors
  uint32_t shards = 1;
  uint64_t seed = 1;
  double skew = 0;
  bool is_tied = false;
  float rms_eps = 1e-6F;
  std::string vocab_path{};  // GGUF with a tokenizer to copy; sets `vocab`
};

// Every family without an encoder: sequences of "switch" begin with a source.
std::vector<std::string> TinyArchs();
// Whether some layers of the family have a state.
bool HasStates(const std::string& arch);
// Whether an indexer chooses positions.
bool HasIndexers(const std::string& arch);

// The mixers of a family's layers, of which products with families have each: "windows", "latents".
std::string MixersOf(const std::string& arch);
// That and other properties that families share or not: routers, shared experts, activations.
std::vector<std::string> TraitsOf(const std::string& arch);

// An architecture as part of a test's name: letters, digits and underscores alone.
inline std::string CaseName(std::string arch) {
  for (char& c : arch) c = c == '-' ? '_' : c;
  return arch;
}

SynthShape TinyShape(const TinySpec& spec);

// Writes the model into `dir` under a name made of the spec, replacing an older one, and returns
// the path to open (the first shard). Stops the test program when that fails.
std::string WriteTinyModel(const std::filesystem::path& dir, const TinySpec& spec);

}  // namespace moestro
