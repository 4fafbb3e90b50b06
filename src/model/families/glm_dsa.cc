// SPDX-License-Identifier: MIT
// GLM-5: like DeepSeek-V3.2, but an indexer rotates neighbouring pairs; from 5.2 on some layers use
// the positions that a layer before them chose.
#include "model/families/families.h"

namespace moestro {

Family GlmDsa() {
  Family family = DeepSeek32();
  family.name = "glm-dsa";
  family.router.gating_key = Presence::kOptional;
  family.latent.has_multiplier = false;
  family.latent.indexers = Indexers::kByTypes;
  family.latent.indexer_pairs = RopePairs::kAdjacent;
  family.written.has_yarn = false;
  return family;
}

}  // namespace moestro
