// SPDX-License-Identifier: MIT
#include "tests/support/tiny_model.h"

#include <cstdio>
#include <cstdlib>

#include "base/format.h"
#include "offline/synth.h"

namespace moestro {

SynthShape TinyShape(const TinySpec& spec) {
  const bool is_olmoe = spec.arch == "olmoe";
  const bool is_phimoe = spec.arch == "phimoe";
  return {.name = "tiny-" + spec.arch,
          .arch = spec.arch,
          .layers = spec.layers,
          .experts = spec.experts,
          .used = spec.used,
          .embd = spec.embd,
          .ff = spec.ff,
          .shared_ff = spec.arch == "qwen2moe" ? spec.shared_ff : 0,
          .heads = spec.heads,
          .kv_heads = is_olmoe ? spec.heads : spec.kv_heads,
          .head_dim = spec.head_dim,
          .vocab = spec.vocab,
          .context = spec.context,
          .orig_context = is_phimoe ? spec.orig_context : 0,
          .rope_base = 10000,
          .rms_eps = 1e-6F};
}

std::string WriteTinyModel(const std::filesystem::path& dir, const TinySpec& spec) {
  SynthOptions options;
  options.shape = TinyShape(spec);
  options.type = spec.type;
  options.path =
      (dir / Format("tiny-{}-{}-{}x{}x{}-ff{}-seed{}{}.gguf", spec.arch, spec.type, spec.layers,
                    spec.experts, spec.used, spec.ff, spec.seed, spec.is_tied ? "-tied" : ""))
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
