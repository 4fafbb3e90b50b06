// SPDX-License-Identifier: MIT
#include "hosted/hosted_origin.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/block_hash.h"
#include "memory/kv_choices.h"
#include "model/weights_id.h"
#include "store/extent_reader.h"

namespace moestro {

// Hashes dense tensors whole, as they lie in memory, and some blocks at equal distances of every
// matrix of experts.
Result<uint64_t> HostedOrigin::Weights(uint64_t fingerprint) {
  if (weights_) return *weights_;
  uint64_t sum = 0;
  for (const MappedTensor& tensor : model_.graph().dense) {
    sum += DenseSum(tensor.info->name, 0, {tensor.data, tensor.info->extent.length});
  }
  size_t matrices = 0;
  for (const ExpertGroup& group : model_.graph().groups) matrices += group.matrices.size();
  const size_t each = std::max<size_t>(1, kMostSamples / std::max<size_t>(matrices, 1));
  TRY(const ExtentReader reader, ExtentReader::Open(file_.paths()));
  uint64_t seed = 1;
  for (const ExpertGroup& group : model_.graph().groups) {
    for (const MappedTensor& matrix : group.matrices) {
      const Extent& whole = matrix.info->extent;
      const uint64_t blocks = std::max<uint64_t>(whole.length / kSampleBytes, 1);
      const uint64_t n = std::min<uint64_t>(each, blocks);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t at = i * blocks / n * kSampleBytes;
        TRY(const ExtentBytes block,
            reader.Read({.file = whole.file,
                         .offset = whole.offset + at,
                         .length = std::min(kSampleBytes, whole.length - at)}));
        sum += HashBlock(block.bytes, ++seed);
      }
    }
  }
  weights_ = WeightsId(fingerprint, sum);
  return *weights_;
}

Result<HostedHome> HostedOrigin::Home(const EngineFacts& facts, KvType kv_type) {
  TRY(const uint64_t weights, Weights(facts.id.fingerprint));
  KvChoices choices;
  choices.Add("engine", "hosted");
  if (kv_type != KvType::kF16) choices.Add("--kv-type", std::string(NameOf(kv_type)));
  choices.Add("rows", Format("of many at once, {} of a prompt", facts.chunk));
  choices.Add(kKernelsChoice, facts.kernels);
  return HostedHome{
      .origin = {.model = facts.id.fingerprint, .weights = weights, .choices = choices.text()},
      .n_ctx = facts.n_ctx,
      .n_vocab = facts.n_vocab};
}

}  // namespace moestro
