// SPDX-License-Identifier: MIT
// GLM-5: as DeepSeek-V3.2, and neighbouring pairs of an indexer are turned; from 5.2 on some layers
// use what a layer before them chose.
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
